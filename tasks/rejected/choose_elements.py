"""Choose the masks that can be removed: neither too small nor too large, and each mask once (ours).

Reads ``MasksRow``, writes one ``ElementRow`` per tag, with a reason if it is not removed. Masks are
compared by their run lengths. A part of an object ("wheel" of "car") is an element of its own: only
nearly equal masks count as one.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from pairwright.schemas.config import ElementsConfig
from pairwright.schemas.rows import ElementRow, MasksRow, make_key
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.masks import Runs, overlap_of, read_runs
from pairwright.tasks.store.stage import Stage

TOO_SMALL = "too small"
TOO_LARGE = "too large"
SAME_MASK = "nearly the mask of another tag"


def choose_elements(rows: Sequence[MasksRow], config: ElementsConfig) -> Iterator[ElementRow]:
    """Yield every tag with its mask; of nearly equal masks, only the first can be removed."""
    for row in rows:
        accepted: list[Runs] = []
        for tag_index, encoded in enumerate(row.masks):
            mask = read_runs(Mask.model_validate_json(encoded))
            reason = row.whys[tag_index] or _refuse(mask, accepted, config)
            if not reason:
                accepted.append(mask)
            yield _element_row(row, tag_index, mask, reason)


def _element_row(
    row: MasksRow,
    tag_index: int,
    mask: Runs,
    reason: str,
) -> ElementRow:
    tag = row.tags[tag_index]
    encoded = row.masks[tag_index]
    return ElementRow(
        key=make_key("element", row.subject, tag.name, *tag.objects, encoded, reason),
        source_key=row.key,
        subject=row.subject,
        tag=tag.name,
        tagger=tag.tagger,
        tag_score=tag.score,
        object_ids=tag.objects,
        boxes=tuple(box for box in row.boxes if box.tag == tag_index),
        box=mask.box,
        mask=encoded,
        area_share=float(np.float32(mask.share)),
        why=reason,
    )


def _refuse(mask: Runs, accepted: Sequence[Runs], config: ElementsConfig) -> str:
    """Return why a mask cannot be removed; empty: it can."""
    if not mask.area or mask.share < config.min_area:
        return f"{TOO_SMALL} (elements.min_area={config.min_area:g})"
    if mask.share > config.max_area:
        return f"{TOO_LARGE} (elements.max_area={config.max_area:g})"
    if any(_is_nearly_equal(mask, other, config.max_iou) for other in accepted):
        return f"{SAME_MASK} (elements.max_iou={config.max_iou:g})"
    return ""


def _is_nearly_equal(first: Runs, second: Runs, max_iou: float) -> bool:
    smaller = min(first.area, second.area)
    larger = max(first.area, second.area, 1)
    # The ratio of the areas bounds the overlap, which takes longer to compute.
    return smaller / larger > max_iou and overlap_of(first, second) > max_iou


STAGE = Stage(
    name="elements",
    version=2,
    group="rejected",
    reads={"masks": MasksRow},
    writes=ElementRow,
    function=choose_elements,
    config=lambda profile: profile.elements,
)
