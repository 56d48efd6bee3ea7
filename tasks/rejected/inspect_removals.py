"""Check that each removal left no trace and changed nothing else (ours).

Reads ``RemovalRow``, the images and the boxes of the original images; writes one ``InspectionRow``
per removal. In order: no pixel beyond ``dilate + feather`` of the mask changed; nothing of the
element is left along the rim; there is no halo (``measure_rim``); the filling is as light and as
rough as what is around it (``measure_fill``); the detector finds nothing of the element's tag in
its hole, and nothing new. The detector sees the whole altered image with all tags of the original,
since scores depend on scale, surroundings and prompt; that of scenes is not used. A rendered
removal is compared with the light of the scene without the element instead
(``measure_difference``).

A box is in the hole if at least half of its pixels were filled. A thin object fills little of its
box; therefore a box also counts if it agrees with one of the element's original boxes. Those are
found by their extent: the smallest box around the filled pixels in them covers at least half of
them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import InspectionConfig, Profile
from pairwright.schemas.rows import (
    NO_ROWS,
    Box,
    BoxesRow,
    Dropped,
    Failed,
    ImageRow,
    Images,
    InspectionRow,
    RemovalRow,
    Tag,
    make_key,
)
from pairwright.tasks.images.decode import RGB, RefusedImageError
from pairwright.tasks.models.prepare_ahead import DecodedImage, Ready, in_groups
from pairwright.tasks.models.scene_models import SceneDetector
from pairwright.tasks.perception.detectors import (
    Detector,
    configure_detector,
    count_detectors,
    make_detector,
    name_prompts,
)
from pairwright.tasks.perception.image_faults import ImageFault
from pairwright.tasks.rejected.measure_fills import UNMEASURED, FillMeasures, measure_fill
from pairwright.tasks.rejected.measure_removals import RemovalCrop, cut_removal, measure_rim
from pairwright.tasks.rejected.render_removals import choose_shard_size, measure_difference
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.store.stage import Stage, Uses

# least share for a box to lie mostly in the hole, to equal another, or to lie mostly inside another
MOSTLY = 0.5


@dataclass(frozen=True)
class FilledRegion:
    """Filled pixels of an image."""

    corner: tuple[int, int]  # column and row of the image at which ``filled`` starts
    filled: NDArray[np.bool_]  # ``(h, w)``; all other pixels of the image were not filled

    def covered(self, box: Box) -> float:
        """Return the share of a box that was filled."""
        pixels = np.count_nonzero(self._part(box))
        return min(pixels / max(_area(box), 1.0), 1.0)

    def spanned(self, box: Box) -> float:
        """Return the share of a box within the smallest box around its filled pixels."""
        rows, columns = np.nonzero(self._part(box))
        if not columns.size:
            return 0.0
        area = float((np.ptp(columns) + 1) * (np.ptp(rows) + 1))
        return min(area / max(_area(box), 1.0), 1.0)

    def encloses(self, box: Box) -> bool:
        """Return whether a box lies mostly in the filled pixels."""
        return self.covered(box) >= MOSTLY

    def _part(self, box: Box) -> NDArray[np.bool_]:
        """Return the part of ``filled`` in a box."""
        corners = np.array([box.x0, box.y0, box.x1, box.y1]) - np.tile(self.corner, 2)
        x0, y0, x1, y1 = np.rint(corners.clip(0)).astype(int).tolist()
        return self.filled[y0:y1, x0:x1]


class Remaining(NamedTuple):
    """Detector's highest scores of an object in its hole before and after removal; 0: none."""

    before: float
    after: float


class Grown(NamedTuple):
    """New object in the hole with the highest score; no name: none."""

    name: str
    score: float


class InspectionOutcome(NamedTuple):
    """Reason why a removal fails (empty: it passes), and the detector's findings."""

    why: str
    remaining: Remaining
    grown: Grown


def look_for_element(
    tag: int,
    region: FilledRegion,
    *,
    before: Sequence[Box],
    after: Sequence[Box],
) -> Remaining:
    """Return the highest scores of the removed element's tag in its hole, before and after."""
    originals = [box for box in before if box.tag == tag and _fills(region, box)]
    later = [
        box
        for box in after
        if box.tag == tag
        and (region.encloses(box) or any(_are_same(box, original) for original in originals))
    ]
    return Remaining(_highest_score(originals), _highest_score(later))


