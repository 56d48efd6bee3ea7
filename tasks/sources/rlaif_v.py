"""Read RLAIF-V-Dataset (openbmb): Parquet with one image, a question, a chosen and a rejected answer.

Reads one row into an ``ImageRow`` and the ``PreferenceRow`` of its one image. ``origin_split`` is a JSON text that
names the model which answered. All rows are for training, as published; all preferences of one image are in one
component. What the data set says of itself, CC-BY-NC-4.0, is the licence.
"""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.rows import Dropped, Failed, ImageRow, ItemRow, PreferenceRow, Turn, make_key
from pairwright.tasks.sources.folder import shown_name
from pairwright.tasks.sources.layout.pairs import About, Picture, dropped, read_image
from pairwright.tasks.sources.parquet import ROWS_PER_SHARD, image_folder, take_picture
from pairwright.tasks.sources.reader import Reader
from pairwright.tasks.sources.tables.read_rows import list_rows, read_rows
from pairwright.tasks.sources.tables.table_columns import cells_of, need, texts_of

if TYPE_CHECKING:
    import pyarrow as pa

LICENCE = "CC-BY-NC-4.0"
TEXTS = ("question", "chosen", "rejected")
NOTES = ("ds_name", "origin_dataset", "idx")
"""Columns that say where a row is from; not every release has them all."""


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[ImageRow | PreferenceRow | Dropped | Failed]:
    """Yield the image and the preference of each row, or why there are none."""
    folder = image_folder(config)
    for item, record in read_rows(items, config, choose=_choose):
        if isinstance(record, Dropped | Failed):
            yield record
        else:
            yield from _read_row(item, record, config, folder=folder)


def _read_row(
    item: ItemRow, record: dict[str, Any], config: SourceConfig, *, folder: str
) -> tuple[ImageRow | PreferenceRow | Dropped | Failed, ...]:
    texts = {name: " ".join(texts_of(record[name])) for name in TEXTS}
    if missing := next((name for name in TEXTS if not texts[name]), ""):
        return (dropped(item, "no question or answer", missing),)
    if texts["chosen"] == texts["rejected"]:
        return (dropped(item, "chosen is rejected"),)
    cells = cells_of(record["image"])
    if len(cells) != 1:
        return (dropped(item, "no image in the row" if not cells else "too many images in a row"),)
    picture = take_picture(item, cells[0], config, folder=folder)
    image = read_image(item, picture, config, about=About(licence=LICENCE)) if isinstance(picture, Picture) else picture
    return (image, _preference(item, image, record, texts)) if isinstance(image, ImageRow) else (image,)


def _preference(item: ItemRow, image: ImageRow, record: dict[str, Any], texts: dict[str, str]) -> PreferenceRow:
    model = answering_model(record.get("origin_split"))
    key = make_key("preference", image.key, texts["question"], texts["chosen"], texts["rejected"], model)
    return PreferenceRow(
        key=key,
        source_key=item.key,
        subject=image.key,
        prompt=(Turn(role="user", text=texts["question"]),),
        images=(image.image,),
        image_keys=(image.key,),
        chosen=texts["chosen"],
        chosen_model=model,
        rejected=texts["rejected"],
        rejected_maker="given",
        rejected_note=" ".join(shown_name(str(record[name])[:100]) for name in NOTES if record.get(name)),
        negatives=(),
        rejected_images=(),
        removal_scores=(),
        component=image.key,
        split="train",
        sources=(image.source,),
        licences=(image.licence,),
    )


def answering_model(text: Any) -> str:
    """Return the model that ``origin_split`` names; the data set's own name where it names none."""
    try:
        found = json.loads(text) if isinstance(text, str) and len(text) < 10_000 else None
    except (ValueError, RecursionError):
        found = None
    model = found.get("model") if isinstance(found, dict) else None
    return shown_name(model.strip()[:200]) if isinstance(model, str) and model.strip() else "RLAIF-V"


def _choose(schema: "pa.Schema", reading: ReadingConfig) -> dict[str, str]:  # noqa: ARG001 - as for every table

    there = [name for name in (*NOTES, "origin_split") if name in schema.names]
    return need(schema, (*TEXTS, *there), images=("image",))


def _list(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    return list_rows(config, limit, choose=_choose)


READER = Reader(
    kind="rlaif-v",
    about="RLAIF-V-Dataset: preferences about one image, Parquet",
    example="rlaif-v:hf://datasets/openbmb/RLAIF-V-Dataset",
    list_items=_list,
    read_items=read_items,
    brings=(PreferenceRow,),
    rows_per_shard=ROWS_PER_SHARD,
)
