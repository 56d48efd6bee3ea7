"""Read LLaVA-ReCap (lmms-lab/LLaVA-ReCap-CC3M and its like): Parquet with an image and a captioning conversation.

Reads one row into an ``ImageRow`` whose caption is the first answer in the conversation; what was asked is left out.
A row without an answer is dropped. The images are those of the web pages that CC3M names, so that no licence is known.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.rows import Dropped, Failed, ImageRow, ItemRow
from pairwright.tasks.sources.folder import shown_name
from pairwright.tasks.sources.layout.pairs import About, Picture, dropped, read_image
from pairwright.tasks.sources.parquet import ROWS_PER_SHARD, image_folder, take_picture
from pairwright.tasks.sources.reader import Reader
from pairwright.tasks.sources.tables.read_rows import list_rows, read_rows
from pairwright.tasks.sources.tables.table_columns import cells_of, need, texts_of

if TYPE_CHECKING:
    import pyarrow as pa


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[ImageRow | Dropped | Failed]:
    """Yield the captioned image of each row, or why there is none."""
    folder = image_folder(config)
    for item, record in read_rows(items, config, choose=_choose):
        yield record if isinstance(record, Dropped | Failed) else _read_row(item, record, config, folder=folder)


def _read_row(
    item: ItemRow, record: dict[str, Any], config: SourceConfig, *, folder: str
) -> ImageRow | Dropped | Failed:
    caption = _answer(record["conversations"])
    if not caption:
        return dropped(item, "no caption")
    cells = cells_of(record["image"])
    if len(cells) != 1:
        return dropped(item, "no image in the row" if not cells else "too many images in a row")
    part = shown_name(str(record["id"])[:200])
    picture = take_picture(item, cells[0], config, folder=folder, captions=(caption,), part=part)
    return read_image(item, picture, config, about=About()) if isinstance(picture, Picture) else picture


def _answer(conversation: Any) -> str:
    """Return the first answer of a conversation."""
    turns = conversation if isinstance(conversation, list) else []
    answers = (turn.get("value") for turn in turns if isinstance(turn, dict) and turn.get("from") == "gpt")
    return next((text for answer in answers for text in texts_of(answer)), "")


def _choose(schema: "pa.Schema", reading: ReadingConfig) -> dict[str, str]:  # noqa: ARG001 - as for every table

    return need(schema, ("id", "conversations"), images=("image",))


def _list(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    return list_rows(config, limit, choose=_choose)


READER = Reader(
    kind="llava-recap",
    about="LLaVA-ReCap-CC3M: images with long captions, Parquet",
    example="llava-recap:hf://datasets/lmms-lab/LLaVA-ReCap-CC3M",
    list_items=_list,
    read_items=read_items,
    rows_per_shard=ROWS_PER_SHARD,
)
