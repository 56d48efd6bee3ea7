import re
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

from pairwright.schemas.config import MiningConfig
from pairwright.schemas.rows import Dropped
from pairwright.tasks import rejected
from pairwright.tasks.report.measure_dataset import (
    ALL_TRUE,
    MOST_DROPPED,
    count_words,
    draw_yields,
    list_dropped,
    measure_dataset,
    measure_truth,
    tally_pairs,
)
from pairwright.tasks.report.tables import Tables
from tests.tasks.report.handmade import HOSTILE, Handmade, build_handmade, make_images, make_whole
from tests.tasks.report.handmade_neighbours import EMBEDDERS, MINING, build_neighbours, make_five, make_neighbours
from tests.tasks.report.pages import read, report


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
    assert found.precision == pytest.approx(2 / 3)
    assert found.possible == 3 + 1
    assert found.recall_of_pairs == pytest.approx(2 / 4)
    assert (found.partnered, found.found) == (5, 4)
    assert found.recall_of_images == pytest.approx(4 / 5)
    assert found.chance == pytest.approx(4 / 15)
    assert truth({"a": "", "b": ""}, [("a", "b")]) is None
    assert truth({}, []) is None
    found = truth({"a": "1", "b": "1"}, [])
    assert (found.judged, found.precision, found.recall_of_images) == (0, 0, 0)


def test_measures_of_a_dataset(tmp_path):
    made = make_whole()
    with build_handmade(tmp_path, made) as (build, counts):
        measures = measure_dataset(Tables(build), counts, MiningConfig())
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
        assert chart.legend[0][2].startswith(f"median {np.quantile(values, 0.5, method='inverted_cdf'):.2f}, ")
        assert chart.legend[0][2].endswith(f"({len(pairs)})")
    assert measures.lengths[-1].legend[1][1] == "rejected"
    assert measures.splits == {
        split: sum(row.split == split for row in preferences) for split in ("train", "validation", "test")
    }
    # By hand: each edited text passed over 2 true candidates, each retrieved one 1, swapped none.
    made_of = {maker.name: (maker.true, maker.skipped) for maker in measures.makers}
    many = len(preferences)
    assert made_of == {"retrieved": (many, many), "swapped": (0, 0), "edited": (many, 2 * many)}
    groups = {row.key: row.group for row in made.of("images")}
    assert measures.truth.right == sum(groups[row.first] == groups[row.second] for row in pairs)


def test_pairs_given_up_count_as_true_by_accident(tmp_path):
    made = make_whole()
    kept = made.of("swapped")
    made.tables["swapped"] = [
        *(replace(row, skipped_true=number) for number, row in enumerate(kept[:4])),
        Dropped(source_key=kept[4].source_key, reason="swapped text is true"),
        Dropped(source_key=kept[5].source_key, reason="all similar descriptions are true (a.bound=1)"),
        *(Dropped(source_key=row.source_key, reason="no claims") for row in kept[6:9]),
    ]
    with build_handmade(tmp_path, made) as (build, counts):
        swapped = next(
            maker for maker in measure_dataset(Tables(build), counts, MiningConfig()).makers if maker.name == "swapped"
        )
    # Texts with 0, 1, 2 and 3 candidates passed over, and two pairs for which there was none: 5 of 6 began true.
    assert (swapped.texts, swapped.none, swapped.true, swapped.skipped) == (4, 2, 5, 6)


def test_makers_give_up_with_these_words():
    words = "".join(path.read_text() for path in Path(rejected.__path__[0]).glob("*.py"))
    assert all(f'"{reason}' in words for reason in ALL_TRUE)


def test_words_are_counted_as_people_do(tmp_path):
    made = make_whole(2, 2)
    texts = ["", "  one ", "two\nwords", HOSTILE]
    made.tables["captions"] = [replace(row, text=text) for row, text in zip(made.of("captions"), texts, strict=True)]
    with build_handmade(tmp_path, made, until="captions") as (build, _):
        words = count_words(Tables(build), "captions", "text")
    assert words.values.repeat(words.counts).tolist() == sorted([0, 1, 2, len(HOSTILE.split())])


P, Q = EMBEDDERS


def counts(chart):
    return {row[0]: row[1:] for row in chart.rows}


def test_neighbours_are_counted_at_every_threshold(tmp_path):
    images = make_five()
    rows = make_neighbours(images)
    with build_neighbours(tmp_path, images) as build:
        chart = draw_yields(Tables(build), {}, MINING.model_copy(update={"max_similarity": 0.95}))[0]
    assert chart.heads == ("threshold", P, Q)
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
        (chart,) = draw_yields(Tables(build), found, MiningConfig())
    assert found["layout"].values.tolist() == pytest.approx([0.8, 0.81, 0.82, 0.83, 0.84])
    assert found["gradients"].counts.sum() == len(pairs) == 5
    assert (counts(chart)["0.82"], counts(chart)["0.9"]) == (("3", "5"), ("0", "5"))
    assert chart.title.startswith("Pairs")


def refuse(number, *, detail="{n}.jpg"):
    return [Dropped(source_key=f"{n:032x}", reason="not an image", detail=detail.format(n=n)) for n in range(number)]


def dropped_of(tmp_path, rows):
    with build_handmade(tmp_path, Handmade({"images": rows}), until="images") as (build, counts):
        return list_dropped(Tables(build), counts)


def test_the_first_are_listed_and_all_are_counted(tmp_path):
    found = dropped_of(tmp_path, [*make_images(1, 2), *refuse(MOST_DROPPED + 3)])
    assert (found.total, found.copies, len(found.rows)) == (MOST_DROPPED + 3, 0, MOST_DROPPED)
    assert len(set(found.rows)) == MOST_DROPPED
    assert set(found.rows) < {(f"{n}.jpg", "not an image") for n in range(MOST_DROPPED + 3)}


def test_copies_are_counted_apart(tmp_path):
    first, second = make_images(1, 2)
    copy = replace(first, source_key="f" * 32, name="copy")
    found = dropped_of(tmp_path, [first, second, copy, *refuse(1)])
    assert (found.total, found.copies, found.rows) == (1, 1, (("0.jpg", "not an image"),))


def test_the_first_page_shows_names_as_they_are(tmp_path):
    made = Handmade({"images": [*make_images(1, 2), *refuse(MOST_DROPPED + 1, detail=HOSTILE + " {n}")]})
    page = read(report(tmp_path, made, until="images"))
    text = " ".join(page.text.split())
    assert re.search(rf"{MOST_DROPPED + 1} images; .*\b{MOST_DROPPED}\b", text)
    assert text.count(HOSTILE) == MOST_DROPPED
    assert not any("onerror" in attributes for _, attributes in page.tags)
