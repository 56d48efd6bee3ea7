"""Choose the masks that can be removed: neither too small nor too large, and each mask once (ours).

Reads ``MasksRow``, writes one ``ElementRow`` per tag, with a reason if it is not removed. Masks are
compared by their run lengths. A part of a thing ("wheel" of "car") is an element of its own: only
nearly equal masks count as one.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from pairwright.schemas.config import ElementsConfig
from pairwright.schemas.rows import ElementRow, MasksRow, make_key
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.masks import Runs, overlap_of, read_runs
from pairwright.tasks.store.stage import Stage

TOO_SMALL, TOO_LARGE = "too small", "too large"
SAME_MASK = "nearly the mask of another tag"


def choose_elements(rows: Sequence[MasksRow], config: ElementsConfig) -> Iterator[ElementRow]:
    """Yield every tag of each image with its mask; of nearly equal masks, only the first can be removed."""
    for row in rows:
        kept: list[Runs] = []
        for place, tag in enumerate(row.tags):
            mask = read_runs(Mask.model_validate_json(row.masks[place]))
            why = row.whys[place] or _refuse(mask, kept, config)
            if not why:
                kept.append(mask)
            yield ElementRow(
                key=make_key("element", row.subject, tag.name, *tag.objects, row.masks[place], why),
                source_key=row.key,
                subject=row.subject,
                tag=tag.name,
                tagger=tag.tagger,
                tag_score=tag.score,
                object_ids=tag.objects,
                boxes=tuple(box for box in row.boxes if box.tag == place),
                box=mask.box,
                mask=row.masks[place],
                area_share=float(np.float32(mask.share)),
                why=why,
            )


def _refuse(mask: Runs, kept: Sequence[Runs], config: ElementsConfig) -> str:
    if not mask.area or mask.share < config.min_area:
        return f"{TOO_SMALL} (elements.min_area={config.min_area:g})"
    if mask.share > config.max_area:
        return f"{TOO_LARGE} (elements.max_area={config.max_area:g})"
    most = config.max_iou
    areas = ((min(mask.area, other.area) / max(mask.area, other.area, 1), other) for other in kept)
    same = any(bound > most and overlap_of(mask, other) > most for bound, other in areas)
    return f"{SAME_MASK} (elements.max_iou={most:g})" if same else ""


STAGE = Stage(
    name="elements",
    version=2,
    group="rejected",
    reads={"masks": MasksRow},
    writes=ElementRow,
    function=choose_elements,
    config=lambda profile: profile.elements,
)
