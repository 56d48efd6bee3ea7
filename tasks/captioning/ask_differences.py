"""Ask a served vision model for the difference of each pair, by the instructions of paper 001 (3.1.2 and D.2).

Reads ``PairRow``, both images with their bytes and their captions, writes ``DifferenceRow``. Needs a served model. What
the paper leaves open is ours: verbs, and one of several human differences, are drawn anew for each try; answers are
held to the template's grammar where a server can; a refused answer is asked again with another seed; a description that
ends in an abbreviation was ended by the grammar. ``served`` of a row lists the tries of its description, the one that
was taken last.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pairwright.prompts import difference_verbs, load
from pairwright.prompts.differences import Instruction, difference_regex, draw_verbs, instruct
from pairwright.schemas.config import DifferencesConfig
from pairwright.schemas.differences import Difference, RefusedDifference, read_difference, refuse_length
from pairwright.schemas.no_change import says_no_change
from pairwright.schemas.rows import CaptionRow, DifferenceRow, Dropped, Failed, ImageRow, PairRow, Row, Served, make_key
from pairwright.schemas.sentences import ends_short
from pairwright.tasks.captioning.statements import row_random
from pairwright.tasks.captioning.validators import refuse_text
from pairwright.tasks.serving.ask_rows import ask_rows
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question, seed_of
from pairwright.tasks.serving.untrusted import as_data
from pairwright.tasks.store.answers import Answers


@dataclass(frozen=True, slots=True)
class Shown:
    """Hold what a model is shown and told of a pair."""

    pair: PairRow
    images: tuple[bytes, bytes]
    captions: tuple[str, str] | None
    """As data; ``None``: at least one is missing."""


def ask_differences(
    rows: Sequence[PairRow],
    config: DifferencesConfig,
    *,
    images: Mapping[str, ImageRow],
    captions: Mapping[str, CaptionRow],
    answers: Answers | None,
) -> Iterator[Row | Dropped | Failed]:
    """Yield the different descriptions of each pair, or ``Dropped`` with the reason of the last refusal."""
    work = partial(_describe, config=config, images=images, captions=captions)
    yield from ask_rows(rows, work, config.served, answers=answers)


async def _describe(
    row: PairRow,
    chat: Chat,
    *,
    config: DifferencesConfig,
    images: Mapping[str, ImageRow],
    captions: Mapping[str, CaptionRow],
) -> Sequence[DifferenceRow] | Dropped:
    """Write ``candidates`` descriptions; equal ones are one, and where none will do the last refusal stands."""
    missing = next((key for key in (row.first, row.second) if key not in images), None)
    if missing:
        return Dropped(source_key=row.key, reason="image is missing", detail=missing)
    shown = Shown(row, (images[row.first].image, images[row.second].image), told_captions(row, captions))
    written = [await _write(shown, chat, config, before=n * config.max_attempts) for n in range(config.candidates)]
    kept: dict[str, DifferenceRow] = {}
    for one in written:
        if isinstance(one, DifferenceRow):
            kept.setdefault(one.text, one)
    last = written[-1]
    if isinstance(last, RefusedDifference) and not kept:
        return Dropped(source_key=row.key, reason=last.reason, detail=last.detail)
    return tuple(kept.values())


async def _write(
    shown: Shown, chat: Chat, config: DifferencesConfig, *, before: int
) -> DifferenceRow | RefusedDifference:
    """Ask until a description will do; ``before`` says how many tries other candidates may have."""
    tries: list[Served] = []
    while True:
        attempt = before + len(tries) + 1
        instruction = instruct_pair(shown, seed=config.seed, attempt=attempt)
        answer = await chat.ask(_question(shown, config, instruction=instruction, attempt=attempt))
        tries.append(answer.served)
        read = read_answer(answer, config.max_words)
        if isinstance(read, Difference) and (why := refuse_text(read.text, config)):
            read = RefusedDifference(why, read.text)
        if isinstance(read, Difference):
            return _row(shown.pair, read, known=instruction.known, tries=tuple(tries))
        if len(tries) == config.max_attempts:
            return read


def instruct_pair(shown: Shown, *, seed: int, attempt: int) -> Instruction:
    """Return the instruction of one try: verbs, and one human difference of several, are drawn for it."""
    pair = shown.pair
    rng = row_random("difference asked", seed, pair.key, attempt)
    verbs = draw_verbs(rng)
    human = [data for text in pair.human_differences if (data := _told(text))]
    return instruct(
        verbs, captions=shown.captions, human=rng.choice(human) if human else "", edit=_told(pair.instruction)
    )


def told_captions(row: PairRow, captions: Mapping[str, CaptionRow]) -> tuple[str, str] | None:
    """Return both captions as data, or nothing where one is missing."""
    first, second = (_told(captions[key].text) if key in captions else "" for key in (row.first, row.second))
    return (first, second) if first and second else None


def _told(text: str) -> str:
    """Return a text as data, without the full stop that the instruction puts behind it."""
    return as_data(text).rstrip(" .")


def _question(shown: Shown, config: DifferencesConfig, *, instruction: Instruction, attempt: int) -> Question:
    return Question(
        prompt=instruction.prompt,
        text=instruction.text,
        images=shown.images,
        seed=seed_of(shown.pair.key, load(instruction.prompt), seed=config.seed, attempt=attempt),
        max_tokens=config.max_tokens,
        grammar=Grammar(regex=difference_regex()),
    )


def read_answer(answer: Answer, most_words: int) -> Difference | RefusedDifference:
    """Return the description that a model gave, or why it will not do."""
    read = read_difference(answer.text, difference_verbs(), finish_reason=answer.finish_reason)
    if isinstance(read, RefusedDifference):
        return read
    if ends_short(read.text):
        return RefusedDifference("cut off", read.text[-40:])
    return refuse_length(read, most_words) or read


def _row(pair: PairRow, read: Difference, *, known: str, tries: tuple[Served, ...]) -> DifferenceRow:
    return DifferenceRow(
        key=make_key("difference", pair.key, read.text),
        source_key=pair.key,
        subject=pair.key,
        text=read.text,
        first_half=read.first_half,
        second_half=read.second_half,
        verbs=read.verbs,
        attempts=len(tries),
        finish_reason=tries[-1].finish_reason,
        model=tries[-1].model,
        claims="[]",
        no_change=says_no_change(read.second_half),
        known=known,
        served=tries,
    )
