"""Ask a served model to split a text into standalone statements (paper 004, 3.2).

This is AdaViP's step, with our prompt; ``tasks.texts.split_sentences`` reads the answer.
"""

from typing import Any

from pairwright.prompts import load_prompt
from pairwright.tasks.serving.chat import (
    Answer,
    Chat,
    Grammar,
    Question,
    RefusedQuestionError,
    seed_of,
)
from pairwright.tasks.serving.untrusted import as_data

SPLIT = "split_sentences"
TEMPERATURE = 0.2  # RLAIF-V's, for the same purpose
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"sentences": {"type": "array", "items": {"type": "string"}}},
    "required": ["sentences"],
    "additionalProperties": False,
}
"""An object, since some servers support no list at the top."""


async def ask_split(
    chat: Chat,
    text: str,
    *,
    key: str,
    seed: int,
    max_tokens: int,
) -> Answer | None:
    """Return the answer for a text; ``None``: the server refuses it, mostly as too long."""
    prompt = load_prompt(SPLIT)
    question = Question(
        prompt=SPLIT,
        text=prompt.render(description=as_data(text)),
        seed=seed_of(key, prompt, seed=seed),
        max_tokens=max_tokens,
        temperature=TEMPERATURE,
        grammar=Grammar(schema=SCHEMA),
    )
    try:
        return await chat.ask(question)
    except RefusedQuestionError:
        return None
