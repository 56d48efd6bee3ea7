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
    """Limits of the band's ranges, and thresholds picked from the tables.

    ``unrelated`` and ``near`` are the largest shares, in percent, that a range may have.
    """

    unrelated: Percent = 10
    near: Percent = 10
    low: Annotated[float, Field(ge=-2, le=2)] | None = None
    high: Annotated[float, Field(ge=-2, le=2)] | None = None


class Range(NamedTuple):
    """Candidates with ``low`` <= similarity < ``high``, and their judgements."""

    low: float
    high: float
    candidates: int
    shown: int
    bad: Proportion  # unrelated, or near-identical, ones among the judged
    # whether all candidates are shown, so that their share is exact once all are judged
    whole: bool = False

    @property
    def interval(self) -> tuple[float, float]:
        """Return the interval of its share."""
        if not self.bad.of:
            return 0.0, 1.0
        if self.whole and self.bad.of == self.shown:
            return self.bad.value, self.bad.value
        return self.bad.interval(Z)


@dataclass(frozen=True, kw_only=True)
class ThresholdsView:
    """Content of the page."""

    lows: Sequence[Range]  # by the lowest similarity, the most similar first
    highs: Sequence[Range]
    judged: int
    band: tuple[float, float]
    suggested: tuple[float, float] | None
    next_ranges: Sequence[tuple[str, Range]]  # range to judge next, by side ("low", "high")


def view_thresholds(
    database: duckdb.DuckDBPyConnection, mining: MiningConfig, limits: Limits
) -> ThresholdsView:
    """Return the judgements, and the widest band of ranges within the limits."""
    lows = read_ranges(database, "low", "unrelated")
    highs = read_ranges(database, "high", "near-identical")
    low, next_low = _reach(lows, limits.unrelated)
    high, next_high = _reach(highs[::-1], limits.near)
    ((judged,),) = database.execute("SELECT count(*) FROM judged").fetchall()
    suggested = None
    if low and high:
        band = (max(low.low, 0.0), min(high.high, 1.0))
        if band[0] < band[1]:
            suggested = band
    pending: list[tuple[str, Range]] = []
    if next_low:
        pending.append(("low", next_low))
    if next_high:
        pending.append(("high", next_high))
    return ThresholdsView(
        lows=lows,
        highs=highs,
        judged=judged,
        band=(mining.min_similarity, mining.max_similarity),
        suggested=suggested,
        next_ranges=pending,
    )


def read_ranges(
    database: duckdb.DuckDBPyConnection,
    side: str,
    bad: str,
) -> list[Range]:
    """Return the ranges of the lowest or of the highest similarity ("low", "high").

    The most similar ones are first.
    """
    query = f"""SELECT round(cell * {WIDTH}::DOUBLE, 4), round((cell + 1) * {WIDTH}::DOUBLE, 4), n,
            coalesce(shown, 0), coalesce(bad, 0), coalesce(of, 0)
        FROM (SELECT {side} AS cell, sum(n)::BIGINT AS n FROM counts GROUP BY 1) LEFT JOIN
            (SELECT floor({side} / {WIDTH})::INT AS cell, count(*) AS shown, count(verdict) AS of,
                count(*) FILTER (verdict = ?) AS bad
            FROM cards LEFT JOIN judged USING (key) WHERE sampled GROUP BY 1)
            USING (cell) ORDER BY cell DESC"""
    rows = database.execute(query, [bad]).fetchall()
    query = f"""SELECT 1 FROM cards WHERE sampled GROUP BY floor(low / {WIDTH})
        HAVING count(*) >= {PER_BIN} LIMIT 1"""
    whole = not database.execute(query).fetchall()
    ranges: list[Range] = []
    for low, high, candidates, shown, hits, judged in rows:
        proportion = Proportion(hits, judged)
        ranges.append(
            Range(
                low,
                high,
                candidates,
                shown,
                bad=proportion,
                whole=whole,
            )
        )
    return ranges


def _reach(ranges: Sequence[Range], limit: float) -> tuple[Range | None, Range | None]:
    """Return the outermost range within a limit, and the range to judge next.

    The latter is in the middle between the former and the first range beyond the limit, halving the
    open ranges.
    """
    share = limit / 100 + 1e-9
    end = _first_beyond(ranges, share)
    outermost = None
    start = 0
    for index, candidates in enumerate(ranges[:end]):
        if candidates.interval[1] <= share:
            outermost = candidates
            start = index + 1
    unjudged = [
        candidates for candidates in ranges[start:end] if candidates.bad.of < candidates.shown
    ]
    following = unjudged[len(unjudged) // 2] if unjudged else None
    return outermost, following


def _first_beyond(ranges: Sequence[Range], share: float) -> int:
    """Return the index of the first range beyond a share, or the number of ranges."""
    for index, candidates in enumerate(ranges):
        bad = candidates.bad
        # An interval even for an exact share, so that one slip among a few pairs does not end the
        # band.
        if bad.of and bad.interval(Z)[0] > share:
            return index
    return len(ranges)


class Agreement(NamedTuple):
    """Agreement of two annotators on the pairs that both judged."""

    names: tuple[str, str]
    same: Proportion
    kappa: float | None  # Cohen's kappa; ``None``: undefined, since all verdicts are the same


def compare_annotators(judged: Mapping[str, Mapping[str, str]]) -> Iterator[Agreement]:
    """Yield the agreement of every two annotators with a common pair."""
    for first, second in combinations(sorted(judged), 2):
        common = sorted(judged[first].keys() & judged[second].keys())
        if not common:
            continue
        first_verdicts = [judged[first][key] for key in common]
        second_verdicts = [judged[second][key] for key in common]
        pairs = zip(first_verdicts, second_verdicts, strict=True)
        same = sum(verdict == other for verdict, other in pairs)
        yield Agreement(
            names=(first, second),
            same=Proportion(same, len(common)),
            kappa=_measure_kappa(first_verdicts, second_verdicts),
        )


def _measure_kappa(first: Sequence[str], second: Sequence[str]) -> float | None:
    """Return Cohen's kappa; ``None``: all verdicts are the same."""
    from sklearn.metrics import cohen_kappa_score

    if len({*first, *second}) < 2:
        return None
    return float(cohen_kappa_score(first, second))
