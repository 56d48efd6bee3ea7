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
from pairwright.schemas.arrow import concat_parts, from_table, schema_of, to_table
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import DifferenceRow, Dropped, Failed, ImageRow, Row, Served, make_key
from tests.fixtures.rows import row_of

CLASSES = [value for value in vars(rows).values() if isinstance(value, type)]
ROW_TYPES = [kind for kind in CLASSES if issubclass(kind, Row) and kind is not Row]
TEXT, NUMBER = pa.string(), pa.float32()
TAG = [("name", TEXT), ("score", NUMBER), ("tagger", TEXT)]


def values_of(annotation: Any, *, bits: int = 32) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a field."""
    plain = {
        str: st.text(max_size=20),
        int: st.integers(-(2**31), 2**31 - 1),
        float: st.floats(width=bits, allow_nan=False, allow_infinity=False),
        bytes: st.binary(max_size=40),
    }
    if annotation in plain:
        return plain[annotation]
    if annotation in (bool, type(None)):
        return st.from_type(annotation)
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) is Literal:
        return st.sampled_from(inner)
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return st.one_of([values_of(kind) for kind in inner])
    if is_dataclass(annotation) or issubclass(
        typing.get_origin(annotation) or annotation, BaseModel
    ):
        hints = typing.get_type_hints(annotation).items()
        names = {name: kind for name, kind in hints if name[0] != "_" and name != "model_config"}
        return st.builds(annotation, **{name: values_of(kind) for name, kind in names.items()})
    if inner[-1] is ...:
        return st.lists(values_of(inner[0], bits=bits), max_size=3).map(tuple)
    return st.tuples(*(values_of(kind) for kind in inner))


def rows_of(kind: type[Row]) -> st.SearchStrategy[Row]:
    hints = typing.get_type_hints(kind)
    bits = {"vector": 16}
    columns = {
        field.name: values_of(hints[field.name], bits=bits.get(field.name, 32))
        for field in fields(kind)
    }
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


@pytest.mark.parametrize("kind", ROW_TYPES, ids=lambda kind: kind.__name__)
def test_rows_come_back_as_they_were(kind: type[Row]) -> None:
    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @given(some=st.lists(rows_of(kind), max_size=3))
    def check(some: list[Row]) -> None:
        table = to_table(some, kind)
        assert table.schema.equals(schema_of(kind))
        table.validate(full=True)
        assert list(from_table(table, kind)) == some
        assert set(table.column("status").to_pylist()) <= {"ok"}

    check()
    assert to_table([], kind).equals(schema_of(kind).empty_table())


IMAGE = row_of(ImageRow, 1, source=make_key(2), subject=make_key(1))


def test_columns_that_were_not_given_or_read_are_empty() -> None:
    (row,) = from_table(to_table([IMAGE], ImageRow), ImageRow)
    assert row == IMAGE
    assert (row.captions, row.graph, row.image, row.name) == ((), None, b"", "")
    table = to_table([replace(IMAGE, captions=("a",), image=b"1")], ImageRow)
    (row,) = from_table(table.drop_columns(["image", "captions", "width", "graph"]), ImageRow)
    assert (row.image, row.captions, row.width, row.graph) == (b"", (), None, None)
    assert row.key == IMAGE.key


def test_rows_without_a_result_keep_their_source_and_reason() -> None:
    small = Dropped(source_key=make_key(5), reason="too small", detail="3 px")
    down = Failed(source_key=make_key(6), reason="down")
    records = to_table([small, down, IMAGE], ImageRow).to_pylist()
    ends = [(record["status"], record["reason"], record["detail"]) for record in records]
    assert ends == [("dropped", "too small", "3 px"), ("failed", "down", ""), ("ok", "", "")]
    for record, row in zip(records[:2], [small, down], strict=True):
        assert {record[name] for name in ("key", "source_key", "subject")} == {row.source_key}
        assert {record[name] for name in ("image", "width", "captions")} == {None}


def test_a_field_that_older_parts_lack_has_its_default() -> None:
    """Of a table's parts, some may have been written before a structure got a field."""
    numbers = {"seed": 1, "prompt_tokens": 2, "completion_tokens": 3, "latency": 0.5}
    call = Served(prompt="describe", model="m", revision="", finish_reason="stop", **numbers)
    row = row_of(DifferenceRow, source="s", served=(call,))
    newer = to_table([row], DifferenceRow)
    (position,) = [newer.schema.get_field_index("served")]
    calls = newer.column("served").to_pylist()
    for call in calls[0]:
        del call["prompt_sha256"]
    kind = newer.schema.field("served").type.value_type
    lacking = pa.struct([field for field in kind if field.name != "prompt_sha256"])
    older = newer.set_column(position, "served", pa.array(calls, pa.list_(lacking)))
    rows = list(from_table(concat_parts([older, newer]), DifferenceRow))
    assert rows == [row, row]