def _fills(region: FilledRegion, box: Box) -> bool:
    return max(region.covered(box), region.spanned(box)) >= MOSTLY


def _highest_score(boxes: Sequence[Box]) -> float:
    return max((box.score for box in boxes), default=0.0)


def find_grown(
    tags: Sequence[Tag],
    region: FilledRegion,
    *,
    before: Sequence[Box],
    after: Sequence[Box],
    least: float,
) -> Grown:
    """Return the new object with the highest score, at least ``least``, mostly in the hole.

    An object that stood behind the element and is visible now is not new: its box of the same tag
    lay mostly outside the hole, and lies mostly inside the later box. Objects that were wholly
    hidden, or removed with the element, are made up by the filling.
    """
    outside = [box for box in before if not region.encloses(box)]
    new: list[tuple[float, int, str]] = []
    for number, box in enumerate(after):
        if box.score < least or not region.encloses(box):
            continue
        if not any(_is_part_of(original, box) for original in outside):
            new.append((box.score, -number, tags[box.tag].name))
    score, _, name = max(new, default=(0.0, 0, ""))
    return Grown(name, score)


def _is_part_of(original: Box, box: Box) -> bool:
    """Return whether a box of the same tag lies mostly inside another."""
    return original.tag == box.tag and _shared(box, original) >= MOSTLY * _area(original)


def _are_same(first: Box, second: Box) -> bool:
    shared = _shared(first, second)
    union = _area(first) + _area(second) - shared
    return shared >= MOSTLY * max(union, 1.0)


def _shared(first: Box, second: Box) -> float:
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return max(width, 0.0) * max(height, 0.0)


def _area(box: Box) -> float:
    return max(box.x1 - box.x0, 0.0) * max(box.y1 - box.y0, 0.0)


CHANGED_OUTSIDE = "changed outside"
LEFT = "its colour is left along the rim"
HALO = "halo along the rim"
SHIFTED = "lighter or darker than around"
SMEARED = "smoother than around"
NOT_THE_SCENE = "not what the scene shows"
STILL_THERE = "still detected"
GROWN = "something grew in its place"
BAD_PATCH = "patch does not fit its image"
# altered images per call of the detector on a GPU, which cuts them into batches; up to 3.2 MB each
GROUP = 256


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Trace:
    """Findings about a removal without the detector."""

    why: str
    rim: float = 0.0
    fill: FillMeasures = UNMEASURED
    changed_outside: int = 0
    difference: float = 0.0
    detector_input: tuple[Any, FilledRegion] | None = None
    """Prepared altered image and its filled pixels; ``None``: the detector is not used."""


Inspected = Ready[RemovalRow, Trace]


class Detection(NamedTuple):
    """Removal that the detector checks, with the tags and boxes of its original image."""

    row: RemovalRow
    altered: Any
    region: FilledRegion
    tags: tuple[Tag, ...]
    boxes: tuple[Box, ...]


def inspect_removals(
    rows: Sequence[RemovalRow],
    config: InspectionConfig,
    *,
    images: Images,
    boxes: Mapping[str, BoxesRow] = NO_ROWS,
    answers: Answers | None = None,
) -> Iterator[InspectionRow | Dropped | Failed]:
    """Yield the outcome of each removal's checks; ``boxes``: those of the original images."""
    detector = _make_detector(config, answers)
    on_gpu = bool(detector and config.detection and count_detectors(config.detection))
    items = [(row, images[row.image_key]) for row in rows]

    def inspect(ready: Sequence[Inspected]) -> Iterator[InspectionRow | Dropped | Failed]:
        outcomes = _detect(detector, boxes, ready, config) if detector else {}
        for item in ready:
            undetected = InspectionOutcome(item.part.why, Remaining(-1.0, -1.0), Grown("", 0.0))
            outcome = outcomes.get(item.row.key, undetected)
            if isinstance(outcome, ImageFault):
                yield outcome.as_row(item.row.key, detail=item.row.tag)
            else:
                yield _inspection_row(item.row, item.part, outcome)

    measure = partial(_measure, config, detector)
    yield from in_groups(
        items,
        measure,
        inspect,
        on_gpu=on_gpu,
        size=GROUP,
        ahead=GROUP,
    )


