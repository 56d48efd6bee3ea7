"""Choose each pair's descriptions: people's own, and the best one that passed every enabled check (ours).

Reads ``PairRow``, the pair's descriptions and the outcomes of their checks; writes ``DifferenceRow``: one per sentence
of people, and the best description with its scores, under its own key. No model is used. A pair without one is dropped
with the first failure of its best candidate. A check without an outcome counts as failed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pairwright.schemas.config import DifferencesConfig
from pairwright.schemas.plain_text import plain_text
from pairwright.schemas.rows import GIVEN, NO_ROWS, CheckRow, DifferenceRow, Dropped, PairRow, make_key
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.texts.words import says_no_change

TABLES = ("controlled", "grounded", "judged")
RANKS = ("judged", "grounded", "swapped")  # checks that rank descriptions by their scores, the most important first
Descriptions = Mapping[str, tuple[DifferenceRow, ...]]
Outcomes = Mapping[str, tuple[CheckRow, ...]]
Candidate = tuple[DifferenceRow, Mapping[str, float], Sequence[str]]
"""Description, the scores of its checks by name, and the reasons of those that failed."""


def choose_differences(
    rows: Sequence[PairRow],
    config: DifferencesConfig,
    *,
    described: Descriptions = NO_ROWS,
    controlled: Outcomes | None = None,
    grounded: Outcomes | None = None,
    judged: Outcomes | None = None,
) -> Iterator[DifferenceRow | Dropped]:
    """Yield the descriptions of each pair, or why it has none; ``None`` stands for a disabled check."""
    tables = {
        name: table for name, table in zip(TABLES, (controlled, grounded, judged), strict=True) if table is not None
    }
    for pair in rows:
        given = _given(pair) if "given" in config.writer else []
        yield from given
        candidates = [_candidate(row, pair, tables) for row in described.get(pair.key, ())]
        if not config.is_written:
            best = Dropped(source_key=pair.key, reason="nobody wrote about its difference")
        elif candidates:
            best = _choose(pair, candidates)
        else:
            best = Dropped(source_key=pair.key, reason="no description")
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


def _candidate(row: DifferenceRow, pair: PairRow, tables: Mapping[str, Outcomes]) -> Candidate:
    scores: dict[str, float] = {}
    reasons: list[str] = []
    for name, table in tables.items():
        own = [check for check in table.get(pair.key, ()) if check.description == row.key]
        scores |= {check.check: check.score for check in own}
        own.sort(key=lambda check: check.check)
        reasons += [check.why for check in own if not check.passed] if own else [f"no outcome: {name}"]
    return row, scores, reasons


def _choose(pair: PairRow, candidates: Sequence[Candidate]) -> DifferenceRow | Dropped:
    def rank(candidate: Candidate) -> tuple[float | int | str, ...]:
        row, scores, reasons = candidate
        return (len(reasons), *(-scores.get(name, 0.0) for name in RANKS), row.attempts, row.key)

    best, scores, reasons = min(candidates, key=rank)
    if reasons:
        return Dropped(source_key=pair.key, reason=reasons[0], detail=f"best of {len(candidates)}: {best.text}")
    rounded = {name: round(score, 6) for name, score in scores.items()}  # as before float32
    return replace(best, source_key=pair.key, checks=json.dumps(rounded, sort_keys=True) if rounded else "")


STAGE = Stage(
    name="differences",
    version=2,
    group="captioning",
    reads={"pairs": PairRow},
    writes=DifferenceRow,
    function=choose_differences,
    config="differences",
    uses=(  # of the checks, those that a build has
        Uses(table="described", row=DifferenceRow, kind="many", counts=True),
        *(Uses(table=name, row=CheckRow, kind="many", without=("text", "served"), counts=True) for name in TABLES),
    ),
)
