"""Measure the checks of descriptions: how many passed each, why the others did not, and by what scores.

Reads ``CheckRow`` tables, column by column; only counts are held in memory, however many rows there are.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from pairwright.schemas.checks import AGAINST, SEEN_IN_SAME
from pairwright.tasks.report.chart import Chart, Series, draw_histogram
from pairwright.tasks.report.tables import CHECKS, Tables
from pairwright.tasks.report.tally_values import Tally

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
class Outcomes:
    """Count what passes by of one check."""

    rows: int = 0
    passed: Tally = field(default_factory=Tally)
    """Scores."""
    failed: Tally = field(default_factory=Tally)
    """Scores of those about which something was found out."""
    why: Counter[str] = field(default_factory=Counter[str])

    def add(self, rows: pa.Table) -> None:
        """Count some rows."""
        passed = pc.fill_null(rows.column("passed"), fill_value=False).to_numpy().astype(bool)
        why = pc.fill_null(rows.column("why"), "")
        for item in why.filter(~passed).value_counts().to_pylist():
            self.why[item["values"] or "no reason given"] += item["counts"]
        said = pc.is_in(why, value_set=pa.array([text for text in self.why if says_something(text)], pa.string()))
        scores = rows.column("score").to_numpy().astype(np.float32)
        told = said.to_numpy().astype(bool) & ~passed
        self.rows += len(passed)
        self.passed, self.failed = self.passed.add(scores[passed]), self.failed.add(scores[told])


def measure_checks(tables: Tables) -> tuple[Check, ...]:
    """Return every check that was made, in the order in which descriptions go through them."""
    return tuple(check for name in CHECKS for check in _measure(tables, name))


def _measure(tables: Tables, name: str) -> Iterator[Check]:
    found: dict[str, Outcomes] = {}
    for table in tables.chunks(name, ["check", "passed", "score", "why"]):
        for check in pc.unique(table.column("check")).to_pylist():
            found.setdefault(check, Outcomes()).add(table.filter(pc.equal(table.column("check"), check)))
    for check, own in sorted(found.items(), key=lambda item: (item[0] != "swapped", item[0])):
        yield Check(
            name=check,
            meaning=MEANINGS.get(check, ""),
            rows=own.rows,
            passed=own.passed.total,
            why=dict(own.why.most_common()),
            scores=_chart(check, own),
        )


def _chart(check: str, found: Outcomes) -> Chart | None:
    """Draw the scores of what passed and what failed; nothing where all have one score."""
    every = np.concatenate([found.passed.values, found.failed.values])
    if len(np.unique(every)) < 2:
        return None
    series = [
        Series(name="passed", tally=found.passed, tone="chosen"),
        Series(name="failed", tally=found.failed, tone="rejected"),
    ]
    whole = bool(np.equal(every, np.round(every)).all())
    return draw_histogram(f"Scores, {check}", series, unit=UNITS.get(check, "score"), whole=whole)
