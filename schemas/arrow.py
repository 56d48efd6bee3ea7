"""The Arrow schema of each row type, and the way from rows to Arrow and back.

A table's columns are the row's fields in their order, then ``status`` ("ok", "dropped", "failed"), ``reason`` and
``detail``. Only ``source_key`` is filled in a row that is not ok: its ``key`` and ``subject`` repeat it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, TypeVar, get_type_hints

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import (
    AdmittedRow,
    Box,
    BoxesRow,
    CaptionRow,
    CheckRow,
    ComparisonRow,
    DifferenceRow,
    Dropped,
    ElementRow,
    EmbeddingRow,
    Failed,
    ImageRow,
    InspectionRow,
    ItemRow,
    MasksRow,
    MentionRow,
    Negative,
    NeighbourRow,
    NounsRow,
    PairRow,
    PlacesRow,
    PreferenceRow,
    QuestionRow,
    ReferenceRow,
    RefusedTag,
    RejectedTextRow,
    RejectionRow,
    RemovalRow,
    RemovalScore,
    Row,
    Served,
    SplitRow,
    Tag,
    TagsRow,
    Turn,
)
from pairwright.schemas.scene import SceneGraph

R = TypeVar("R", bound=Row)

STRING, INT, FLOAT, BINARY, BOOL = pa.string(), pa.int32(), pa.float32(), pa.large_binary(), pa.bool_()
STRINGS, FLOATS = pa.list_(STRING), pa.list_(FLOAT)
NAMES = [("key", STRING), ("source_key", STRING), ("subject", STRING)]
PLAIN: dict[Any, pa.DataType] = {
    str: STRING,
    int: INT,
    float: FLOAT,
    bool: BOOL,
    bytes: BINARY,
    tuple[str, ...]: STRINGS,
    tuple[float, ...]: FLOATS,
}
"""Types of the fields of a plugin's rows."""
STATUS = [("status", STRING), ("reason", STRING), ("detail", STRING)]
OK = {"status": "ok", "reason": "", "detail": ""}
"""What the status columns hold for a row with a result."""
TURNS = pa.list_(pa.struct([("role", STRING), ("text", STRING)]))
NEGATIVES = pa.list_(pa.struct([("text", STRING), ("maker", STRING), ("note", STRING), ("score", FLOAT)]))
REMOVAL_SCORES = pa.list_(
    pa.struct(
        [
            ("removal", STRING),
            ("tag", STRING),
            ("side", INT),
            ("score", FLOAT),
            ("chosen", BOOL),
            ("clip", FLOAT),
            ("why", STRING),
        ]
    )
)
CORNERS = pa.list_(INT, 4)
TAGS = pa.list_(pa.struct([("name", STRING), ("score", FLOAT), ("tagger", STRING), ("objects", STRINGS)]))
BOXES = pa.list_(
    pa.struct([("tag", INT), ("score", FLOAT), ("x0", FLOAT), ("y0", FLOAT), ("x1", FLOAT), ("y1", FLOAT)])
)
SERVED = pa.list_(
    pa.struct(
        [
            ("prompt", STRING),
            ("model", STRING),
            ("revision", STRING),
            ("seed", INT),
            ("prompt_tokens", INT),
            ("completion_tokens", INT),
            ("latency", FLOAT),
            ("finish_reason", STRING),
        ]
    )
)
MODELS: dict[str, type[SceneGraph]] = {"graph": SceneGraph}
"""Columns that hold a model as JSON text."""
Small = Turn | Negative | RemovalScore | Served | Tag | RefusedTag | Box
STRUCTS: dict[str, type[Small]] = {
    "prompt": Turn,
    "conversation": Turn,
    "negatives": Negative,
    "removal_scores": RemovalScore,
    "served": Served,
    "tags": Tag,
    "refused_tags": RefusedTag,
    "boxes": Box,
}
"""Columns that hold a list of small rows."""

