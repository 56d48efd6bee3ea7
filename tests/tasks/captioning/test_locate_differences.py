"""Regions: what a description names must lie where its images differ, if they can be aligned."""

from dataclasses import replace

import numpy as np
import pytest
from skimage import data

from pairwright.flows.building.find_models import pin_models
from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.schemas import checks
from pairwright.schemas.config import DetectionConfig, NounsConfig, RegionsConfig
from pairwright.schemas.rows import CheckRow, Dropped
from pairwright.tasks.captioning.locate_differences import (
    STAGE,
    judge_sameness,
    judge_things,
    locate_differences,
    name_things,
    read_words,
)
from pairwright.tasks.models.align_images import NO_MATCH, Aligned, Place
from tests.fixtures.checkpoints import write_grounding_folder
from tests.fixtures.descriptions import description
from tests.fixtures.graphs import graph, pair_row, thing
from tests.fixtures.pictures import photograph
from tests.fixtures.tagger import REAL

NOUNS = NounsConfig(model=REAL)
CONFIG = RegionsConfig(enabled=True, detection=DetectionConfig(), nouns=NOUNS)
PATCH, ELSEWHERE = (60, 350, 140, 420), (300, 40, 380, 120)
BALL = thing("a", "ball", "red", box=PATCH)
CUBE = thing("a", "cube", "blue", box=PATCH)
MUG = thing("b", "mug", "green", box=ELSEWHERE)
PIXELS = data.astronaut()
PATCHED = PIXELS.copy()
PATCHED[350:420, 60:140] = data.coffee()[100:170, 200:280]
BEFORE = photograph(PIXELS, name="before", graph=graph(BALL, MUG))
AFTER = photograph(PATCHED, name="after", graph=graph(CUBE, MUG))
DIM = photograph((PIXELS * 0.7).astype(np.uint8), name="dim", graph=graph(BALL, MUG))
OTHER = photograph(data.coffee(), name="other", graph=graph(CUBE, MUG))
SAME = ("the same scene", "the same scene")


def check(*texts, after=AFTER, config=CONFIG):
    """Return the outcomes of descriptions, each of two halves."""
    pair = pair_row(BEFORE.key, after.key)
    rows = [
        description(
            f"shows {first}", f"has {second}", subject=pair.key, no_change=(first, second) == SAME
        )
        for first, second in texts
    ]
    rows = [replace(row, key=f"{number}") for number, row in enumerate(rows)]
    images = {BEFORE.key: BEFORE, after.key: after}
    return list(locate_differences(rows, config, pairs={pair.key: pair}, images=images))


def test_something_named_must_lie_where_the_images_differ() -> None:
    right, half, wrong = check(
        ("a red ball", "a blue cube on a table"),
        ("a red ball and a green mug", "no ball"),
        ("a green mug", "no green mug"),
    )
    assert isinstance(right, CheckRow)
    assert (right.check, right.passed, right.score, right.why) == ("regions", True, 1.0, "")
    assert (right.source_key, right.description) == ("0", "0")
    assert (half.passed, half.score) == (True, 0.5)
    assert (wrong.passed, wrong.score) == (False, 0.0)
    assert wrong.why == f"{checks.UNCHANGED} (regions.min_changed=0.1)"
    assert checks.speaks_against(wrong.why)


def test_a_description_of_nothing_that_can_be_seen_fails_without_a_verdict() -> None:
    (row,) = check(("a large dog", "a cat"))
    assert (row.passed, row.why) == (False, checks.NOT_FOUND)
    assert not checks.speaks_against(row.why)


def test_no_change_is_believed_only_where_nothing_changed() -> None:
    (false,) = check(SAME)
    assert not false.passed
    assert checks.without_bound(false.why) == checks.CHANGED
    assert checks.speaks_against(false.why)
    (true,) = check(SAME, after=DIM)
    assert (true.passed, true.score, true.why) == (True, 1.0, "")


def test_things_are_not_believed_where_nothing_changed() -> None:
    rows = check(("a red ball", "a green mug"), ("a large dog", "a cat"), after=DIM)
    for row in rows:
        assert not row.passed
        assert checks.without_bound(row.why) == checks.NOTHING_CHANGED
        assert checks.speaks_against(row.why)


def test_other_places_and_names_of_no_thing_are_not_checked() -> None:
    (row,) = check(("a green mug", "a dog"), after=OTHER)
    assert (row.passed, row.is_off) == (True, True)
    assert row.why == f"{checks.NOT_ALIGNED}{NO_MATCH}"
    (row,) = check(("bright daylight", "a darker sky in the evening"), after=DIM)
    assert (row.passed, row.is_off, row.why) == (True, True, checks.NAMES_NOTHING)


