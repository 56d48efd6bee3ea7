"""Scores from sums over items, with bootstrap intervals.

Intervals are percentiles over resamples of the items with replacement; statistics are summed,
nothing is scored again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Statistics of items, ``(items, columns)``, whose sums give scores of any set of items.

    ``conclude`` maps sums ``(..., columns)`` to ``(..., names)`` scores; NaN: undefined.
    """

    names: tuple[str, ...]
    statistics: Floats
    conclude: Callable[[Floats], Floats]
    category: str = ""  # of the items; empty: all
    percent: bool = True  # whether it is a share, or has its own scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Score with its interval; shares are fractions. ``None``: undefined, or no interval."""

    category: str = ""
    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    items: int
    percent: bool = True


def measure_mean(
    name: str, scores: Sequence[float] | Floats, *, category: str = "", percent: bool = True
) -> Measured:
    """Return the mean of the items' scores."""
    return measure_ratios(
        {name: (scores, np.ones(len(scores)))}, category=category, percent=percent
    )


def measure_ratios(
    ratios: Mapping[str, tuple[Sequence[float] | Floats, Sequence[float] | Floats]],
    *,
    category: str = "",
    percent: bool = True,
) -> Measured:
    """Return ratios of sums: by name, numerator and denominator of each item."""

    def divide(sums: Floats) -> Floats:
        above, below = sums[..., ::2], sums[..., 1::2]
        return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)

    columns = [np.array(side, np.float64).reshape(-1) for pair in ratios.values() for side in pair]
    statistics = np.stack(columns, axis=1)
    return Measured(
        names=tuple(ratios),
        statistics=statistics,
        conclude=divide,
        category=category,
        percent=percent,
    )


def conclude(measured: Iterable[Measured], *, resamples: int, seed: int) -> list[Score]:
    """Return the scores, in order, with intervals unless ``resamples`` is 0."""
    scores = list[Score]()
    for one in measured:
        items, found = len(one.statistics), np.full((len(one.names), 3), np.nan)
        if items:
            found[:, 0] = one.conclude(one.statistics.sum(axis=0))
        if items and resamples:
            found[:, 1:] = resample(one, resamples=resamples, seed=seed)
        found[np.isnan(found[:, 0])] = np.nan
        of: dict[str, Any] = {"category": one.category, "items": items, "percent": one.percent}
        for name, row in zip(one.names, found.tolist(), strict=True):
            value, low, high = (number if np.isfinite(number) else None for number in row)
            scores.append(Score(name=name, value=value, low=low, high=high, **of))
    return scores


def resample(one: Measured, *, resamples: int, seed: int, confidence: float = CONFIDENCE) -> Floats:
    """Return both ends of each score's interval, ``(names, 2)``; items drawn depend on seed and number alone."""
    rng, items = np.random.default_rng(seed), len(one.statistics)
    sums = np.array(
        [one.statistics[rng.integers(0, items, items)].sum(axis=0) for _ in range(resamples)]
    )
    tail = (1 - confidence) / 2
    with np.errstate(invalid="ignore"):
        return np.quantile(one.conclude(sums), [tail, 1 - tail], axis=0).T
