from types import SimpleNamespace

import duckdb
import numpy as np

from pairwright.tasks.report.measure_dataset import (
    count_words,
    measure_dataset,
    measure_removals,
    measure_truth,
)
from pairwright.tasks.report.query_tables import Tables
from tests.tasks.report.handmade import SPLITS, Handmade, build_handmade
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
    counts = truth(groups, [("a", "b"), ("d", "e"), ("a", "f"), ("a", "g"), ("a", "x")])
    assert (counts.images, counts.groups, counts.judged, counts.right) == (6, 3, 3, 2)
    assert counts.possible == 3 + 1
    assert (counts.partnered, counts.found) == (5, 4)


def test_truth_of_images_without_groups_or_pairs():
    assert truth({"a": "", "b": ""}, [("a", "b")]) is None
    assert truth({}, []) is None
    counts = truth({"a": "1", "b": "1"}, [])
    assert (counts.judged, counts.right, counts.found) == (0, 0, 0)


def test_measures_of_a_dataset(tmp_path, made):
    with build_handmade(tmp_path, made) as (build, _):
        measures = SimpleNamespace(**measure_dataset(Tables(build)))
        words = count_words(Tables(build), "captions", "text")
    lengths = sorted(len(row.text.split()) for row in made.of("captions"))
    assert words.values.repeat(words.counts).tolist() == lengths
    pairs, splits = made.of("pairs"), [row.split for row in made.of("preferences")]
    layout, gradients, together = measures.similarities
    assert layout.title == "Similarity by layout"
    assert gradients.title == "Similarity by gradients"
    assert together.title == "Similarity, weighted together"
    for place, chart in enumerate((layout, gradients)):
        values = [row.similarities[place] for row in pairs]
        legend = chart.legend[0][2]
        assert legend.startswith(f"median {np.quantile(values, 0.5, method='inverted_cdf'):.2f}, ")
        assert legend.endswith(f"({len(pairs)})")
    assert measures.lengths[-1].legend[1][1] == "rejected"
    assert measures.splits == {split: splits.count(split) for split in SPLITS}
    groups = {row.key: row.group for row in made.of("images")}
    assert measures.truth.right == sum(groups[row.first] == groups[row.second] for row in pairs)


def measure(root, made, until="preferences"):
    with build_handmade(root, made, until=until) as (build, _):
        return measure_removals(Tables(build))


def test_every_step_is_counted_with_its_reasons(tmp_path, made):
    """24 images of four looked-for tags each, three balls and a table, beside a cloud and one
    refused name."""
    counts = measure(tmp_path, made)
    assert counts.refused_tags == {"names no thing": 24}
    assert counts.elements == {"can be removed": 72, TOO_LARGE: 24}
    fails = dict.fromkeys(("changed outside", "halo", "something grew", "still detected"), 6)
    assert counts.inspected == {"passed all checks": 48, **fails}
    # Of seven pairs in a row, one has a crop and one has nothing; a pair without a preference does
    # not count.
    makers = [row.rejected_image_maker for row in made.of("preferences")]
    names = {"removal": "an element removed", "crop": "a random crop", "": "none"}
    assert counts.made == {name: makers.count(maker) for maker, name in names.items()}
    assert (counts.candidates, counts.able) == (6, 4)


def test_before_there_are_preferences_pairs_are_counted(tmp_path, small):
    counts = measure(tmp_path, small, until="rejections")
    assert sum(counts.made.values()) == len(small.of("rejections"))


def test_a_dataset_without_rejected_images_has_none_of_it(tmp_path, small):
    assert measure(tmp_path, small, until="retrieved") is None


def test_an_empty_table_is_counted_as_nothing(tmp_path):
    counts = measure(tmp_path, Handmade(), until="inspected")
    assert (counts.refused_tags, counts.made, counts.candidates) == ({}, {}, 0)
