import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pairwright.tasks.pages import charts

LEFT, RIGHT = charts.LEFT, charts.WIDTH - charts.RIGHT
TOP, BOTTOM = charts.TOP, charts.HEIGHT - charts.BOTTOM


def series(*values, name="all"):
    counts = np.unique(np.array(values, np.float64), return_counts=True)
    return name, "plain", charts.ValueCounts(*counts)


def draw(*drawn, **options):
    return charts.draw_histogram("Words", drawn, unit="words", **options)


def test_whole_numbers_have_a_bin_each():
    edges, step = charts.find_edges(3, 9, whole=True)
    assert step == 1
    assert set(range(3, 11)) <= set(edges.tolist())


def test_a_single_value_stands_in_the_middle():
    edges, step = charts.find_edges(17, 17, whole=True)
    assert (edges[0], edges[-1], step) == (13, 22, 1)
    assert charts.find_edges(0, 0, whole=True)[0][0] == 0


def test_series_without_values_are_left_out():
    assert draw(series()) is None
    assert len(draw(series(), series(1)).legend) == 1


def test_bars_stand_for_the_counts():
    chart = draw(series(10, 10, 10, 12), whole=True)
    assert [bar.label for bar in chart.bars] == ["all, 10 to 11: 3", "all, 12 to 13: 1"]
    three, one = chart.bars
    # Ticks end at 3, so the bar of 3 fills the height, and that of 1 a third of it.
    assert three.height == BOTTOM - TOP
    assert one.height == pytest.approx(three.height / 3, abs=0.02)
    assert three.y + three.height == pytest.approx(BOTTOM)


def test_legend_and_summary_tell_the_middle_and_the_ends():
    chart = draw(series(*np.linspace(0, 1, 101), name="layout"))
    words = "median 0.50, 90 % from 0.05 to 0.95 (101)"
    assert chart.legend == [("plain", "layout", words)]
    assert chart.summary == f"Words. layout: {words}."


def test_a_chart_is_a_table_too():
    chart = draw(series(10, 10, 12, name="a"), series(11, name="b"), whole=True)
    assert chart.heads == ("words", "a", "b")
    assert chart.rows == [("10 to 11", "2", "0"), ("11 to 12", "0", "1"), ("12 to 13", "1", "0")]


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=50), st.booleans())
def test_every_value_is_in_a_bar_inside_the_frame(values, whole):
    values = [round(value * 90) for value in values] if whole else values
    chart = draw(series(*values), whole=whole)
    assert sum(int(bar.label.rpartition(": ")[2]) for bar in chart.bars) == len(values)
    for bar in chart.bars:
        assert LEFT <= bar.x <= bar.x + bar.width <= RIGHT + 0.1
        assert TOP - 0.1 <= bar.y <= BOTTOM
    assert len(chart.across) <= 12


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=60), st.floats(0, 1, width=32))
def test_quantiles_are_those_of_all_values(values, share):
    *_, counts = series(*values)
    expected = np.quantile(np.array(values, np.float64), share, method="inverted_cdf")
    assert counts.quantile(share) == expected


def test_intervals_are_wilson_s():
    share = charts.Proportion(hits=2, of=10)
    assert share.value == 0.2
    assert share.interval(1.645) == pytest.approx((0.0686, 0.4592), abs=1e-3)


def draw_line(*values, reach):
    x, y = np.linspace(0, 1, len(values)), np.array(values, float)
    line = charts.Line(name="a", x=x, y=y, tone="plain")
    about = {"title": "t", "unit": "pairs", "summary": "t", "heads": (), "rows": ()}
    return charts.draw_lines([line], reach=reach, ends=(0.0, 1.0), **about)


def test_lines_are_drawn_where_their_numbers_are():
    chart = draw_line(4.0, 2.0, 0.0, reach=(0.0, 4.0))
    middle = f"{(LEFT + RIGHT) / 2:g} {(TOP + BOTTOM) / 2:g}"
    assert chart.strokes[0].path == f"M{LEFT:g} {TOP:g}L{middle}L{RIGHT:g} {BOTTOM:g}"
    assert [tick.label for tick in chart.up] == ["0", "1", "2", "3", "4"]


def test_a_single_number_is_no_line():
    assert draw_line(3.0, reach=(3.0, 3.0)).strokes == []


@pytest.mark.parametrize(
    ("width", "step"), [(0.003, 0.005), (0.0051, 0.01), (1, 1), (2.5, 5), (0.02, 0.02)]
)
def test_steps_are_round(width, step):
    assert charts.round_step(width, least=0) == pytest.approx(step)


@pytest.mark.parametrize(("high", "ticks"), [(7, [0, 2, 4, 6, 8]), (1, [0, 1])])
def test_ticks_of_counts_are_whole(high, ticks):
    assert charts.ticks_between(0, high, whole=True) == ticks


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1, [0, 0.5, 1]),
        (-350, -120, [-400, -300, -200, -100]),
        (5, 5, [2, 4, 6, 8]),
        (0, 5e-324, [-1, -0.5, 0, 0.5, 1]),
        (1e-305, 1e-305, [-1, -0.5, 0, 0.5, 1]),
    ],
)
def test_ticks_lie_around_a_range(low, high, ticks):
    assert charts.ticks_between(low, high) == pytest.approx(ticks)


@given(st.floats(-1e15, 1e15), st.floats(-1e15, 1e15))
@example(0.0, 2.2250738585072014e-308)
@example(0.0, 1e-299)
def test_any_range_has_a_few_ticks_that_hold_it(end, other):
    low, high = sorted((end, other))
    ticks = charts.ticks_between(low, high)
    assert 2 <= len(ticks) <= 7
    room = 1e-6 * (ticks[-1] - ticks[0])
    assert ticks[0] <= low + room
    assert ticks[-1] >= high - room
    assert len(set(ticks)) == len(ticks)
