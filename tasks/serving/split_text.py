"""Ask a served model to split a text into standalone statements (paper 004, 3.2).

This is AdaViP's step, with our prompt; ``tasks.texts.split_sentences`` checks the answer.
"""

from typing import Any

from pairwright.prompts import load_prompt
from pairwright.schemas.control_tokens import refuse_control
from pairwright.tasks.serving.chat import (
    Answer,
    Chat,
    Grammar,
    Question,
    RefusedQuestionError,
    seed_of,
)
from pairwright.tasks.serving.untrusted import as_data
from pairwright.tasks.texts.split_sentences import MIN_FROM_TEXT, read_sentences

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


def read_split(
    answer: Answer | None,
    text: str,
    *,
    least_known: float = MIN_FROM_TEXT,
) -> tuple[str, ...]:
    """Return the sentences of an answer; none where it was refused, cut off or is not ``text``."""
    if answer is None or answer.refused:
        return ()
    sentences = read_sentences(answer.text, text, least_known=least_known)
    if any(refuse_control(sentence) for sentence in sentences):
        return ()
    return sentences
