"""Helpers of the writing stages: validators of plugins, true texts from graphs, missing inputs,
repeated questions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from pairwright.prompts import load
from pairwright.schemas import rows, writing
from pairwright.schemas.claims import Graphs, all_hold
from pairwright.schemas.plugins import Registry
from pairwright.schemas.replies import RefusedText
from pairwright.tasks.captioning.statements import Statement
from pairwright.tasks.serving.chat import Answer, Chat, Question, ask_until, seed_of
from pairwright.tasks.store.stage import Uses
from pairwright.tasks.texts.comparisons import Comparison
from pairwright.tasks.texts.differences import Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Validator:
    """Rule that refuses texts."""

    # its name in ``captions.validators``, ``differences.validators`` and ``comparisons.validators``
    name: str
    version: int  # raise it when the rule changes: texts are then written anew
    refuse: Callable[
        [str], str
    ]  # from a text to a short constant reason, which is counted; empty: it is accepted


VALIDATORS = Registry("validators", Validator, ())
PAIRS = Uses(table="pairs", row=rows.PairRow)
IMAGES = Uses(table="images", row=rows.ImageRow, on="images", of="pairs")
CAPTIONS = Uses(table="captions", row=rows.CaptionRow, on="images", of="pairs")
OF_PAIRS = (
    Uses(table="images", row=rows.ImageRow, on="images", without=("image",)),
    Uses(table="captions", row=rows.CaptionRow, on="images", counts=True),
)
T = TypeVar("T")
Two = tuple[T, T]  # the first image's, and the second one's
WrittenConfig = writing.CaptionsConfig | writing.ComparisonsConfig | writing.DifferencesConfig
W = TypeVar("W", Difference, Comparison)


def refuse_text(text: str, config: writing.ValidatedSection) -> str:
    """Return the reason of the first validator that refuses a text; empty: none."""
    return next(filter(None, (VALIDATORS[name].refuse(text) for name in config.validators)), "")


def name_validators(config: writing.ValidatedSection) -> tuple[str, ...]:
    """Return the validators and their versions, for the table's fingerprint."""
    return tuple(f"validator {name} {VALIDATORS[name].version}" for name in config.validators)


def validated(found: W | RefusedText, config: writing.ValidatedSection) -> W | RefusedText:
    """Return a parsed text, or why its parser or a validator refused it."""
    if isinstance(found, RefusedText):
        return found
    why = refuse_text(found.text, config)
    return RefusedText(why, found.text) if why else found


def compose_true(
    row: rows.PairRow,
    images: rows.Images,
    config: writing.ComparisonsConfig | writing.DifferencesConfig,
    name: str,
    compose: Callable[[Graphs, Random], Statement | None],
    read: Callable[[str], W | RefusedText],
) -> tuple[Graphs, Statement, W, int] | rows.Dropped:
    """Return both scene graphs, a text about them, its parts and the attempts; it is validated like a model's text.

    ``name`` seeds the attempts.
    """
    shown = pair_images(row.key, row, images)
    if isinstance(shown, rows.Dropped):
        return shown
    first, second = images[row.first], images[row.second]
    if first.graph is None or second.graph is None:
        return rows.Dropped(
            source_key=row.key,
            reason="no scene graph",
            detail=first.name if second.graph else second.name,
        )
    graphs, refused = (first.graph, second.graph), RefusedText("no words for the difference")
    for attempt in range(1, config.max_attempts + 1):
        written = compose(graphs, Random(rows.make_key(name, config.seed, row.key, attempt)))
        if written is None:
            continue
        found = read(written.text)
        if not isinstance(found, RefusedText) and not all_hold(written.claims, graphs):
            found = RefusedText("not true of the scene graphs", written.text)
        found = validated(found, config)
        if not isinstance(found, RefusedText):
            return graphs, written, found, attempt
        refused = found
    return rows.Dropped(source_key=row.key, reason=refused.reason, detail=refused.detail)


def check_row(
    row: rows.Row, check: str, *, score: float, why: str, answers: Sequence[Answer] = ()
) -> rows.CheckRow:
    """Return the outcome of a check; ``why``: empty if passed; ``answers``: the last one decided."""
    decided = [part for answer in answers[-1:] for part in (answer.served.prompt, answer.text)]
    return rows.CheckRow(
        key=rows.make_key("check", check, row.key, *decided),
        source_key=row.key,
        subject=row.subject,
        description=row.key,
        check=check,
        passed=not why,
        score=score,
        text=answers[-1].text if answers else "",
        why=why,
        served=tuple(answer.served for answer in answers),
    )


async def ask_again(
    chat: Chat,
    row: rows.Row,
    question: Question,
    read: Callable[[Answer], T | RefusedText],
    config: WrittenConfig | writing.QuestionsConfig,
    section: str,
) -> tuple[T, tuple[rows.Served, ...]] | rows.Dropped:
    """Ask, each time with another seed, until an answer is accepted; return it parsed, and the record of all attempts.

    ``Dropped`` has the reason of the last refusal; ``section`` is the configuration's name in a
    profile.
    """
    prompt = load(question.prompt)

    def ask(attempt: int) -> Question:
        return replace(question, seed=seed_of(row.key, prompt, seed=config.seed, attempt=attempt))

    found, tries = await ask_until(chat, ask, read, tries=config.max_attempts)
    if isinstance(found, RefusedText):
        found = found.by_tokens(
            tries[-1].finish_reason, f"{section}.max_tokens={config.max_tokens}"
        )
        return rows.Dropped(source_key=row.key, reason=found.reason, detail=found.detail)
    return found, tries


def pair_captions(pair: rows.PairRow, captions: rows.Captions) -> Two[str]:
    """Return both captions; a missing one is empty."""
    first, second = (
        captions[key].text if key in captions else "" for key in (pair.first, pair.second)
    )
    return first, second


def pair_images(source: str, pair: rows.PairRow, images: rows.Images) -> Two[bytes] | rows.Dropped:
    """Return both files of a pair, or a ``Dropped`` where one is missing."""
    for key in (pair.first, pair.second):
        if key not in images:
            return rows.Dropped(source_key=source, reason="image is missing", detail=key)
    return images[pair.first].image, images[pair.second].image
