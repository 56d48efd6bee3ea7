"""Check that each removal left no trace and changed nothing else (ours).

Reads ``RemovalRow``, the images and the boxes of the original images; writes one ``InspectionRow``
per removal. In order: no pixel beyond ``dilate + feather`` of the mask changed; there is no halo
(``measure_rim``); the detector finds nothing of the element's tag in its place, and nothing new.
The detector sees the whole altered image with all tags of the original, since scores depend on
scale, surroundings and prompt; that of scenes is not used. A rendered removal is compared with the
light of the scene without the element instead (``measure_difference``).

A box is in the element's place if at least half of its pixels were filled. A thin thing fills
little of its box; therefore a box also counts if it agrees with one of the element's own boxes.
Those are found by their extent: the smallest box around the filled pixels in them covers at least
half of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import InspectionConfig
from pairwright.schemas.rows import (
    NO_ROWS,
    Box,
    BoxesRow,
    Dropped,
    ImageRow,
    Images,
    InspectionRow,
    RemovalRow,
    Tag,
    make_key,
)
from pairwright.tasks.images.decode import RefusedImageError
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.prepare_ahead import DecodedImage, Ready, in_groups
from pairwright.tasks.models.scene_models import SceneDetector
from pairwright.tasks.rejected.detect_boxes import Detector, count_detectors, make_detector
from pairwright.tasks.rejected.measure_removals import cut_removal, measure_rim
from pairwright.tasks.rejected.render_removals import fit_renderer, measure_difference
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
        return min(np.count_nonzero(self._part(box)) / max(_area(box), 1.0), 1.0)

    def spanned(self, box: Box) -> float:
        """Return the area of the smallest box around the filled pixels of a box, as a share of it."""
        lines, columns = np.nonzero(self._part(box))
        if not columns.size:
            return 0.0
        return min(float((np.ptp(columns) + 1) * (np.ptp(lines) + 1)) / max(_area(box), 1.0), 1.0)

    def _part(self, box: Box) -> NDArray[np.bool_]:
        """Return the part of ``filled`` in a box."""
        corners = np.array([box.x0, box.y0, box.x1, box.y1]) - np.tile(self.corner, 2)
        x0, y0, x1, y1 = np.rint(corners.clip(0)).astype(int).tolist()
        return self.filled[y0:y1, x0:x1]


Found = tuple[
    float, float
]  # detector's scores of a thing in its place, before and after its removal; 0: not found
Grown = tuple[
    str, float
]  # new thing in the place of a removed element, with the highest score; no name: none


def look_for_element(
    tag: int, place: FilledRegion, *, before: Sequence[Box], after: Sequence[Box]
) -> Found:
    """Return the highest scores of the removed element's tag in its place, before and after."""
    own = [
        box
        for box in before
        if box.tag == tag and max(place.covered(box), place.spanned(box)) >= MOSTLY
    ]
    left = [
        box.score
        for box in after
        if box.tag == tag
        and (place.covered(box) >= MOSTLY or any(_are_same(box, old) for old in own))
    ]
    return max((box.score for box in own), default=0.0), max(left, default=0.0)


def find_grown(
    tags: Sequence[Tag],
    place: FilledRegion,
    *,
    before: Sequence[Box],
    after: Sequence[Box],
    least: float,
) -> Grown:
    """Return the new thing with the highest score, at least ``least``, that lies mostly in the hole.

    A thing that stood behind the element and is visible now is not new: its box of the same tag lay
    mostly outside the hole, and lies mostly inside the later box. Things that were wholly hidden,
    or went with the element, are made up by the filling.
    """
    beside = [old for old in before if place.covered(old) < MOSTLY]
    new = [
        (box.score, -number, tags[box.tag].name)
        for number, box in enumerate(after)
        if box.score >= least
        and place.covered(box) >= MOSTLY
        and not any(
            old.tag == box.tag and _shared(box, old) >= MOSTLY * _area(old) for old in beside
        )
    ]
    score, _, name = max(new, default=(0.0, 0, ""))
    return name, score


def _are_same(first: Box, second: Box) -> bool:
    shared = _shared(first, second)
    return shared >= MOSTLY * max(_area(first) + _area(second) - shared, 1.0)


def _shared(first: Box, second: Box) -> float:
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return max(width, 0.0) * max(height, 0.0)


def _area(box: Box) -> float:
    return max(box.x1 - box.x0, 0.0) * max(box.y1 - box.y0, 0.0)


CHANGED_OUTSIDE, HALO = "changed outside", "halo along the rim"
NOT_THE_SCENE = "not what the scene shows"
STILL_THERE, GROWN = "still detected", "something grew in its place"
BAD_PATCH = "patch does not fit its image"
# altered images per call of the detector on a GPU, which cuts them into batches; up to 3.2 MB each
GROUP = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Findings about a removal without the detector."""

    why: str
    rim: float = 0.0
    changed_outside: int = 0
    difference: float = 0.0
    shown: tuple[Any, FilledRegion] | None = None
    """Prepared altered image and its filled pixels; ``None``: the detector is not used."""


def inspect_removals(
    rows: Sequence[RemovalRow],
    config: InspectionConfig,
    *,
    images: Images,
    boxes: Mapping[str, BoxesRow] = NO_ROWS,
) -> Iterator[InspectionRow | Dropped]:
    """Yield the outcome of each removal's checks; ``boxes``: those of the original images."""
    detector = _make_detector(config)
    on_gpu = detector is not None and count_gpus() > 0
    items = [(row, images[row.image_key]) for row in rows]

    def inspect(ready: Sequence[Ready[RemovalRow, Trace]]) -> Iterator[InspectionRow]:
        looks = _detect(detector, boxes, ready, config) if detector else {}
        for one in ready:
            yield _row(one, *looks.get(one.row.key, (one.part.why, (-1.0, -1.0), ("", 0.0))))

    trace = partial(_measure, config, detector)
    yield from in_groups(items, trace, inspect, on_gpu=on_gpu, size=GROUP, ahead=GROUP)


