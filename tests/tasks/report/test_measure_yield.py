from dataclasses import replace

import pytest

from pairwright.schemas.config import MiningConfig
from pairwright.tasks.report.chart_lines import Line, draw_lines
from pairwright.tasks.report.measure_yield import measure_yield, tally_pairs
from pairwright.tasks.report.tables import Tables
from tests.tasks.report.handmade import build_handmade, make_whole
from tests.tasks.report.handmade_neighbours import EMBEDDERS, MINING, build_neighbours, make_five, make_neighbours

P, Q = EMBEDDERS


def counts(chart):
    return {row[0]: row[1:] for row in chart.numbers.rows}


def test_neighbours_are_counted_at_every_threshold(tmp_path):
    images = make_five()
    rows = make_neighbours(images)
    with build_neighbours(tmp_path, images, rows) as build:
        chart = measure_yield(Tables(build), MINING.model_copy(update={"max_similarity": 0.95}))[0]
    assert chart.numbers.heads == ("threshold", P, Q)
    stored = [[s for row in rows for s in row.similarities[place] if s <= 0.95] for place in (0, 1)]
    for threshold, found in counts(chart).items():
        assert found == tuple(str(sum(s >= float(threshold) for s in own)) for own in stored), threshold
    assert len(set(counts(chart).values())) > 3


def test_pairs_are_counted_by_encoder(tmp_path):
    made = make_whole(2, 3)
    pairs = made.of("pairs")
    made.tables["pairs"] = [replace(row, similarities=(0.8 + n / 100, 0.9)) for n, row in enumerate(pairs)]
    with build_handmade(tmp_path, made, until="pairs") as (build, _):
        found = tally_pairs(Tables(build))
        (chart,) = measure_yield(Tables(build), MiningConfig())
    assert found["layout"].values.tolist() == pytest.approx([0.8, 0.81, 0.82, 0.83, 0.84])
    assert found["gradients"].total == len(pairs) == 5
    assert (counts(chart)["0.82"], counts(chart)["0.9"]) == (("3", "5"), ("0", "5"))
    assert chart.title.startswith("Pairs")


def test_lines_are_drawn_where_their_numbers_are():
    line = Line(name="a", values=(4, 2, 0))
    chart = draw_lines("t", [line], (0.0, 0.5, 1.0), unit="pairs", axis="x", mark=0.5)
    # 420 wide with 40 to the left and 10 to the right; 210 high with 12 above and 26 below.
    assert chart.lines[0].points == "40.0,12.0 225.0,98.0 410.0,184.0"
    assert (chart.mark.place, chart.mark.label) == (225.0, "now 0.5")
    assert chart.summary == "t. a: 4 at 0.00, 0 at 1.00."
    assert draw_lines("t", [line], (0.0, 0.5, 1.0), unit="", axis="x", mark=2.0).mark is None
    assert draw_lines("t", [], (0.0, 1.0), unit="", axis="x") is None
