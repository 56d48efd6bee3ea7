"""Remove one element at a time from images, for preferences that reject an image (paper 004, section 3.1).

Reads ``ImageRow`` with scene graphs, writes one ``RemovalRow`` per candidate: each visible object, and each group of
like objects ("three yellow balls"). A candidate's mask is dilated, the hole filled from the place around it, and the
filling faded in over the feather; every other pixel stays as it was, and so do the visible pixels of the other objects.
Shadows stay: the masks do not hold them. CPU only.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.claims import Selector
from schemas.config import RemovalsConfig
from schemas.phrases import noun, number
from schemas.rows import Dropped, ImageRow, RemovalRow, make_key
from schemas.scene import SceneGraph, SceneObject
from tasks.models.inpainting import Inpainter, OpenCVInpainter
from tasks.store.images import RefusedImageError, decode_rgb, encode_png
from tasks.store.masks import decode_mask, encode_mask
from tasks.store.stage import Stage

SAME_MASK = 0.9
"""Candidates whose masks overlap by more than this share of their union are one candidate, the first."""
GROUPINGS = (("colour", "shape"), ("shape",))
"""Objects alike in all of these form a group."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Element:
    """Be one candidate for removal."""

    tag: str
    object_ids: tuple[str, ...]
    mask: Mask
    others: Mask
    """Visible pixels of the objects that stay."""


def remove_elements(rows: Sequence[ImageRow], config: RemovalsConfig) -> Iterator[RemovalRow | Dropped]:
    """Yield the image without each of its elements, or one ``Dropped`` where none can be removed."""
    inpainter = OpenCVInpainter(config.method)
    for row in rows:
        if row.graph is None or not row.graph.objects:
            yield Dropped(source_key=row.key, reason="no masks", detail=row.name)
            continue
        try:
            pixels = decode_rgb(row.image)
        except RefusedImageError as refused:
            yield Dropped(source_key=row.key, reason=refused.reason, detail=f"{row.name}: {refused.detail}")
            continue
        if any((thing.mask.height, thing.mask.width) != pixels.shape[:2] for thing in row.graph.objects):
            yield Dropped(source_key=row.key, reason="masks of another size", detail=row.name)
            continue
        yield from _removals(row, pixels, config=config, inpainter=inpainter)


def _removals(
    row: ImageRow, pixels: NDArray[np.uint8], *, config: RemovalsConfig, inpainter: Inpainter
) -> Iterator[RemovalRow | Dropped]:
    assert row.graph is not None
    elements = _elements(row.graph)
    shares = [float(element.mask.mean()) for element in elements]
    small = sum(share < config.min_area for share in shares)
    large = sum(share > config.max_area for share in shares)
    if small + large == len(elements):
        yield Dropped(
            source_key=row.key,
            reason="no element of a fitting size",
            detail=f"{row.name}: {small} too small, {large} too large",
        )
    for element, share in zip(elements, shares, strict=True):
        if config.min_area <= share <= config.max_area:
            yield _removal(row, element, pixels=pixels, config=config, inpainter=inpainter)


def _elements(graph: SceneGraph) -> list[Element]:
    """Return each object and each group of like objects, without repetitions of nearly the same mask."""
    masks = {thing.id: decode_mask(thing.mask) for thing in graph.objects}
    kept: list[Element] = []
    for tag, ids in [*_singles(graph), *_groups(graph)]:
        mask = np.logical_or.reduce([masks[name] for name in ids])
        others = [mask_ for name, mask_ in masks.items() if name not in ids]
        if mask.any() and not any(_overlap(mask, element.mask) > SAME_MASK for element in kept):
            kept.append(Element(tag, ids, mask, np.logical_or.reduce([np.zeros_like(mask), *others])))
    return kept


def _singles(graph: SceneGraph) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (noun(Selector(colour=thing.colour, material=thing.material, shape=thing.shape)), (thing.id,))
        for thing in graph.objects
    ]


def _groups(graph: SceneGraph) -> list[tuple[str, tuple[str, ...]]]:
    found: list[tuple[str, tuple[str, ...]]] = []
    for names in GROUPINGS:
        members: dict[Selector, list[SceneObject]] = defaultdict(list)
        for thing in graph.objects:
            members[Selector(**{name: getattr(thing, name) for name in names})].append(thing)
        found += [
            (f"{number(len(things))} {noun(selector, len(things))}", tuple(thing.id for thing in things))
            for selector, things in members.items()
            if len(things) > 1
        ]
    return found


def _overlap(first: Mask, second: Mask) -> float:
    return float((first & second).sum() / max((first | second).sum(), 1))


def _removal(
    row: ImageRow, element: Element, *, pixels: NDArray[np.uint8], config: RemovalsConfig, inpainter: Inpainter
) -> RemovalRow:
    weight = _feathered(element.mask, config) * ~element.others
    hole = weight > 0
    filled = inpainter.fill(pixels, hole | _rims(element.others))
    blended = np.rint(pixels + weight[:, :, None] * (filled.astype(np.float32) - pixels)).astype(np.uint8)
    mask = encode_mask(element.mask).model_dump_json()
    lines, columns = np.flatnonzero(element.mask.any(axis=1)), np.flatnonzero(element.mask.any(axis=0))
    return RemovalRow(
        key=make_key("removal", row.key, mask),
        source_key=row.key,
        subject=row.key,
        tag=element.tag,
        object_ids=element.object_ids,
        box=(int(columns[0]), int(lines[0]), int(columns[-1]) + 1, int(lines[-1]) + 1),
        mask=mask,
        image=encode_png(blended),
        area_share=float(np.float32(element.mask.mean())),
        changed_outside=int((blended != pixels).any(axis=2)[~hole].sum()),
    )


def _rims(others: Mask) -> Mask:
    """Return the other objects with the pixels at their edges, which mix colours.

    They are filled too, and then kept: the hole takes its colours from the place behind, not from its neighbours, and
    not from what is removed, whose own edges lie under the dilation and the feather.
    """
    import cv2

    return cv2.dilate(others.astype(np.uint8), np.ones((5, 5), np.uint8)).astype(bool)


def _feathered(mask: Mask, config: RemovalsConfig) -> NDArray[np.float32]:
    """Return 1 in the dilated mask, falling to 0 over the feather around it."""
    import cv2

    distance = cv2.distanceTransform((~mask).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    return np.clip((config.dilate + config.feather + 1 - distance) / (config.feather + 1), 0, 1).astype(np.float32)


STAGE = Stage(
    name="removals",
    version=1,
    group="rejected",
    reads="images",
    row=ImageRow,
    writes=RemovalRow,
    function=remove_elements,
    config="removals",
    only_in="pairs",
    rows_per_shard=64,
)
