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
    balls = image.graph.objects
    names = [*(f"{ball.colour} ball {hostile}" for ball in balls), "table", "cloud"]
    tags = tuple(Tag(name=name, score=0.9 - n / 10, tagger="ram") for n, name in enumerate(names))
    wide = np.zeros((image.height, image.width), bool)
    wide[74:] = True
    places = [*(ball.box for ball in balls), (0, 74, image.width, image.height)]
    boxes = tuple(
        Box(tag=n, score=score, x0=x0, y0=y0, x1=x1, y1=y1)
        for n, ((x0, y0, x1, y1), score) in enumerate(
            zip(places, (0.8, 0.7, 0.6, 0.55), strict=True)
        )
    )
    masks = [*(ball.mask for ball in balls), encode_mask(wide)]
    written = tuple(mask.model_dump_json() for mask in masks)
    keys = {name: make_key(name, image.key) for name in ("tags", "boxes", "masks")}
    elements = [
        row_of(
            *(ElementRow, "element", image.key, n),
            source=keys["masks"],
            subject=image.key,
            tag=tags[n].name,
            tagger="ram",
            tag_score=tags[n].score,
            boxes=(boxes[n],),
            mask=written[n],
            box=tuple(round(value) for value in places[n]),
            area_share=float(np.float32(decode_mask(mask).mean())),
            why=TOO_LARGE if n == 3 else "",
        )
        for n, mask in enumerate(masks)
    ]
    removals = [
        _removal(image, row, decode_mask(mask))
        for row, mask in zip(elements[:3], masks, strict=False)
    ]  # fmt: skip
    shared = {"subject": image.key, "width": image.width, "height": image.height, "boxes": boxes}
    shared |= {"tags": tags[:4]}
    refused = (RefusedTag(name=f"red {hostile}", reason="names no thing"),)
    scores = {"mask_scores": (0.97, 0.96, 0.95, 0.94), "whys": ("",) * 4, "masks": written}
    rows = {
        "tags": row_of(
            TagsRow, "tags", image.key, source=image.key, tags=tags, refused_tags=refused
        ),
        "boxes": row_of(BoxesRow, "boxes", image.key, source=keys["tags"], **shared),
        "masks": row_of(MasksRow, "masks", image.key, source=keys["boxes"], **shared, **scores),
    }
    checks = [_inspection(row, n, FAILS[number % 4]) for n, row in enumerate(removals)]
    several = {"elements": elements, "removals": removals, "inspected": checks}
    return {**{name: [row] for name, row in rows.items()}, **several}


def _removal(image: ImageRow, element: ElementRow, mask: np.ndarray) -> RemovalRow:
    pixels = np.where(mask[:, :, None], np.uint8(GREY[0]), decode_rgb(image.image))
    x0, y0, x1, y1 = element.box
    patch = encode_png(np.ascontiguousarray(pixels[y0 : y1 + 1, x0 : x1 + 1]))
    same = {name: getattr(element, name) for name in ("tag", "box", "mask", "area_share")}
    return row_of(
        *(RemovalRow, "removal", element.key),
        source=element.key,
        image_key=image.key,
        window=(x0, y0, x1 + 1, y1 + 1),  # with the circle's last pixel
        patch=patch,
        dilate=5,
        feather=3,
        inpainter=f"LaMa xxh3:{'0123abcd' * 4}",
        **same,
    )


def _inspection(removal: RemovalRow, n: int, fails: str) -> InspectionRow:
    why = fails if n == 2 else ""
    about = {"grown": "kettle", "grown_score": 0.41} if why == "something grew" else {}
    if why == "halo":
        about = {"texture": 0.4, "shift": 14.5, "left": 0.3}
    return row_of(
        *(InspectionRow, "inspection", removal.key),
        source=removal.key,
        subject=removal.image_key,
        element=removal.subject,
        passed=not why,
        why=why,
        found_before=0.8 - n / 10,
        found_after=0.5 if why == "still detected" else 0.04,
        rim=2.6 if why == "halo" else 1.1,
        changed_outside=17 if why == "changed outside" else 0,
        **about,
    )


def reject_images(subject: str, sides, n: int) -> RejectionRow:
    """Return what rejects a text about images: mostly the second ball of the first; now and then a
    crop, or nothing.

    ``sides`` are each image's elements that were removed, with all inspections by element.
    """
    maker = {1: "crop", 2: ""}.get(n % 7, "removal")
    by_place = {"removal": (0.0, 0.5, 0.25), "crop": (-0.1,) * 3, "": (0.0,) * 3}[maker]
    scores = []
    for side, (elements, inspected) in enumerate(sides):
        for place, row in enumerate(elements):
            base = by_place[place]
            numbers = {"score": base - 0.125 * side, "clip": 1.5 - base}
            chosen = maker == "removal" and side == 0 and place == 1
            about = {"removal": row.key, "tag": row.tag, "why": inspected[row.key].why}
            scores.append(RemovalScore(side=side, chosen=chosen, **about, **numbers))
    taken = next((score for score in scores if score.chosen), None)
    return row_of(
        *(RejectionRow, "rejection", subject),
        source=subject,
        maker=maker,
        side=len(sides) - 1 if maker == "crop" else 0,
        element=taken.removal if taken else "",
        window=CROP if maker == "crop" else (0, 0, 0, 0),
        removal_scores=tuple(scores),
        why="" if taken else "no removal changes how the text fits",
    )
