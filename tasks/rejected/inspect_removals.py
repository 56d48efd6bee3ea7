"""Check what nobody checks: that a removal left no trace and changed nothing else (ours).

Reads ``RemovalRow``, the images and the boxes of the original images; writes one ``InspectionRow`` per removal. In
order: no pixel beyond ``dilate + feather`` of the mask changed; there is no halo (``measure_rim``); the detector finds
nothing of the element's tag in its place (``compare_boxes``), and nothing else that was not seen before. It sees the
whole altered image with all its tags, since scores depend on scale, surroundings and prompt; one of scenes never looks.
A rendered removal is compared with the light of the scene without the element instead (``measure_difference``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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
from pairwright.tasks.models.detection import Detector, count_detectors, make_detector
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.prepare_ahead import Ready, Seen, in_groups
from pairwright.tasks.rejected.compare_boxes import Found, Grown, Place, find_grown, look_for_element
from pairwright.tasks.rejected.measure_removals import cut_removal, measure_rim
from pairwright.tasks.rejected.render_removals import PER_SHARD, measure_difference
from pairwright.tasks.store.images import RefusedImageError
from pairwright.tasks.store.stage import Stage, Uses

CHANGED_OUTSIDE, HALO = "changed outside", "halo along the rim"
NOT_THE_SCENE = "not what the scene shows"
STILL_THERE, GROWN = "still detected", "something grew in its place"
BAD_PATCH = "patch does not fit its image"
GROUP = 256
"""Altered images handed to a GPU at a time; the detector cuts them into batches. They are up to 3.2 MB each."""
NOT_LOOKED, NOTHING = Found(-1.0, -1.0), Grown("", 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Findings about a removal before a detector looks."""

    why: str
    rim: float = 0.0
    changed_outside: int = 0
    difference: float = 0.0
    shown: tuple[Any, Place] | None = None
    """The altered image as the detector takes it, and what was filled; ``None``: it does not look."""


def inspect_removals(
    rows: Sequence[RemovalRow], config: InspectionConfig, *, images: Images, boxes: Mapping[str, BoxesRow] = NO_ROWS
) -> Iterator[InspectionRow | Dropped]:
    """Yield the outcome of each removal's checks; ``boxes``: what the detector found in the original images."""
    detector = _looking(config)
    on_gpu = detector is not None and count_gpus() > 0
    items = [(row, images[row.image_key]) for row in rows]

    def inspect(ready: Sequence[Ready[RemovalRow, Trace]]) -> Iterator[InspectionRow]:
        looks = _look(detector, boxes, ready, config) if detector else {}
        for one in ready:
            yield _row(one, *looks.get(one.row.key, (one.part.why, NOT_LOOKED, NOTHING)))

    trace = partial(_trace, config, detector)
    yield from in_groups(items, trace, inspect, on_gpu=on_gpu, size=GROUP, ahead=GROUP)


def _looking(config: InspectionConfig) -> Detector | None:
    """Return the detector that looks again, down to the lowest score that matters; ``None``: none does."""
    if config.detection is None or not config.detector_enabled:
        return None
    least = min(config.detection.box_threshold, config.min_remaining_score, config.min_grown_score)
    detector = make_detector(config.detection.model_copy(update={"box_threshold": least}), batch=config.batch_size)
    return detector if detector.looks else None


def _trace(config: InspectionConfig, detector: Detector | None, row: RemovalRow, seen: Seen) -> Trace | Dropped:
    """Check a removal without the detector, and prepare what that takes; may run in another process."""
    try:
        if config.rendered:
            difference = measure_difference(row, seen)
            why = NOT_THE_SCENE if difference > config.max_difference else ""
            return Trace(difference=difference, why=why)
        around = cut_removal(row, seen)
    except (RefusedImageError, ValueError) as error:
        return Dropped(source_key=row.key, reason=BAD_PATCH, detail=f"{row.tag}: {error}")
    outside = around.distance >= row.dilate + row.feather + 1
    changed = int((around.before != around.after).any(axis=2)[outside].sum())
    rim = measure_rim(around.after, around.mask, dilate=row.dilate, feather=row.feather, kept=around.kept)
    why = CHANGED_OUTSIDE if changed else HALO if rim > config.max_rim else ""
    if detector is None or why:
        return Trace(rim=rim, changed_outside=changed, why=why)
    shown = detector.prepare(Seen(around.put_into(seen.pixels))), Place(around.corner, around.distance <= row.dilate)
    return Trace(rim=rim, changed_outside=changed, why="", shown=shown)


def _look(
    detector: Detector,
    boxes: Mapping[str, BoxesRow],
    ready: Sequence[Ready[RemovalRow, Trace]],
    config: InspectionConfig,
) -> dict[str, tuple[str, Found, Grown]]:
    """Return by removal why it fails, and what the detector finds in the place of the element.

    Where it is not known what there was before, nothing was found, and only the tag is asked for.
    """
    shown = [(one.row, *one.part.shown) for one in ready if one.part.shown]
    originals: list[tuple[tuple[Tag, ...], tuple[Box, ...]]] = []
    for row, *_ in shown:
        known = boxes.get(row.image_key)
        if known and any(tag.name == row.tag for tag in known.tags):
            originals.append((known.tags, known.boxes))
        else:
            originals.append(((Tag(name=row.tag, score=1.0, tagger=""),), ()))
    altered = detector.detect([image for _, image, _ in shown], [tags for tags, _ in originals]) if shown else []
    looks: dict[str, tuple[str, Found, Grown]] = {}
    for (row, _, place), (tags, before), after in zip(shown, originals, altered, strict=True):
        tag = next(n for n, tag in enumerate(tags) if tag.name == row.tag)
        found = look_for_element(tag, place, before=before, after=after)
        grown = find_grown(tags, place, before=before, after=after, least=config.min_grown_score)
        # An element that was weakly seen before is not gone where it is seen as well as it was.
        limit = min(config.min_remaining_score, found.before) if found.before else config.min_remaining_score
        there = found.after > 0 and found.after >= limit
        looks[row.key] = (STILL_THERE if there else GROWN if grown.tag else "", found, grown)
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
        found_before=found.before,
        found_after=found.after,
        grown=grown.tag,
        grown_score=grown.score,
        rim=trace.rim,
        changed_outside=trace.changed_outside,
        difference=trace.difference,
    )


def _name_models(config: InspectionConfig) -> tuple[str, ...]:
    detector = _looking(config)
    return (detector.version,) if detector else ()


def _count_processes(config: InspectionConfig) -> int | None:
    return count_detectors(config.detection) if config.detection and _looking(config) else None


def _fit(stage: Stage, config: InspectionConfig) -> Stage:
    return replace(stage, rows_per_shard=PER_SHARD) if config.rendered else stage


STAGE = Stage(
    name="inspected",
    version=1,
    group="rejected",
    reads={"removals": RemovalRow},
    writes=InspectionRow,
    function=inspect_removals,
    config="inspection",
    uses=(
        Uses(table="images", row=ImageRow, on="image_key"),
        Uses(table="boxes", row=BoxesRow, on="image_key", counts=True),  # the prompt names all of the image's tags
    ),
    models=_name_models,
    processes=_count_processes,
    fit=_fit,
)
