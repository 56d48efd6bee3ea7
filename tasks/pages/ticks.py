"""Choose round numbers for the axes of a chart."""

import math
from dataclasses import dataclass


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
