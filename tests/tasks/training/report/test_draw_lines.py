"""Line charts: where points lie, what is smoothed, what is left out."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.tasks.training.report.draw_lines import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MOST_POINTS,
    RIGHT,
    TOP,
    WIDTH,
    Frame,
    Points,
    Series,
    draw_lines,
    show_value,
    smooth,
    thin,
)

NONE = Points(np.zeros(0), np.zeros(0))


def points(*values: float, first: int = 1) -> Points:
    return Points(np.arange(first, first + len(values), dtype=np.float64), np.array(values, np.float64))


def series(train: Points = NONE, held_out: Points = NONE, name: str = "loss") -> Series:
    return Series(name=name, tone="plain", train=train, held_out=held_out)


def frame(last: float, *, holds: tuple[float, ...] = (), percent: bool = False) -> Frame:
    return Frame(title="Loss", unit="", last=last, holds=holds, percent=percent)


def corners(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", path)]


def test_a_line_goes_from_corner_to_corner() -> None:
    chart = draw_lines(frame(10), [series(Points(np.array([0.0, 10.0]), np.array([0.0, 4.0])))])
    assert chart
    assert [stroke.kind for stroke in chart.strokes] == ["smooth"]
    assert corners(chart.strokes[0].path) == [(LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, TOP)]
    assert [tick.label for tick in chart.up] == ["0", "1", "2", "3", "4"]
    assert chart.up[0].place == HEIGHT - BOTTOM
    assert [tick.label for tick in chart.across] == ["0", "5", "10"]


def test_nothing_that_can_be_drawn_is_no_chart() -> None:
    assert draw_lines(frame(10), [series()]) is None
    assert draw_lines(frame(10), [series(points(math.nan, math.inf))]) is None


def test_values_that_are_no_numbers_are_left_out_and_the_rest_is_drawn() -> None:
    chart = draw_lines(frame(4), [series(points(2, math.nan, -math.inf, 1))])
    assert chart
    assert len(corners(chart.strokes[0].path)) == 2
    assert (chart.legend[0].first, chart.legend[0].last) == ("2", "1")


def test_a_wild_value_of_the_faint_line_does_not_flatten_the_rest() -> None:
    values = np.ones(400)
    values[200] = 1e6
    values[::2] = 2.0
    chart = draw_lines(frame(400), [series(points(*values))])
    assert chart
    spread = smooth(points(*values)).values.max()
    assert float(chart.up[-1].label.replace(",", "")) < 2 * spread
    faint = next(stroke for stroke in chart.strokes if stroke.kind == "raw")
    assert min(y for _, y in corners(faint.path)) >= TOP


def test_held_out_values_are_dots_that_say_what_they_are() -> None:
    chart = draw_lines(
        frame(20, percent=True), [series(held_out=Points(np.array([10.0, 20.0]), np.array([0.25, 0.5])))]
    )
    assert chart
    assert [dot.label for dot in chart.dots] == ["loss, held-out, step 10: 25.0%", "loss, held-out, step 20: 50.0%"]
    assert [stroke.kind for stroke in chart.strokes] == ["held"]
    assert chart.summary == "Loss. loss: 50.0% on held-out rows."


def test_one_logged_value_is_a_dot() -> None:
    chart = draw_lines(frame(1), [series(points(3))])
    assert chart
    assert chart.strokes == ()
    assert [dot.label for dot in chart.dots] == ["loss, train, step 1: 3"]


def test_few_points_are_not_smoothed_and_many_are_by_hand() -> None:
    few = points(*range(20))
    assert smooth(few) is few
    # 40 points look back over 2: each mean is half the value and half the mean before, by the weights so far.
    smoothed = smooth(points(1.0, 0.0, *([0.0] * 38)))
    assert smoothed.values[:3] == pytest.approx([1.0, (0.25 * 1) / 0.75, 0.125 / 0.875])


def test_what_is_no_measurement_is_not_smoothed() -> None:
    exact = Series(name="rate", tone="plain", train=points(*range(100)), held_out=NONE, exact=True)
    chart = draw_lines(frame(100), [exact])
    assert chart
    assert [stroke.kind for stroke in chart.strokes] == ["smooth"]
    assert chart.legend[0].last == "99"


def test_long_lines_keep_their_highest_and_lowest_values_and_their_end() -> None:
    values = np.sin(np.arange(5000) / 7)
    values[1234], values[4321] = 9.0, -9.0
    kept = thin(points(*values))
    assert len(kept) <= MOST_POINTS + 1
    assert (kept.values.max(), kept.values.min(), kept.steps[-1]) == (9.0, -9.0, 5000)
    assert (np.diff(kept.steps) > 0).all()


@pytest.mark.parametrize(
    ("value", "percent", "shown"),
    [(0.12345, False, "0.123"), (12345.6, False, "12,346"), (0.5, True, "50.0%"), (-0.0001, False, "-0.0001")],
)
def test_values_are_shown_in_three_figures(value: float, percent: bool, shown: str) -> None:
    assert show_value(value, percent=percent) == shown


def test_small_rates_have_short_labels() -> None:
    chart = draw_lines(frame(2, holds=(0.0,)), [series(points(0.0, 3e-5))])
    assert chart
    assert [tick.label for tick in chart.up] == ["0", "1e-05", "2e-05", "3e-05"]


@given(
    values=st.lists(st.floats(), max_size=60),
    held=st.lists(st.floats(), max_size=4),
    holds=st.sampled_from([(), (0.0,), (0.0, 1.0)]),
    percent=st.booleans(),
)
def test_whatever_was_logged_stays_inside_the_drawing(
    values: list[float], held: list[float], holds: tuple[float, ...], percent: bool
) -> None:
    last = max(len(values), len(held), 1)
    chart = draw_lines(frame(last, holds=holds, percent=percent), [series(points(*values), points(*held))])
    for x, y in [place for stroke in (chart.strokes if chart else ()) for place in corners(stroke.path)]:
        assert LEFT <= x <= WIDTH - RIGHT
        assert TOP <= y <= HEIGHT - BOTTOM
    assert chart is None or len(chart.up) >= 2
