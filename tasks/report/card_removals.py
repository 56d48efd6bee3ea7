"""Gather how the images of a few preferences lost an element: what was found, refused, removed, checked and chosen.

Reads the rows of every step about the given images, without the tables' other rows. Removals, which hold pixels, are
read for the candidates that are shown only, those of one preference at a time.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from pairwright.schemas.rows import (
    ElementRow,
    ImageRow,
    InspectionRow,
    MasksRow,
    RejectionRow,
    RemovalRow,
    RemovalScore,
    TagsRow,
    make_key,
)
from pairwright.schemas.scene import Mask
from pairwright.tasks.report.tables import Tables
from pairwright.tasks.report.write_images import REMOVED, TONE_COLOURS, Picture, PictureFolder
from pairwright.tasks.store.images import RGB, decode_rgb

MOST_SHOWN = 24
"""Candidates of one preference; two images have up to 60."""
HASH = re.compile(r"([0-9a-f]{8})[0-9a-f]{8,}")
"""The beginning is enough to tell revisions apart."""
Shown = Sequence[tuple[ImageRow, Picture]]
Pixels = Callable[[int], RGB]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxView:
    """Box of the detector, in pixels of the shown picture."""

    number: int
    """Of its element, from 1."""
    label: str
    x: float
    y: float
    width: float
    height: float
    kept: bool
    """Whether its element can be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementView:
    """Element of an image: a tag with a mask."""

    number: int
    """From 1, the same on boxes and candidates."""
    tag: str
    tagger: str
    tag_score: float
    box_score: float
    """Highest of its boxes; -1: it has none."""
    mask_score: float
    """The segmenter's own estimate; -1: not known."""
    area_share: float
    why: str
    """Why it is not removed; empty: it is."""

    @property
    def tone(self) -> int:
        """Return the number of its colour."""
        return (self.number - 1) % len(TONE_COLOURS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundView:
    """What was found in one image: boxes, masks, and what was refused on the way."""

    picture: Picture
    name: str
    side: int
    boxes: Sequence[BoxView]
    masks: str
    """Overlay of the masks of all elements that can be removed, each in its colour; empty: none."""
    elements: Sequence[ElementView]
    """Those that can be removed first."""
    unboxed: Sequence[str]
    """Tags for which no box was found, or no mask made."""
    refused_tags: Sequence[tuple[str, str]]
    """Names that were not looked for, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateView:
    """Image without one of its elements."""

    element: ElementView
    side: int
    picture: Picture
    """The original."""
    patch: str
    """Overlay of what the removal changes in it; empty: nothing."""
    mask: str
    """Overlay; empty: none."""
    inpainter: str
    score: float | None
    """None: it was not scored."""
    clip: float
    """Eq. 9's sum of cosines; 0 without CLIP."""
    share: float
    """Score / highest score of the pair's candidates, not below 0."""
    chosen: bool
    why: str
    """The check that it failed; empty: none."""
    facts: Sequence[str]
    """What the checks measured, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CropView:
    """Crop that stands in for a removal."""

    picture: Picture
    original: Picture
    side: int
    area_share: float
    """Pixels of the crop / pixels of the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalsView:
    """How the images of one preference became a rejected image, or why they did not."""

    maker: str
    """"removal", "crop", or empty: there is none."""
    why: str
    """Why no removal was chosen; empty: one was, or none was looked for yet."""
    found: Sequence[FoundView]
    """Per image."""
    candidates: Sequence[CandidateView]
    """The chosen one first, then by falling score, those that failed a check last."""
    more: int
    """Candidates that are not shown."""
    crop: CropView | None


@dataclass(frozen=True)
class Steps:
    """Rows of every step about some images, but removals."""

    tables: Tables
    tags: Mapping[str, TagsRow]
    """By image."""
    elements: Mapping[str, Sequence[ElementRow]]
    """By image, those that can be removed first, then from left to right."""
    mask_scores: Mapping[tuple[str, str], float]
    """By the row of masks and the tag."""
    inspected: Mapping[str, InspectionRow]
    """By element."""
    rejections: Mapping[str, RejectionRow]
    """By what the preference is about."""


def find_steps(tables: Tables, subjects: Sequence[str], *, images: Sequence[str]) -> Steps:
    """Read what was found in the images, and what was chosen for the subjects (pairs, or given preferences)."""
    elements: dict[str, list[ElementRow]] = defaultdict(list)
    for row in tables.find("elements", ElementRow, images):
        elements[row.subject].append(row)
    masks = tables.find("masks", MasksRow, images, without=("masks",))
    return Steps(
        tables=tables,
        tags={row.subject: row for row in tables.find("tags", TagsRow, images)},
        elements={
            key: sorted(rows, key=lambda row: (bool(row.why), row.box, row.tag)) for key, rows in elements.items()
        },
        mask_scores={
            (row.key, tag.name): score for row in masks for tag, score in zip(row.tags, row.mask_scores, strict=True)
        },
        inspected={row.element: row for row in tables.find("inspected", InspectionRow, images)},
        rejections={row.subject: row for row in tables.find("rejections", RejectionRow, subjects)},
    )


def view_removals(subject: str, shown: Shown, steps: Steps, pictures: PictureFolder) -> RemovalsView | None:
    """Return what became of the images of one preference; ``None`` where no step has looked at them."""
    rejection = steps.rejections.get(subject)
    if rejection is None and not any(row.key in steps.elements for row, _ in shown):
        return None
    found = [_found(side, row, picture, steps=steps, pictures=pictures) for side, (row, picture) in enumerate(shown)]
    scores = _ranked(rejection, shown, steps)
    pixels = cache(lambda side: decode_rgb(shown[side][0].image))  # each image of one preference once, if asked for
    return RemovalsView(
        maker=rejection.maker if rejection else "",
        why=rejection.why if rejection else "",
        found=found,
        candidates=list(_candidates(scores[:MOST_SHOWN], shown, found, pixels, steps=steps, pictures=pictures)),
        more=max(len(scores) - MOST_SHOWN, 0),
        crop=_crop(rejection, shown, pixels, pictures) if rejection and rejection.maker == "crop" else None,
    )


def _found(side: int, image: ImageRow, picture: Picture, *, steps: Steps, pictures: PictureFolder) -> FoundView:
    rows, tags = steps.elements.get(image.key, ()), steps.tags.get(image.key)
    elements = tuple(_element(number, row, steps) for number, row in enumerate(rows, 1))
    kept = [
        (Mask.model_validate_json(row.mask), element.tone)
        for row, element in zip(rows, elements, strict=True)
        if not row.why
    ]
    masked = {row.tag for row in rows}
    return FoundView(
        picture=picture,
        name=image.name,
        side=side,
        boxes=[box for pair in zip(rows, elements, strict=True) for box in _boxes(*pair, image, picture)],
        masks=pictures.add_tones(make_key("masks", *(row.key for row in rows)), kept, over=picture),
        elements=elements,
        unboxed=tuple(tag.name for tag in tags.tags if tag.name not in masked) if tags else (),
        refused_tags=tuple((tag.name, tag.reason) for tag in tags.refused_tags or ()) if tags else (),
    )


def _element(number: int, row: ElementRow, steps: Steps) -> ElementView:
    return ElementView(
        number=number,
        tag=row.tag,
        tagger=row.tagger,
        tag_score=row.tag_score,
        box_score=max((box.score for box in row.boxes), default=-1.0),
        mask_score=steps.mask_scores.get((row.source_key, row.tag), -1.0),
        area_share=row.area_share,
        why=row.why or "",
    )


def _boxes(row: ElementRow, element: ElementView, image: ImageRow, picture: Picture) -> Iterator[BoxView]:
    across, down = picture.width / image.width, picture.height / image.height
    for box in row.boxes:
        yield BoxView(
            number=element.number,
            label=f"{row.tag}, {box.score:.2f}",
            x=round(box.x0 * across, 1),
            y=round(box.y0 * down, 1),
            width=round((box.x1 - box.x0) * across, 1),
            height=round((box.y1 - box.y0) * down, 1),
            kept=not row.why,
        )


def _ranked(rejection: RejectionRow | None, shown: Shown, steps: Steps) -> list[tuple[int, str, RemovalScore | None]]:
    """Return side, element and score of every candidate, in the order in which they are shown."""
    if rejection is None:  # the build went no further than the checks, or there is no text to score by
        rows = [(side, row.key) for side, (image, _) in enumerate(shown) for row in steps.elements.get(image.key, ())]
        return [(side, key, None) for side, key in rows if key in steps.inspected]
    scores = sorted(
        rejection.removal_scores, key=lambda one: (not one.chosen, bool(one.why), -one.score, one.tag, one.side)
    )
    return [(score.side, score.removal, score) for score in scores]


def _candidates(
    scores: Sequence[tuple[int, str, RemovalScore | None]], shown: Shown, found: Sequence[FoundView], pixels: Pixels,
    *, steps: Steps, pictures: PictureFolder,
) -> Iterator[CandidateView]:  # fmt: skip
    removals = {
        row.subject: row
        for row in steps.tables.find("removals", RemovalRow, dict.fromkeys(key for _, key, _ in scores))
    }
    rows = {
        row.key: (row, view)
        for (image, _), seen in zip(shown, found, strict=True)
        for row, view in zip(steps.elements.get(image.key, ()), seen.elements, strict=True)
    }
    best = max((score.score for _, _, score in scores if score), default=0.0)
    for side, key, score in scores:
        if key not in rows or key not in removals:  # a part of it is gone, or owed again
            continue
        (row, element), removal, over = rows[key], removals[key], found[side].picture
        check = steps.inspected.get(key)
        mask = Mask.model_validate_json(row.mask)
        yield CandidateView(
            element=element,
            side=side,
            picture=over,
            patch=pictures.add_patch(removal.key, pixels(side), (removal.patch, removal.window), over=over),
            mask=pictures.add_masks(make_key("mask", row.key), [mask], over=over, colour=REMOVED),
            inpainter=HASH.sub(r"\1", removal.inpainter),
            score=score.score if score else None,
            clip=(score.clip or 0.0) if score else 0.0,
            share=max(score.score, 0.0) / best if score and best > 0 else 0.0,
            chosen=bool(score and score.chosen),
            why=(score.why if score else check.why if check else "") or "",
            facts=list(_facts(check)) if check else [],
        )


def _facts(check: InspectionRow) -> Iterator[str]:
    """Yield what the checks measured."""
    if check.found_before >= 0 or check.found_after >= 0:
        yield f"detected {_score(check.found_before)} before, {_score(check.found_after)} after"
    if check.grown:
        yield f"grown: {check.grown} {check.grown_score:.2f}"
    if check.rim:
        yield f"rim {check.rim:.1f} x its surroundings"
    if check.changed_outside:
        yield f"{check.changed_outside:,} pixels changed outside"


def _score(value: float) -> str:
    return f"{value:.2f}" if value >= 0 else "not looked for"


def _crop(rejection: RejectionRow, shown: Shown, pixels: Pixels, pictures: PictureFolder) -> CropView:
    image, original = shown[rejection.side]
    x0, y0, x1, y1 = rejection.window
    return CropView(
        picture=pictures.add_crop(make_key("crop", rejection.key), pixels(rejection.side), rejection.window),
        original=original,
        side=rejection.side,
        area_share=(x1 - x0) * (y1 - y0) / (image.width * image.height),
    )
