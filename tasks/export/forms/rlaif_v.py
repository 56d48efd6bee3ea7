"""Write the columns of RLAIF-V-Dataset: one image, a question, a chosen and a rejected answer, in Parquet.

A row about two images gets a new image with both side by side, since the form has one image per
row. No other export changes an image's bytes; it is a PNG, so no pixel changes.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.form import (
    PLACE,
    ExportSettings,
    Form,
    UnheldError,
    check_answer,
    place_images,
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
GAP, WHITE = 16, 255  # white pixels between two images


def _to_record(row: PreferenceRow, setting: ExportSettings) -> Record:
    turns, rejected = place_images(row, [PLACE]), rejected_text(row)
    if len(turns) > 1:
        raise UnheldError("the prompt has several turns")
    try:
        shown = row.images[0] if len(row.images) == 1 else _stitch_images(row.images)
    except RefusedImageError as error:
        raise UnheldError(f"an image cannot be put beside another: {error.reason}") from error
    image = image_cell(shown, "-".join(row.image_keys))
    return {
        "ds_name": setting.name,
        "image": image,
        "question": turns[0].text.replace(PLACE, " ").strip(),
        "chosen": row.chosen,
        "rejected": rejected,
        "origin_dataset": ", ".join(dict.fromkeys(row.sources)),
        "origin_split": json.dumps(
            {"model": row.chosen_model, "type": row.rejected_maker}, ensure_ascii=False
        ),
        "idx": row.key,
        "image_path": image["path"],
    }


def _stitch_images(images: Sequence[bytes]) -> bytes:
    """Return a PNG of the images from left to right, upper edges in line, white between and below; none scaled."""
    shown = [decode_rgb(image) for image in images]
    height = max(pixels.shape[0] for pixels in shown)
    width = sum(pixels.shape[1] for pixels in shown) + GAP * (len(shown) - 1)
    canvas, left = np.full((height, width, 3), WHITE, np.uint8), 0
    for pixels in shown:
        canvas[: pixels.shape[0], left : left + pixels.shape[1]] = pixels
        left += pixels.shape[1] + GAP
    return encode_png(canvas)


def _check(row: Record, processor: Any) -> None:  # noqa: ARG001 - as for every form
    for column in ("question", "chosen", "rejected"):
        check_answer(row[column], column)


FORM = Form(
    name="rlaif-v",
    about="the columns of RLAIF-V-Dataset, Parquet: one image per row",
    cannot=(
        "It has one image per row: for a pair, a new PNG with both, the first on the left. It lacks rejected images, "
        "further negatives, prompts of several turns and log-probabilities (logps)."
    ),
    opens=open_parquet(SCHEMA, _to_record),
    check=read_parquet(_check, images=("image",)),
    packages=("datasets",),
    use='```python\ndataset = datasets.load_dataset("FOLDER", split="train")\n```',
    owns=frozenset({"data"}),
)
