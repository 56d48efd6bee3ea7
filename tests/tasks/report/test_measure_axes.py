"""Words and axes of comparisons, counted by hand."""

from dataclasses import replace

import pyarrow as pa
import pytest

from pairwright.schemas.rows import Turn
from pairwright.tasks.report.measure_axes import UNLABELLED, count_list_words, mark_axes, measure_summaries
from pairwright.tasks.report.tables import Tables
from tests.tasks.report.handmade import Handmade, build_handmade, make_whole


def column(*lists):
    return pa.chunked_array([list(lists)], pa.list_(pa.string()))


def test_words_of_lists():
    assert count_list_words(column(["Both show a table."], [], ["  One\ttwo ", "", "three"])) == 4 + 2 + 1
    assert count_list_words(column()) == 0
    assert count_list_words(column([], [""])) == 0


def test_axes_of_statements():
    # object types, attributes, counts, actions, locations, relative positions, none named
    marks = mark_axes(column(["counts, locations", "counts"], [""], [], ["attributes", "", "of the moon"]))
    assert marks.astype(int).tolist() == [
        [0, 0, 1, 0, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 1],
        [0, 0, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0, 1],
    ]


def test_axes_of_rows_without_statements():
    assert not mark_axes(column([], [])).any()


def test_comparisons_of_a_dataset(tmp_path):
    made = make_whole(3, 3)
    turns = tuple(Turn(role=role, text=text) for role, text in (("user", "q"), ("assistant", "a"), ("user", "which?")))
    rows = [
        replace(
            row,
            commonalities=("Both show a table.",) if n else ("Both show a very old table.", "Both are warm."),
            differences=("One two three.", "Four."),
            axes=("object types", "counts, attributes") if n else ("object types", ""),
            conversation=(*turns, Turn(role="assistant", text="AB"[n % 2])) if n < 3 else turns[:2],
        )
        for n, row in enumerate(made.of("comparisons"))
    ]
    many = len(rows)
    with build_handmade(tmp_path, Handmade({**made.tables, "comparisons": rows}), until="comparisons") as (build, _):
        found = measure_summaries(Tables(build))
    assert found.rows == many
    assert found.common_words == pytest.approx((9 + 4 * (many - 1)) / many)
    assert found.difference_words == 4
    assert found.axes == {
        "object types": many,
        "attributes": many - 1,
        "counts": many - 1,
        "actions": 0,
        "locations": 0,
        "relative positions": 0,
        UNLABELLED: 1,
    }
    assert found.per_summary == pytest.approx((3 * (many - 1) + 1) / many)
    assert (found.asked, found.answers) == (3, {"A": 2, "B": 1})


def test_no_comparisons(tmp_path):
    with build_handmade(tmp_path, make_whole(2, 2), until="pairs") as (build, _):
        assert measure_summaries(Tables(build)) is None
