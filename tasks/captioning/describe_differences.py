"""Describe the difference of each pair by an implicit-change description (paper 001, 3.1.2 and D.2).

Reads ``PairRow``, writes ``DifferenceRow``: composed from the images' scene graphs and checked against them, or written
by a served model that sees both images and reads their captions. Ours: verbs, and one of several human differences, are
drawn anew for each try. ``served`` of a row lists the tries of its description, the one that was taken last.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from pairwright.prompts import difference_verbs, load
from pairwright.prompts.differences import PROMPTS, Instruction, difference_regex, draw_verbs, instruct
from pairwright.schemas.claims import Graphs, dump_claims
from pairwright.schemas.config import DifferencesConfig
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import (
    CaptionRow,
    Captions,
    DifferenceRow,
    Dropped,
    Failed,
    ImageRow,
    Images,
    PairRow,
    Row,
    make_key,
)
from pairwright.tasks.captioning.compose_difference import compose_difference
from pairwright.tasks.captioning.statements import Statement
from pairwright.tasks.captioning.validators import (
    compose_true,
    find_missing,
    name_validators,
    pair_captions,
    pair_graphs,
    validated,
)
from pairwright.tasks.serving.ask_rows import ask_rows
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question, ask_until, seed_of
from pairwright.tasks.serving.untrusted import as_data
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.texts.differences import Difference, read_composed, read_difference, refuse_length
from pairwright.tasks.texts.words import ends_short, says_no_change


@dataclass(frozen=True, slots=True)
class Shown:
    """What a model is shown and told of a pair."""

    pair: PairRow
    images: tuple[bytes, bytes]
    captions: tuple[str, str] | None
    """As data; ``None``: at least one is missing."""


def describe_differences(
    rows: Sequence[PairRow],
    config: DifferencesConfig,
    *,
    images: Images,
    captions: Captions,
    answers: Answers | None = None,
) -> Iterator[Row | Dropped | Failed]:
    """Yield the description of each pair, or ``Dropped`` with the reason of the last of ``max_attempts`` refusals.

    A served model may give several descriptions of one pair.
    """
    if config.is_served:
        work = partial(_ask, config=config, images=images, captions=captions)
        yield from ask_rows(rows, work, config.served, answers=answers)
        return
    for row in rows:  # The graphs say more than captions.
        graphs = pair_graphs(row, images)
        yield graphs if isinstance(graphs, Dropped) else _compose(row, config, graphs)


def _compose(row: PairRow, config: DifferencesConfig, graphs: Graphs) -> DifferenceRow | Dropped:
    def compose(attempt: int) -> Statement | None:
        return compose_difference(graphs, Random(make_key("difference", config.seed, row.key, attempt)))

    found = compose_true(compose, lambda text: read_composed(text, difference_verbs()), graphs, config)
    if isinstance(found, RefusedText):
        return Dropped(source_key=row.key, reason=found.reason, detail=found.detail)
    written, parts, attempts = found
    made = _row(row, replace(parts, text=written.text), key=row.key, attempts=attempts, model=config.writer)
    claims = dump_claims(written.claims)
    return replace(made, claims=claims, no_change=any(claim.kind == "no_change" for claim in written.claims))


def _row(row: PairRow, read: Difference, *, key: str, attempts: int, model: str) -> DifferenceRow:
    return DifferenceRow(
        key=key,
        source_key=row.key,
        subject=row.key,
        text=read.text,
        first_half=read.first_half,
        second_half=read.second_half,
        verbs=read.verbs,
        attempts=attempts,
        finish_reason="stop",
        model=model,
        claims="[]",
        no_change=says_no_change(read.second_half),
    )


async def _ask(
    row: PairRow, chat: Chat, *, config: DifferencesConfig, images: Images, captions: Captions
) -> Sequence[DifferenceRow] | Dropped:
    """Write ``candidates`` descriptions; equal ones are one, and where none will do the last refusal stands."""
    if missing := find_missing(row.key, row, images, "image"):
        return missing
    shown = Shown(row, (images[row.first].image, images[row.second].image), told_captions(row, captions))
    kept: dict[str, DifferenceRow] = {}
    refused = RefusedText("")
    for candidate in range(config.candidates):
        made = await _write(shown, chat, config, first=candidate * config.max_attempts + 1)
        if isinstance(made, RefusedText):
            refused = made
        else:
            kept.setdefault(made.text, made)
    return tuple(kept.values()) or Dropped(source_key=row.key, reason=refused.reason, detail=refused.detail)


async def _write(shown: Shown, chat: Chat, config: DifferencesConfig, *, first: int) -> DifferenceRow | RefusedText:
    """Ask until a description will do; attempts of other candidates come before the ``first``."""

    def ask(attempt: int) -> Question:
        instruction = instruct_pair(shown, seed=config.seed, attempt=attempt)
        seed = seed_of(shown.pair.key, load(instruction.prompt), seed=config.seed, attempt=attempt)
        return difference_question(instruction, shown.images, seed=seed, max_tokens=config.max_tokens)

    def read(answer: Answer) -> Difference | RefusedText:
        return validated(read_answer(answer, config.max_words), config)

    found, tries = await ask_until(chat, ask, read, tries=config.max_attempts, first=first)
    if isinstance(found, RefusedText):
        return found
    key = make_key("difference", shown.pair.key, found.text)
    known = instruct_pair(shown, seed=config.seed, attempt=first).known
    row = _row(shown.pair, found, key=key, attempts=len(tries), model=tries[-1].model)
    return replace(row, finish_reason=tries[-1].finish_reason, known=known, served=tries)


def instruct_pair(shown: Shown, *, seed: int, attempt: int) -> Instruction:
    """Return the instruction of one try: verbs, and one human difference of several, are drawn for it."""
    rng = Random(make_key("difference asked", seed, shown.pair.key, attempt))
    verbs = draw_verbs(rng)
    differences = [data for text in shown.pair.human_differences if (data := _told(text))]
    human = rng.choice(differences) if differences else ""
    return instruct(verbs, captions=shown.captions, human=human, edit=_told(shown.pair.instruction))


def difference_question(
    instruction: Instruction, images: tuple[bytes, bytes], *, seed: int, max_tokens: int
) -> Question:
    """Return the question of an instruction, its answer held to the template."""
    return Question(
        prompt=instruction.prompt,
        text=instruction.text,
        images=images,
        seed=seed,
        max_tokens=max_tokens,
        grammar=Grammar(regex=difference_regex()),
    )


def told_captions(row: PairRow, captions: Captions) -> tuple[str, str] | None:
    """Return both captions as data, or nothing where one is missing."""
    first, second = map(_told, pair_captions(row, captions))
    return (first, second) if first and second else None


def _told(text: str) -> str:
    """Return a text as data, without the full stop that the instruction puts behind it."""
    return as_data(text).rstrip(" .")


def read_answer(answer: Answer, most_words: int) -> Difference | RefusedText:
    """Return the description that a model gave, or why it will not do."""
    read = read_difference(answer.text, difference_verbs(), finish_reason=answer.finish_reason)
    if isinstance(read, Difference) and ends_short(read.text):
        return RefusedText("cut off", read.text[-40:])
    return read if isinstance(read, RefusedText) else refuse_length(read, most_words) or read


def _fit(stage: Stage, config: DifferencesConfig) -> Stage:
    """Return the stage as it runs: served models see the images, and their answers are remembered."""
    if not config.is_served:
        return stage
    uses = tuple(replace(use, without=()) if use.argument == "images" else use for use in stage.uses)
    return replace(stage, prompts=PROMPTS, uses=uses, remembers=True)


STAGE = Stage(
    name="described",
    version=4,
    group="captioning",
    reads={"pairs": PairRow},
    writes=DifferenceRow,
    function=describe_differences,
    config="differences",
    models=name_validators,
    prompts=("difference_template", "difference_phrases", "answer_sentences"),
    uses=(
        Uses(table="images", row=ImageRow, on="images", without=("image",)),
        Uses(table="captions", row=CaptionRow, on="images", counts=True),
    ),
    fit=_fit,
)
