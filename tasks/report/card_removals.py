"""Gather the removals of a few preferences: found, refused, removed, checked and chosen elements.

Removals hold pixels, and are read for the shown candidates of one preference at a time.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from pairwright.schemas.rows import (
    ElementRow,
    ImageRow,
    InspectionRow,
    MasksRow,
    RefusedTag,
    RejectionRow,
    RemovalRow,
    RemovalScore,
    TagsRow,
    make_key,
)
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.decode import RGB, decode_rgb
from pairwright.tasks.report.query_tables import Tables
from pairwright.tasks.report.write_images import REMOVED, TONE_COLOURS, PictureFolder, WrittenImage

MOST_SHOWN = 24  # candidates of one preference; two images have up to 60
HASH = re.compile(r"([0-9a-f]{8})[0-9a-f]{8,}")
Shown = Sequence[tuple[ImageRow, WrittenImage]]


class ElementView(NamedTuple):
    """Element of an image: a tag with a mask."""

    number: int  # from 1, shown on boxes and candidates
    row: ElementRow
    mask_score: float  # the segmenter's own estimate; -1: unknown

    @property
    def tone(self) -> int:
        """Return the index of its colour."""
        return (self.number - 1) % len(TONE_COLOURS)


class FoundView(NamedTuple):
    """Elements found in one image: boxes, masks, and refusals."""

    image: ImageRow
    picture: WrittenImage
    side: int
    masks: str  # overlay of the masks of all removable elements, by colour; empty: none
    elements: Sequence[ElementView]  # removable ones first
    unboxed: Sequence[str]  # tags without a box or mask
    refused_tags: Sequence[RefusedTag]


class CandidateView(NamedTuple):
    """Image without one of its elements."""

    element: ElementView
    side: int
    picture: WrittenImage
    patch: str  # overlay of the changed pixels; empty: none
    mask: str  # overlay; empty: none
    inpainter: str
    score: RemovalScore | None  # ``None``: it was not scored
    share: float  # score / highest score of the pair's candidates, not below 0
    chosen: bool  # whether it became the rejected image
    why: str  # failed check; empty: none
    facts: Sequence[str]  # measurements of the checks in words


class RemovalsView(NamedTuple):
    """Origin of a preference's rejected image, or the reason why there is none."""

    why: str  # why no removal was chosen; empty: one was, or the stage has not run yet
    found: Sequence[FoundView]
    candidates: Sequence[
        CandidateView
    ]  # the chosen one first, then by falling score, failed ones last
    more: int
    side: int = 0  # image of the crop
    crop: WrittenImage | None = None
    crop_share: float = 0.0  # pixels of the crop / pixels of the image


class Steps:
    """Rows about some images, from every step but the removals; rejections of subjects (pairs, given preferences)."""

    def __init__(self, tables: Tables, subjects: Sequence[str], *, images: Sequence[str]) -> None:
        self.tables = tables
        self.tags = {
            row.subject: row for row in tables.find("tags", TagsRow, images)
        }  # by image, as elements
        self.elements: dict[str, list[ElementRow]] = defaultdict(
            list
        )  # those that can be removed first, left to right
        found = tables.find("elements", ElementRow, images)
        for row in sorted(found, key=lambda row: (bool(row.why), row.box, row.tag)):
            self.elements[row.subject].append(row)
        masks = tables.find("masks", MasksRow, images, without=("masks",))
        self.mask_scores = {
            (row.key, tag.name): score
            for row in masks
            for tag, score in zip(row.tags, row.mask_scores, strict=True)
        }
        self.inspected = {
            row.element: row for row in tables.find("inspected", InspectionRow, images)
        }
        self.rejections = {
            row.subject: row for row in tables.find("rejections", RejectionRow, subjects)
        }


