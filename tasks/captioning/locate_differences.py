"""Check that what a description names lies where the two images differ, wherever they can be aligned (ours).

Reads ``DifferenceRow``, the pairs and both images; writes ``RegionsRow``. Needs OpenCV, spaCy and a detector. One image
is laid over the other, by which the places that changed are known (``models.align_images``); the detector finds in each
image what its half affirms. A description fails where things that it names were found and none of them lies in
a changed place; one is enough, as of "two cubes" and "three cubes" two are the same. Things that fill half of the image
are no evidence: every place lies in a room.

The score, 0 to 1, is the share of the things that lie in changed places, times the share of the large changed places
(by area) in which such a thing lies. Where the images cannot be aligned, or nothing that is named was found, the check
is off: it passes, says why, and has no score among the description's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from pairwright.schemas.checks import NOT_ALIGNED, NOTHING_FOUND, UNCHANGED
from pairwright.schemas.config import DetectionConfig, NounsConfig, RegionsConfig
from pairwright.schemas.phrases import SIZES
from pairwright.schemas.rows import (
    Box,
    DifferenceRow,
    Dropped,
    ImageRow,
    Images,
    Pairs,
    Place,
    RegionsRow,
    Tag,
    make_key,
)
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.captioning.validators import IMAGES, PAIRS, find_missing
from pairwright.tasks.models.align_images import Aligned, Corners, align_images
from pairwright.tasks.models.detection import Detector, count_detectors, has_weights, make_detector, pin_detector
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.nouns import find_phrases_of, name_model, pin_model
from pairwright.tasks.models.prepare_ahead import Seen, run_ahead
from pairwright.tasks.store.images import RefusedImageError, decode_rgb
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.texts.words import QUOTED, affirmed, content_words

GROUP = 32
"""Pairs whose images are handed to a GPU at a time."""
MAX_THING = 0.5
"""Share of its image that a thing may fill."""
PIXEL_DIGITS, SHARE_DIGITS = 1, 6
Phrases = tuple[tuple[str, ...], tuple[str, ...]]
"""What each half of a description names."""
Item = tuple[DifferenceRow, ImageRow, ImageRow, Phrases]


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of a pair before a detector looks."""

    aligned: Aligned | str
    sizes: tuple[tuple[int, int], ...] = ()
    """Width and height of both images."""
    asked: tuple[tuple[int, Any, tuple[Tag, ...]], ...] = ()
    """Side, image as the detector takes it, and what it is asked for."""


def locate_differences(
    rows: Sequence[DifferenceRow], config: RegionsConfig, *, pairs: Pairs, images: Images
) -> Iterator[RegionsRow | Dropped]:
    """Yield whether what each description names lies where its images differ."""
    detection, nouns = filled(config)
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
    looks = run_ahead(work, items, most=GROUP) if on_gpu else map(work, items)
    size = GROUP if on_gpu else 1
    waiting: list[tuple[Item, Look]] = []
    for item, look in zip(items, looks, strict=True):
        waiting.append((item, look))
        if len(waiting) == size or item is items[-1]:
            yield from _judged(waiting, config, detector)
            waiting = []


def look_at_pair(item: Item, *, config: RegionsConfig, detector: Detector) -> Look:
    """Align two images, and prepare them for the detector where they can be; may run in another process."""
    _, *both, phrases = item
    try:
        first, second = (decode_rgb(image.image) for image in both)
    except RefusedImageError as refused:
        return Look(refused.reason)
    aligned = align_images(first, second, min_area=config.min_area)
    if isinstance(aligned, str):
        return Look(aligned)
    asked = tuple(
        (side, detector.prepare(Seen(pixels, image.graph)), tuple(_tag(name, image.graph) for name in names))
        for side, (pixels, image, names) in enumerate(zip((first, second), both, phrases, strict=True))
        if names
    )
    return Look(aligned, tuple((image.width, image.height) for image in both), asked)


def _tag(name: str, graph: SceneGraph | None) -> Tag:
    """Return what a detector is asked for; of a rendered image the things whose words a name consists of."""
    words = {*content_words(name)}
    objects = [
        thing.id
        for thing in (graph.objects if graph else ())
        if thing.shape in words and words <= {thing.shape, thing.colour, thing.material, SIZES[thing.size]}
    ]
    return Tag(name=name, score=1.0, tagger="nouns", objects=tuple(objects))


