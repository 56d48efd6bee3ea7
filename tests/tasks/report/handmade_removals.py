"""The steps to images without an element, for the dataset made by hand: every table, and every way
in which they end.

Each image has three balls that can be removed, a table that is too large, a cloud without a box and
a tag that names no thing. Removing the third ball of an image fails a check, each image another
one. A patch paints its ball grey.
"""

import numpy as np

from pairwright.schemas.rows import (
    Box,
    BoxesRow,
    ElementRow,
    ImageRow,
    InspectionRow,
    MasksRow,
    PairRow,
    RefusedTag,
    RejectionRow,
    RemovalRow,
    RemovalScore,
    Row,
    Tag,
    TagsRow,
    make_key,
)
from pairwright.tasks.images.decode import decode_rgb, encode_png
from pairwright.tasks.images.masks import decode_mask, encode_mask
from tests.fixtures.rows import row_of

REMOVING = (
    ("tags", "images", ImageRow, TagsRow, "rejected"),
    ("boxes", "tags", TagsRow, BoxesRow, "rejected"),
    ("masks", "boxes", BoxesRow, MasksRow, "rejected"),
    ("elements", "masks", MasksRow, ElementRow, "rejected"),
    ("removals", "elements", ElementRow, RemovalRow, "rejected"),
    ("inspected", "removals", RemovalRow, InspectionRow, "rejected"),
    ("rejections", "pairs", PairRow, RejectionRow, "rejected"),
)
TOO_LARGE = "too large <here>"
FAILS = ("still detected", "something grew", "halo", "changed outside")
GREY = (120, 120, 120)
CROP = (10, 20, 90, 80)


def remove_balls(image: ImageRow, number: int, hostile: str) -> dict[str, list[Row]]:
    """Return one image's rows of every step up to the checks; ``number`` chooses the check that is
    failed."""
    names = [*(f"{ball.colour} ball {hostile}" for ball in image.graph.objects), "table"]
    tags = tuple(
        Tag(name=name, score=0.9 - n / 10, tagger="ram") for n, name in enumerate([*names, "cloud"])
    )
    boxes = tuple(_box(n, ball.box, 0.8 - n / 10) for n, ball in enumerate(image.graph.objects))
    boxes = (*boxes, _box(3, (0, 74, image.width, image.height), 0.55))
    wide = np.zeros((image.height, image.width), bool)
    wide[74:] = True
    masks = [*(ball.mask for ball in image.graph.objects), encode_mask(wide)]
    rows = {name: make_key(name, image.key) for name in ("tags", "boxes", "masks")}
    elements = [
        row_of(
            ElementRow,
            "element",
            image.key,
            n,
            source=rows["masks"],
            subject=image.key,
            tag=name,
            tagger="ram",
            tag_score=tags[n].score,
            boxes=(boxes[n],),
            mask=mask.model_dump_json(),
            box=tuple(
                round(value) for value in (boxes[n].x0, boxes[n].y0, boxes[n].x1, boxes[n].y1)
            ),
            area_share=float(np.float32(decode_mask(mask).mean())),
            why=TOO_LARGE if name == "table" else "",
        )
        for n, (name, mask) in enumerate(zip(names, masks, strict=True))
    ]
    removals = [_removal(image, row) for row in elements[:3]]
    shared = {"subject": image.key, "width": image.width, "height": image.height, "boxes": boxes}
    refused = (RefusedTag(name=f"red {hostile}", reason="names no thing"),)
    segmented = row_of(
        MasksRow,
        "masks",
        image.key,
        source=rows["boxes"],
        tags=tags[:4],
        whys=("",) * 4,
        masks=tuple(mask.model_dump_json() for mask in masks),
        mask_scores=(0.97, 0.96, 0.95, 0.94),
        **shared,
    )
    return {
        "tags": [
            row_of(TagsRow, "tags", image.key, source=image.key, tags=tags, refused_tags=refused)
        ],
        "boxes": [
            row_of(BoxesRow, "boxes", image.key, source=rows["tags"], tags=tags[:4], **shared)
        ],
        "masks": [segmented],
        "elements": [*elements],
        "removals": [*removals],
        "inspected": [_inspection(row, n, FAILS[number % 4]) for n, row in enumerate(removals)],
    }


def _box(tag: int, place, score: float) -> Box:
    x0, y0, x1, y1 = place
    return Box(tag=tag, score=score, x0=x0, y0=y0, x1=x1, y1=y1)


def _removal(image: ImageRow, element: ElementRow) -> RemovalRow:
    mask = next(
        decode_mask(one.mask)
        for one in image.graph.objects
        if one.mask.model_dump_json() == element.mask
    )
    pixels = np.where(mask[:, :, None], np.uint8(GREY[0]), decode_rgb(image.image))
    x0, y0, x1, y1 = window = (
        *element.box[:2],
        element.box[2] + 1,
        element.box[3] + 1,
    )  # the circle's last pixel
    return row_of(
        RemovalRow,
        "removal",
        element.key,
        source=element.key,
        image_key=image.key,
        tag=element.tag,
        box=element.box,
        mask=element.mask,
        window=window,
        patch=encode_png(np.ascontiguousarray(pixels[y0:y1, x0:x1])),
        area_share=element.area_share,
        dilate=5,
        feather=3,
        inpainter=f"LaMa xxh3:{'0123abcd' * 4}",
    )


def _inspection(removal: RemovalRow, n: int, fails: str) -> InspectionRow:
    why = fails if n == 2 else ""
    return row_of(
        InspectionRow,
        "inspection",
        removal.key,
        source=removal.key,
        subject=removal.image_key,
        element=removal.subject,
        passed=not why,
        why=why,
        found_before=0.8 - n / 10,
        found_after=0.5 if why == "still detected" else 0.04,
        grown="kettle" if why == "something grew" else "",
        grown_score=0.41 if why == "something grew" else 0.0,
        rim=2.6 if why == "halo" else 1.1,
        changed_outside=17 if why == "changed outside" else 0,
    )


def reject_images(subject: str, sides, n: int) -> RejectionRow:
    """Return what rejects a text about images: mostly the second ball of the first; now and then a
    crop, or nothing.

    ``sides`` are each image's elements that were removed, with all inspections by element.
    """
    maker = {1: "crop", 2: ""}.get(n % 7, "removal")
    scores = []
    for side, (elements, inspected) in enumerate(sides):
        for place, row in enumerate(elements):
            taken = maker == "removal" and side == 0 and place == 1
            base = score = {
                "removal": 0.5 if place == 1 else 0.25 * (place == 2),
                "crop": -0.1,
                "": 0.0,
            }[maker]
            score -= 0.125 * side
            why = inspected[row.key].why
            scores.append(
                RemovalScore(
                    removal=row.key,
                    tag=row.tag,
                    side=side,
                    score=score,
                    chosen=taken,
                    clip=1.5 - base,
                    why=why,
                )
            )
    chosen = next((score for score in scores if score.chosen), None)
    return row_of(
        RejectionRow,
        "rejection",
        subject,
        source=subject,
        maker=maker,
        side=len(sides) - 1 if maker == "crop" else 0,
        element=chosen.removal if chosen else "",
        window=CROP if maker == "crop" else (0, 0, 0, 0),
        removal_scores=tuple(scores),
        why="" if chosen else "no removal changes how the text fits",
    )
