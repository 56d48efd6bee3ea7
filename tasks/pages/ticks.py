"""Choose round numbers for the axes of a chart."""

import math
from dataclasses import dataclass

LEAST = 1e-300
"""A range that is smaller is shown as a point: so near to zero floats have no place for ticks."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Be a place on an axis with its number."""

    place: float
    label: str


def round_step(least_width: float, *, least: float) -> float:
    """Return the smallest of 1, 2, 5, 10, ... times a power of ten that is not below the width."""
    power = 10.0 ** math.floor(math.log10(least_width))
    width = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least_width * (1 - 1e-9))
    return max(width, least)


def nice_ticks(most: float) -> list[float]:
    """Return a few round numbers from 0 to at least ``most``."""
    step = round_step(max(most, 1) / 4, least=1)
    return [step * number for number in range(math.ceil(max(most, 1) / step - 1e-9) + 1)]


def ticks_between(low: float, high: float) -> list[float]:
    """Return a few round numbers, at least two, from at most ``low`` to at least ``high``."""
    if high - low <= max(1e-9 * max(abs(low), abs(high)), LEAST):  # closer, and a float cannot tell the ticks apart
        room = abs(low) / 2 if abs(low) > LEAST else 1.0
        low, high = low - room, high + room
    step = round_step((high - low) / 4, least=0.0)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, last + 1)]