def _judged(looks: Sequence[tuple[Item, Look]], config: RegionsConfig, detector: Detector) -> Iterator[RegionsRow]:
    asked = [(number, *one) for number, (_, look) in enumerate(looks) for one in look.asked]
    found = detector.detect([shown for *_, shown, _ in asked], [tags for *_, tags in asked]) if asked else []
    things: list[list[tuple[int, str, Box]]] = [[] for _ in looks]
    for (number, side, _, tags), boxes in zip(asked, found, strict=True):
        width, height = looks[number][1].sizes[side]
        small = (box for box in boxes if _area(_corners(box)) <= MAX_THING * width * height)
        things[number] += ((side, tags[box.tag].name, box) for box in small)
    for ((row, *_), look), own in zip(looks, things, strict=True):
        if isinstance(look.aligned, str):
            score, why, places = 0.0, NOT_ALIGNED + look.aligned, ()
        else:
            places = mark_places(look.aligned, own, config)
            score, why = judge_places(row, places, config)
        yield RegionsRow(
            key=make_key("check", "regions", row.key),
            source_key=row.key,
            subject=row.subject,
            description=row.key,
            check="regions",
            passed=why != UNCHANGED,
            score=score,
            why=why,
            places=places,
        )


def mark_places(aligned: Aligned, things: Sequence[tuple[int, str, Box]], config: RegionsConfig) -> tuple[Place, ...]:
    """Return all boxes, each with whether it meets one of the other kind."""

    def meets(corners: Corners, box: Box) -> bool:
        return share_of(corners, _corners(box)) >= config.min_overlap

    changed = [
        _place(side, "", share, corners, met=any(meets(both[on], box) for on, _, box in things))
        for both, share in zip(aligned.places, aligned.shares, strict=True)
        for side, corners in enumerate(both)
    ]
    named = [
        _place(side, name, box.score, _corners(box), met=any(meets(both[side], box) for both in aligned.places))
        for side, name, box in things
    ]
    return (*changed, *named)


def judge_places(row: DifferenceRow, places: Sequence[Place], config: RegionsConfig) -> tuple[float, str]:
    """Return the score, and why the description fails or the check is off."""
    large = [place for place in places if not place.name and not place.side and place.score >= config.large_area]
    mentioned = sum(place.score for place in large if place.met) / sum(place.score for place in large) if large else 1.0
    met: dict[tuple[int, str], bool] = {}
    for place in places:
        if place.name:
            met[place.side, place.name] = met.get((place.side, place.name), False) or place.met
    if not met:
        return (mentioned, "") if row.no_change else (0.0, NOTHING_FOUND)
    share = sum(met.values()) / len(met)
    return round(share * mentioned, SHARE_DIGITS), "" if share else UNCHANGED


def share_of(one: Corners, other: Corners) -> float:
    """Return what two boxes share, of the smaller one."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    return max(across, 0.0) * max(down, 0.0) / max(min(_area(one), _area(other)), 1e-9)


def _area(corners: Corners) -> float:
    return (corners[2] - corners[0]) * (corners[3] - corners[1])


def _corners(box: Box) -> Corners:
    return box.x0, box.y0, box.x1, box.y1


def _place(side: int, name: str, score: float, corners: Corners, *, met: bool) -> Place:
    x0, y0, x1, y1 = (round(corner, PIXEL_DIGITS) for corner in corners)
    return Place(side=side, name=name, score=round(score, SHARE_DIGITS), met=met, x0=x0, y0=y0, x1=x1, y1=y1)


def filled(config: RegionsConfig) -> tuple[DetectionConfig, NounsConfig]:
    """Return who finds things, and who finds their names; a build has filled them in."""
    if config.detection is None or config.nouns is None:
        raise ValueError("no detector and no pipeline were filled into RegionsConfig")
    return config.detection, config.nouns


def _pin_models(config: RegionsConfig) -> RegionsConfig:
    detection, nouns = filled(config)
    return config.model_copy(update={"detection": pin_detector(detection), "nouns": pin_model(nouns)})


def _name_models(config: RegionsConfig) -> tuple[str, ...]:
    detection, nouns = filled(config)
    return (make_detector(detection).version, *name_model(nouns))


def _count_processes(config: RegionsConfig) -> int | None:
    return count_detectors(config.detection) if config.detection else None


STAGE = Stage(
    name="regions",
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
