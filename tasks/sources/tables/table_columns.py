"""Find the columns of a table that hold images and captions, and take their values out of a row.

Images stand in Parquet as ``struct<bytes, path>`` (what ``datasets`` writes), as plain bytes, or as lists of these.
Values are hostile: what has another type counts as missing, and there are limits to how many and how long they may be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from pairwright.schemas.config import ReadingConfig
from pairwright.tasks.sources.folder import shown_name
from pairwright.tasks.sources.tables.read_rows import WrongColumnsError

IMAGE_NAMES = ("image", "images", "img", "jpg", "jpeg", "png", "webp", "picture", "photo", "image_bytes", "bytes")
"""Names by which columns of plain bytes are taken for images."""
CAPTION_NAMES = ("caption", "captions", "text", "texts", "sentence", "sentences", "description", "descriptions")
MOST_IMAGES, MOST_TEXTS, LONGEST_TEXT = 64, 1000, 100_000
"""Of one row; a text longer than that is no caption."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Be one image of a row: its bytes, or the path of a file that holds them."""

    data: bytes | None
    path: str


def image_columns(schema: pa.Schema, reading: ReadingConfig) -> list[str]:
    """Return the columns that hold images, in the table's order.

    Raises:
        WrongColumnsError: there is none, or it is not clear which.
    """
    if name := reading.image_column:
        if not (holds_images(schema, name) or _is_text(_type(schema, name))):
            raise WrongColumnsError(f"reading.image_column: {name!r} holds no images here; {describe(schema)}")
        return [name]
    names = _unique(schema)
    found = [name for name in names if _is_struct(_inner(_type(schema, name)))]
    plain = [name for name in names if _is_bytes(_inner(_type(schema, name)))]
    named = [name for name in plain if name.lower() in IMAGE_NAMES]
    found = found or named or (plain if len(plain) == 1 else [])
    if not found:
        raise WrongColumnsError(
            f"no column is known to hold images; name one with reading.image_column; {describe(schema)}"
        )
    return found


def caption_columns(schema: pa.Schema, reading: ReadingConfig) -> list[str]:
    """Return the column that holds captions; none where no name is a usual one.

    Raises:
        WrongColumnsError: the one that is asked for holds no texts.
    """
    if name := reading.caption_column:
        if not _is_text(_inner(_type(schema, name))):
            raise WrongColumnsError(f"reading.caption_column: {name!r} holds no texts here; {describe(schema)}")
        return [name]
    by_name = {name.lower(): name for name in reversed(_unique(schema)) if _is_text(_inner(_type(schema, name)))}
    return [by_name[name] for name in CAPTION_NAMES if name in by_name][:1]


def need(schema: pa.Schema, names: Sequence[str], *, images: Sequence[str] = ()) -> dict[str, str]:
    """Return the columns that a known data set has, under their own names.

    Raises:
        WrongColumnsError: some are missing, or those of images hold something else.
    """
    missing = sorted({*names, *images} - set(_unique(schema)))
    if missing:
        raise WrongColumnsError(f"has no column {', '.join(missing)}; {describe(schema)}")
    for name in images:
        if not holds_images(schema, name):
            raise WrongColumnsError(f"column {name} holds no images; {describe(schema)}")
    return {name: name for name in (*names, *images)}


def holds_images(schema: pa.Schema, name: str) -> bool:
    """Say whether a column's type is one that holds images."""
    inner = _inner(_type(schema, name))
    return _is_struct(inner) or _is_bytes(inner)


def describe(schema: pa.Schema) -> str:
    """Return the columns in words, for messages."""
    columns = ", ".join(f"{shown_name(field.name)} ({field.type})" for field in schema)
    return f"the columns are: {columns[:1000]}"


def cells_of(value: Any) -> list[Cell]:
    """Return the images in a value; nulls are none."""
    if isinstance(value, list):
        return [cell for one in value if not isinstance(one, list) for cell in cells_of(one)]
    if isinstance(value, bytes):
        return [Cell(value, "")]
    if isinstance(value, str) and value:
        return [Cell(None, value)]
    if not isinstance(value, dict):
        return []
    data, path = value.get("bytes"), value.get("path")
    path = path if isinstance(path, str) else ""
    data = data if isinstance(data, bytes) else None
    return [Cell(data, path)] if data is not None or path else []


def texts_of(value: Any) -> tuple[str, ...]:
    """Return the texts in a value, without white space around them, blank and overlong ones left out."""
    values = value if isinstance(value, list) else [value]
    texts = (one.strip() for one in values[:MOST_TEXTS] if isinstance(one, str))
    return tuple(text for text in texts if text and len(text) <= LONGEST_TEXT)


def _unique(schema: pa.Schema) -> list[str]:
    """Return the names that stand for one column each."""
    return [name for name in schema.names if schema.names.count(name) == 1]


def _type(schema: pa.Schema, name: str) -> pa.DataType:
    return schema.field(name).type if name in _unique(schema) else pa.null()


def _inner(kind: pa.DataType) -> pa.DataType:
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return kind.value_type if is_list else kind


def _is_bytes(kind: pa.DataType) -> bool:
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)


def _is_text(kind: pa.DataType) -> bool:
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _is_struct(kind: pa.DataType) -> bool:
    """Say whether a type is what ``datasets`` writes for an image."""
    if not types.is_struct(kind):
        return False
    inner = {field.name: field.type for field in kind}
    return set(inner) == {"bytes", "path"} and (_is_bytes(inner["bytes"]) or types.is_null(inner["bytes"]))
