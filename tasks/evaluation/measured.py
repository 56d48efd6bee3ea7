"""Scores from sums over items, with bootstrap intervals.

Intervals are percentiles over resamples of the items with replacement; statistics are summed,
nothing is scored again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

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
    name: str,
    scores: Sequence[float] | Floats,
    *,
    category: str = "",
    percent: bool = True,
) -> Measured:
    """Return the mean of the items' scores."""
    return measure_ratios(
        {name: (scores, np.ones(len(scores)))},
        category=category,
        percent=percent,
    )


def measure_ratios(
    ratios: Mapping[str, tuple[Sequence[float] | Floats, Sequence[float] | Floats]],
    *,
    category: str = "",
    percent: bool = True,
) -> Measured:
    """Return ratios of sums: by name, numerator and denominator of each item."""

    def divide(sums: Floats) -> Floats:
        above = sums[..., ::2]
        below = sums[..., 1::2]
        undefined = np.full_like(above, np.nan)
        return np.divide(above, below, out=undefined, where=below > 0)

    columns: list[Floats] = []
    for numerators, denominators in ratios.values():
        columns.append(np.array(numerators, np.float64).reshape(-1))
        columns.append(np.array(denominators, np.float64).reshape(-1))
    return Measured(
        names=tuple(ratios),
        statistics=np.stack(columns, axis=1),
        conclude=divide,
        category=category,
        percent=percent,
    )


def compute_scores(
    measured: Iterable[Measured],
    *,
    resamples: int,
    seed: int,
) -> list[Score]:
    """Return the scores, in order, with intervals unless ``resamples`` is 0."""
    scores: list[Score] = []
    for measurement in measured:
        items = len(measurement.statistics)
        table = np.full((len(measurement.names), 3), np.nan)  # value, low, high
        if items:
            table[:, 0] = measurement.conclude(measurement.statistics.sum(axis=0))
        if items and resamples:
            table[:, 1:] = resample(measurement, resamples=resamples, seed=seed)
        table[np.isnan(table[:, 0])] = np.nan
        for name, numbers in zip(measurement.names, table.tolist(), strict=True):
            value, low, high = (number if np.isfinite(number) else None for number in numbers)
            score = Score(
                category=measurement.category,
                name=name,
                value=value,
                low=low,
                high=high,
                items=items,
                percent=measurement.percent,
            )
            scores.append(score)
    return scores


def resample(
    measured: Measured, *, resamples: int, seed: int, confidence: float = CONFIDENCE
) -> Floats:
    """Return both ends of each score's interval, ``(names, 2)``.

    The drawn items depend on the seed and the number of items alone.
    """
    rng = np.random.default_rng(seed)
    items = len(measured.statistics)
    rows: list[Floats] = []
    for _ in range(resamples):
        drawn = rng.integers(0, items, items)
        rows.append(measured.statistics[drawn].sum(axis=0))
    sums = np.array(rows)
    tail = (1 - confidence) / 2
    with np.errstate(invalid="ignore"):
        return np.quantile(measured.conclude(sums), [tail, 1 - tail], axis=0).T
