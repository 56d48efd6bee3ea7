import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pairwright.tasks.pages import charts


def series(*values, name="all", tone="plain"):
    return (
        name,
        tone,
        charts.ValueCounts(*np.unique(np.array(values, np.float64), return_counts=True)),
    )


def test_whole_numbers_have_a_bin_each_and_one_value_stands_in_the_middle():
    edges, step = charts.find_edges(3, 9, whole=True)
    assert step == 1
    assert set(range(3, 11)) <= set(edges.tolist())
    edges, step = charts.find_edges(17, 17, whole=True)
    assert (edges[0], edges[-1], step) == (13, 22, 1)
    assert charts.find_edges(0, 0, whole=True)[0][0] == 0
    assert charts.draw_histogram("x", [series()], unit="") is None
    assert len(charts.draw_histogram("x", [series(), series(1)], unit="").legend) == 1


def test_bars_stand_for_the_counts():
    chart = charts.draw_histogram("Words", [series(10, 10, 10, 12)], unit="words", whole=True)
    assert [bar.label for bar in chart.bars] == ["all, 10 to 11: 3", "all, 12 to 13: 1"]
    three, one = chart.bars
    # Ticks end at 3, so the bar of 3 fills the height, and that of 1 a third of it.
    assert three.height == charts.HEIGHT - charts.BOTTOM - charts.TOP
    assert one.height == pytest.approx(three.height / 3, abs=0.02)
    assert three.y + three.height == pytest.approx(charts.HEIGHT - charts.BOTTOM)


def test_legend_and_summary_say_it_in_words_above_the_numbers():
    chart = charts.draw_histogram(
        "Similarity", [series(*np.linspace(0, 1, 101), name="layout")], unit="cosine"
    )
    assert chart.legend == [("plain", "layout", "median 0.50, 90 % from 0.05 to 0.95 (101)")]
    assert chart.summary == "Similarity. layout: median 0.50, 90 % from 0.05 to 0.95 (101)."
    chart = charts.draw_histogram(
        "x", [series(10, 10, 12, name="a"), series(11, name="b")], unit="words", whole=True
    )
    assert chart.heads == ("words", "a", "b")
    assert chart.rows == [("10 to 11", "2", "0"), ("11 to 12", "0", "1"), ("12 to 13", "1", "0")]


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=50), st.booleans())
def test_every_value_is_in_a_bar_inside_the_frame(values, whole):
    values = [round(value * 90) for value in values] if whole else values
    chart = charts.draw_histogram("x", [series(*values)], unit="", whole=whole)
    assert sum(int(bar.label.rpartition(": ")[2]) for bar in chart.bars) == len(values)
    for bar in chart.bars:
        assert charts.LEFT <= bar.x <= bar.x + bar.width <= charts.WIDTH - charts.RIGHT + 0.1
        assert charts.TOP - 0.1 <= bar.y <= charts.HEIGHT - charts.BOTTOM
    assert len(chart.across) <= 12


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=60), st.floats(0, 1, width=32))
def test_quantiles_are_those_of_all_values(values, share):
    _, _, found = series(*values)
    every = np.array(values, np.float64)
    assert found.quantile(share) == np.quantile(every, share, method="inverted_cdf")


def test_intervals_are_wilson_s():
    assert charts.Proportion(hits=2, of=10).value == 0.2
    assert charts.Proportion(hits=2, of=10).interval(1.645) == pytest.approx(
        (0.0686, 0.4592), abs=1e-3
    )


def line(*values, name="a"):
    return charts.Line(
        name=name, x=np.linspace(0, 1, len(values)), y=np.array(values, float), tone="plain"
    )


def test_lines_and_marks_are_drawn_where_their_numbers_are():
    told = {
        "title": "t",
        "unit": "pairs",
        "ends": (0.0, 1.0),
        "summary": "t",
        "heads": (),
        "rows": (),
    }
    chart = charts.draw_lines([line(4.0, 2.0, 0.0)], reach=(0.0, 4.0), **told)
    left, right, top, bottom = (
        charts.LEFT,
        charts.WIDTH - charts.RIGHT,
        charts.TOP,
        charts.HEIGHT - charts.BOTTOM,
    )
    middle = (left + right) / 2
    assert (
        chart.strokes[0].path
        == f"M{left:g} {top:g}L{middle:g} {(top + bottom) / 2:g}L{right:g} {bottom:g}"
    )
    assert [tick.label for tick in chart.up] == ["0", "1", "2", "3", "4"]
    assert charts.draw_lines([line(3.0)], reach=(3.0, 3.0), **told).strokes == []


def test_steps_are_round_and_ticks_of_counts_whole():
    for width, expected in ((0.003, 0.005), (0.0051, 0.01), (1, 1), (2.5, 5), (0.02, 0.02)):
        assert charts.round_step(width, least=0) == pytest.approx(expected)
    assert charts.ticks_between(0, 7, whole=True) == [0, 2, 4, 6, 8]
    assert charts.ticks_between(0, 1, whole=True) == [0, 1]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.5, 1]),
        (-350, -120, [-400, -300, -200, -100]),
        (5, 5, [2, 4, 6, 8]),
        (0, 5e-324, [-1, -0.5, 0, 0.5, 1]),
        (1e-305, 1e-305, [-1, -0.5, 0, 0.5, 1]),
    ],
)
def test_ticks_lie_around_a_range(low: float, high: float, expected: list[float]) -> None:
    assert charts.ticks_between(low, high) == pytest.approx(expected)


@given(st.floats(-1e15, 1e15), st.floats(-1e15, 1e15))
@example(0.0, 2.2250738585072014e-308)
@example(0.0, 1e-299)
def test_any_range_has_a_few_ticks_that_hold_it(one: float, other: float) -> None:
    low, high = sorted((one, other))
    ticks = charts.ticks_between(low, high)
    assert 2 <= len(ticks) <= 7
    room = 1e-6 * (ticks[-1] - ticks[0])
    assert ticks[0] <= low + room
    assert ticks[-1] >= high - room
    assert len(set(ticks)) == len(ticks)