def _make_detector(config: InspectionConfig) -> Detector | None:
    """Return the detector with the lowest threshold that is needed; ``None``: none is used."""
    if config.detection is None or not config.detector_enabled:
        return None
    least = min(config.detection.box_threshold, config.min_remaining_score, config.min_grown_score)
    update = {"box_threshold": least, "batch_size": config.batch_size}
    detector = make_detector(config.detection.model_copy(update=update))
    return (
        None if isinstance(detector, SceneDetector) else detector
    )  # the scene's boxes do not depend on the pixels


def _measure(
    config: InspectionConfig, detector: Detector | None, row: RemovalRow, seen: DecodedImage
) -> Trace | Dropped:
    """Check a removal without the detector, and prepare the detector's input; may run in another process."""
    try:
        if config.rendered:
            difference = measure_difference(row, seen)
            why = f"{NOT_THE_SCENE} (inspection.max_difference={config.max_difference:g})"
            return Trace(
                difference=difference, why=why if difference > config.max_difference else ""
            )
        around = cut_removal(row, seen)
    except (RefusedImageError, ValueError) as error:
        return Dropped(source_key=row.key, reason=BAD_PATCH, detail=f"{row.tag}: {error}")
    outside = around.distance >= row.dilate + row.feather + 1
    changed = int((around.before != around.after).any(axis=2)[outside].sum())
    rim = measure_rim(around.after, around.mask, dilate=row.dilate, feather=row.feather)
    halo = f"{HALO} (inspection.max_rim={config.max_rim:g})" if rim > config.max_rim else ""
    why = CHANGED_OUTSIDE if changed else halo
    if detector is None or why:
        return Trace(rim=rim, changed_outside=changed, why=why)
    (x0, y0), (height, width), altered = around.corner, around.mask.shape, seen.pixels.copy()
    altered[y0 : y0 + height, x0 : x0 + width] = around.after
    shown = (
        detector.prepare(DecodedImage(altered)),
        FilledRegion(around.corner, around.distance <= row.dilate),
    )
    return Trace(rim=rim, changed_outside=changed, why="", shown=shown)


def _detect(
    detector: Detector,
    boxes: Mapping[str, BoxesRow],
    ready: Sequence[Ready[RemovalRow, Trace]],
    config: InspectionConfig,
) -> dict[str, tuple[str, Found, Grown]]:
    """Return, by removal, why it fails, and the detector's findings in the place of the element.

    An image without known boxes of the tag had none: then only this tag is looked for.
    """
    shown = [(one.row, *one.part.shown) for one in ready if one.part.shown]
    originals: list[tuple[tuple[Tag, ...], tuple[Box, ...]]] = []
    for row, *_ in shown:
        known = boxes.get(row.image_key)
        if known and any(tag.name == row.tag for tag in known.tags):
            originals.append((known.tags, known.boxes))
        else:
            originals.append(((Tag(name=row.tag, score=1.0, tagger=""),), ()))
    altered = (
        detector.detect([image for _, image, _ in shown], [tags for tags, _ in originals])
        if shown
        else []
    )
    looks: dict[str, tuple[str, Found, Grown]] = {}
    for (row, _, place), (tags, before), after in zip(shown, originals, altered, strict=True):
        tag = next(n for n, tag in enumerate(tags) if tag.name == row.tag)
        found = look_for_element(tag, place, before=before, after=after)
        grown = find_grown(tags, place, before=before, after=after, least=config.min_grown_score)
        # An element that had a low score is still there if its score is as high as before.
        there = 0 < found[1] >= min(config.min_remaining_score, found[0] or 1.0)
        grew = (
            f"{GROWN} (inspection.min_grown_score={config.min_grown_score:g})" if grown[0] else ""
        )
        still = (
            f"{STILL_THERE} (inspection.min_remaining_score={config.min_remaining_score:g})"
            if there
            else ""
        )
        looks[row.key] = (still or grew, found, grown)
    return looks


def _row(one: Ready[RemovalRow, Trace], why: str, found: Found, grown: Grown) -> InspectionRow:
    row, trace = one.row, one.part
    return InspectionRow(
        key=make_key("inspection", row.key, why, trace.rim, trace.difference, *found, *grown),
        source_key=row.key,
        subject=row.image_key,
        element=row.subject,
        passed=not why,
        why=why,
        found_before=found[0],
        found_after=found[1],
        grown=grown[0],
        grown_score=grown[1],
        rim=trace.rim,
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


STAGE = Stage(
    name="inspected",
    version=2,
    group="rejected",
    reads={"removals": RemovalRow},
    writes=InspectionRow,
    function=inspect_removals,
    config=lambda profile: profile.inspection.fill(
        rendered=profile.removals.rendered, detection=profile.detection
    ),
    uses=(
        Uses(table="images", row=ImageRow, on="image_key"),
        Uses(
            table="boxes", row=BoxesRow, on="image_key", counts=True
        ),  # the prompt names all of the image's tags
    ),
    models=_name_models,
    processes=_count_processes,
    fit=fit_renderer,
)
