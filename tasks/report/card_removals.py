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
    ExpectedRow,
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
from pairwright.tasks.report.write_images import (
    REMOVED,
    TONE_COLOURS,
    Colour,
    PictureFolder,
    WrittenImage,
)

MOST_SHOWN = 24  # candidates of one preference; two images have up to 60
HASH = re.compile(r"([0-9a-f]{8})[0-9a-f]{8,}")
PicturedImages = Sequence[tuple[ImageRow, WrittenImage]]
Scored = tuple[int, str, RemovalScore | None]
"""Side, element key and score of a candidate; without a score, nothing scored it."""


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
    candidates: Sequence[CandidateView]
    """The chosen one first, then by falling score, failed ones last."""
    more: int
    side: int = 0  # image of the crop
    crop: WrittenImage | None = None
    crop_share: float = 0.0  # pixels of the crop / pixels of the image
    expected: ExpectedRow | None = None  # rejected image that the prior expects
    patch: str = ""  # overlay of its changed pixels; empty: none


class Steps:
    """Rows about some images, of every step but the removals, and rejections by subject.

    Subjects are pairs, or preferences of a source.
    """

    def __init__(
        self,
        tables: Tables,
        subjects: Sequence[str],
        *,
        images: Sequence[str],
    ) -> None:
        self.tables = tables
        # Tags and elements by image; elements that can be removed first, left to right.
        self.tags = {row.subject: row for row in tables.find_rows("tags", TagsRow, images)}
        self.elements: dict[str, list[ElementRow]] = defaultdict(list)
        elements = tables.find_rows("elements", ElementRow, images)
        for row in sorted(elements, key=lambda row: (bool(row.why), row.box, row.tag)):
            self.elements[row.subject].append(row)
        self.mask_scores: dict[tuple[str, str], float] = {}
        for row in tables.find_rows("masks", MasksRow, images, without=("masks",)):
            for tag, score in zip(row.tags, row.mask_scores, strict=True):
                self.mask_scores[row.key, tag.name] = score
        inspections = tables.find_rows("inspected", InspectionRow, images)
        self.inspected = {row.element: row for row in inspections}
        rejections = tables.find_rows("rejections", RejectionRow, subjects)
        self.rejections = {row.subject: row for row in rejections}
        expected = tables.find_rows("expected", ExpectedRow, subjects)
        self.expected = {row.subject: row for row in expected}


def view_removals(
    subject: str, pictured: PicturedImages, steps: Steps, pictures: PictureFolder
) -> RemovalsView | None:
    """Return the removals from the images of one preference; ``None`` if no step has read them."""
    rejection = steps.rejections.get(subject)
    if rejection is None and not any(row.key in steps.elements for row, _ in pictured):
        return None
    elements = [
        _view_elements(side, row, picture, steps=steps, pictures=pictures)
        for side, (row, picture) in enumerate(pictured)
    ]
    if rejection:
        scored = _rank_scores(rejection.removal_scores)
    else:  # the build went no further than the checks, or there is no text to score by
        scored = _list_unscored(elements, steps)
    # Decode each image once, if at all.
    pixels = cache(lambda side: decode_rgb(pictured[side][0].image))
    views = _view_candidates(
        scored[:MOST_SHOWN],
        elements,
        pixels,
        steps=steps,
        pictures=pictures,
    )
    view = RemovalsView(
        why=rejection.why if rejection else "",
        found=elements,
        candidates=list(views),
        more=max(len(scored) - MOST_SHOWN, 0),
    )
    expected = steps.expected.get(subject)
    if expected:
        return _add_expected(view, expected, pixels(expected.side), pictures)
    if rejection and rejection.maker == "crop":
        image, _ = pictured[rejection.side]
        return _add_crop(view, rejection, image, pixels(rejection.side), pictures)
    return view


def _add_expected(
    view: RemovalsView, row: ExpectedRow, pixels: RGB, pictures: PictureFolder
) -> RemovalsView:
    """Return the view with an image that the prior expects, which takes the place of others."""
    candidates = [candidate._replace(chosen=False) for candidate in view.candidates]
    picture = view.found[row.side].picture
    patch = pictures.add_patch(row.key, pixels, (row.patch, row.window), over=picture)
    return view._replace(side=row.side, expected=row, patch=patch, candidates=candidates)


def _add_crop(
    view: RemovalsView,
    rejection: RejectionRow,
    image: ImageRow,
    pixels: RGB,
    pictures: PictureFolder,
) -> RemovalsView:
    x0, y0, x1, y1 = rejection.window
    crop = pictures.add_crop(make_key("crop", rejection.key), pixels, rejection.window)
    share = (x1 - x0) * (y1 - y0) / (image.width * image.height)
    return view._replace(side=rejection.side, crop=crop, crop_share=share)


def _rank_scores(scores: Sequence[RemovalScore]) -> list[Scored]:
    """Return the chosen candidate, then those that passed their checks, best first."""
    ranked = sorted(
        scores,
        key=lambda score: (
            not score.chosen,
            bool(score.why),
            -score.score,
            score.tag,
            score.side,
        ),
    )
    return [(score.side, score.removal, score) for score in ranked]