COLUMNS: dict[type[Row], list[tuple[str, pa.DataType]]] = {
    ItemRow: [("name", STRING), ("locator", STRING)],
    ImageRow: [
        ("image", BINARY),
        ("format", STRING),
        ("width", INT),
        ("height", INT),
        ("name", STRING),
        ("source", STRING),
        ("licence", STRING),
        ("group", STRING),
        ("captions", STRINGS),
        ("graph", STRING),
    ],
    AdmittedRow: [],
    EmbeddingRow: [("embedder", STRING), ("vector", pa.list_(pa.float16())), ("norm", FLOAT)],
    NeighbourRow: [
        ("embedders", STRINGS),
        ("neighbours", pa.list_(STRINGS)),
        ("similarities", pa.list_(FLOATS)),
        ("cells", pa.list_(INT)),
        ("recalls", FLOATS),
        ("cut_off", BOOL),
    ],
    NounsRow: [("nouns", STRINGS), ("model", STRING)],
    PairRow: [
        ("first", STRING),
        ("second", STRING),
        ("origin", STRING),
        ("anchor", STRING),
        ("cluster", INT),
        ("embedders", STRINGS),
        ("similarities", FLOATS),
        ("similarity", FLOAT),
        ("human_differences", STRINGS),
        ("instruction", STRING),
        ("change_types", STRINGS),
        ("shared_nouns", STRINGS),
    ],
    CaptionRow: [("text", STRING), ("sentences", STRINGS), ("model", STRING), ("served", SERVED)],
    DifferenceRow: [
        ("text", STRING),
        ("first_half", STRING),
        ("second_half", STRING),
        ("verbs", STRINGS),
        ("attempts", INT),
        ("finish_reason", STRING),
        ("model", STRING),
        ("claims", STRING),
        ("no_change", BOOL),
        ("known", STRING),
        ("checks", STRING),
        ("served", SERVED),
    ],
    CheckRow: [
        ("description", STRING),
        ("check", STRING),
        ("passed", BOOL),
        ("score", FLOAT),
        ("text", STRING),
        ("why", STRING),
        ("served", SERVED),
    ],
    ComparisonRow: [
        ("text", STRING),
        ("commonalities", STRINGS),
        ("differences", STRINGS),
        ("axes", STRINGS),
        ("conversation", TURNS),
        ("model", STRING),
        ("shown", STRING),
        ("served", SERVED),
    ],
    QuestionRow: [
        ("question", STRING),
        ("answer", STRING),
        ("about", STRING),
        ("round", INT),
        ("rounds", INT),
        ("model", STRING),
        ("served", SERVED),
    ],
    RejectedTextRow: [
        ("text", STRING),
        ("maker", STRING),
        ("note", STRING),
        ("score", FLOAT),
        ("skipped_true", INT),
        ("served", SERVED),
    ],
    MentionRow: [("nouns", STRINGS), ("model", STRING)],
    TagsRow: [("tags", TAGS), ("refused_tags", pa.list_(pa.struct([("name", STRING), ("reason", STRING)])))],
    BoxesRow: [("width", INT), ("height", INT), ("tags", TAGS), ("boxes", BOXES)],
    MasksRow: [
        ("width", INT),
        ("height", INT),
        ("tags", TAGS),
        ("boxes", BOXES),
        ("masks", STRINGS),
        ("whys", STRINGS),
        ("mask_scores", FLOATS),
    ],
    ElementRow: [
        ("tag", STRING),
        ("tagger", STRING),
        ("tag_score", FLOAT),
        ("object_ids", STRINGS),
        ("boxes", BOXES),
        ("box", CORNERS),
        ("mask", STRING),
        ("area_share", FLOAT),
        ("why", STRING),
    ],
    RemovalRow: [
        ("image_key", STRING),
        ("tag", STRING),
        ("object_ids", STRINGS),
        ("box", CORNERS),
        ("mask", STRING),
        ("window", CORNERS),
        ("patch", BINARY),
        ("area_share", FLOAT),
        ("dilate", INT),
        ("feather", INT),
        ("inpainter", STRING),
        ("changed_outside", INT),
    ],
    InspectionRow: [
        ("element", STRING),
        ("passed", BOOL),
        ("why", STRING),
        ("found_before", FLOAT),
        ("found_after", FLOAT),
        ("grown", STRING),
        ("grown_score", FLOAT),
        ("rim", FLOAT),
        ("changed_outside", INT),
    ],
    RejectionRow: [
        ("maker", STRING),
        ("side", INT),
        ("element", STRING),
        ("window", CORNERS),
        ("removal_scores", REMOVAL_SCORES),
        ("why", STRING),
    ],
    SplitRow: [("component", STRING), ("split", STRING)],
    PreferenceRow: [
        ("prompt", TURNS),
        ("images", pa.list_(BINARY)),
        ("image_keys", STRINGS),
        ("chosen", STRING),
        ("chosen_model", STRING),
        ("rejected", STRING),
        ("rejected_maker", STRING),
        ("rejected_note", STRING),
        ("negatives", NEGATIVES),
        ("rejected_images", pa.list_(BINARY)),
        ("removal_scores", REMOVAL_SCORES),
        ("component", STRING),
        ("split", STRING),
        ("sources", STRINGS),
        ("licences", STRINGS),
        ("rejected_image_maker", STRING),
    ],
    ReferenceRow: [("logps", FLOATS), ("tokens", pa.list_(INT))],
    PlacesRow: [("model", STRING), ("kind", STRING), ("width", INT), ("values", BINARY)],
}


