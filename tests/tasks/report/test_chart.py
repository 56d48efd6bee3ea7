import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.tasks.report.chart import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Series,
    draw_histogram,
    find_edges,
)
from pairwright.tasks.report.tally_values import tally


def series(*values, name="all", tone="plain"):
    return Series(name=name, tally=tally([np.array(values, np.float32)]), tone=tone)


def test_whole_numbers_have_a_bin_each():
    edges, step = find_edges(3, 9, whole=True)
    assert step == 1
    assert set(range(3, 11)) <= set(edges.tolist())


def test_one_value_stands_in_the_middle_of_a_few_bins():
    edges, step = find_edges(17, 17, whole=True)
    assert (edges[0], edges[-1], step) == (13, 22, 1)
    assert find_edges(0, 0, whole=True)[0][0] == 0


def test_bars_stand_for_the_counts():
    chart = draw_histogram("Words", [series(10, 10, 10, 12)], unit="words", whole=True)
    assert [bar.label for bar in chart.bars] == ["all, 10 to 11: 3", "all, 12 to 13: 1"]
    three, one = chart.bars
    # Ticks end at 3, so the bar of 3 fills the height, and that of 1 a third of it.
    assert three.height == HEIGHT - BOTTOM - TOP
    assert one.height == pytest.approx(three.height / 3, abs=0.02)
    assert three.y + three.height == pytest.approx(HEIGHT - BOTTOM)


def test_two_series_share_a_bin_side_by_side():
    chart = draw_histogram("x", [series(5, name="a"), series(5, name="b", tone="rejected")], unit="", whole=True)
    a, b = chart.bars
    assert b.x == pytest.approx(a.x + a.width, abs=0.02)
    assert (a.tone, b.tone) == ("plain", "rejected")


def test_legend_and_summary_say_it_in_words():
    chart = draw_histogram("Similarity", [series(*np.linspace(0, 1, 101), name="layout")], unit="cosine")
    assert (chart.legend[0].median, chart.legend[0].middle, chart.legend[0].count) == ("0.50", "0.05 to 0.95", "101")
    assert chart.summary == "Similarity. layout: 101 values, median 0.50, mostly 0.05 to 0.95."


def test_the_numbers_behind_a_picture_are_there():
    chart = draw_histogram("x", [series(10, 10, 12, name="a"), series(11, name="b")], unit="words", whole=True)
    assert chart.numbers.heads == ("words", "a", "b")
    assert chart.numbers.rows == (("10 to 11", "2", "0"), ("11 to 12", "0", "1"), ("12 to 13", "1", "0"))


def test_nothing_gives_no_chart():
    assert draw_histogram("x", [series()], unit="") is None
    assert len(draw_histogram("x", [series(), series(1)], unit="").legend) == 1


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=50), st.booleans())
def test_every_value_is_in_a_bar_inside_the_frame(values, whole):
    values = [round(value * 90) for value in values] if whole else values
    chart = draw_histogram("x", [series(*values)], unit="", whole=whole)
    assert sum(int(bar.label.rpartition(": ")[2]) for bar in chart.bars) == len(values)
    for bar in chart.bars:
        assert LEFT <= bar.x <= bar.x + bar.width <= WIDTH - RIGHT + 0.1
        assert TOP - 0.1 <= bar.y <= HEIGHT - BOTTOM
    assert len(chart.across) <= 12
