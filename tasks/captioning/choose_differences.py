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

TABLES = ("controlled", "grounded", "regions", "judged")
RANKS = ("judged", "regions", "grounded", "swapped")
"""Checks that rank descriptions by their scores, the most important first."""
Descriptions = Mapping[str, tuple[DifferenceRow, ...]]
Outcomes = Mapping[str, tuple[CheckRow, ...]]
Candidate = tuple[DifferenceRow, list[CheckRow], list[str]]
"""Description, the outcomes of its checks, and the reasons of those that failed."""


def choose_differences(
    rows: Sequence[PairRow],
    config: DifferencesConfig,
    *,
    described: Descriptions = NO_ROWS,
    controlled: Outcomes | None = None,
    grounded: Outcomes | None = None,
    regions: Outcomes | None = None,
    judged: Outcomes | None = None,
) -> Iterator[DifferenceRow | Dropped]:
    """Yield the descriptions of each pair, or why it has none; ``None`` stands for a disabled check."""
    tables = dict(zip(TABLES, (controlled, grounded, regions, judged), strict=True))
    for pair in rows:
        given = _given(pair) if "given" in config.writer else []
        yield from given
        if not config.is_written:
            if not given:
                yield Dropped(source_key=pair.key, reason="nobody wrote about its difference")
            continue
        outcomes = {name: table.get(pair.key, ()) for name, table in tables.items() if table is not None}
        candidates = [_candidate(row, outcomes) for row in described.get(pair.key, ())]
        best = _choose(pair, candidates) if candidates else Dropped(source_key=pair.key, reason="no description")
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


def _candidate(row: DifferenceRow, outcomes: Mapping[str, Sequence[CheckRow]]) -> Candidate:
    checks: list[CheckRow] = []
    reasons: list[str] = []
    for table, found in outcomes.items():
        own = sorted((check for check in found if check.description == row.key), key=lambda check: check.check)
        checks += own
        reasons += [check.why for check in own if not check.passed] if own else [f"no outcome: {table}"]
    return row, checks, reasons


def _rank(candidate: Candidate) -> tuple[float | int | str, ...]:
    """Return the sort key of a candidate: the best one has the smallest."""
    row, checks, reasons = candidate
    scores = {check.check: check.score for check in checks if not check.is_off}
    return (len(reasons), *(-scores.get(name, 0.0) for name in RANKS), row.attempts, row.key)


def _choose(pair: PairRow, candidates: Sequence[Candidate]) -> DifferenceRow | Dropped:
    best, checks, reasons = min(candidates, key=_rank)
    if reasons:
        return Dropped(source_key=pair.key, reason=reasons[0], detail=f"best of {len(candidates)}: {best.text}")
    scores = {check.check: round(check.score, 6) for check in checks if not check.is_off}  # as before float32
    return replace(best, source_key=pair.key, checks=json.dumps(scores, sort_keys=True) if scores else "")


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
