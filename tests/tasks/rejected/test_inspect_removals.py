"""Removals of discs, good and bad ones, looked at by a detector of colours; and by a tiny Grounding
DINO."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt

from pairwright.schemas.config import DetectionConfig, InspectionConfig, Profile
from pairwright.schemas.rows import Box, BoxesRow, Dropped, InspectionRow, RemovalRow, Tag, make_key
from pairwright.tasks.images.decode import encode_png
from pairwright.tasks.images.masks import encode_mask
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.rejected import inspect_removals as stage
from pairwright.tasks.rejected.inspect_removals import STAGE, inspect_removals
from tests.fixtures.pictures import photograph
from tests.fixtures.rows import row_of

HEIGHT, WIDTH = 140, 200
ROWS, COLUMNS = np.indices((HEIGHT, WIDTH))
DILATE, FEATHER = 5, 3
COLOURS = {"red": 0, "green": 1, "blue": 2}
TAGS = tuple(Tag(name=f"{colour} ball", score=0.9, tagger="ram") for colour in COLOURS)
STILL, GREW, HALO = (
    "still detected (inspection.min_remaining_score=0.25)",
    "something grew in its place (inspection.min_grown_score=0.35)",
    "halo along the rim (inspection.max_rim=1)",
)
LOOKING = DetectionConfig(detector="grounding-dino", model="of colours")


class ColourDetector:
    """Find balls by their colour, in the pixels: the score of a box is how pure its colour is."""

    version = "colours 1"

    def __init__(self, least):
        self.least = least

    def prepare(self, seen):
        return seen.pixels

    def detect(self, prepared, tags):
        return [
            tuple(self._found(pixels.astype(int), names))
            for pixels, names in zip(prepared, tags, strict=True)
        ]

    def _found(self, pixels, tags):
        for place, tag in enumerate(tags):
            channel = COLOURS[tag.name.split()[0]]
            purity = pixels[..., channel] - np.delete(pixels, channel, axis=2).max(axis=2)
            count, labels, stats, _ = cv2.connectedComponentsWithStats(
                (purity > 25).astype(np.uint8)
            )
            for n in range(1, count):
                x, y, width, height, area = stats[n].tolist()
                score = purity[labels == n].mean() / 255
                if area >= 30 and score >= self.least:
                    yield Box(tag=place, score=score, x0=x, y0=y, x1=x + width, y1=y + height)


@pytest.fixture
def asked(monkeypatch):
    """Let a detector that sees colours take Grounding DINO's place, and note at what threshold and
    batch."""
    notes = []

    def make(config):
        if config.detector == "scene-graph":
            return make_detector(config)
        notes.append((config.box_threshold, config.batch_size))
        return ColourDetector(config.box_threshold)

    make_detector = stage.make_detector
    monkeypatch.setattr(stage, "make_detector", make)
    return notes


def disc(row, column, radius):
    return (ROWS - row) ** 2 + (COLUMNS - column) ** 2 <= radius**2


GROUND = np.stack(
    [110 + COLUMNS // 8, 120 + ROWS // 8, np.full((HEIGHT, WIDTH), 118)], axis=2
).astype(np.uint8)
RED, BLUE, PALE = (230, 20, 20), (20, 20, 230), (150, 100, 100)
BALL = disc(70, 90, 20)


def painted(*things):
    """Return the ground with things (mask, colour) on it, the later in front of the earlier."""
    pixels = GROUND.copy()
    for mask, colour in things:
        pixels[mask] = colour
    return pixels


def removal_row(image, mask, altered, *, tag="red ball", **changes):
    """Return a removal that makes an image ``altered``, in the window that it may change."""
    hole = distance_transform_edt(~mask) < DILATE + FEATHER + 1
    lines, columns = np.flatnonzero(hole.any(axis=1)), np.flatnonzero(hole.any(axis=0))
    x0, y0, x1, y1 = window = (
        int(columns[0]),
        int(lines[0]),
        int(columns[-1]) + 1,
        int(lines[-1]) + 1,
    )
    element = make_key("element", image.key, tag, altered.tobytes())
    row = row_of(
        RemovalRow,
        element,
        source=element,
        image_key=image.key,
        tag=tag,
        mask=encode_mask(mask).model_dump_json(),
        window=window,
        patch=encode_png(np.ascontiguousarray(altered[y0:y1, x0:x1])),
        dilate=DILATE,
        feather=FEATHER,
    )
    return replace(row, **changes)


def boxes_row(image, pixels, least=0.25):
    (found,) = ColourDetector(least).detect([pixels], [TAGS])
    return row_of(
        BoxesRow, source=image.key, width=WIDTH, height=HEIGHT, tags=TAGS, boxes=tuple(found)
    )


def inspected(before, after, mask=BALL, *, row=None, **config):
    """Return what becomes of one removal: its image, ``before``, is made ``after`` within the
    window."""
    image = photograph(before)
    row = row or removal_row(image, mask, after)
    settings = InspectionConfig(detection=LOOKING, **config)
    boxes = {image.key: boxes_row(image, before)}
    (made,) = inspect_removals([row], settings, images={image.key: image}, boxes=boxes)
    assert isinstance(made, InspectionRow)
    assert (made.source_key, made.subject, made.element) == (row.key, image.key, row.subject)
    assert made.passed == (not made.why) == (not made.reason)
    return made


def test_what_is_gone_has_gone_and_what_is_left_is_still_detected(asked):
    made = inspected(painted((BALL, RED)), GROUND)
    assert (made.passed, made.found_before, made.found_after) == (True, pytest.approx(210 / 255), 0)
    assert (made.grown, made.grown_score, made.changed_outside) == ("", 0, 0)
    assert made.rim < 0.5
    assert asked == [(0.25, 0)]
    made = inspected(painted((BALL, RED)), painted((BALL, RED)))
    assert (made.why, made.found_after) == (STILL, made.found_before)
    made = inspected(painted((BALL, RED)), painted((disc(60, 84, 6), RED)))
    assert (made.why, made.found_after) == (STILL, pytest.approx(210 / 255))
    # A trace too pale for the detector, though not for the eye: what it does not see, it does not
    # report.
    assert inspected(painted((BALL, RED)), painted((disc(60, 84, 6), PALE))).passed
    other = (disc(70, 150, 15), RED)
    assert inspected(painted((BALL, RED), other), painted(other)).passed


def test_a_weak_detection_that_stays_as_it_was_is_no_removal(asked):
    pale = painted((BALL, PALE))
    image = photograph(pale)
    boxes = {image.key: boxes_row(image, pale, least=0.1)}
    config = InspectionConfig(detection=LOOKING.model_copy(update={"box_threshold": 0.1}))
    row = removal_row(image, BALL, pale)
    (made,) = inspect_removals([row], config, images={image.key: image}, boxes=boxes)
    assert (made.why, made.found_before) == (STILL, pytest.approx(50 / 255))
    assert made.found_after == made.found_before < config.min_remaining_score
    assert asked == [(0.1, 0)]


def test_what_grew_in_its_place_is_named(asked):
    made = inspected(painted((BALL, RED)), painted((disc(72, 92, 12), BLUE)))
    assert (made.why, made.grown) == (GREW, "blue ball")
    assert (made.grown_score, made.found_after) == (pytest.approx(210 / 255), 0)
    assert inspected(
        painted((BALL, RED)), painted((disc(72, 92, 12), BLUE)), min_grown_score=0.9
    ).passed
    behind = (disc(70, 74, 19), BLUE)
    with_behind = inspected(painted(behind, (BALL, RED)), painted(behind))
    assert with_behind.passed
    assert with_behind.rim <= 1
    # The same picture afterwards, but nobody saw it before.
    hidden = (disc(70, 90, 12), BLUE)
    assert inspected(painted(hidden, (BALL, RED)), painted(hidden)).why == GREW


def test_a_halo_is_one_and_nobody_looks_further(asked):
    ring = disc(70, 90, 29) & ~disc(70, 90, 26)
    made = inspected(painted((ring | BALL, RED)), painted((ring, RED)))
    assert made.why == HALO
    assert made.rim > 3
    assert (made.found_before, made.found_after) == (-1, -1)
    assert (
        inspected(painted((ring | BALL, RED)), painted((ring, RED)), max_rim=made.rim).rim
        == made.rim
    )


@pytest.mark.parametrize(("away", "count"), [(8, 0), (9, 1)])
def test_pixels_outside_are_counted_again(asked, away, count):
    # The mask ends at column 110: 5 dilated and 3 feathered, the first that may not change is 9
    # columns away.
    altered = GROUND.copy()
    altered[70, 110 + away] = (1, 2, 3)
    image, row = photograph(painted((BALL, RED))), None
    row = removal_row(image, BALL, altered, window=(60, 40, 130, 100))
    row = replace(
        row,
        patch=encode_png(np.ascontiguousarray(altered[40:100, 60:130])),
        changed_outside=count + 7,
    )
    made = inspected(painted((BALL, RED)), altered, row=row)
    assert (made.changed_outside, made.why) == (count, "changed outside" if count else "")
    assert made.found_after == (-1 if count else 0)


def test_a_detector_of_scenes_does_not_look_nor_one_that_is_off():
    image = photograph(painted((BALL, RED)))
    row = removal_row(image, BALL, painted((BALL, RED)))
    off = InspectionConfig(detection=LOOKING, detector_enabled=False)
    for config in (InspectionConfig(detection=DetectionConfig()), InspectionConfig(), off):
        (made,) = inspect_removals([row], config, images={image.key: image})
        assert (made.passed, made.found_before, made.found_after) == (True, -1, -1)


BROKEN = {
    "no image": {"patch": b"no image"},
    "cut off": {"patch": encode_png(GROUND)[:-40]},
    "too large": {"patch": encode_png(GROUND)},
    "no window": {"window": (90, 70, 90, 70)},
    "outside": {"window": (WIDTH - 10, 0, WIDTH + 40, 50)},
    "before the image": {"window": (-10, -10, 47, 47)},
    "another size": {"mask": encode_mask(BALL[:-1]).model_dump_json()},
}


def test_rows_that_do_not_fit_are_dropped_and_the_others_go_on(asked):
    image = photograph(painted((BALL, RED)))
    lost = replace(image, key="lost", image=b"\x89PNG no image")
    good = removal_row(image, BALL, GROUND)
    bad = [replace(good, key=name, **changes) for name, changes in BROKEN.items()]
    rows = [bad[0], good, *bad[1:], replace(good, key="lost", image_key="lost")]
    images = {image.key: image, "lost": lost}
    boxes = {image.key: boxes_row(image, painted((BALL, RED)))}
    made = list(
        inspect_removals(rows, InspectionConfig(detection=LOOKING), images=images, boxes=boxes)
    )
    dropped = {row.source_key: row for row in made if isinstance(row, Dropped)}
    assert [row.source_key for row in made if isinstance(row, InspectionRow)] == [good.key]
    assert {dropped[name].reason for name in BROKEN} == {"patch does not fit its image"}
    assert dropped["lost"].reason == "damaged image"
    assert len(made) == len(rows)


@pytest.mark.parametrize("known", [(), (Tag(name="dog", score=1, tagger="ram"),)])
def test_a_tag_that_nobody_asked_for_before_is_asked_for_now(asked, known):
    image = photograph(painted((BALL, RED)))
    row = removal_row(image, BALL, painted((BALL, RED)))
    boxes = {image.key: replace(boxes_row(image, GROUND), tags=known)} if known else {}
    (made,) = inspect_removals(
        [row], InspectionConfig(detection=LOOKING), images={image.key: image}, boxes=boxes
    )
    assert (made.found_before, made.why) == (0, STILL)


def test_the_detector_is_named_where_it_looks_and_has_processes_of_its_own():
    known = LOOKING.model_copy(update={"revision": "a"})
    assert STAGE.models(STAGE.configure(Profile(detection=known))) == ("of colours a",)
    assert STAGE.models(STAGE.configure(Profile())) == ()
    assert STAGE.processes(InspectionConfig(detection=LOOKING)) == count_gpus()
    assert STAGE.processes(InspectionConfig(detection=LOOKING, detector_enabled=False)) is None
    assert STAGE.processes(InspectionConfig(detection=DetectionConfig())) is None
    assert STAGE.processes(InspectionConfig()) is None
