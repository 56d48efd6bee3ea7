from types import SimpleNamespace

import duckdb
import numpy as np
import pytest

from pairwright.tasks.report.measure_dataset import (
    count_words,
    measure_dataset,
    measure_removals,
    measure_truth,
)
from pairwright.tasks.report.query_tables import Tables
from tests.tasks.report.handmade import Handmade, build_handmade, make_whole
from tests.tasks.report.handmade_removals import TOO_LARGE


def truth(groups, pairs):
    database = duckdb.connect()
    database.execute('CREATE TABLE images (key VARCHAR, "group" VARCHAR)')
    database.execute("CREATE TABLE pairs (first VARCHAR, second VARCHAR)")
    for row in groups.items():
        database.execute("INSERT INTO images VALUES (?, ?)", row)
    for row in pairs:
        database.execute("INSERT INTO pairs VALUES (?, ?)", row)
    return measure_truth(database)


def test_truth_by_hand():
    groups = {"a": "1", "b": "1", "c": "1", "d": "2", "e": "2", "f": "3", "g": ""}
    found = truth(groups, [("a", "b"), ("d", "e"), ("a", "f"), ("a", "g"), ("a", "x")])
    assert (found.images, found.groups, found.judged, found.right) == (6, 3, 3, 2)
    assert found.possible == 3 + 1
    assert (found.partnered, found.found) == (5, 4)
    assert truth({"a": "", "b": ""}, [("a", "b")]) is None
    assert truth({}, []) is None
    found = truth({"a": "1", "b": "1"}, [])
    assert (found.judged, found.right, found.found) == (0, 0, 0)


def test_measures_of_a_dataset(tmp_path):
    made = make_whole()
    with build_handmade(tmp_path, made) as (build, _):
        measures = SimpleNamespace(**measure_dataset(Tables(build)))
        words = count_words(Tables(build), "captions", "text")
    assert words.values.repeat(words.counts).tolist() == sorted(
        len(row.text.split()) for row in made.of("captions")
    )
    pairs, preferences = made.of("pairs"), made.of("preferences")
    assert [chart.title for chart in measures.similarities] == [
        "Similarity by layout",
        "Similarity by gradients",
        "Similarity, weighted together",
    ]
    for chart, values in zip(
        measures.similarities, zip(*(row.similarities for row in pairs), strict=True), strict=False
    ):
        assert chart.legend[0][2].startswith(
            f"median {np.quantile(values, 0.5, method='inverted_cdf'):.2f}, "
        )
        assert chart.legend[0][2].endswith(f"({len(pairs)})")
    assert measures.lengths[-1].legend[1][1] == "rejected"
    assert measures.splits == {
        split: sum(row.split == split for row in preferences)
        for split in ("train", "validation", "test")
    }
    groups = {row.key: row.group for row in made.of("images")}
    assert measures.truth.right == sum(groups[row.first] == groups[row.second] for row in pairs)


def measure(root, made, until="preferences"):
    with build_handmade(root, made, until=until) as (build, _):
        return measure_removals(Tables(build))


@pytest.fixture(scope="module")
def found(tmp_path_factory, made):
    return measure(tmp_path_factory.mktemp("whole"), made)


def test_every_step_is_counted_with_its_reasons(found, made):
    """24 images of four looked-for tags each, three balls and a table, beside a cloud and one
    refused name."""
    assert found.refused_tags == {"names no thing": 24}
    assert found.elements == {"can be removed": 72, TOO_LARGE: 24}
    assert found.inspected == {
        "passed all checks": 48,
        "changed outside": 6,
        "halo": 6,
        "something grew": 6,
        "still detected": 6,
    }
    # Of seven pairs in a row, one has a crop and one has nothing; a pair without a preference does
    # not count.
    made_of = [row.rejected_image_maker for row in made.of("preferences")]
    names = {"removal": "an element removed", "crop": "a random crop", "": "none"}
    assert found.made == {name: made_of.count(maker) for maker, name in names.items()}
    assert (found.candidates, found.able) == (6, 4)


def test_before_there_are_preferences_pairs_are_counted(tmp_path, made):
    found = measure(tmp_path, made, until="rejections")
    assert sum(found.made.values()) == len(made.of("rejections"))


def test_a_dataset_without_rejected_images_has_none_of_it(tmp_path, made):
    assert measure(tmp_path, made, until="retrieved") is None


def test_an_empty_table_is_counted_as_nothing(tmp_path):
    found = measure(tmp_path, Handmade(), until="inspected")
    assert (found.refused_tags, found.made, found.candidates) == ({}, {}, 0)
