from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pairwright.schemas.rows import Dropped
from pairwright.tasks import rejected
from pairwright.tasks.report.measure_dataset import ALL_TRUE, count_words, measure_dataset, measure_truth
from pairwright.tasks.report.tables import Tables
from tests.tasks.report.handmade import HOSTILE, build_handmade, make_whole


def truth(groups, pairs):
    images = pa.table({"key": list(groups), "group": list(groups.values())})
    first, second = zip(*pairs, strict=True) if pairs else ((), ())
    return measure_truth(
        images, pa.table({"first": pa.array(first, pa.string()), "second": pa.array(second, pa.string())})
    )


def test_truth_by_hand():
    # Groups: {a, b, c}, {d, e}, {f}; g has none. Right: ab, de. Wrong: af. Not judged: ag, ax.
    groups = {"a": "1", "b": "1", "c": "1", "d": "2", "e": "2", "f": "3", "g": ""}
    found = truth(groups, [("a", "b"), ("d", "e"), ("a", "f"), ("a", "g"), ("a", "x")])
    assert (found.images, found.groups, found.judged, found.right) == (6, 3, 3, 2)
    assert found.precision == pytest.approx(2 / 3)
    assert found.possible == 3 + 1
    assert found.recall_of_pairs == pytest.approx(2 / 4)
    assert (found.partnered, found.found) == (5, 4)
    assert found.recall_of_images == pytest.approx(4 / 5)
    assert found.chance == pytest.approx(4 / 15)


def test_no_groups_no_truth():
    assert truth({"a": "", "b": ""}, [("a", "b")]) is None
    assert truth({}, []) is None


def test_groups_without_pairs():
    found = truth({"a": "1", "b": "1"}, [])
    assert (found.judged, found.precision, found.recall_of_images) == (0, 0, 0)


def test_measures_of_a_dataset(tmp_path):
    made = make_whole()
    with build_handmade(tmp_path, made) as (build, counts):
        measures = measure_dataset(Tables(build), counts)
        words = count_words(Tables(build), "captions", "text")
    assert words.values.repeat(words.counts).tolist() == sorted(len(row.text.split()) for row in made.of("captions"))
    pairs, preferences = made.of("pairs"), made.of("preferences")
    assert [chart.title for chart in measures.similarities] == [
        "Similarity by layout",
        "Similarity by gradients",
        "Similarity, weighted together",
    ]
    for chart, values in zip(
        measures.similarities, zip(*(row.similarities for row in pairs), strict=True), strict=False
    ):
        assert chart.legend[0].median == f"{np.median(values):.2f}"
        assert chart.legend[0].count == str(len(pairs))
    assert measures.lengths[-1].legend[1].name == "rejected"
    assert measures.splits == {
        split: sum(row.split == split for row in preferences) for split in ("train", "validation", "test")
    }
    # By hand: each edited text passed over 2 true candidates, each retrieved one 1, swapped none.
    made_of = {maker.name: (maker.share, maker.skipped) for maker in measures.makers}
    many = len(preferences)
    assert made_of == {"retrieved": (1, many), "swapped": (0, 0), "edited": (1, 2 * many)}
    groups = {row.key: row.group for row in made.of("images")}
    assert measures.truth.right == sum(groups[row.first] == groups[row.second] for row in pairs)


def test_pairs_given_up_count_as_true_by_accident(tmp_path):
    made = make_whole()
    kept = made.of("swapped")
    made.tables["swapped"] = [
        *(replace(row, skipped_true=number) for number, row in enumerate(kept[:4])),
        *(Dropped(source_key=row.source_key, reason="swapped text is true") for row in kept[4:6]),
        *(Dropped(source_key=row.source_key, reason="no claims") for row in kept[6:9]),
    ]
    with build_handmade(tmp_path, made) as (build, counts):
        swapped = next(maker for maker in measure_dataset(Tables(build), counts).makers if maker.name == "swapped")
    # Texts with 0, 1, 2 and 3 candidates passed over, and two pairs for which there was none: 5 of 6 began true.
    assert (swapped.texts, swapped.none, swapped.true, swapped.skipped) == (4, 2, 5, 6)
    assert swapped.share == pytest.approx(5 / 6)


def test_makers_give_up_with_these_words():
    words = "".join(path.read_text() for path in Path(rejected.__path__[0]).glob("*.py"))
    assert all(f'"{reason}"' in words for reason in ALL_TRUE)


def test_a_build_that_stopped_at_mining_has_no_texts(tmp_path):
    with build_handmade(tmp_path, make_whole(), until="pairs") as (build, counts):
        measures = measure_dataset(Tables(build), counts)
    assert measures.lengths == ()
    assert measures.makers == ()
    assert measures.splits == {}
    assert len(measures.similarities) == 3


def test_words_are_counted_as_people_do(tmp_path):
    made = make_whole(2, 2)
    texts = ["", "  one ", "two\nwords", HOSTILE]
    made.tables["captions"] = [replace(row, text=text) for row, text in zip(made.of("captions"), texts, strict=True)]
    with build_handmade(tmp_path, made, until="captions") as (build, _):
        words = count_words(Tables(build), "captions", "text")
    assert words.values.repeat(words.counts).tolist() == sorted([0, 1, 2, len(HOSTILE.split())])
