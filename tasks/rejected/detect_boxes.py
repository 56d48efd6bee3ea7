"""Find boxes for the tags of each image (paper 004, section 3.1).

Reads ``TagsRow`` and the images, writes one ``BoxesRow`` per image. Needs the detector's weights
and libraries.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pairwright.schemas.config import DetectionConfig
from pairwright.schemas.rows import (
    Box,
    BoxesRow,
    Dropped,
    Failed,
    ImageRow,
    Images,
    TagsRow,
    make_key,
)
from pairwright.tasks.models.prepare_ahead import Ready, by_image, in_groups
from pairwright.tasks.perception.detectors import (
    configure_detector,
    count_detectors,
    make_detector,
    name_prompts,
    pin_detector,
)
from pairwright.tasks.perception.image_faults import ImageFault
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.store.stage import Stage, Uses

# images per call of the detector on a GPU, enough to batch like sizes; up to 3.2 MB each
GROUP = 256


def detect_boxes(
    rows: Sequence[TagsRow],
    config: DetectionConfig,
    *,
    images: Images,
    answers: Answers | None = None,
) -> Iterator[BoxesRow | Dropped | Failed]:
    """Yield the boxes of each image's tags, or ``Dropped`` without any."""
    detector = make_detector(config, answers)
    on_gpu = bool(count_detectors(config))
    items = [(row, images[row.subject]) for row in rows]

    def detect(ready: Sequence[Ready[TagsRow, Any]]) -> Iterator[BoxesRow | Dropped | Failed]:
        prepared = [item.part for item in ready]
        detected = detector.detect(prepared, [item.row.tags for item in ready])
        for item, boxes in zip(ready, detected, strict=True):
            image = images[item.row.subject]
            if isinstance(boxes, ImageFault):
                yield boxes.as_row(item.row.key, detail=image.name)
            else:
                yield _boxes_row(item.row, boxes, image)

    prepare = by_image(detector.prepare)
    yield from in_groups(
        items,
        prepare,
        detect,
        on_gpu=on_gpu,
        size=GROUP,
        ahead=GROUP,
    )


def _boxes_row(row: TagsRow, boxes: Sequence[Box], image: ImageRow) -> BoxesRow | Dropped:
    if not boxes:
        names = ", ".join(tag.name for tag in row.tags)
        return Dropped(
            source_key=row.key,
            reason="no boxes",
            detail=f"{image.name}: {names}",
        )
    content = [f"{box.tag} {box.score} {box.x0} {box.y0} {box.x1} {box.y1}" for box in boxes]
    return BoxesRow(
        key=make_key("boxes", row.key, *content),
        source_key=row.key,
        subject=row.subject,
        width=image.width,
        height=image.height,
        tags=row.tags,
        boxes=tuple(boxes),
    )


def _name_models(config: DetectionConfig) -> tuple[str, ...]:
    return (make_detector(config).version,)


STAGE = Stage(
    name="boxes",
    group="rejected",
    reads={"tags": TagsRow},
    writes=BoxesRow,
    function=detect_boxes,
    config=configure_detector,
    prompts=name_prompts,
    journal="answers",
    uses=(Uses(table="images", row=ImageRow),),
    models=_name_models,
    pin=pin_detector,
    processes=count_detectors,
)
