"""Choose each pair's descriptions: people's own, and the best one that passed every enabled check (ours).

Reads ``PairRow``, the pair's descriptions and the outcomes of their checks; writes
``DifferenceRow``: one per sentence of people, and the best description with its scores, under its
own key. No model is used. A pair without one is dropped with the first failure of its best
candidate. A check without an outcome counts as failed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pairwright.schemas.config import DifferencesConfig
from pairwright.schemas.plain_text import plain_text
from pairwright.schemas.rows import (
    GIVEN,
    NO_ROWS,
    CheckRow,
    DifferenceRow,
    Dropped,
    PairRow,
    make_key,
)
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.texts.words import says_no_change

TABLES = ("controlled", "grounded", "judged")
RANKS = (
    "judged",
    "grounded",
    "swapped",
)  # checks that rank descriptions by their scores, the most important first
Descriptions = Mapping[str, tuple[DifferenceRow, ...]]
Outcomes = Mapping[str, tuple[CheckRow, ...]]


def choose_differences(
    rows: Sequence[PairRow],
    config: DifferencesConfig,
    *,
    described: Descriptions = NO_ROWS,
    **checks: Outcomes,
) -> Iterator[DifferenceRow | Dropped]:
    """Yield the descriptions of each pair, or why it has none; ``checks``: outcomes by table, of those that are on."""
    for pair in rows:
        given = _given(pair) if "given" in config.writer else []
        yield from given
        if not config.is_written:
            best = Dropped(source_key=pair.key, reason="nobody wrote about its difference")
        else:
            best = _choose(pair, described.get(pair.key, ()), checks)
        if isinstance(best, DifferenceRow) or not given:
            yield best


def _given(pair: PairRow) -> list[DifferenceRow]:
    """Return the different texts that people wrote, and the instruction of an edit."""
    texts = (" ".join(text.split()) for text in (*pair.human_differences, pair.instruction))
    return [
        DifferenceRow(
            key=make_key("given difference", pair.key, text),
            source_key=pair.key,
            subject=pair.key,
            text=text,
            first_half=text,
            second_half=text,
            verbs=(),
            attempts=0,
            finish_reason="",
            model=GIVEN,
            claims="[]",
            no_change=says_no_change(text),
        )
        for text in {plain_text(text): text for text in texts if text}.values()
    ]


def _choose(
    pair: PairRow, described: Sequence[DifferenceRow], checks: Mapping[str, Outcomes]
) -> DifferenceRow | Dropped:
    """Return the best description that failed no check, with its scores, or the best one's first failure."""
    ranked: list[
        tuple[tuple[float | int | str, ...], DifferenceRow, dict[str, float], list[str]]
    ] = []
    for row in described:
        scores: dict[str, float] = {}
        reasons: list[str] = []
        for table in [name for name in TABLES if name in checks]:
            own = [
                check for check in checks[table].get(pair.key, ()) if check.description == row.key
            ]
            scores |= {check.check: check.score for check in own}
            own.sort(key=lambda check: check.check)
            reasons += (
                [check.why for check in own if not check.passed]
                if own
                else [f"no outcome: {table}"]
            )
        rank = (len(reasons), *(-scores.get(name, 0.0) for name in RANKS), row.attempts, row.key)
        ranked.append((rank, row, scores, reasons))
    if not ranked:
        return Dropped(source_key=pair.key, reason="no description")
    _, best, scores, reasons = min(ranked, key=lambda one: one[0])
    if reasons:
        return Dropped(
            source_key=pair.key, reason=reasons[0], detail=f"best of {len(ranked)}: {best.text}"
        )
    rounded = {name: round(score, 6) for name, score in scores.items()}  # as before float32
    return replace(
        best, source_key=pair.key, checks=json.dumps(rounded, sort_keys=True) if rounded else ""
    )


STAGE = Stage(
    name="differences",
    version=2,
    group="captioning",
    reads={"pairs": PairRow},
    writes=DifferenceRow,
    function=choose_differences,
    config=lambda profile: profile.complete(profile.differences),
    uses=(  # of the checks, those that a build has
        Uses(table="described", row=DifferenceRow, kind="many", counts=True),
        *(
            Uses(table=name, row=CheckRow, kind="many", without=("text", "served"), counts=True)
            for name in TABLES
        ),
    ),
)
