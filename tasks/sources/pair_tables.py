"""Read Parquet tables whose rows are pairs, such as exports of our table ``pairs``.

Reads one row into the PairRow of the two images in its column ``images``. Optional columns are
those of an export: ``human_differences``, ``instruction``, ``change_types``, ``change_mask``,
``names``, ``licences``; a split is that of the file's name. What a mined pair was found by is not
kept: it is a given pair now, and can be aligned (``mining.align``) and cut into ``tiles``.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import ValidationError as InvalidModelError

from pairwright.schemas.config import ReadingConfig
from pairwright.schemas.errors import ValidationError
from pairwright.schemas.rows import PairRow
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.decode import encode_png
from pairwright.tasks.images.masks import decode_mask
from pairwright.tasks.sources.annotations import usable_texts
from pairwright.tasks.sources.parquet_tables import (
    TableRow,
    images_in,
    require_columns,
    table_reader,
)
from pairwright.tasks.sources.read_entry import EntryMetadata, SourceImage, read_pair
from pairwright.tasks.sources.reader import RefusedEntryError, SourceRow, escape_name

OPTIONAL = (
    "human_differences",
    "instruction",
    "change_types",
    "change_mask",
    "names",
    "licences",
)


def _choose(schema: pa.Schema, _: ReadingConfig) -> dict[str, str]:
    present = [name for name in OPTIONAL if name in schema.names]
    return require_columns(schema, present, images=("images",))


def _read_pair(row: TableRow) -> Iterable[SourceRow]:
    record = row.record
    cells = images_in(record["images"])
    if len(cells) != 2:
        raise RefusedEntryError("not two images", str(len(cells)))
    names = _texts(record.get("names"))
    if len(names) != 2:
        names = ("image 1", "image 2")
    pictures: list[SourceImage] = []
    for cell, name in zip(cells, names, strict=True):
        pictures.append(row.picture(cell, part=escape_name(name[:200])))
    licences = set(_texts(record.get("licences")))
    instruction = " ".join(_texts(record.get("instruction")))
    types = _texts(record.get("change_types"))
    metadata = EntryMetadata(
        licence=licences.pop() if len(licences) == 1 else "",
        origin="edit" if instruction else "given",
        human_differences=_texts(record.get("human_differences")),
        instruction=instruction,
        change_types=types,
        split=row.split,
        mask=_encode_mask(record.get("change_mask")),
        may_be_identical="no_change" in types,
    )
    return read_pair(row.item, pictures, row.config, metadata)


def _texts(value: Any) -> tuple[str, ...]:
    return usable_texts(value) if value else ()


def _encode_mask(value: Any) -> bytes:
    """Return the image of a mask's run lengths; empty: there is none."""
    if not isinstance(value, str) or not value:
        return b""
    try:
        mask = decode_mask(Mask.model_validate_json(value))
    except (InvalidModelError, ValidationError) as error:
        raise RefusedEntryError("damaged mask", str(error)[:200]) from error
    return encode_png(mask.astype(np.uint8) * np.uint8(255))


PARQUET_PAIRS = table_reader(
    _choose,
    _read_pair,
    kind="parquet-pairs",
    about="Parquet rows of two images, such as an export of the table pairs",
    example="parquet-pairs:ALBUM-PAIRS",
    details=__doc__ or "",
    brings=(PairRow,),
)
