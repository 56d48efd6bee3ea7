"""Estimate amounts from a sample: a number with the range that holds it 19 times of 20.

A rate is the ratio of two sums over shards. Its spread is that of the shards around it (Cochran, Sampling Techniques,
6.4), taken on a logarithmic scale, so that no range falls below zero. Rates are multiplied along the line of stages;
their errors are taken as independent and add in squares.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

SIGMAS = 1.96
NONE_SEEN = 3.0
"""Of n without a single one, at most 3 in n are such, 19 times of 20."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Be an amount, and the range that it is probably in."""

    value: float
    low: float
    high: float

    def __mul__(self, other: "Estimate") -> "Estimate":
        """Return the product of two independent estimates."""
        value = self.value * other.value
        if not value:
            return Estimate(0.0, 0.0, self.high * other.high if self.high and other.high else 0.0)
        up = math.hypot(math.log(self.high / self.value), math.log(other.high / other.value))
        down = math.hypot(_depth(self), _depth(other))
        return Estimate(value, value * math.exp(-down), value * math.exp(up))

    def __add__(self, other: "Estimate") -> "Estimate":
        """Return the sum; what is added along a line rises and falls together, so that the ranges add, too."""
        return Estimate(self.value + other.value, self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> "Estimate":
        """Return a multiple."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def as_json(self) -> dict[str, Any]:
        """Return the form that scripts read."""
        return {"value": _rounded(self.value), "low": _rounded(self.low), "high": _rounded(self.high)}


def exactly(value: float) -> Estimate:
    """Return what is known."""
    return Estimate(value, value, value)


NOTHING = exactly(0.0)


def share_of(part: float, whole: int) -> Estimate:
    """Return a share with Wilson's range, which suits small numbers and shares near 0 and 1."""
    z = SIGMAS**2
    middle = (part + z / 2) / (whole + z)
    half = (z * (part * (whole - part) / whole + z / 4)) ** 0.5 / (whole + z)
    return Estimate(part / whole, max(0.0, middle - half), min(1.0, middle + half))


def _depth(estimate: Estimate) -> float:
    return math.log(estimate.value / estimate.low) if estimate.low else math.inf


def _rounded(value: float) -> float | None:
    """Return four digits, or all of a larger whole part: more is not known; ``None`` where there is no bound."""
    if math.isinf(value):
        return None
    return float(f"{value:.4g}") if abs(value) < 1000 else float(round(value))


def ratio(amounts: Sequence[float], of: Sequence[float]) -> Estimate:
    """Return how much there is per unit, from what was found in some samples.

    Args:
        amounts: what each sample has; not negative.
        of: its size.

    Raises:
        ValueError: the samples are empty.
    """
    total, size, count = sum(amounts), sum(of), len(of)
    if size <= 0:
        raise ValueError("no rate can be taken of nothing")
    if not total:
        return Estimate(0.0, 0.0, NONE_SEEN / size)
    rate = total / size
    if count < 2:
        return Estimate(rate, 0.0, math.inf)
    squares = sum((amount - rate * unit) ** 2 for amount, unit in zip(amounts, of, strict=True))
    spread = SIGMAS * math.sqrt(squares * count / (count - 1)) / total
    return Estimate(rate, rate * math.exp(-spread), rate * math.exp(spread))


def add(estimates: Iterable[Estimate]) -> Estimate:
    """Return the sum of several."""
    total = NOTHING
    for estimate in estimates:
        total += estimate
    return total
