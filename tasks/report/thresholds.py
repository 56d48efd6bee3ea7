"""Suggest mining thresholds from judgements of candidates, range by range of similarity.

Reads the file of cards and the judgements. A candidate is in the band if its lowest similarity of
any embedder is at least ``min_similarity`` and its highest at most ``max_similarity``: unrelated
pairs determine the one, near-identical ones the other. Shares have a 90 % confidence interval
(Wilson). A range is within a limit if the interval's upper end is; ranges farther inside the band
count as no worse, unless judged otherwise.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, NamedTuple

import duckdb
from pydantic import Field

from pairwright.schemas.config import MiningConfig
from pairwright.tasks.pages.charts import Proportion
from pairwright.tasks.report.card_table import PER_BIN, WIDTH
from pairwright.tasks.report.search_cards import PageQuery

Z = 1.645  # normal quantile of a 90 % interval
Percent = Annotated[float, Field(ge=0, le=100)]


class Limits(PageQuery):
    """Largest shares, in percent, that a range of the band may have; and thresholds picked from the tables."""

    unrelated: Percent = 10
    near: Percent = 10
    low: Annotated[float, Field(ge=-2, le=2)] | None = None
    high: Annotated[float, Field(ge=-2, le=2)] | None = None


class Range(NamedTuple):
    """Candidates of one range of similarity, ``low`` <= similarity < ``high``, and their judgements."""

    low: float
    high: float
    candidates: int
    shown: int
    bad: Proportion  # unrelated, or near-identical, ones among the judged
    whole: bool = (
        False  # whether all candidates are shown, so that their share is exact once all are judged
    )

    @property
    def interval(self) -> tuple[float, float]:
        """Return the interval of its share."""
        if not self.bad.of:
            return 0.0, 1.0
        counted = self.whole and self.bad.of == self.shown
        return (self.bad.value, self.bad.value) if counted else self.bad.interval(Z)


@dataclass(frozen=True, kw_only=True)
class ThresholdsView:
    """Content of the page."""

    lows: Sequence[Range]  # by the lowest similarity, the most similar first
    highs: Sequence[Range]
    judged: int
    band: tuple[float, float]
    suggested: tuple[float, float] | None
    owed: Sequence[tuple[str, Range]]  # range to judge next, by side ("low", "high")


def view_thresholds(
    database: duckdb.DuckDBPyConnection, mining: MiningConfig, limits: Limits
) -> ThresholdsView:
    """Return the judgements, and the widest band of ranges within the limits."""
    lows, highs = (
        read_ranges(database, "low", "unrelated"),
        read_ranges(database, "high", "near-identical"),
    )
    low, low_owed = _reach(lows, limits.unrelated)
    high, high_owed = _reach(highs[::-1], limits.near)
    ((judged,),) = database.execute("SELECT count(*) FROM judged").fetchall()
    band = (max(low.low, 0.0), min(high.high, 1.0)) if low and high else (1.0, 0.0)
    return ThresholdsView(
        lows=lows,
        highs=highs,
        judged=judged,
        band=(mining.min_similarity, mining.max_similarity),
        suggested=band if band[0] < band[1] else None,
        owed=[(side, one) for side, one in (("low", low_owed), ("high", high_owed)) if one],
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
    query = f"SELECT 1 FROM cards WHERE sampled GROUP BY floor(low / {WIDTH}) HAVING count(*) >= {PER_BIN} LIMIT 1"
    whole = not database.execute(query).fetchall()
    return [Range(*numbers, bad=Proportion(many, of), whole=whole) for *numbers, many, of in rows]


def _reach(ranges: Sequence[Range], limit: float) -> tuple[Range | None, Range | None]:
    """Return the outermost range within a limit, and the range to judge next.

    The latter is in the middle between the former and the first range beyond the limit, halving the
    open ranges.
    """
    share = limit / 100 + 1e-9
    # An interval even for an exact share, so that one slip among a few pairs does not end the band.
    beyond = [
        place for place, one in enumerate(ranges) if one.bad.of and one.bad.interval(Z)[0] > share
    ]
    end = beyond[0] if beyond else len(ranges)
    within = [place for place in range(end) if ranges[place].interval[1] <= share]
    start = within[-1] + 1 if within else 0
    owed = [one for one in ranges[start:end] if one.bad.of < one.shown]
    return ranges[within[-1]] if within else None, owed[len(owed) // 2] if owed else None


class Agreement(NamedTuple):
    """Agreement of two annotators on the pairs that both judged."""

    names: tuple[str, str]
    same: Proportion
    kappa: float | None  # Cohen's kappa; ``None``: undefined, since all verdicts are the same


def compare_annotators(judged: Mapping[str, Mapping[str, str]]) -> Iterator[Agreement]:
    """Yield the agreement of every two annotators with a common pair."""
    for one, other in combinations(sorted(judged), 2):
        said = [
            (judged[one][key], judged[other][key])
            for key in sorted(judged[one].keys() & judged[other].keys())
        ]
        if said:
            from sklearn.metrics import cohen_kappa_score

            same = Proportion(sum(a == b for a, b in said), len(said))
            first, second = zip(*said, strict=True)
            kappa = float(cohen_kappa_score(first, second)) if len({*first, *second}) > 1 else None
            yield Agreement((one, other), same, kappa)