def test_no_change_between_two_viewpoints_is_not_checked() -> None:
    """The stereo pair's things in front are displaced, though nothing changed."""
    left, right, _ = data.stereo_motorcycle()
    before, after = (photograph(pixels[::2, ::2], name="view") for pixels in (left, right))
    pair = pair_row(before.key, after.key)
    row = description("shows one", "shows the same", subject=pair.key, no_change=True)
    images = {before.key: before, after.key: after}
    (outcome,) = locate_differences([row], CONFIG, pairs={pair.key: pair}, images=images)
    assert (outcome.passed, outcome.is_off, outcome.why) == (True, True, checks.TWO_VIEWPOINTS)


def test_a_broken_image_is_dropped() -> None:
    broken = replace(OTHER, image=b"no image")
    rows = check(("a mug", "a cube"), ("a mug", "a ball"), after=broken)
    assert [type(row) for row in rows] == [Dropped, Dropped]
    assert [row.source_key for row in rows] == ["0", "1"]


def test_halves_name_what_they_affirm_outside_quotes() -> None:
    row = description(
        "shows two small red balls and a sign that reads 'toy car'",
        "has no red ball, but a wooden garden bench on the left side",
    )
    assert name_things([row], NOUNS, read_words()) == [
        (("small red ball", "sign"), ("wooden garden bench",))
    ]


def changes(*shares: float) -> Aligned:
    places = tuple(Place((0, 0, 1, 1), share) for share in shares)
    return Aligned(
        places=places, changed=np.zeros((1, 1), bool), to_changed=(np.eye(3),) * 2, agreement=1.0
    )


@pytest.mark.parametrize(
    ("places", "score", "passed"),
    [((), 1.0, True), ((0.01,), 0.99, True), ((0.03, 0.01), 0.97, False)],
)
def test_sameness_has_a_bound(places, score, passed) -> None:
    config = CONFIG.model_copy(update={"max_unchanged_area": 0.02})
    assert judge_sameness(changes(*places), config) == (
        score,
        "" if passed else f"{checks.CHANGED} (regions.max_unchanged_area=0.02)",
    )


@pytest.mark.parametrize(
    ("shares", "score", "why"),
    [
        ({"ball": 0.5}, 1.0, ""),
        ({"ball": 0.5, "cube": 0.49, "mug": 0.0, "dog": 1.0}, 0.5, ""),
        ({"ball": 0.49}, 0.0, f"{checks.UNCHANGED} (regions.min_changed=0.5)"),
        ({}, 0.0, checks.NOT_FOUND),
    ],
)
def test_one_changed_thing_is_enough(shares, score, why) -> None:
    config = CONFIG.model_copy(update={"min_changed": 0.5})
    assert judge_things(changes(0.01), shares, config) == (score, why)


def test_photographs_are_searched_for_the_names_of_their_half(tmp_path) -> None:
    """The tiny network finds what it is asked for everywhere: also where the images differ."""
    detection = DetectionConfig(
        detector="grounding-dino",
        model=str(write_grounding_folder(tmp_path)),
        box_threshold=0.0,
        text_threshold=0.0,
    )
    config = CONFIG.model_copy(update={"detection": detection})
    (row,) = check(("a cat", "a red ball"), config=config)
    assert (row.passed, row.why) == (True, "")


def test_models_are_pinned_under_their_own_sections(tmp_path) -> None:
    folder = write_grounding_folder(tmp_path / "dino")
    settings = [
        *("source=folder:photos", "regions.enabled=true", "rejections.enabled=false"),
        *(f"nouns.model={REAL}", "detection.detector=grounding-dino"),
        f"detection.model={folder}",
    ]
    pinned = pin_models(load_profile("scenes", settings), "differences")
    assert {*pinned.found} >= {"detection.revision", "nouns.revision"}
    config = STAGE.configure(pinned)
    assert config.detection.revision.startswith("xxh3:")
    assert STAGE.models(config)[:2] == (
        f"Grounding DINO {config.detection.revision}",
        config.nouns.revision,
    )


@pytest.mark.parametrize(
    ("profile", "enabled"),
    [
        ("laptop", True),
        ("gpu-80", True),
        ("paper-24", True),
        ("containers", True),
        ("scenes", False),
    ],
)
def test_profiles_with_a_detector_check_regions(profile, enabled) -> None:
    assert load_profile(profile).regions.enabled is enabled
