"""Write the columns of RLAIF-V-Dataset, in Parquet: an image, a question and two answers.

A row about two images gets a new image with both side by side, since the form has one image per
row. It is a PNG, so no pixel changes.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.form import (
    IMAGE_MARK,
    ExportSettings,
    Form,
    UnheldError,
    check_answer,
    mark_images,
    rejected_text,
)
from pairwright.tasks.export.parquet import (
    IMAGE,
    TEXT,
    Record,
    arrow_schema,
    image_cell,
    open_parquet,
    read_parquet,
)
from pairwright.tasks.images.decode import RefusedImageError, decode_rgb, encode_png

TEXTS = ("question", "chosen", "rejected", "origin_dataset", "origin_split", "idx", "image_path")
SCHEMA = arrow_schema({"ds_name": TEXT, "image": IMAGE, **dict.fromkeys(TEXTS, TEXT)})
GAP = 16
"""White pixels between two images."""
WHITE = 255


def _to_record(row: PreferenceRow, setting: ExportSettings) -> Record:
    turns = mark_images(row, [IMAGE_MARK])
    rejected = rejected_text(row)
    if len(turns) > 1:
        raise UnheldError("the prompt has several turns")
    image = image_cell(_single_image(row), "-".join(row.image_keys))
    origin = {"model": row.chosen_model, "type": row.rejected_maker}
    return {
        "ds_name": setting.name,
        "image": image,
        "question": turns[0].text.replace(IMAGE_MARK, " ").strip(),
        "chosen": row.chosen,
        "rejected": rejected,
        "origin_dataset": ", ".join(dict.fromkeys(row.sources)),
        "origin_split": json.dumps(origin, ensure_ascii=False),
        "idx": row.key,
        "image_path": image["path"],
    }


def _single_image(row: PreferenceRow) -> bytes:
    """Return a row's image, or its images in one."""
    if len(row.images) == 1:
        return row.images[0]
    try:
        return _stitch_images(row.images)
    except RefusedImageError as error:
        raise UnheldError(f"an image cannot be put beside another: {error.reason}") from error


def _stitch_images(images: Sequence[bytes]) -> bytes:
    """Return a PNG of the images from left to right, unscaled, white between and below them."""
    decoded = [decode_rgb(image) for image in images]
    height = max(pixels.shape[0] for pixels in decoded)
    width = sum(pixels.shape[1] for pixels in decoded) + GAP * (len(decoded) - 1)
    canvas = np.full((height, width, 3), WHITE, np.uint8)
    left = 0
    for pixels in decoded:
        right = left + pixels.shape[1]
        canvas[: pixels.shape[0], left:right] = pixels
        left = right + GAP
    return encode_png(canvas)


def _check(
    row: Record,
    processor: Any,  # noqa: ARG001 - as for every form
) -> None:
    for column in ("question", "chosen", "rejected"):
        check_answer(row[column], column)


FORM = Form(
    name="rlaif-v",
    about="the columns of RLAIF-V-Dataset, Parquet: one image per row",
    cannot=(
        "It has one image per row: for a pair, a new PNG with both, the first on the left. "
        "It lacks rejected images, further negatives, prompts of several turns "
        "and log-probabilities (logps)."
    ),
    opens=open_parquet(SCHEMA, _to_record),
    check=read_parquet(_check, images=("image",)),
    packages=("datasets",),
    use='```python\ndataset = datasets.load_dataset("FOLDER", split="train")\n```',
    owns=frozenset({"data"}),
)
