"""Measure the checks of descriptions: how many passed each, why the others did not, and by what scores.

Reads ``CheckRow`` tables, column by column; 5 bytes per row are held in memory.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from schemas.checks import AGAINST, SEEN_IN_SAME
from tasks.report.chart import Chart, Series, Values, draw_histogram
from tasks.report.tables import CHECKS, Tables

pc: Any = pyarrow.compute
MEANINGS = {
    "swapped": "The pair in the other order must give the description the other way round.",
    "same": "One of the images, shown twice, must give no difference.",
    "grounded": "Each half must fit its own image better than the other one.",
    "judged": "A model rates the description: 0 is wrong, 5 is right in every word.",
}
UNITS = {"swapped": "likeness, crosswise less straight", "grounded": "cosine difference", "judged": "rating"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Say how descriptions did in one check."""

    name: str
    meaning: str
    rows: int
    passed: int
    why: dict[str, int]
    """Why the others did not, the most frequent reason first."""
    scores: Chart | None
    """Of those that passed and those that were found wrong."""

    @property
    def share(self) -> float:
        """Return the share that passed."""
        return self.passed / max(self.rows, 1)

    @property
    def against(self) -> int:
        """Return how many were found wrong; of the others that did not pass, nothing was found out."""
        return sum(number for why, number in self.why.items() if why in AGAINST)


def says_something(why: str) -> bool:
    """Say whether a check that failed found something out, so that its score means something."""
    return why in AGAINST or why == SEEN_IN_SAME


@dataclass
class Tally:
    """Count what passes by of one check."""

    scores: list[Values] = field(default_factory=list[Values])
    passed: list[NDArray[np.bool_]] = field(default_factory=list[NDArray[np.bool_]])
    why: Counter[str] = field(default_factory=Counter[str])

    def add(self, rows: pa.Table) -> None:
        """Count some rows."""
        passed = pc.fill_null(rows.column("passed"), fill_value=False).to_numpy().astype(bool)
        why = pc.fill_null(rows.column("why"), "")
        for item in why.filter(~passed).value_counts().to_pylist():
            self.why[item["values"] or "no reason given"] += item["counts"]
        said = pc.is_in(why, value_set=pa.array([text for text in self.why if says_something(text)], pa.string()))
        scores = rows.column("score").to_numpy().astype(np.float32)
        self.scores.append(np.where(passed | said.to_numpy().astype(bool), scores, np.float32(np.nan)))
        self.passed.append(passed)


def measure_checks(tables: Tables) -> tuple[Check, ...]:
    """Return every check that was made, in the order in which descriptions go through them."""
    return tuple(check for name in CHECKS for check in _measure(tables, name))


def _measure(tables: Tables, name: str) -> Iterator[Check]:
    tallies: dict[str, Tally] = {}
    for table in tables.chunks(name, ["check", "passed", "score", "why"]):
        for check in pc.unique(table.column("check")).to_pylist():
            tallies.setdefault(check, Tally()).add(table.filter(pc.equal(table.column("check"), check)))
    for check, tally in sorted(tallies.items(), key=lambda item: (item[0] != "swapped", item[0])):
        scores, passed = np.concatenate(tally.scores), np.concatenate(tally.passed)
        yield Check(
            name=check,
            meaning=MEANINGS.get(check, ""),
            rows=len(passed),
            passed=int(passed.sum()),
            why=dict(tally.why.most_common()),
            scores=_chart(check, scores, passed),
        )


def _chart(check: str, scores: Values, passed: NDArray[np.bool_]) -> Chart | None:
    """Draw the scores of what passed and what failed; nothing where all have one score."""
    known = ~np.isnan(scores)
    if not known.any() or np.ptp(scores[known]) == 0:
        return None
    series = [
        Series(name="passed", values=scores[known & passed], tone="chosen"),
        Series(name="failed", values=scores[known & ~passed], tone="rejected"),
    ]
    whole = bool(np.equal(scores[known], np.round(scores[known])).all())
    return draw_histogram(f"Scores, {check}", series, unit=UNITS.get(check, "score"), whole=whole)