@cache
def schema_of(row_type: type[Row]) -> pa.Schema:
    """Return the schema of the tables that hold rows of this type."""
    columns = COLUMNS.get(row_type) or list(_derive_columns(row_type))
    return pa.schema([pa.field(name, kind) for name, kind in [*NAMES, *columns, *STATUS]])


def _derive_columns(row_type: type[Row]) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the columns of a plugin's row, by the types of its fields."""
    kinds = get_type_hints(row_type)
    for field in fields(row_type)[len(NAMES) :]:
        if kinds[field.name] not in PLAIN:
            raise ConfigError(
                f"{row_type.__name__}.{field.name}: a plugin's row has fields of the types "
                f"{', '.join(str(getattr(kind, '__name__', kind)) for kind in PLAIN)}"
            )
        yield field.name, PLAIN[kinds[field.name]]


def to_table(rows: Sequence[Row | Dropped | Failed], row_type: type[Row]) -> pa.Table:
    """Return the rows, of one type or without a result, as an Arrow table in the same order."""
    schema = schema_of(row_type)
    empty = dict.fromkeys(schema.names)
    records = [row if isinstance(row, Row) else SimpleNamespace(**empty | _without_result(row)) for row in rows]
    return pa.table([_column(records, field) for field in schema], schema=schema)


def _without_result(row: Dropped | Failed) -> dict[str, str]:
    names = dict.fromkeys(("key", "source_key", "subject"), row.source_key)
    status = "dropped" if isinstance(row, Dropped) else "failed"
    return {**names, "status": status, "reason": row.reason, "detail": row.detail}


def _column(records: Sequence[Row | SimpleNamespace], field: pa.Field) -> pa.Array:
    name = field.name
    if name in OK:
        return pa.array([getattr(record, name, OK[name]) for record in records], field.type)
    values = list(map(attrgetter(name), records))
    if name in MODELS:
        values = [None if value is None else value.model_dump_json() for value in values]
    elif name in STRUCTS:
        values = [None if value is None else [_plain(item) for item in value] for value in values]
    elif pa.types.is_large_binary(field.type) and None not in values:
        return _join(values)
    return pa.array(values, field.type)


def _plain(item: Small) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__slots__}


def _join(values: Sequence[bytes]) -> pa.Array:
    """Return a column of images, each copied once; Arrow's own way grows a buffer and takes twice the time."""
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64)
    data = pa.allocate_buffer(int(ends[-1]))
    view = memoryview(data).cast("B")
    for value, end in zip(values, ends[1:].tolist(), strict=True):
        view[end - len(value) : end] = value
    return pa.Array.from_buffers(pa.large_binary(), len(values), [None, pa.py_buffer(ends), data])


def no_rows(schema: pa.Schema) -> pa.Table:
    """Return a table without rows. It does not load pandas, as ``pa.array`` does wherever that is installed."""
    return pa.Table.from_batches([], schema=schema)


def integers(values: NDArray[np.int32]) -> pa.Array:
    """Return a column of integers, without pandas."""
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])


def strings(values: Sequence[str]) -> pa.Array:
    """Return a column of texts, without pandas."""
    data = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, data)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(data), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(data))])


def from_table(table: pa.Table, row_type: type[R]) -> Iterator[R]:
    """Yield the rows of an Arrow table; a column that was not read is left at its type's empty value."""
    names = [f.name for f in fields(row_type)]
    missing = {name: _empty(schema_of(row_type).field(name).type) for name in names if name not in table.column_names}
    for record in table.select([name for name in names if name in table.column_names]).to_pylist():
        yield row_type(**missing, **{name: _rich(name, value) for name, value in record.items()})


def _rich(name: str, value: Any) -> Any:
    if value is not None and name in MODELS:
        return MODELS[name].model_validate_json(value)
    if isinstance(value, list):
        if name in STRUCTS:
            return tuple(STRUCTS[name](**{key: _rich("", inner) for key, inner in item.items()}) for item in value)
        return tuple(tuple(item) if isinstance(item, list) else item for item in value)
    return value


def _empty(kind: pa.DataType) -> Any:
    if pa.types.is_large_binary(kind):
        return b""
    return () if pa.types.is_list(kind) else None
