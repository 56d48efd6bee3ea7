"""Ask a served vision model for a detailed description of each image, and for its sentences.

Reads ``ImageRow`` with its bytes, writes ``CaptionRow``. A caption that the source gave is kept, and only split. Needs
a served model. ``served`` of a row lists every try of the description, the one that was taken last, and the splitter's
request (``split_sentences``) only if the sentences are its own: without it they were split by their ends.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from pairwright.prompts import load
from pairwright.schemas.config import CaptionsConfig
from pairwright.schemas.rows import CaptionRow, Dropped, Failed, ImageRow, Row, Served
from pairwright.schemas.sentences import split_by_rules
from pairwright.tasks.captioning.given_captions import caption_row, given_caption
from pairwright.tasks.captioning.split_sentences import SCHEMA, read_sentences
from pairwright.tasks.captioning.validate_captions import refuse_caption
from pairwright.tasks.captioning.validators import refuse_text
from pairwright.tasks.serving.ask_rows import ask_rows
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question, RefusedQuestionError, seed_of
from pairwright.tasks.serving.untrusted import as_data
from pairwright.tasks.store.answers import Answers

DESCRIBE, SPLIT = "describe_image", "split_sentences"
SPLIT_TEMPERATURE = 0.2
"""RLAIF-V's, for the same purpose."""


def ask_captions(
    rows: Sequence[ImageRow], config: CaptionsConfig, *, answers: Answers | None
) -> Iterator[Row | Dropped | Failed]:
    """Yield one caption per image, or ``Dropped`` with the reason of the last of ``max_attempts`` refusals."""
    yield from ask_rows(rows, partial(_describe, config=config), config.served, answers=answers)


async def _describe(row: ImageRow, chat: Chat, *, config: CaptionsConfig) -> CaptionRow | Dropped:
    text, model, served = given_caption(row), "given", ()
    if not text:
        told = await _tell(row, chat, config)
        if isinstance(told, Dropped):
            return told
        text, model, served = " ".join(told[-1].text.split()), told[-1].served.model, tuple(a.served for a in told)
    sentences, used = await _split(row, text, chat=chat, config=config)
    return caption_row(row, text, sentences, model=model, served=(*served, *used))


async def _tell(row: ImageRow, chat: Chat, config: CaptionsConfig) -> list[Answer] | Dropped:
    """Ask until a description will do; return all answers, that one last."""
    tries: list[Answer] = []
    while True:
        answer = await chat.ask(_question(row, config, attempt=len(tries) + 1))
        tries.append(answer)
        refused = refuse_caption(answer.text, finish_reason=answer.finish_reason)
        why = refused.reason if refused else refuse_text(answer.text, config)
        if not why:
            return tries
        if len(tries) == config.max_attempts:
            return Dropped(source_key=row.key, reason=why, detail=refused.detail if refused else answer.text)


def _question(row: ImageRow, config: CaptionsConfig, *, attempt: int) -> Question:
    prompt = load(DESCRIBE)
    seed = seed_of(row.key, prompt, seed=config.seed, attempt=attempt)
    return Question(prompt=DESCRIBE, text=prompt.render(), images=(row.image,), seed=seed, max_tokens=config.max_tokens)


async def _split(
    row: ImageRow, text: str, *, chat: Chat, config: CaptionsConfig
) -> tuple[tuple[str, ...], tuple[Served, ...]]:
    """Return the sentences, and the request that they come from, if they do."""
    if config.split == "served":
        prompt = load(SPLIT)
        question = Question(
            prompt=SPLIT,
            text=prompt.render(description=as_data(text)),
            seed=seed_of(row.key, prompt, seed=config.seed),
            max_tokens=2 * config.max_tokens,
            temperature=SPLIT_TEMPERATURE,
            grammar=Grammar(schema=SCHEMA),
        )
        try:
            answer = await chat.ask(question)
        except RefusedQuestionError:  # most of all: too long
            return split_by_rules(text), ()
        if answer.finish_reason != "length" and (sentences := read_sentences(answer.text, text)):
            return sentences, (answer.served,)
    return split_by_rules(text), ()