def view_removals(
    subject: str, shown: Shown, steps: Steps, pictures: PictureFolder
) -> RemovalsView | None:
    """Return the removals from the images of one preference; ``None`` if no step has read them."""
    rejection = steps.rejections.get(subject)
    if rejection is None and not any(row.key in steps.elements for row, _ in shown):
        return None
    found = [
        _find(side, row, picture, steps=steps, pictures=pictures)
        for side, (row, picture) in enumerate(shown)
    ]
    scores: list[tuple[int, str, RemovalScore | None]]
    if rejection:
        ranked = sorted(
            rejection.removal_scores,
            key=lambda s: (not s.chosen, bool(s.why), -s.score, s.tag, s.side),
        )
        scores = [(score.side, score.removal, score) for score in ranked]
    else:  # the build went no further than the checks, or there is no text to score by
        keys = [(one.side, element.row.key) for one in found for element in one.elements]
        scores = [(side, key, None) for side, key in keys if key in steps.inspected]
    pixels = cache(
        lambda side: decode_rgb(shown[side][0].image)
    )  # decode each image once, if at all
    view = RemovalsView(
        why=rejection.why if rejection else "",
        found=found,
        candidates=list(
            _view_candidates(scores[:MOST_SHOWN], found, pixels, steps=steps, pictures=pictures)
        ),
        more=max(len(scores) - MOST_SHOWN, 0),
    )
    if not rejection or rejection.maker != "crop":
        return view
    (x0, y0, x1, y1), image = rejection.window, shown[rejection.side][0]
    crop = pictures.add_crop(
        make_key("crop", rejection.key), pixels(rejection.side), rejection.window
    )
    share = (x1 - x0) * (y1 - y0) / (image.width * image.height)
    return view._replace(side=rejection.side, crop=crop, crop_share=share)


def _find(
    side: int, image: ImageRow, picture: WrittenImage, *, steps: Steps, pictures: PictureFolder
) -> FoundView:
    rows, tags = steps.elements.get(image.key, ()), steps.tags.get(image.key)
    elements = [
        ElementView(
            number=number,
            row=row,
            mask_score=steps.mask_scores.get((row.source_key, row.tag), -1.0),
        )
        for number, row in enumerate(rows, 1)
    ]
    masks = [
        (Mask.model_validate_json(one.row.mask), TONE_COLOURS[one.tone])
        for one in elements
        if not one.row.why
    ]
    masked = {row.tag for row in rows}
    return FoundView(
        image=image,
        picture=picture,
        side=side,
        masks=pictures.add_masks(
            make_key("masks", *(row.key for row in rows)), masks, over=picture
        ),
        elements=elements,
        unboxed=[tag.name for tag in tags.tags if tag.name not in masked] if tags else [],
        refused_tags=tags.refused_tags if tags else (),
    )


def _view_candidates(
    scores: Sequence[tuple[int, str, RemovalScore | None]], found: Sequence[FoundView], pixels: Callable[[int], RGB],
    *, steps: Steps, pictures: PictureFolder,
) -> Iterator[CandidateView]:  # fmt: skip
    wanted = dict.fromkeys(key for _, key, _ in scores)
    removals = {row.subject: row for row in steps.tables.find("removals", RemovalRow, wanted)}
    elements = {element.row.key: element for one in found for element in one.elements}
    best = max((score.score for _, _, score in scores if score), default=0.0)
    for side, key, score in scores:
        if key not in elements or key not in removals:  # a part of it is gone, or owed again
            continue
        element, removal, check, over = (
            elements[key],
            removals[key],
            steps.inspected.get(key),
            found[side].picture,
        )
        mask, checked = [(Mask.model_validate_json(element.row.mask), REMOVED)], score or check
        yield CandidateView(
            element=element,
            side=side,
            picture=over,
            patch=pictures.add_patch(
                removal.key, pixels(side), (removal.patch, removal.window), over=over
            ),
            mask=pictures.add_masks(make_key("mask", key), mask, over=over),
            inpainter=HASH.sub(r"\1", removal.inpainter),
            score=score,
            share=max(score.score, 0.0) / best if score and best > 0 else 0.0,
            chosen=bool(score and score.chosen),
            why=checked.why if checked else "",
            facts=_say_check(check) if check else (),
        )


def _say_check(check: InspectionRow) -> list[str]:
    detections = (check.found_before, check.found_after)
    before, after = (f"{one:.2f}" if one >= 0 else "not looked for" for one in detections)
    said = {
        f"detected {before} before, {after} after": max(detections) >= 0,
        f"grown: {check.grown} {check.grown_score:.2f}": check.grown,
        f"rim {check.rim:.1f} x its surroundings": check.rim,
        f"{check.difference:.1f} levels of 255 from the scene without it": check.difference,
        f"{check.changed_outside:,} pixels changed outside": check.changed_outside,
    }
    return [words for words, is_known in said.items() if is_known]
