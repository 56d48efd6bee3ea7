"""Removals of discs, good and bad ones, looked at by a detector of colours."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt

from pairwright.schemas.config import DetectionConfig, InspectionConfig, Profile
from pairwright.schemas.rows import Box, Dropped, InspectionRow
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.rejected import inspect_removals as stage
from pairwright.tasks.rejected.inspect_removals import STAGE, inspect_removals
from tests.fixtures import removals
from tests.fixtures.pictures import photograph
from tests.fixtures.removals import as_json, boxes_row, element_of, extent, png, removal_of, tag

HEIGHT, WIDTH = SIZE = (140, 200)
DILATE, FEATHER = 5, 3
COLOURS = {"red": 0, "green": 1, "blue": 2}
TAGS = tuple(tag(f"{colour} ball") for colour in COLOURS)
STILL = "still detected (inspection.min_remaining_score=0.25)"
GREW = "something grew in its place (inspection.min_grown_score=0.35)"
HALO = "halo along the rim (inspection.max_rim=0.9)"
LOOKING = DetectionConfig(detector="grounding-dino", model="of colours")
LENIENT = {"max_left": 10, "max_shift": 255, "min_texture": 0}
"""Settings that leave the rest to the detector and the halo."""
PURE, WEAK = pytest.approx(210 / 255), pytest.approx(50 / 255)


class ColourDetector:
    """Find balls by their colour, in the pixels: the score of a box is how pure its colour is."""

    version = "colours 1"

    def __init__(self, least):
        self.least = least

    def prepare(self, seen):
        return seen.pixels

    def detect(self, prepared, tags):
        return [
            tuple(self._boxes(pixels.astype(int), names))
            for pixels, names in zip(prepared, tags, strict=True)
        ]

    def _boxes(self, pixels, tags):
        for place, name in enumerate(known.name for known in tags):
            channel = COLOURS[name.split()[0]]
            purity = pixels[..., channel] - np.delete(pixels, channel, axis=2).max(axis=2)
            coloured = (purity > 25).astype(np.uint8)
            count, labels, stats, _ = cv2.connectedComponentsWithStats(coloured)
            for n in range(1, count):
                x, y, width, height, area = stats[n].tolist()
                score = purity[labels == n].mean() / 255
                if area >= 30 and score >= self.least:
                    yield Box(tag=place, score=score, x0=x, y0=y, x1=x + width, y1=y + height)


@pytest.fixture(autouse=True)
def detectors(monkeypatch):
    """Replace Grounding DINO by a detector of colours; return its thresholds and batches."""
    notes = []
    make_detector = stage.make_detector

    def make(config, answers=None):
        if config.detector == "scene-graph":
            return make_detector(config)
        notes.append((config.box_threshold, config.batch_size))
        return ColourDetector(config.box_threshold)

    monkeypatch.setattr(stage, "make_detector", make)
    return notes


def disc(row, column, radius):
    return removals.disc(row, column, radius, SIZE)


ROWS, COLUMNS = np.indices(SIZE)
GROUND = np.stack([110 + COLUMNS // 8, 120 + ROWS // 8, np.full(SIZE, 118)], axis=2).astype(
    np.uint8
)
RED, BLUE, PALE = (230, 20, 20), (20, 20, 230), (150, 100, 100)
BALL = disc(70, 90, 20)


def painted(*things):
    """Return the ground with things (mask, colour) on it, the later in front of the earlier."""
    pixels = GROUND.copy()
    for mask, colour in things:
        pixels[mask] = colour
    return pixels


WITH_BALL = painted((BALL, RED))


def removal_row(image, altered, **fields):
    """Return a removal of the red ball that makes an image ``altered`` within its window."""
    hole = distance_transform_edt(~BALL) < DILATE + FEATHER + 1
    element = element_of(image.key, "red ball", mask=BALL)
    about = {"dilate": DILATE, "feather": FEATHER, "window": extent(hole), **fields}
    window = about.pop("window")
    return removal_of(image, element, window, altered=altered, **about)


def inspect(rows, images, config, boxes=()):
    by_key = {image.key: image for image in images}
    by_image = {row.subject: row for row in boxes}
    return list(inspect_removals(rows, config, images=by_key, boxes=by_image))


def detected(image, pixels, least=0.25):
    (boxes,) = ColourDetector(least).detect([pixels], [TAGS])
    return boxes_row(image, TAGS, boxes)


def inspected(before, after, *, detection=LOOKING, least=0.25, row=(), **config):
    """Inspect one removal that makes the image ``before`` into ``after`` within the window."""
    image = photograph(before)
    removal = removal_row(image, after, **dict(row))
    settings = InspectionConfig(detection=detection, **(LENIENT | config))
    (made,) = inspect([removal], [image], settings, [detected(image, before, least)])
    assert isinstance(made, InspectionRow)
    assert (made.source_key, made.subject, made.element) == (
        removal.key,
        image.key,
        removal.subject,
    )
    assert made.passed == (not made.why) == (not made.reason)
    return made


def test_what_is_gone_has_gone_and_what_is_left_is_detected(detectors) -> None:
    made = inspected(WITH_BALL, GROUND)
    assert (made.passed, made.found_before, made.found_after) == (True, PURE, 0)
    assert (made.grown, made.grown_score, made.changed_outside) == ("", 0, 0)
    assert made.rim < 0.5
    assert detectors == [(0.25, 0)]
    made = inspected(WITH_BALL, WITH_BALL)
    assert (made.why, made.found_after) == (STILL, made.found_before)
    made = inspected(WITH_BALL, painted((disc(60, 84, 6), RED)))
    assert (made.why, made.found_after) == (STILL, PURE)
    assert inspected(WITH_BALL, painted((disc(60, 84, 6), PALE))).passed


SMALL_BLUE = painted((disc(72, 92, 12), BLUE))


def test_a_weak_detection_that_stays_as_it_was_is_no_removal(detectors) -> None:
    pale, weak = painted((BALL, PALE)), LOOKING.model_copy(update={"box_threshold": 0.1})
    made = inspected(pale, pale, detection=weak, least=0.1)
    assert (made.why, made.found_before) == (STILL, WEAK)
    assert made.found_after == made.found_before < InspectionConfig().min_remaining_score
    assert detectors == [(0.1, 0)]


def test_what_grew_in_its_place_is_named() -> None:
    made = inspected(WITH_BALL, SMALL_BLUE)
    assert (made.why, made.grown, made.grown_score) == (GREW, "blue ball", PURE)
    assert made.found_after == 0
    assert inspected(WITH_BALL, SMALL_BLUE, min_grown_score=0.9).passed


def test_a_halo_is_one_and_nobody_looks_further() -> None:
    ring = disc(70, 90, 29) & ~disc(70, 90, 26)
    before, after = painted((ring | BALL, RED)), painted((ring, RED))
    made = inspected(before, after)
    assert made.why == HALO
    assert made.rim > 3
    assert (made.found_before, made.found_after) == (-1, -1)
    allowed = inspected(before, after, max_rim=made.rim)
    assert allowed.rim == made.rim
    assert allowed.why != HALO


# The mask ends at column 110: 5 dilated and 3 feathered, 9 columns away nothing may change.
@pytest.mark.parametrize(
    ("away", "count", "why", "after"), [(8, 0, "", 0), (9, 1, "changed outside", -1)]
)
def test_pixels_outside_are_counted_again(away, count, why, after) -> None:
    altered = GROUND.copy()
    altered[70, 110 + away] = (1, 2, 3)
    row = {"window": (60, 40, 130, 100), "changed_outside": count + 7}
    made = inspected(WITH_BALL, altered, row=row)
    assert (made.changed_outside, made.why, made.found_after) == (count, why, after)


@pytest.mark.parametrize(
    "config",
    [
        {"detection": DetectionConfig()},
        {"detection": None},
        {"detection": LOOKING, "detector_enabled": False},
    ],
    ids=["of scenes", "none", "off"],
)
def test_a_detector_that_does_not_look(config) -> None:
    made = inspected(WITH_BALL, WITH_BALL, **config)
    assert (made.passed, made.found_before, made.found_after) == (True, -1, -1)


BROKEN = {
    "no image": {"patch": b"no image"},
    "too large": {"patch": png(GROUND)},
    "no window": {"window": (90, 70, 90, 70)},
    "outside": {"window": (WIDTH - 10, 0, WIDTH + 40, 50)},
    "another size": {"mask": as_json(BALL[:-1])},
}


def test_rows_that_do_not_fit_are_dropped_and_the_others_go_on() -> None:
    image = photograph(WITH_BALL)
    lost = replace(image, key="lost", image=b"\x89PNG no image")
    good = removal_row(image, GROUND)
    bad = [replace(good, key=name, **fields) for name, fields in BROKEN.items()]
    rows = [bad[0], good, *bad[1:], replace(good, key="lost", image_key="lost")]
    boxes = [detected(image, WITH_BALL)]
    results = inspect(rows, [image, lost], InspectionConfig(detection=LOOKING, **LENIENT), boxes)
    reasons = {row.source_key: row.reason for row in results if isinstance(row, Dropped)}
    misfits = dict.fromkeys(BROKEN, "patch does not fit its image")
    assert reasons == {**misfits, "lost": "damaged image"}
    (passed,) = (row for row in results if isinstance(row, InspectionRow))
    assert passed.source_key == good.key
    assert len(results) == len(rows)


@pytest.mark.parametrize("tags", [None, [], [tag("dog")]], ids=["no row", "no tags", "another tag"])
def test_a_tag_that_nobody_asked_for_before_is_asked_for_now(tags) -> None:
    image = photograph(WITH_BALL)
    boxes = [] if tags is None else [boxes_row(image, tags, [])]
    rows = [removal_row(image, WITH_BALL)]
    (made,) = inspect(rows, [image], InspectionConfig(detection=LOOKING, **LENIENT), boxes)
    assert (made.found_before, made.why) == (0, STILL)


def test_the_detector_is_named_where_it_looks_and_has_processes_of_its_own(monkeypatch) -> None:
    monkeypatch.undo()
    known = LOOKING.model_copy(update={"revision": "a"})
    assert STAGE.models(STAGE.configure(Profile(detection=known))) == ("of colours a",)
    assert STAGE.models(STAGE.configure(Profile())) == ()
    off = InspectionConfig(detection=LOOKING, detector_enabled=False)
    assert STAGE.processes(InspectionConfig(detection=LOOKING)) == count_gpus()
    assert STAGE.processes(off) is None
    assert STAGE.processes(InspectionConfig(detection=DetectionConfig())) is None
    assert STAGE.processes(InspectionConfig()) is None
