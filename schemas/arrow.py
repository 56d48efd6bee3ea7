"""The Arrow schema of each row type, and conversion between rows and Arrow tables.

Columns are the row's fields, then ``status`` ("ok", "dropped", "failed"), ``reason``, ``detail``. A
small row within a row is a struct, a pydantic model is JSON text. A row that is not ok has only its
three names, all its ``source_key``.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import Dropped, Failed, Half, Row

R = TypeVar("R", bound=Row)

STRING = pa.string()
PLAIN: dict[Any, pa.DataType] = {
    str: STRING,
    int: pa.int32(),
    float: pa.float32(),
    bool: pa.bool_(),
    bytes: pa.large_binary(),
    Half: pa.float16(),
}
STATUS = [("status", STRING), ("reason", STRING), ("detail", STRING)]
OK = {"status": "ok", "reason": "", "detail": ""}
"""Status columns of a row with a result."""


@cache
def schema_of(row_type: type[Row]) -> pa.Schema:
    """Return the schema of the tables that hold rows of this type."""
    return pa.schema([*_fields_of(row_type), *STATUS])


def _fields_of(kind: Any) -> list[tuple[str, pa.DataType]]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        (field.name, _type_of(hints[field.name], f"{kind.__name__}.{field.name}"))
        for field in fields(kind)
    ]


def _type_of(kind: Any, name: str) -> pa.DataType:
    args = get_args(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    if is_dataclass(kind):
        return pa.struct(_fields_of(kind))
    if get_origin(kind) is tuple:
        return pa.list_(_type_of(args[0], name), *(() if args[-1] is ... else (len(args),)))
    if args[1:] == (type(None),) and issubclass(args[0], BaseModel):
        return STRING
    raise ConfigError(
        f"{name}: no column holds {kind}; use str, int, float, bool, bytes, or tuples of them"
    )


@cache
def _classes_of(row_type: type[Row]) -> dict[str, type[Any]]:
    hints = get_type_hints(row_type).items()
    parts = (
        (name, part) for name, kind in hints for part in get_args(kind) if isinstance(part, type)
    )
    return {name: part for name, part in parts if is_dataclass(part) or issubclass(part, BaseModel)}


def to_table(rows: Sequence[Row | Dropped | Failed], row_type: type[Row]) -> pa.Table:
    """Return the rows, of one type or without a result, as an Arrow table in the same order."""
    schema, classes = schema_of(row_type), _classes_of(row_type)
    empty = dict.fromkeys(name for name in schema.names if name not in OK)

    def without_result(row: Dropped | Failed) -> SimpleNamespace:
        names = dict.fromkeys(("key", "source_key", "subject"), row.source_key)
        status = "dropped" if isinstance(row, Dropped) else "failed"
        return SimpleNamespace(**empty | names, status=status, reason=row.reason, detail=row.detail)

    records = [row if isinstance(row, Row) else without_result(row) for row in rows]
    columns: list[pa.Array] = []
    for field in schema:
        if field.name in OK:
            values = [getattr(record, field.name, OK[field.name]) for record in records]
        else:
            values = list(map(attrgetter(field.name), records))
            if field.name in classes:
                values = list(map(_to_plain, values))
        columns.append(pa.array(values, field.type))
    return pa.table(columns, schema=schema)


def _to_plain(value: Any) -> Any:
    """Return a pydantic model as JSON text, rows within a row as dictionaries."""
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    return value and [{name: getattr(item, name) for name in item.__slots__} for item in value]


def add_missing_columns(table: pa.Table, row_type: type[Row], names: Sequence[str]) -> pa.Table:
    """Return the named columns; those that an earlier release did not write are empty."""
    schema = schema_of(row_type)
    columns: list[Any] = []
    for name in names:
        if name in table.column_names:
            columns.append(table.column(name))
            continue
        kind = schema.field(name).type
        empty: Any = [] if pa.types.is_list(kind) else "" if kind == STRING else None
        columns.append(pa.array([empty] * len(table), kind))
    return pa.table(columns, names=list(names))


def no_rows(schema: pa.Schema) -> pa.Table:
    """Return a table without rows; unlike ``pa.array``, it does not load pandas."""
    return pa.Table.from_batches([], schema=schema)


def integers(values: NDArray[np.int32]) -> pa.Array:
    """Return a column of integers, without pandas."""
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])


def concat_parts(tables: Iterable[pa.Table]) -> pa.Table:
    """Return the tables as one; fields that parts of an earlier release lack are null."""
    return pa.concat_tables(tables, promote_options="permissive")


def from_table(table: pa.Table, row_type: type[R]) -> Iterator[R]:
    """Yield the rows of an Arrow table; columns that were not read are empty."""
    classes, schema = _classes_of(row_type), schema_of(row_type)
    names = [field.name for field in fields(row_type)]
    missing: dict[str, Any] = {}
    defaults = {field.name: field.default for field in fields(row_type)}
    for name in (name for name in names if name not in table.column_names):
        if isinstance(defaults[name], str):
            missing[name] = defaults[name]
            continue
        kind = schema.field(name).type
        missing[name] = (
            b"" if pa.types.is_large_binary(kind) else () if pa.types.is_list(kind) else None
        )
    for record in table.select([name for name in names if name not in missing]).to_pylist():
        yield row_type(
            **missing,
            **{name: _to_rich(value, classes.get(name)) for name, value in record.items()},
        )


@cache
def _optional_fields(kind: type[Any]) -> frozenset[str]:
    """Return the names of the fields that have a default."""
    if not is_dataclass(kind):
        return frozenset()
    return frozenset(field.name for field in fields(kind) if field.default is not MISSING)


def _to_rich(value: Any, kind: type[Any] | None = None) -> Any:
    if isinstance(value, list):
        if kind:
            optional = _optional_fields(kind)
            items: list[Any] = []
            for item in value:
                known = {
                    name: _to_rich(inner)
                    for name, inner in item.items()
                    if inner is not None or name not in optional
                }
                items.append(kind(**known))
            return tuple(items)
        return tuple(tuple(item) if isinstance(item, list) else item for item in value)
    return kind.model_validate_json(value) if kind and value is not None else value
