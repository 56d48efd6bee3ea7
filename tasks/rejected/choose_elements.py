"""Choose which masks are elements that can be removed: neither too small nor too large, and each mask once (ours).

Reads ``MasksRow``, writes one ``ElementRow`` per tag; one that is not removed says why.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from schemas.config import ElementsConfig
from schemas.rows import ElementRow, MasksRow, make_key
from schemas.scene import Mask
from tasks.store.masks import decode_mask
from tasks.store.stage import Stage

TOO_SMALL, TOO_LARGE = "too small", "too large"
SAME_MASK = "nearly the mask of another tag"
Pixels = NDArray[np.bool_]


def choose_elements(rows: Sequence[MasksRow], config: ElementsConfig) -> Iterator[ElementRow]:
    """Yield every tag of each image with its mask; of nearly equal masks the first is kept."""
    for row in rows:
        kept: list[Pixels] = []
        for place in range(len(row.tags)):
            mask = decode_mask(Mask.model_validate_json(row.masks[place]))
            why = row.whys[place] or _why(mask, kept, config)
            if not why:
                kept.append(mask)
            yield _element(row, place, mask, why=why)


def _why(mask: Pixels, kept: Sequence[Pixels], config: ElementsConfig) -> str:
    share = mask.mean()
    if share < config.min_area:
        return TOO_SMALL
    if share > config.max_area:
        return TOO_LARGE
    return SAME_MASK if any(_overlap(mask, other) > config.same_mask for other in kept) else ""


def _overlap(first: Pixels, second: Pixels) -> float:
    return float((first & second).sum() / max((first | second).sum(), 1))


def _element(row: MasksRow, place: int, mask: Pixels, *, why: str) -> ElementRow:
    tag = row.tags[place]
    return ElementRow(
        key=make_key("element", row.subject, tag.name, *tag.objects, row.masks[place], why),
        source_key=row.key,
        subject=row.subject,
        tag=tag.name,
        tagger=tag.tagger,
        tag_score=tag.score,
        object_ids=tag.objects,
        boxes=tuple(box for box in row.boxes if box.tag == place),
        box=_box(mask),
        mask=row.masks[place],
        area_share=float(np.float32(mask.mean())),
        why=why,
    )


def _box(mask: Pixels) -> tuple[int, int, int, int]:
    if not mask.any():
        return (0, 0, 0, 0)
    lines, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return (int(columns[0]), int(lines[0]), int(columns[-1]) + 1, int(lines[-1]) + 1)


STAGE = Stage(
    name="elements",
    version=1,
    group="rejected",
    reads="masks",
    row=MasksRow,
    writes=ElementRow,
    function=choose_elements,
    config="elements",
)
