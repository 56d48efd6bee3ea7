"""Read Scene-Difference (CaD-VI's name): MIMIC-IT's general differences, as the_cauldron's ``mimic_cgd`` holds them.

Reads one row, ``images`` and ``texts`` (``user``, ``assistant``, ``source``), into the ``PairRow`` of its two images,
whose ``human_differences`` are the assistant's answers: texts that the data set gives, though a model wrote them. A row
of another number of images is dropped. The photographs are COCO's, each under its own licence, so that none is stated.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.rows import Dropped, Failed, ImageRow, ItemRow, PairRow
from pairwright.tasks.sources.layout.pairs import About, Picture, dropped, read_pair
from pairwright.tasks.sources.parquet import ROWS_PER_SHARD, image_folder, take_picture
from pairwright.tasks.sources.reader import Reader
from pairwright.tasks.sources.tables.read_rows import list_rows, read_rows
from pairwright.tasks.sources.tables.table_columns import MOST_TEXTS, cells_of, need, texts_of

if TYPE_CHECKING:
    import pyarrow as pa


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[ImageRow | PairRow | Dropped | Failed]:
    """Yield the pair of each row with its images, or why there is none."""
    folder = image_folder(config)
    for item, record in read_rows(items, config, choose=_choose):
        if isinstance(record, Dropped | Failed):
            yield record
        else:
            yield from _read_row(item, record, config, folder=folder)


def _read_row(
    item: ItemRow, record: dict[str, Any], config: SourceConfig, *, folder: str
) -> list[ImageRow | PairRow] | list[Dropped | Failed]:
    cells = cells_of(record["images"])
    if len(cells) != 2:
        return [dropped(item, "not two images", str(len(cells)))]
    turns = record["texts"] if isinstance(record["texts"], list) else []
    answers = (turn.get("assistant") for turn in turns[:MOST_TEXTS] if isinstance(turn, dict))
    texts = tuple(text for answer in answers for text in texts_of(answer))
    if not texts:
        return [dropped(item, "no text about the difference")]
    pictures: list[Picture] = []
    for number, cell in enumerate(cells, 1):
        picture = take_picture(item, cell, config, folder=folder, part=f"image {number}")
        if not isinstance(picture, Picture):
            return [picture]
        pictures.append(picture)
    first, second = pictures
    found = read_pair(item, first, second, config, about=About(human_differences=texts))
    return [found] if isinstance(found, Dropped) else found


def _choose(schema: "pa.Schema", reading: ReadingConfig) -> dict[str, str]:  # noqa: ARG001 - as for every table

    return need(schema, ("texts",), images=("images",))


def _list(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    return list_rows(config, limit, choose=_choose)


READER = Reader(
    kind="scene-difference",
    about="Scene-Difference (CGD): pairs of COCO photographs with texts about what differs, Parquet",
    example="scene-difference:hf://datasets/HuggingFaceM4/the_cauldron/mimic_cgd",
    list_items=_list,
    read_items=read_items,
    brings=(PairRow,),
    rows_per_shard=ROWS_PER_SHARD,
)
