"""Lay out lines over one axis, with one place on it marked; the template draws them as SVG.

Reads and writes nothing. All numbers are in units of the drawing, which is that of the histograms.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pairwright.tasks.pages.ticks import Tick, nice_ticks, ticks_between
from pairwright.tasks.report.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Numbers

TONES = 6
"""Kinds of lines that the style sheet tells apart, by colour and by dashes."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """Be the values of one thing at the places of the axis."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLine:
    """Be one line ready to be drawn."""

    name: str
    tone: int
    points: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """Be lines ready to be drawn."""

    title: str
    unit: str
    lines: tuple[DrawnLine, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    mark: Tick | None
    """A place that is meant: the present setting."""
    summary: str
    numbers: Numbers


def draw_lines(
    title: str, lines: Sequence[Line], places: Sequence[float], *, unit: str, axis: str, mark: float | None = None
) -> LineChart | None:
    """Lay out lines over rising places; fewer than two places give ``None``."""
    if not lines or len(places) < 2:
        return None
    up = nice_ticks(max(value for line in lines for value in line.values))
    ends = (places[0], places[-1])
    inside = mark is not None and ends[0] <= mark <= ends[1]
    return LineChart(
        title=title,
        unit=unit,
        lines=tuple(
            DrawnLine(name=line.name, tone=number % TONES, points=_points(line, places, ends=ends, top=up[-1]))
            for number, line in enumerate(lines)
        ),
        across=tuple(Tick(_place(at, ends), f"{at:.2f}") for at in ticks_between(*ends) if ends[0] <= at <= ends[1]),
        up=tuple(Tick(_height(value, up[-1]), f"{value:,.0f}") for value in up),
        mark=Tick(_place(mark, ends), f"now {mark:g}") if inside and mark is not None else None,
        summary=f"{title}. " + " ".join(_say(line, places) for line in lines),
        numbers=Numbers(
            heads=(axis, *(line.name for line in lines)),
            rows=tuple(
                (f"{at:.3g}", *(f"{line.values[number]:,.0f}" for line in lines)) for number, at in enumerate(places)
            ),
        ),
    )


def _points(line: Line, places: Sequence[float], *, ends: tuple[float, float], top: float) -> str:
    pairs = zip(places, line.values, strict=True)
    return " ".join(f"{_place(place, ends)},{_height(value, top)}" for place, value in pairs)


def _place(value: float, ends: tuple[float, float]) -> float:
    return round(LEFT + (value - ends[0]) / (ends[1] - ends[0]) * (WIDTH - LEFT - RIGHT), 2)


def _height(value: float, top: float) -> float:
    return round(HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP), 2)


def _say(line: Line, places: Sequence[float]) -> str:
    return f"{line.name}: {line.values[0]:,.0f} at {places[0]:.2f}, {line.values[-1]:,.0f} at {places[-1]:.2f}."
