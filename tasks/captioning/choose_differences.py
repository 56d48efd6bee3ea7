"""Choose each pair's descriptions: people's own, and the best one that passed all checks (ours).

Reads ``PairRow``, the pair's descriptions and the outcomes of their checks; writes
``DifferenceRow``: one per sentence of people, and the best description with its scores, under its
own key. No model is used. A composed description beside a served model's passes whatever checks
say: its truth is known. A pair without one is dropped with the first failure of its best
candidate. A check without an outcome counts as failed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pairwright.schemas.checks import CHECK_TABLES
from pairwright.schemas.config import DifferencesConfig
from pairwright.schemas.control_tokens import refuse_control
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

RANKS = ("judged", "confirmed", "regions", "grounded", "swapped")
"""Checks that rank descriptions by their scores, the most important first."""
Descriptions = Mapping[str, tuple[DifferenceRow, ...]]
Outcomes = Mapping[str, tuple[CheckRow, ...]]


@dataclass(frozen=True, slots=True)
class CheckedDescription:
    """Description with the outcomes of its checks."""

    row: DifferenceRow
    scores: Mapping[str, float]
    failures: Sequence[str]

    @property
    def sort_key(self) -> tuple[float | int | str, ...]:
        """Return the sort key: the best candidate has the smallest."""
        scores = [-self.scores.get(name, 0.0) for name in RANKS]
        return (len(self.failures), *scores, self.row.attempts, self.row.key)


def choose_differences(
    rows: Sequence[PairRow],
    config: DifferencesConfig,
    *,
    described: Descriptions = NO_ROWS,
    **checks: Outcomes,
) -> Iterator[DifferenceRow | Dropped]:
    """Yield the descriptions of each pair, or why it has none.

    ``checks``: outcomes by table, of those that are on.
    """
    for pair in rows:
        human_rows: list[DifferenceRow] = []
        if "given" in config.writer:
            human_rows = _given_differences(pair)
        yield from human_rows
        if not config.is_written:
            best = Dropped(source_key=pair.key, reason="nobody wrote about its difference")
        else:
            best = _choose(pair, described.get(pair.key, ()), checks, config)
        if isinstance(best, DifferenceRow) or not human_rows:
            yield best


def _given_differences(pair: PairRow) -> list[DifferenceRow]:
    """Return the different texts that people wrote, and the instruction of an edit.

    Texts with control tokens are left out.
    """
    texts: dict[str, str] = {}
    for human_text in (*pair.human_differences, pair.instruction):
        text = " ".join(human_text.split())
        if text and not refuse_control(text):
            texts[plain_text(text)] = text
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
        for text in texts.values()
    ]


def _choose(
    pair: PairRow,
    described: Sequence[DifferenceRow],
    checks: Mapping[str, Outcomes],
    config: DifferencesConfig,
) -> DifferenceRow | Dropped:
    """Return the best description with its scores; if it failed a check, its first failure."""
    candidates = [_read_outcomes(pair, row, checks) for row in described]
    if not candidates:
        return Dropped(source_key=pair.key, reason="no description")
    best = min(candidates, key=lambda candidate: candidate.sort_key)
    is_known = config.is_served and best.row.model == "scene-graph"  # its truth needs no check
    if best.failures and not is_known:
        detail = f"best of {len(candidates)}: {best.row.text}"
        return Dropped(
            source_key=pair.key,
            reason=best.failures[0],
            detail=detail,
        )
    # Scores are read from float32 columns: rounding restores their decimals.
    scores = {name: round(score, 6) for name, score in best.scores.items()}
    checks_json = json.dumps(scores, sort_keys=True) if scores else ""
    return replace(best.row, source_key=pair.key, checks=checks_json)


def _read_outcomes(
    pair: PairRow,
    row: DifferenceRow,
    checks: Mapping[str, Outcomes],
) -> CheckedDescription:
    """Return a description with its scores by check, and the reasons of its failures."""
    scores: dict[str, float] = {}
    failures: list[str] = []
    for table in CHECK_TABLES:
        if table not in checks:
            continue
        outcomes = [
            check for check in checks[table].get(pair.key, ()) if check.description == row.key
        ]
        if not outcomes:
            failures.append(f"no outcome: {table}")
        for check in sorted(outcomes, key=lambda check: check.check):
            if not check.is_off:
                scores[check.check] = check.score
            if not check.passed:
                failures.append(check.why)
    return CheckedDescription(row, scores, failures)


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
            for name in CHECK_TABLES
        ),
    ),
)
