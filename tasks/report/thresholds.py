"""Suggest thresholds of mining from what a reader judged of its candidates, range by range of similarity.

Reads the file of cards and the judgements. A candidate is in the band when its lowest similarity of any encoder is at
least ``min_similarity`` and its highest at most ``max_similarity``: so unrelated pairs set the one, near-identical ones
the other. Shares stand with the interval that holds the true share nine times in ten (Wilson).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated, NamedTuple

import duckdb
import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from pairwright.schemas.config import MiningConfig
from pairwright.tasks.pages.charts import Chart, Proportion, Tally, draw_histogram
from pairwright.tasks.report.card_table import WIDTH

ENOUGH = 6
"""Judgements from which on a range counts; fewer where it shows fewer pairs."""
Percent = Annotated[float, Field(ge=0, le=100)]


class Limits(BaseModel):
    """Shares in percent that a range inside the band may have."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    unrelated: Percent = 10
    near: Percent = 10


class Range(NamedTuple):
    """Candidates of one range of similarity, from ``low`` to below ``high``, and what was judged of them."""

    low: float
    high: float
    candidates: int
    shown: int
    bad: Proportion
    """Of the judged ones, those that are unrelated, or near-identical, whichever is asked."""

    @property
    def counts(self) -> bool:
        """Say whether enough of it was judged."""
        return 0 < self.bad.of >= min(ENOUGH, self.shown)


@dataclass(frozen=True, kw_only=True)
class ThresholdsView:
    """What the page shows."""

    charts: Sequence[Chart]
    lows: Sequence[Range]
    """By the lowest similarity, the most similar first."""
    highs: Sequence[Range]
    judged: int
    band: tuple[float, float]
    """The present thresholds."""
    suggested: tuple[float, float] | None
    """``None``: nothing suggests any."""


def view_thresholds(database: duckdb.DuckDBPyConnection, mining: MiningConfig, limits: Limits) -> ThresholdsView:
    """Return what was judged, and the widest band whose ranges keep within the limits."""
    lows, highs = read_ranges(database, "low", "unrelated"), read_ranges(database, "high", "near-identical")
    falling = [one for one in lows if one.counts]
    rising = [one for one in reversed(highs) if one.counts]
    low, high = _reach(falling, limits.unrelated), _reach(rising, limits.near)
    ((judged,),) = database.execute("SELECT count(*) FROM judged").fetchall()
    band = (max(low.low, 0.0), min(high.high, 1.0)) if low and high else (1.0, 0.0)
    charts = [
        _draw("Lowest similarity of any encoder", lows, f"min {mining.min_similarity:g}", mining.min_similarity),
        _draw("Highest similarity of any encoder", highs, f"max {mining.max_similarity:g}", mining.max_similarity),
    ]
    return ThresholdsView(
        charts=[chart for chart in charts if chart],
        lows=lows,
        highs=highs,
        judged=judged,
        band=(mining.min_similarity, mining.max_similarity),
        suggested=band if band[0] < band[1] else None,
    )


def read_ranges(database: duckdb.DuckDBPyConnection, side: str, bad: str) -> list[Range]:
    """Return the ranges of the lowest or of the highest similarity ("low", "high"), the most similar first."""
    rows = database.execute(
        f"""SELECT round(cell * {WIDTH}::DOUBLE, 4), round((cell + 1) * {WIDTH}::DOUBLE, 4), n, coalesce(shown, 0),
            coalesce(bad, 0), coalesce(of, 0)
        FROM (SELECT {side} AS cell, sum(n)::BIGINT AS n FROM counts GROUP BY 1) LEFT JOIN
            (SELECT floor({side} / {WIDTH})::INT AS cell, count(*) AS shown, count(verdict) AS of,
                count(*) FILTER (verdict = ?) AS bad FROM cards LEFT JOIN judged USING (key) WHERE sampled GROUP BY 1)
            USING (cell) ORDER BY cell DESC""",
        [bad],
    ).fetchall()
    return [Range(*numbers, bad=Proportion(many, of)) for *numbers, many, of in rows]


def _reach(ranges: Sequence[Range], limit: float) -> Range | None:
    within = list(takewhile(lambda one: one.bad.hits <= limit / 100 * one.bad.of + 1e-9, ranges))
    return within[-1] if within else None


def _draw(title: str, ranges: Sequence[Range], word: str, now: float) -> Chart | None:
    rising = ranges[::-1]
    values = np.array([one.low + WIDTH / 2 for one in rising])
    counts = np.array([one.candidates for one in rising], np.int64)
    series = [("candidates", "plain", Tally(values, counts))]
    return draw_histogram(title, series, unit="cosine", now=(now, word))