def _list_unscored(views: Sequence[FoundView], steps: Steps) -> list[Scored]:
    """Return the inspected elements."""
    candidates: list[Scored] = []
    for view in views:
        for element in view.elements:
            if element.row.key in steps.inspected:
                candidates.append((view.side, element.row.key, None))
    return candidates


def _view_elements(
    side: int,
    image: ImageRow,
    picture: WrittenImage,
    *,
    steps: Steps,
    pictures: PictureFolder,
) -> FoundView:
    elements = _number_elements(image, steps)
    masks: list[tuple[Mask, Colour]] = []
    for element in elements:
        if not element.row.why:
            mask = Mask.model_validate_json(element.row.mask)
            masks.append((mask, TONE_COLOURS[element.tone]))
    key = make_key("masks", *(element.row.key for element in elements))
    tags = steps.tags.get(image.key)
    masked = {element.row.tag for element in elements}
    unboxed: list[str] = []
    if tags:
        unboxed = [tag.name for tag in tags.tags if tag.name not in masked]
    return FoundView(
        image=image,
        picture=picture,
        side=side,
        masks=pictures.add_masks(key, masks, over=picture),
        elements=elements,
        unboxed=unboxed,
        refused_tags=tags.refused_tags if tags else (),
    )


def _number_elements(image: ImageRow, steps: Steps) -> list[ElementView]:
    elements: list[ElementView] = []
    for number, row in enumerate(steps.elements.get(image.key, ()), 1):
        score = steps.mask_scores.get((row.source_key, row.tag), -1.0)
        elements.append(ElementView(number=number, row=row, mask_score=score))
    return elements


class RemovalCandidate(NamedTuple):
    """Removal with everything known of it."""

    side: int
    element: ElementView
    removal: RemovalRow
    check: InspectionRow | None
    score: RemovalScore | None

    @property
    def why(self) -> str:
        """Return the failed check; empty: none."""
        checked = self.score or self.check
        return checked.why if checked else ""


def _find_candidates(
    scored: Sequence[Scored], views: Sequence[FoundView], steps: Steps
) -> Iterator[RemovalCandidate]:
    """Yield the candidates whose rows all exist; others are pending again."""
    keys = [key for _, key, _ in scored]
    removals = {row.subject: row for row in steps.tables.find_rows("removals", RemovalRow, keys)}
    elements: dict[str, ElementView] = {}
    for view in views:
        elements |= {element.row.key: element for element in view.elements}
    for side, key, score in scored:
        if key in elements and key in removals:
            check = steps.inspected.get(key)
            yield RemovalCandidate(side, elements[key], removals[key], check, score)


def _view_candidates(
    scored: Sequence[Scored],
    views: Sequence[FoundView],
    pixels: Callable[[int], RGB],
    *,
    steps: Steps,
    pictures: PictureFolder,
) -> Iterator[CandidateView]:
    best = max((score.score for _, _, score in scored if score), default=0.0)
    for candidate in _find_candidates(scored, views, steps):
        removal = candidate.removal
        score = candidate.score
        picture = views[candidate.side].picture
        patch = (removal.patch, removal.window)
        image = pixels(candidate.side)
        row = candidate.element.row
        mask = Mask.model_validate_json(row.mask)
        yield CandidateView(
            element=candidate.element,
            side=candidate.side,
            picture=picture,
            patch=pictures.add_patch(removal.key, image, patch, over=picture),
            mask=pictures.add_masks(make_key("mask", row.key), [(mask, REMOVED)], over=picture),
            inpainter=HASH.sub(r"\1", removal.inpainter),
            score=score,
            share=_share_of_best(score, best),
            chosen=bool(score and score.chosen),
            why=candidate.why,
            facts=_describe_check(candidate.check) if candidate.check else (),
        )


def _share_of_best(score: RemovalScore | None, best: float) -> float:
    if score is None or best <= 0:
        return 0.0
    return max(score.score, 0.0) / best


def _describe_check(check: InspectionRow) -> list[str]:
    """Return the known measurements of a check in words."""
    facts: list[str] = []
    if max(check.found_before, check.found_after) >= 0:
        before = _format_detection(check.found_before)
        after = _format_detection(check.found_after)
        facts.append(f"detected {before} before, {after} after")
    if check.grown:
        facts.append(f"grown: {check.grown} {check.grown_score:.2f}")
    if check.rim:
        facts.append(f"rim {check.rim:.1f} x its surroundings")
        facts.append(f"{check.texture:.0%} as rough as around it")
    if check.shift:
        facts.append(f"{check.shift:.1f} levels lighter or darker than around it")
    if check.left > 0:
        facts.append(f"{check.left:.0%} of its colour left along the rim")
    if check.difference:
        facts.append(f"{check.difference:.1f} levels of 255 from the scene without it")
    if check.changed_outside:
        facts.append(f"{check.changed_outside:,} pixels changed outside")
    return facts


def _format_detection(score: float) -> str:
    return f"{score:.2f}" if score >= 0 else "not looked for"
