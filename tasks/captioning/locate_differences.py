"""Check that the things that a description names lie in changed regions, where the images can be aligned (ours).

Reads ``DifferenceRow``, the pairs and both images; writes ``RegionsRow``. Needs OpenCV, spaCy and a detector. One image
is laid over the other to find the changed regions (``models.align_images``); the detector finds in each image the
things that its half affirms. A description fails where things were found and none of them lies in a changed region; one
is enough, as of "two cubes" and "three cubes" two are the same. Things that fill half of the image are no evidence:
every region lies in a room.

The score, 0 to 1, is the share of the things that lie in changed regions, times the share of the large changed regions
(by area) that hold such a thing. Where the images cannot be aligned, or nothing that is named was found, the check is
off: it passes with a reason, and has no score among the description's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any

from pairwright.schemas.checks import NOT_ALIGNED, NOTHING_FOUND, UNCHANGED
from pairwright.schemas.config import DetectionConfig, NounsConfig, RegionsConfig
from pairwright.schemas.phrases import SIZES
from pairwright.schemas.rows import (
    DifferenceRow,
    Dropped,
    ImageRow,
    Images,
    Pairs,
    RegionBox,
    RegionsRow,
    Tag,
    make_key,
)
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.captioning.validators import IMAGES, PAIRS, find_missing
from pairwright.tasks.models.align_images import Aligned, Corners, align_images
from pairwright.tasks.models.detection import count_detectors, has_weights, make_detector, pin_detector
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.nouns import find_phrases_of, pin_model
from pairwright.tasks.models.prepare_ahead import Seen, run_ahead
from pairwright.tasks.models.scene_models import Detector
from pairwright.tasks.store.images import RefusedImageError, decode_rgb
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.texts.words import QUOTED, affirmed, content_words

GROUP = 32
MAX_THING = 0.5
"""Largest share of its image that a thing may fill."""
Item = tuple[DifferenceRow, ImageRow, ImageRow, Sequence[Sequence[str]]]
"""Description, both images, and the nouns of each half."""


@dataclass(frozen=True, slots=True)
class Look:
    """Input of the detector for one pair."""

    aligned: Aligned | str
    areas: tuple[int, ...] = ()
    """Pixels of both images."""
    asked: tuple[tuple[int, Any, tuple[Tag, ...]], ...] = ()
    """Side, prepared image, and tags to find."""


def locate_differences(
    rows: Sequence[DifferenceRow], config: RegionsConfig, *, pairs: Pairs, images: Images
) -> Iterator[RegionsRow | Dropped]:
    """Yield the outcome of the check for each description."""
    detection, nouns = _models(config)
    detector, on_gpu = make_detector(detection), has_weights(detection) and count_gpus() > 0
    halves = [("", "") if row.no_change else [QUOTED.sub(" ", affirmed(half)) for half in row.halves] for row in rows]
    named = find_phrases_of((half for both in halves for half in both), nouns)
    items: list[Item] = []
    for row in rows:
        phrases, pair = (next(named), next(named)), pairs[row.subject]
        if missing := find_missing(row.key, pair, images, "image"):
            yield missing
        else:
            items.append((row, images[pair.first], images[pair.second], phrases))
    work = partial(look_at_pair, config=config, detector=detector)
    looks = iter(run_ahead(work, items, most=GROUP) if on_gpu else map(work, items))
    for start in range(0, len(items), size := GROUP if on_gpu else 1):
        yield from _judge(items[start : start + size], list(islice(looks, size)), config, detector)


def look_at_pair(item: Item, *, config: RegionsConfig, detector: Detector) -> Look:
    """Align two images and prepare them for the detector; may run in another process."""
    _, first, second, phrases = item
    try:
        pixels = decode_rgb(first.image), decode_rgb(second.image)
    except RefusedImageError as refused:
        return Look(refused.reason)
    aligned = align_images(*pixels, min_area=config.min_area)
    if isinstance(aligned, str):
        return Look(aligned)
    asked = (
        (side, detector.prepare(Seen(shown, image.graph)), tuple(_tag(name, image.graph) for name in names))
        for side, (shown, image, names) in enumerate(zip(pixels, (first, second), phrases, strict=True))
        if names
    )
    return Look(aligned, (first.width * first.height, second.width * second.height), tuple(asked))


def _tag(name: str, graph: SceneGraph | None) -> Tag:
    """Return the tag of a name; in a rendered image, with the objects that all of its words describe."""
    words = {*content_words(name)}
    objects = (
        thing.id
        for thing in (graph.objects if graph else ())
        if thing.shape in words and words <= {thing.shape, thing.colour, thing.material, SIZES[thing.size]}
    )
    return Tag(name=name, score=1.0, tagger="nouns", objects=tuple(objects))


def _judge(
    items: Sequence[Item], looks: Sequence[Look], config: RegionsConfig, detector: Detector
) -> Iterator[RegionsRow]:
    asked = [(number, *one) for number, look in enumerate(looks) for one in look.asked]
    found = detector.detect([shown for *_, shown, _ in asked], [tags for *_, tags in asked]) if asked else []
    things: list[list[RegionBox]] = [[] for _ in looks]
    for (number, side, _, tags), boxes in zip(asked, found, strict=True):
        places = (_region_box(side, tags[box.tag].name, box.score, (box.x0, box.y0, box.x1, box.y1)) for box in boxes)
        things[number] += (place for place in places if _area(place) <= MAX_THING * looks[number].areas[side])
    for (row, *_), look, own in zip(items, looks, things, strict=True):
        score, why, places = 0.0, f"{NOT_ALIGNED}{look.aligned}", ()
        if isinstance(look.aligned, Aligned):
            places = mark_places(look.aligned, own, min_overlap=config.min_overlap)
            score, why = judge_places(places, large_area=config.large_area, no_change=row.no_change)
        is_wrong = why == UNCHANGED
        yield RegionsRow(
            key=make_key("check", "regions", row.key), source_key=row.key, subject=row.subject, description=row.key,
            check="regions", passed=not is_wrong, score=score, places=places,
            why=f"{why} (regions.min_overlap={config.min_overlap:g})" if is_wrong else why,
        )  # fmt: skip


def mark_places(aligned: Aligned, things: Sequence[RegionBox], *, min_overlap: float) -> tuple[RegionBox, ...]:
    """Return all boxes, the changed regions first, each marked if it overlaps one of the other kind."""

    def met(place: RegionBox, others: Sequence[RegionBox]) -> bool:
        return any(place.side == other.side and overlap_of(place, other) >= min_overlap for other in others)

    changed: list[RegionBox] = []
    for both, share in zip(aligned.places, aligned.shares, strict=True):
        sides = [_region_box(side, "", share, corners) for side, corners in enumerate(both)]
        is_met = any(met(place, things) for place in sides)
        changed += (replace(place, met=is_met) for place in sides)
    return (*changed, *(replace(thing, met=met(thing, changed)) for thing in things))


def judge_places(places: Sequence[RegionBox], *, large_area: float, no_change: bool) -> tuple[float, str]:
    """Return the score, and the reason why the description fails or the check is off."""
    large = [place for place in places if not (place.name or place.side) and place.score >= large_area]
    named = sum(place.score for place in large if place.met) / sum(place.score for place in large) if large else 1.0
    met: dict[tuple[int, str], bool] = {}
    for place in places:
        if place.name:
            met[place.side, place.name] = met.get((place.side, place.name), False) or place.met
    if not met:
        return (round(named, 6), "") if no_change else (0.0, NOTHING_FOUND)
    share = sum(met.values()) / len(met)
    return round(share * named, 6), "" if share else UNCHANGED


def overlap_of(one: RegionBox, other: RegionBox) -> float:
    """Return the shared area of two boxes as a share of the smaller one."""
    across, down = min(one.x1, other.x1) - max(one.x0, other.x0), min(one.y1, other.y1) - max(one.y0, other.y0)
    return max(across, 0.0) * max(down, 0.0) / max(min(_area(one), _area(other)), 1e-9)


def _area(place: RegionBox) -> float:
    return (place.x1 - place.x0) * (place.y1 - place.y0)


def _region_box(side: int, name: str, score: float, corners: Corners) -> RegionBox:
    x0, y0, x1, y1 = (round(corner, 1) for corner in corners)
    return RegionBox(side=side, name=name, score=round(score, 6), met=False, x0=x0, y0=y0, x1=x1, y1=y1)


def _models(config: RegionsConfig) -> tuple[DetectionConfig, NounsConfig]:
    if config.detection is None or config.nouns is None:
        raise ValueError("RegionsConfig has no detection or nouns section: fill in both")
    return config.detection, config.nouns


def _pin_models(config: RegionsConfig) -> RegionsConfig:
    detection, nouns = _models(config)
    return config.model_copy(update={"detection": pin_detector(detection), "nouns": pin_model(nouns)})


def _count_processes(config: RegionsConfig) -> int | None:
    return count_detectors(config.detection) if config.detection else None


def _name_models(config: RegionsConfig) -> tuple[str, ...]:
    detection, nouns = _models(config)
    return make_detector(detection).version, nouns.revision or nouns.model  # a build has filled the revision in


STAGE = Stage(
    name="regions",
    version=2,
    group="captioning",
    reads={"described": DifferenceRow},
    writes=RegionsRow,
    function=locate_differences,
    config="regions",
    models=_name_models,
    pin=_pin_models,
    processes=_count_processes,
    enabled=attrgetter("enabled"),
    uses=(PAIRS, IMAGES),
)
