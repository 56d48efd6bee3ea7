"""Align the images of mined pairs, and cut them into tiles (``tasks.models.pair_parts``, ours).

Reads ``PairRow`` of all kinds of mining, writes ``AlignmentRow``: which part of each image is
compared, and the transform. ``cut_images`` makes these parts, ``unite_pairs`` pairs them. A pair
whose keypoints fit no homography stays as it is, as does one of rendered images: scene graphs are
of the whole image. Pairs that a source brings are aligned as they are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

import numpy as np

from pairwright.schemas.config import AlignmentConfig
from pairwright.schemas.rows import AlignmentRow, Dropped, ImageRow, PairRow, make_key
from pairwright.tasks.images.decode import RGB, RefusedImageError, decode_rgb
from pairwright.tasks.models.pair_parts import (
    NOT_ALIGNED,
    PairPart,
    align_pair,
    cut_tiles,
    whole_pair,
)
from pairwright.tasks.store.stage import Stage, Uses

RENDERED = "scene graphs are of whole images: not aligned"
IDENTICAL = "identical images, once aligned"
TWO_SIZES = "tiles need images of one size (mining.align makes them so)"
NO_TILE = "no tile has data that differ"


def align_pairs(
    rows: Sequence[PairRow], config: AlignmentConfig, *, images: Mapping[str, ImageRow]
) -> Iterator[AlignmentRow | Dropped]:
    """Yield the parts of each pair; ``images``: by their keys."""
    for pair in rows:
        both = (images[pair.first], images[pair.second])
        if both[0].graph or both[1].graph:
            yield _keep(pair, why=RENDERED)
            continue
        try:
            first = decode_rgb(both[0].image)
            second = decode_rgb(both[1].image)
        except RefusedImageError as refused:
            yield Dropped(source_key=pair.key, reason=refused.reason, detail=refused.detail)
            continue
        yield from _align(pair, both, (first, second), config)


def _align(
    pair: PairRow,
    images: tuple[ImageRow, ImageRow],
    pixels: tuple[RGB, RGB],
    config: AlignmentConfig,
) -> Iterator[AlignmentRow]:
    """Yield the parts of one pair."""
    part = whole_pair(pixels[0], pixels[1], None)
    why = ""
    if config.align:
        aligned = align_pair(part)
        if isinstance(aligned, str):
            why = f"{NOT_ALIGNED}: {aligned}"
        elif np.array_equal(aligned.first, aligned.second):
            yield _keep(pair, IDENTICAL, shown=False)
            return
        else:
            part = aligned
    size = config.tiles.size
    if not size or max(part.first.shape[:2]) <= size:
        yield _show(pair, images, part, why)
        return
    if part.first.shape != part.second.shape:
        yield _keep(pair, TWO_SIZES, shown=False)
        return
    tiles = list(cut_tiles(part, config.tiles))
    for tile in tiles:
        yield _show(pair, images, tile, why)
    if not tiles:
        yield _keep(pair, NO_TILE, shown=False)


def _show(
    pair: PairRow, images: tuple[ImageRow, ImageRow], part: PairPart, why: str
) -> AlignmentRow:
    """Return the row of a part of a pair."""
    if part.is_whole and not part.transform:
        return _keep(pair, why)
    shown: list[str] = []
    for side, image in enumerate(images):
        key = image.key
        if not part.keeps(side, image):
            transform = part.transform if side else ()
            key = make_key("part", image.key, *part.window, *transform)
        shown.append(key)
    return AlignmentRow(
        key=make_key("alignment", pair.key, *part.window),
        source_key=pair.key,
        subject=pair.key,
        first=pair.first,
        second=pair.second,
        shown=tuple(shown),
        window=part.window,
        transform=part.transform,
        why=why,
    )


def _keep(pair: PairRow, why: str, *, shown: bool = True) -> AlignmentRow:
    """Return the row of a pair whose images are compared as they are, or not compared."""
    return AlignmentRow(
        key=make_key("alignment", pair.key),
        source_key=pair.key,
        subject=pair.key,
        first=pair.first,
        second=pair.second,
        shown=(pair.first, pair.second) if shown else (),
        why=why,
    )


STAGE = Stage(
    name="alignments",
    group="mining",
    reads={"similar_pairs": PairRow, "matched_pairs": PairRow, "noun_pairs": PairRow},
    writes=AlignmentRow,
    function=align_pairs,
    config=lambda profile: profile.aligning,
    enabled=attrgetter("enabled"),
    uses=(Uses(table="images", row=ImageRow, on="about", without=("captions",)),),
    rows_per_shard=100,
)
