"""Check that what a description names lies where its two images differ, if they align (ours).

Reads ``DifferenceRow``, the pairs and both images; writes ``CheckRow`` with the share of the named
things that changed as score. Needs OpenCV, spaCy and a detector. The images are aligned, and the
detector looks for the things that each half affirms in its own image. A description fails if none
of them changed, or none was found; one is enough: of "two cubes" and "three cubes" two are the
same. One that names things fails where nothing changed at all, and one that says that nothing
changed fails where a large place did.

Images that cannot be aligned, descriptions that name no thing, only light or colours, and those
that say that nothing changed between two viewpoints are not checked: they pass, with the reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from pairwright.schemas import checks
from pairwright.schemas.config import FILLERS, NounsConfig, Profile, RegionsConfig
from pairwright.schemas.phrases import SIZES
from pairwright.schemas.rows import (
    CheckRow,
    DifferenceRow,
    Dropped,
    Failed,
    ImageRow,
    Images,
    Pairs,
    Tag,
)
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.captioning.validators import IMAGES, PAIRS, check_text, pair_images
from pairwright.tasks.images.decode import RefusedImageError, decode_rgb
from pairwright.tasks.models.align_images import Aligned, align_images
from pairwright.tasks.models.nouns import find_phrases_of, identify_finder, pin_model
from pairwright.tasks.models.prepare_ahead import DecodedImage, run_ahead
from pairwright.tasks.perception.detectors import (
    Detector,
    configure_detector,
    count_detectors,
    make_detector,
    name_prompts,
    pin_detector,
)
from pairwright.tasks.perception.image_faults import ImageFault
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.texts.things import WordList, identify_words, names_thing, read_words
from pairwright.tasks.texts.words import QUOTED, affirmed

AHEAD = 32
"""Maximum pairs aligned ahead of a detector on a GPU."""
Names = tuple[str, ...]
Shares = Mapping[str, float]
"""Share of each found thing that changed, by its name."""


@dataclass(frozen=True, slots=True)
class NamedDescription:
    """Description of a pair with its images, and the things that each half names."""

    row: DifferenceRow
    images: tuple[ImageRow, ImageRow]
    names: tuple[Names, Names]


@dataclass(frozen=True, slots=True)
class AlignedPair:
    """Descriptions of one pair, and what changed between its images, or why they do not align."""

    described: Sequence[NamedDescription]
    aligned: Aligned | str
    prepared: tuple[Any, Any]
    """Both images as the detector's input."""


def locate_differences(
    rows: Sequence[DifferenceRow],
    config: RegionsConfig,
    *,
    pairs: Pairs,
    images: Images,
    answers: Answers | None = None,
) -> Iterator[CheckRow | Dropped | Failed]:
    """Yield the outcome of the check for each description."""
    detection, nouns = config.models
    detector = make_detector(detection, answers)
    described: list[NamedDescription] = []
    word_list = read_words(config.word_list, config.included)
    for row, names in zip(rows, name_things(rows, nouns, word_list), strict=True):
        pair = pairs[row.subject]
        missing = pair_images(row.key, pair, images)
        if isinstance(missing, Dropped):
            yield missing
        else:
            described.append(
                NamedDescription(row, (images[pair.first], images[pair.second]), names)
            )
    groups = [list(group) for _, group in groupby(described, key=lambda item: item.row.subject)]
    look = partial(_look_at_pair, detector=detector, min_area=config.min_area)
    on_gpu = bool(count_detectors(detection))
    for result in run_ahead(look, groups, most=AHEAD) if on_gpu else map(look, groups):
        if isinstance(result, AlignedPair):
            yield from _check_pair(result, config, detector)
        else:
            yield from result


def name_things(
    rows: Sequence[DifferenceRow], config: NounsConfig, word_list: WordList
) -> list[tuple[Names, Names]]:
    """Return the things that each half affirms; quoted words are writing within the image."""
    halves: list[str] = []
    for row in rows:
        halves += [QUOTED.sub(" ", affirmed(half)) for half in row.halves]
    names: list[Names] = []
    for phrases in find_phrases_of(halves, config):
        names.append(tuple(phrase for phrase in phrases if _is_thing(phrase, word_list)))
    return list(zip(names[::2], names[1::2], strict=True))


def _is_thing(phrase: str, word_list: WordList) -> bool:
    """Return whether a noun phrase names a thing, not a part of the image ("left side")."""
    return names_thing(phrase, word_list) and phrase.rpartition(" ")[2] not in FILLERS


def _look_at_pair(
    described: Sequence[NamedDescription], *, detector: Detector, min_area: float
) -> AlignedPair | list[Dropped]:
    """Align the images of one pair; may run in another thread."""
    first, second = described[0].images
    try:
        pixels = (decode_rgb(first.image), decode_rgb(second.image))
    except RefusedImageError as refused:
        detail = f"{first.name}, {second.name}: {refused.detail}"
        return [
            Dropped(source_key=item.row.key, reason=refused.reason, detail=detail)
            for item in described
        ]
    prepared = (
        detector.prepare(DecodedImage(pixels[0], first.graph, first.image)),
        detector.prepare(DecodedImage(pixels[1], second.graph, second.image)),
    )
    return AlignedPair(described, align_images(*pixels, min_area=min_area), prepared)


