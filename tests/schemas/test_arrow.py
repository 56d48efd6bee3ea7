"""Rows and their Arrow forms: the same fields, and nothing lost on the way there and back."""

import types
import typing
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from pairwright.schemas import rows
from pairwright.schemas.arrow import from_table, schema_of, to_table
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import Dropped, Failed, ImageRow, Row, make_key

ROW_TYPES = sorted(
    (
        kind
        for kind in vars(rows).values()
        if isinstance(kind, type) and issubclass(kind, Row) and kind is not Row
    ),
    key=lambda kind: kind.__name__,
)
ids = {"ids": lambda kind: kind.__name__}
TEXT, NUMBER = pa.string(), pa.float32()
TAG = [("name", TEXT), ("score", NUMBER), ("tagger", TEXT)]


def _values(annotation: Any, *, bits: int = 32) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a field."""
    if annotation is str:
        return st.text(max_size=20)
    if annotation is int:
        return st.integers(-(2**31), 2**31 - 1)
    if annotation is float:
        return st.floats(width=bits, allow_nan=False, allow_infinity=False)
    if annotation in (bytes, bool, type(None)):
        return st.binary(max_size=40) if annotation is bytes else st.from_type(annotation)
    if typing.get_origin(annotation) is Literal:
        return st.sampled_from(typing.get_args(annotation))
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return st.one_of([_values(kind) for kind in typing.get_args(annotation)])
    if isinstance(annotation, type) and (
        is_dataclass(annotation) or issubclass(annotation, BaseModel)
    ):
        hints = typing.get_type_hints(annotation).items()
        columns = {
            name: _values(kind) for name, kind in hints if name[0] != "_" and name != "model_config"
        }
        return st.builds(annotation, **columns)
    inner = typing.get_args(annotation)
    if inner[-1] is ...:
        return st.lists(_values(inner[0], bits=bits), max_size=3).map(tuple)
    return st.tuples(*(_values(kind) for kind in inner))


def _rows(kind: type[Row]) -> st.SearchStrategy[Row]:
    hints = typing.get_type_hints(kind)
    columns = {}
    for field in fields(kind):
        bits = 16 if field.name == "vector" else 32
        columns[field.name] = _values(hints[field.name], bits=bits)
    return st.builds(kind, **columns)


@pytest.mark.parametrize(
    ("kind", "column", "expected"),
    [
        (ImageRow, "name", TEXT),
        (ImageRow, "image", pa.large_binary()),
        (ImageRow, "captions", pa.list_(TEXT)),
        (ImageRow, "graph", TEXT),
        (rows.EmbeddingRow, "vector", pa.list_(pa.float16())),
        (rows.NeighbourRow, "similarities", pa.list_(pa.list_(NUMBER))),
        (rows.RemovalRow, "box", pa.list_(pa.int32(), 4)),
        (rows.PreferenceRow, "prompt", pa.list_(pa.struct([("role", TEXT), ("text", TEXT)]))),
        (rows.TagsRow, "tags", pa.list_(pa.struct([*TAG, ("objects", pa.list_(TEXT))]))),
        (rows.SplitRow, "status", TEXT),
    ],
)
def test_a_column_has_the_type_of_its_field(
    kind: type[Row], column: str, expected: pa.DataType
) -> None:
    assert schema_of(kind).field(column).type == expected


def test_a_field_that_no_column_holds_is_refused() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class OddRow(Row):
        when: complex

    with pytest.raises(ConfigError, match=r"OddRow\.when"):
        schema_of(OddRow)


@pytest.mark.parametrize("kind", ROW_TYPES, **ids)
def test_rows_come_back_as_they_were(kind: type[Row]) -> None:
    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @given(some=st.lists(_rows(kind), max_size=3))
    def check(some: list[Row]) -> None:
        table = to_table(some, kind)
        assert table.schema.equals(schema_of(kind))
        table.validate(full=True)
        assert list(from_table(table, kind)) == some
        assert set(table.column("status").to_pylist()) <= {"ok"}

    check()


IMAGE = ImageRow(
    key=make_key(1),
    source_key=make_key(2),
    subject=make_key(1),
    image=b"",
    format="",
    width=0,
    height=0,
    name="",
    source="",
    licence="",
    group="",
)


def test_empty_values_columns_and_tables() -> None:
    (row,) = from_table(to_table([IMAGE], ImageRow), ImageRow)
    assert row == IMAGE
    assert (row.captions, row.graph, row.image, row.name) == ((), None, b"", "")
    table = to_table([replace(IMAGE, captions=("a",), image=b"1")], ImageRow)
    (row,) = from_table(table.drop_columns(["image", "captions", "width", "graph"]), ImageRow)
    assert (row.image, row.captions, row.width, row.graph) == (b"", (), None, None)
    assert row.key == IMAGE.key
    for kind in ROW_TYPES:
        assert to_table([], kind).equals(schema_of(kind).empty_table())


def test_rows_without_a_result_keep_their_source_and_reason() -> None:
    small = Dropped(source_key=make_key(5), reason="too small", detail="3 px")
    gone = [small, Failed(source_key=make_key(6), reason="down")]
    records = to_table([*gone, IMAGE], ImageRow).to_pylist()
    assert [(r["status"], r["reason"], r["detail"]) for r in records] == [
        ("dropped", "too small", "3 px"),
        ("failed", "down", ""),
        ("ok", "", ""),
    ]
    for record, row in zip(records, gone, strict=False):
        assert {record[name] for name in ("key", "source_key", "subject")} == {row.source_key}
        assert {record[name] for name in ("image", "width", "captions")} == {None}