def _make_detector(config: InspectionConfig, answers: Answers | None = None) -> Detector | None:
    """Return the detector with the lowest threshold that is needed; ``None``: none is used."""
    if config.detection is None or not config.detector_enabled:
        return None
    thresholds = (
        config.detection.box_threshold,
        config.min_remaining_score,
        config.min_grown_score,
    )
    update = {"box_threshold": min(thresholds), "batch_size": config.batch_size}
    detector = make_detector(config.detection.model_copy(update=update), answers)
    # The scene's boxes do not depend on the pixels.
    return None if isinstance(detector, SceneDetector) else detector


def _measure(
    config: InspectionConfig,
    detector: Detector | None,
    row: RemovalRow,
    image: DecodedImage,
) -> Trace | Dropped:
    """Check a removal without the detector, and prepare the detector's input.

    May run in another process.
    """
    try:
        if config.rendered:
            return _compare_light(config, row, image)
        crop = cut_removal(row, image)
    except (RefusedImageError, ValueError) as error:
        return Dropped(
            source_key=row.key,
            reason=BAD_PATCH,
            detail=f"{row.tag}: {error}",
        )
    return _measure_pixels(config, detector, row, image.pixels, crop)


def _compare_light(config: InspectionConfig, row: RemovalRow, image: DecodedImage) -> Trace:
    difference = measure_difference(row, image)
    why = ""
    if difference > config.max_difference:
        why = f"{NOT_THE_SCENE} (inspection.max_difference={config.max_difference:g})"
    return Trace(difference=difference, why=why)


def _measure_pixels(
    config: InspectionConfig,
    detector: Detector | None,
    row: RemovalRow,
    pixels: RGB,
    crop: RemovalCrop,
) -> Trace:
    outside = crop.distance >= row.dilate + row.feather + 1
    differs = (crop.before != crop.after).any(axis=2)
    changed = int(differs[outside].sum())
    rim = measure_rim(
        crop.after,
        crop.mask,
        dilate=row.dilate,
        feather=row.feather,
    )
    fill = measure_fill(crop, dilate=row.dilate, feather=row.feather)
    why = CHANGED_OUTSIDE if changed else _judge_pixels(config, rim, fill)
    trace = Trace(
        rim=rim,
        fill=fill,
        changed_outside=changed,
        why=why,
    )
    if detector is None or why:
        return trace
    region = FilledRegion(crop.corner, crop.distance <= row.dilate)
    altered = DecodedImage(_paste(pixels, crop))
    return replace(trace, detector_input=(detector.prepare(altered), region))


def _judge_pixels(config: InspectionConfig, rim: float, fill: FillMeasures) -> str:
    """Return the first measure of the pixels that is beyond its bound; empty: none."""
    if fill.left > config.max_left:
        return f"{LEFT} (inspection.max_left={config.max_left:g})"
    if rim > config.max_rim:
        return f"{HALO} (inspection.max_rim={config.max_rim:g})"
    if fill.shift > config.max_shift:
        return f"{SHIFTED} (inspection.max_shift={config.max_shift:g})"
    if fill.texture < config.min_texture:
        return f"{SMEARED} (inspection.min_texture={config.min_texture:g})"
    return ""


def _paste(pixels: RGB, crop: RemovalCrop) -> RGB:
    """Return the image with the removal in it."""
    x0, y0 = crop.corner
    height, width = crop.mask.shape
    altered = pixels.copy()
    altered[y0 : y0 + height, x0 : x0 + width] = crop.after
    return altered


