from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pairwright.tasks.report import card_removals
from pairwright.tasks.report.card_removals import Steps, view_removals
from pairwright.tasks.report.query_tables import Tables
from pairwright.tasks.report.write_images import PictureFolder
from tests.tasks.report.handmade import build_handmade
from tests.tasks.report.handmade_removals import CROP, GREY, TOO_LARGE


@pytest.fixture(scope="module")
def tables(tmp_path_factory, made):
    with build_handmade(tmp_path_factory.mktemp("removals"), made) as (build, _):
        yield Tables(build)


@pytest.fixture
def look(tables, made, tmp_path):
    """Give what views the removals of a pair, by its number."""
    images = {row.key: row for row in made.of("images")}

    def look(number, tables=tables):
        pair = made.of("pairs")[number]
        both = [images[pair.first], images[pair.second]]
        pictures = PictureFolder(tmp_path)
        steps = Steps(tables, [pair.key], images=[pair.first, pair.second])
        pictured = [(row, pictures.add_image(row)) for row in both]
        return view_removals(pair.key, pictured, steps, pictures)

    return look


def test_elements_that_were_found_and_refused(look, made):
    first, second = look(0).found
    assert (first.side, second.side) == (0, 1)
    image = next(row for row in made.of("images") if row.key == made.of("pairs")[0].first)
    assert [element.number for element in first.elements] == [1, 2, 3, 4]
    rows = [element.row for element in first.elements]
    colours = [row.tag.split()[0] for row in rows if not row.why]
    assert colours == [ball.colour for ball in image.graph.objects]
    assert [(row.tag, row.why) for row in rows if row.why] == [("table", TOO_LARGE)]
    assert first.unboxed == ["cloud"]
    assert [tag.reason for tag in first.refused_tags] == ["names no thing"]
    assert first.elements[0].mask_score == pytest.approx(0.97)


def test_candidates_come_best_first_with_their_measurements(look):
    candidates = look(0).candidates
    assert [row.chosen for row in candidates].index(True) == 0
    assert [(row.side, row.element.number, row.score.score) for row in candidates] == [
        (0, 2, 0.5), (1, 2, 0.375), (0, 1, 0.0), (1, 1, -0.125), (0, 3, 0.25), (1, 3, 0.125),
    ]  # fmt: skip
    assert [row.share for row in candidates[:4]] == [1.0, 0.75, 0.0, 0.0]
    assert [bool(row.why) for row in candidates] == [False] * 4 + [True] * 2
    assert candidates[0].inpainter == "LaMa xxh3:0123abcd"
    facts = {row.why: row.facts for number in range(4) for row in look(number).candidates}
    assert facts["still detected"][0] == "detected 0.60 before, 0.50 after"
    assert "grown: kettle 0.41" in facts["something grew"]
    assert "rim 2.6 x its surroundings" in facts["halo"]
    assert "40% as rough as around it" in facts["halo"]
    assert "14.5 levels lighter or darker than around it" in facts["halo"]
    assert "30% of its colour left along the rim" in facts["halo"]
    assert "17 pixels changed outside" in facts["changed outside"]


def test_a_pair_of_which_no_candidate_was_chosen(look):
    view = look(2)
    assert (view.crop, view.why) == (None, "no removal changes how the text fits")
    assert len(view.candidates) == 6


def test_a_candidate_shows_the_image_without_its_element(look, tmp_path):
    best = look(0).candidates[0]
    with Image.open(tmp_path / best.patch) as patch, Image.open(tmp_path / best.mask) as mask:
        overlay, ball = np.asarray(patch), np.asarray(mask)[:, :, 3] > 0
    assert np.array_equal(overlay[:, :, 3] > 0, ball)
    assert set(map(tuple, overlay[ball][:, :3])) == {GREY}


def test_a_crop_stands_in(look, tmp_path):
    view = look(1)
    assert (view.side, view.why) == (1, "no removal changes how the text fits")
    x0, y0, x1, y1 = CROP
    assert view.crop_share == (x1 - x0) * (y1 - y0) / (160 * 120)
    assert (view.crop.width, view.crop.height) == (160, 120)
    assert (tmp_path / view.crop.src).is_file()


def test_few_candidates_are_shown_and_only_their_pixels_are_read(look, monkeypatch):
    monkeypatch.setattr(card_removals, "MOST_SHOWN", 2)
    counts = []
    find = Tables.find_rows

    def count(self, name, row_type, subjects, **more):
        rows = find(self, name, row_type, subjects, **more)
        counts.append((name, len(rows)))
        return rows

    monkeypatch.setattr(Tables, "find_rows", count)
    view = look(0)
    assert (len(view.candidates), view.more) == (2, 4)
    assert ("removals", 2) in counts


def test_a_build_that_went_no_further_shows_candidates_without_scores(tmp_path, made, look):
    with build_handmade(tmp_path / "dataset", made, until="inspected") as (build, _):
        candidates = look(0, tables=Tables(build)).candidates
    assert [row.score for row in candidates] == [None] * 6
    assert sum(not row.why for row in candidates) == 4


def test_images_without_elements(tmp_path, made, look):
    why = "no element can be removed"
    none = {"maker": "", "element": "", "removal_scores": ()}
    rejection = replace(made.of("rejections")[0], why=why, **none)
    bare = replace(made, tables={**made.tables, "tags": [], "rejections": [rejection]})
    with build_handmade(tmp_path / "dataset", bare) as (build, _):
        view = look(0, tables=Tables(build))
    assert view.candidates == []
    assert [side.elements for side in view.found] == [[], []]
    assert view.why == why