def _check_pair(
    pair: AlignedPair, config: RegionsConfig, detector: Detector
) -> Iterator[CheckRow | Dropped | Failed]:
    """Yield the outcome of each description of a pair."""
    aligned = pair.aligned
    for item in pair.described:
        why_off = ""
        if isinstance(aligned, str):
            why_off = f"{checks.NOT_ALIGNED}{aligned}"
        elif item.row.no_change and not aligned.has_one_viewpoint:
            why_off = checks.TWO_VIEWPOINTS
        elif not item.row.no_change and not any(item.names):
            why_off = checks.NAMES_NOTHING
        if isinstance(aligned, str) or why_off:
            yield replace(check_text(item.row, "regions", score=0.0, why=""), why=why_off)
            continue
        if item.row.no_change:
            score, why = judge_sameness(aligned, config)
        else:
            shares: Shares = {}
            if aligned.places:
                measured = _measure_things(item, aligned, pair.prepared, detector)
                if isinstance(measured, ImageFault):
                    yield measured.as_row(item.row.key)
                    continue
                shares = measured
            score, why = judge_things(aligned, shares, config)
        yield check_text(item.row, "regions", score=score, why=why)


def _measure_things(
    described: NamedDescription, aligned: Aligned, prepared: tuple[Any, Any], detector: Detector
) -> Shares | ImageFault:
    """Return how much of each named thing changed, the most of its boxes in either image."""
    tags: list[list[Tag]] = []
    for names, image in zip(described.names, described.images, strict=True):
        tags.append([_tag(name, image.graph) for name in names])
    shares: dict[str, float] = {}
    for side, boxes in enumerate(detector.detect(prepared, tags)):
        if isinstance(boxes, ImageFault):
            return boxes
        for box in boxes:
            name = tags[side][box.tag].name
            share = aligned.changed_share(side, (box.x0, box.y0, box.x1, box.y1))
            shares[name] = max(share, shares.get(name, 0.0))
    return shares


def _tag(name: str, graph: SceneGraph | None) -> Tag:
    """Return a name as a detector's tag, with the objects of a rendered image that it fits."""
    words = set(name.split())
    objects: list[str] = []
    for item in graph.objects if graph else ():
        looks = {item.shape, item.colour, item.material}
        if item.size is not None:
            looks.update(SIZES[item.size].split("-"))
        if item.shape in words and words <= looks:
            objects.append(item.id)
    return Tag(name=name, score=1.0, tagger="nouns", objects=tuple(objects))


def judge_sameness(aligned: Aligned, config: RegionsConfig) -> tuple[float, str]:
    """Return the score of a description of no change, and the reason of a failure.

    The score is the share of the images outside of the largest changed place.
    """
    largest = aligned.places[0].share if aligned.places else 0.0
    why = ""
    if largest > config.max_unchanged_area:
        why = f"{checks.CHANGED} (regions.max_unchanged_area={config.max_unchanged_area:g})"
    return round(1 - largest, 6), why


def judge_things(aligned: Aligned, shares: Shares, config: RegionsConfig) -> tuple[float, str]:
    """Return the share of the named and found things that changed, and the reason of a failure."""
    if not aligned.places:
        return 0.0, f"{checks.NOTHING_CHANGED} (regions.min_area={config.min_area:g})"
    if not shares:
        return 0.0, checks.NOT_FOUND
    changed = [share for share in shares.values() if share >= config.min_changed]
    if not changed:
        return 0.0, f"{checks.UNCHANGED} (regions.min_changed={config.min_changed:g})"
    return round(len(changed) / len(shares), 6), ""


def _pin_models(config: RegionsConfig) -> RegionsConfig:
    detection, nouns = config.models
    return config.fill(detection=pin_detector(detection), nouns=pin_model(nouns))


def _name_models(config: RegionsConfig) -> tuple[str, ...]:
    detection, nouns = config.models
    pipeline = identify_finder(nouns)
    return (make_detector(detection).version, pipeline, identify_words(config.word_list))


def _configure(profile: Profile) -> RegionsConfig:
    return profile.regions.fill(
        detection=configure_detector(profile),
        nouns=profile.nouns,
        included=profile.tagging.included,
        word_list=profile.tagging.word_list,
    )


def _name_prompts(config: RegionsConfig) -> tuple[str, ...]:
    return name_prompts(config.detection) if config.detection else ()


def _count_processes(config: RegionsConfig) -> int | None:
    return count_detectors(config.models[0]) if config.enabled else None


STAGE = Stage(
    name="regions",
    group="captioning",
    reads={"described": DifferenceRow},
    writes=CheckRow,
    function=locate_differences,
    config=_configure,
    prompts=_name_prompts,
    journal="answers",
    models=_name_models,
    pin=_pin_models,
    processes=_count_processes,
    enabled=attrgetter("enabled"),
    uses=(PAIRS, IMAGES),
)