def _detect(
    detector: Detector,
    boxes: Mapping[str, BoxesRow],
    ready: Sequence[Inspected],
    config: InspectionConfig,
) -> dict[str, InspectionOutcome | ImageFault]:
    """Return the outcome by removal."""
    detections: list[Detection] = []
    for item in ready:
        if item.part.detector_input:
            tags, originals = _original_boxes(item.row, boxes)
            detections.append(Detection(item.row, *item.part.detector_input, tags, originals))
    if not detections:
        return {}
    altered = [detection.altered for detection in detections]
    later = detector.detect(altered, [detection.tags for detection in detections])
    outcomes: dict[str, InspectionOutcome | ImageFault] = {}
    for detection, after in zip(detections, later, strict=True):
        if isinstance(after, ImageFault):
            outcomes[detection.row.key] = after
        else:
            outcomes[detection.row.key] = _compare_boxes(detection, after, config)
    return outcomes


def _original_boxes(
    row: RemovalRow, boxes: Mapping[str, BoxesRow]
) -> tuple[tuple[Tag, ...], tuple[Box, ...]]:
    """Return the tags and boxes of the original image.

    An image without known boxes of the element's tag had none: then only this tag is detected.
    """
    original = boxes.get(row.image_key)
    if original and any(tag.name == row.tag for tag in original.tags):
        return original.tags, original.boxes
    return (
        Tag(
            name=row.tag,
            score=1.0,
            tagger="",
        ),
    ), ()


def _compare_boxes(
    detection: Detection, after: Sequence[Box], config: InspectionConfig
) -> InspectionOutcome:
    tag = next(number for number, tag in enumerate(detection.tags) if tag.name == detection.row.tag)
    region = detection.region
    before = detection.boxes
    remaining = look_for_element(
        tag,
        region,
        before=before,
        after=after,
    )
    least = config.min_grown_score
    grown = find_grown(
        detection.tags,
        region,
        before=before,
        after=after,
        least=least,
    )
    # An element that had a low score is still there if its score is as high as before.
    threshold = min(config.min_remaining_score, remaining.before or 1.0)
    why = ""
    if 0 < remaining.after >= threshold:
        why = f"{STILL_THERE} (inspection.min_remaining_score={config.min_remaining_score:g})"
    elif grown.name:
        why = f"{GROWN} (inspection.min_grown_score={config.min_grown_score:g})"
    return InspectionOutcome(why, remaining, grown)


def _inspection_row(row: RemovalRow, trace: Trace, outcome: InspectionOutcome) -> InspectionRow:
    why, remaining, grown = outcome
    return InspectionRow(
        key=make_key(
            "inspection",
            row.key,
            why,
            trace.rim,
            trace.fill.texture,
            trace.fill.shift,
            trace.fill.left,
            trace.difference,
            *remaining,
            *grown,
        ),
        source_key=row.key,
        subject=row.image_key,
        element=row.subject,
        passed=not why,
        why=why,
        found_before=remaining.before,
        found_after=remaining.after,
        grown=grown.name,
        grown_score=grown.score,
        rim=trace.rim,
        texture=trace.fill.texture,
        shift=trace.fill.shift,
        left=trace.fill.left,
        changed_outside=trace.changed_outside,
        difference=trace.difference,
    )


def _name_models(config: InspectionConfig) -> tuple[str, ...]:
    detector = _make_detector(config)
    return (detector.version,) if detector else ()


def _count_processes(config: InspectionConfig) -> int | None:
    return (
        count_detectors(config.detection) if config.detection and _make_detector(config) else None
    )


def _configure(profile: Profile) -> InspectionConfig:
    inspection = profile.inspection
    detection = configure_detector(profile)
    if detection.is_served and not inspection.detector_enabled:
        detection = None  # no server is asked
    return inspection.fill(rendered=profile.removals.rendered, detection=detection)


def _name_prompts(config: InspectionConfig) -> tuple[str, ...]:
    return name_prompts(config.detection) if config.detection else ()


STAGE = Stage(
    name="inspected",
    version=3,
    group="rejected",
    reads={"removals": RemovalRow},
    writes=InspectionRow,
    function=inspect_removals,
    config=_configure,
    prompts=_name_prompts,
    journal="answers",
    uses=(
        Uses(table="images", row=ImageRow, on="about"),
        Uses(
            table="boxes", row=BoxesRow, on="about", counts=True
        ),  # the prompt names all of the image's tags
    ),
    models=_name_models,
    processes=_count_processes,
    rows_per_shard=choose_shard_size,
)
