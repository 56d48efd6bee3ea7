"""Helpers of the writing stages.

Validators of plugins, true texts from graphs, missing inputs, repeated questions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from pairwright.prompts import load_prompt
from pairwright.schemas import rows, writing
from pairwright.schemas.claims import Graphs, all_hold
from pairwright.schemas.plugins import Registry
from pairwright.schemas.replies import RefusedText
from pairwright.tasks.captioning.statements import Statement
from pairwright.tasks.serving.chat import Answer, Chat, Question, ask_until, seed_of
from pairwright.tasks.store.stage import Uses
from pairwright.tasks.texts.comparisons import Comparison
from pairwright.tasks.texts.differences import Difference


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Validator:
    """Rule that refuses texts."""

    # its name in ``captions.validators``, ``differences.validators`` and ``comparisons.validators``
    name: str
    version: int  # raise it when the rule changes: texts are then written anew
    refuse: Callable[[str], str]
    """From a text to a short constant reason, which is counted; empty: it is accepted."""


VALIDATORS = Registry("validators", Validator, ())
PAIRS = Uses(table="pairs", row=rows.PairRow)
IMAGES = Uses(
    table="images",
    row=rows.ImageRow,
    on="about",
    of="pairs",
)
CAPTIONS = Uses(
    table="captions",
    row=rows.CaptionRow,
    on="about",
    of="pairs",
)


def _reads_graphs(config: writing.ValidatedSection) -> bool:
    return not config.is_served


def _shows_images(config: writing.ValidatedSection) -> bool:
    return config.is_served and config.images > 0


OF_PAIRS = (
    Uses(
        table="images",
        row=rows.ImageRow,
        on="about",
        without=("image",),
        when=_reads_graphs,
    ),
    Uses(
        table="images",
        row=rows.ImageRow,
        on="about",
        when=_shows_images,
    ),
    Uses(
        table="captions",
        row=rows.CaptionRow,
        on="about",
        counts=True,
    ),
)
T = TypeVar("T")
Two = tuple[T, T]  # the first image's, and the second one's
WrittenConfig = writing.CaptionsConfig | writing.ComparisonsConfig | writing.DifferencesConfig
W = TypeVar("W", Difference, Comparison)


def refuse_text(text: str, config: writing.ValidatedSection) -> str:
    """Return the reason of the first validator that refuses a text; empty: none."""
    for name in config.validators:
        reason = VALIDATORS[name].refuse(text)
        if reason:
            return reason
    return ""


def name_validators(config: writing.ValidatedSection) -> tuple[str, ...]:
    """Return the validators and their versions, for the table's fingerprint."""
    return tuple(f"validator {name} {VALIDATORS[name].version}" for name in config.validators)


def validated(parsed: W | RefusedText, config: writing.ValidatedSection) -> W | RefusedText:
    """Return a parsed text, or why its parser or a validator refused it."""
    if isinstance(parsed, RefusedText):
        return parsed
    reason = refuse_text(parsed.text, config)
    return RefusedText(reason, parsed.text) if reason else parsed


def compose_true(
    row: rows.PairRow,
    images: rows.Images,
    config: writing.ComparisonsConfig | writing.DifferencesConfig,
    name: str,
    compose: Callable[[Graphs, Random], Statement | None],
    read: Callable[[str], W | RefusedText],
) -> tuple[Graphs, Statement, W, int] | rows.Dropped:
    """Return both scene graphs, a true text about them, its parts and the attempts.

    The text is validated like a model's text. ``name`` seeds the attempts.
    """
    graphs = pair_graphs(row, images)
    if isinstance(graphs, rows.Dropped):
        return graphs
    refused = RefusedText("no words for the difference")
    for attempt in range(1, config.max_attempts + 1):
        rng = Random(rows.make_key(name, config.seed, row.key, attempt))
        statement = compose(graphs, rng)
        if statement is None:
            continue
        parsed = read(statement.text)
        if not isinstance(parsed, RefusedText) and not all_hold(statement.claims, graphs):
            parsed = RefusedText("not true of the scene graphs", statement.text)
        parsed = validated(parsed, config)
        if not isinstance(parsed, RefusedText):
            return graphs, statement, parsed, attempt
        refused = parsed
    return rows.Dropped(
        source_key=row.key,
        reason=refused.reason,
        detail=refused.detail,
    )


def pair_graphs(row: rows.PairRow, images: rows.Images) -> Graphs | rows.Dropped:
    """Return the scene graphs of a pair's images; ``Dropped`` without both."""
    missing = pair_images(row.key, row, images)
    if isinstance(missing, rows.Dropped):
        return missing
    first, second = images[row.first], images[row.second]
    if first.graph is not None and second.graph is not None:
        return first.graph, second.graph
    name = first.name if second.graph else second.name
    return rows.Dropped(
        source_key=row.key,
        reason="no scene graph",
        detail=name,
    )


def check_text(
    row: rows.Row,
    check: str,
    *,
    score: float,
    why: str,
    answers: Sequence[Answer] = (),
    text: str = "",
) -> rows.CheckRow:
    """Return the outcome of a check.

    ``why``: empty if passed; ``answers``: the last one decided; ``text``: what was found, by
    default that answer.
    """
    key_parts: list[str] = []
    if answers:
        text = text or answers[-1].text
        key_parts = [answers[-1].served.prompt, text]
    return rows.CheckRow(
        key=rows.make_key("check", check, row.key, *key_parts),
        source_key=row.key,
        subject=row.subject,
        description=row.key,
        check=check,
        passed=not why,
        score=score,
        text=text,
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
    """Ask with new seeds until an answer is accepted; return it parsed, and all attempts.

    ``Dropped`` has the reason of the last refusal; ``section`` is the configuration's name in a
    profile.
    """
    prompt = load_prompt(question.prompt)

    def repeat_question(attempt: int) -> Question:
        seed = seed_of(
            row.key,
            prompt,
            seed=config.seed,
            attempt=attempt,
        )
        return replace(question, seed=seed)

    parsed, tries = await ask_until(chat, repeat_question, read, tries=config.max_attempts)
    if isinstance(parsed, RefusedText):
        bound = f"{section}.max_tokens={config.max_tokens}"
        refused = parsed.by_tokens(bound)
        return rows.Dropped(
            source_key=row.key,
            reason=refused.reason,
            detail=refused.detail,
        )
    return parsed, tries


def pair_captions(pair: rows.PairRow, captions: rows.Captions) -> Two[str]:
    """Return both captions; a missing one is empty."""
    return _caption_text(pair.first, captions), _caption_text(pair.second, captions)


def _caption_text(key: str, captions: rows.Captions) -> str:
    return captions[key].text if key in captions else ""


def pair_images(
    source: str,
    pair: rows.PairRow,
    images: rows.Images,
) -> Two[bytes] | rows.Dropped:
    """Return both files of a pair, or a ``Dropped`` where one is missing."""
    for key in (pair.first, pair.second):
        if key not in images:
            return rows.Dropped(
                source_key=source,
                reason="image is missing",
                detail=key,
            )
    return images[pair.first].image, images[pair.second].image
