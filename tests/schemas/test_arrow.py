"""Rows and their Arrow forms: the same fields, and nothing lost on the way there and back."""

import types
import typing
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from pairwright.schemas import rows
from pairwright.schemas.arrow import COLUMNS, MODELS, STRUCTS, from_table, schema_of, to_table
from pairwright.schemas.rows import (
    CaptionRow,
    Dropped,
    EmbeddingRow,
    Failed,
    ImageRow,
    PairRow,
    RemovalRow,
    Row,
    make_key,
)
from pairwright.schemas.scene import SceneGraph

ROW_TYPES = sorted(COLUMNS, key=lambda kind: kind.__name__)
ids = {"ids": lambda kind: kind.__name__}
PLAIN = {str: pa.string(), int: pa.int32(), float: pa.float32(), bool: pa.bool_(), bytes: pa.large_binary()}


def _arrow(annotation: Any) -> pa.DataType:
    """Return the Arrow type of a field, derived from its annotation alone."""
    if annotation in PLAIN:
        return PLAIN[annotation]
    if annotation == SceneGraph | None:
        return pa.string()
    if is_dataclass(annotation):
        return pa.struct([(name, _arrow(kind)) for name, kind in typing.get_type_hints(annotation).items()])
    inner = typing.get_args(annotation)
    assert typing.get_origin(annotation) is tuple
    if inner[-1] is ...:
        return pa.list_(_arrow(inner[0]))
    return pa.list_(_arrow(inner[0]), len(inner))


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
    if isinstance(annotation, type) and (is_dataclass(annotation) or issubclass(annotation, BaseModel)):
        return st.builds(
            annotation,
            **{
                n: _values(k)
                for n, k in typing.get_type_hints(annotation).items()
                if n[0] != "_" and n != "model_config"
            },
        )
    inner = typing.get_args(annotation)
    if inner[-1] is ...:
        return st.lists(_values(inner[0], bits=bits), max_size=3).map(tuple)
    return st.tuples(*(_values(kind) for kind in inner))


def _rows(kind: type[Row]) -> st.SearchStrategy[Row]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{n: _values(k, bits=16 if n == "vector" else 32) for n, k in hints.items()})


def test_every_row_type_has_columns() -> None:
    kinds = {kind for kind in vars(rows).values() if isinstance(kind, type) and issubclass(kind, Row)}
    assert set(COLUMNS) == kinds - {Row}


@pytest.mark.parametrize("kind", ROW_TYPES, **ids)
def test_columns_are_the_fields_in_name_order_and_type(kind: type[Row]) -> None:
    schema = schema_of(kind)
    assert schema.names == [*(field.name for field in fields(kind)), "status", "reason", "detail"]
    hints = typing.get_type_hints(kind)
    expected = {name: _arrow(hints[name]) for name in hints}
    if kind is EmbeddingRow:
        expected["vector"] = pa.list_(pa.float16())  # half the memory, and enough for unit vectors
    assert {name: schema.field(name).type for name in hints} == expected


def test_columns_that_hold_more_than_plain_values_are_known() -> None:
    hints = [item for kind in ROW_TYPES for item in typing.get_type_hints(kind).items()]
    models = {name for name, kind in hints if kind == SceneGraph | None}
    structs = {name: typing.get_args(kind)[0] for name, kind in hints if is_dataclass((*typing.get_args(kind), 0)[0])}
    assert set(MODELS) == models
    assert structs == STRUCTS


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
    key=make_key(1), source_key=make_key(2), subject=make_key(1), image=b"", format="", width=0, height=0, name="",
    source="", licence="", group="",
)  # fmt: skip


def test_empty_values_stay_empty() -> None:
    (row,) = from_table(to_table([IMAGE], ImageRow), ImageRow)
    assert row == IMAGE
    assert (row.captions, row.graph, row.image, row.name) == ((), None, b"", "")


def test_rows_without_a_result_keep_their_source_and_reason() -> None:
    gone = [
        Dropped(source_key=make_key(5), reason="too small", detail="3 px"),
        Failed(source_key=make_key(6), reason="down"),
    ]
    records = to_table([*gone, IMAGE], ImageRow).to_pylist()
    assert [(r["status"], r["reason"], r["detail"]) for r in records] == [
        ("dropped", "too small", "3 px"), ("failed", "down", ""), ("ok", "", ""),
    ]  # fmt: skip
    for record, row in zip(records, gone, strict=False):
        assert {record[name] for name in ("key", "source_key", "subject")} == {row.source_key}
        assert {record[name] for name in ("image", "width", "captions")} == {None}


def test_columns_that_were_not_read_are_empty() -> None:
    table = to_table([replace(IMAGE, captions=("a",), image=b"1")], ImageRow)
    (row,) = from_table(table.drop_columns(["image", "captions", "width", "graph"]), ImageRow)
    assert (row.image, row.captions, row.width, row.graph) == (b"", (), None, None)
    assert row.key == IMAGE.key


def test_no_rows_are_a_table_too() -> None:
    for kind in ROW_TYPES:
        assert to_table([], kind).equals(schema_of(kind).empty_table())


def test_a_box_has_four_numbers() -> None:
    good = {f.name: (1, 2, 3, 4) if f.name in ("box", "window") else _some(f.name) for f in fields(RemovalRow)}
    with pytest.raises(pa.ArrowInvalid):
        to_table([RemovalRow(**{**good, "box": (1, 2, 3)})], RemovalRow)
    assert len(to_table([RemovalRow(**good)], RemovalRow)) == 1


def _some(name: str) -> Any:
    numbers = {"area_share": 0.5, "changed_outside": 0, "dilate": 5, "feather": 3, "patch": b"", "object_ids": ()}
    return numbers.get(name, "x")


def test_defaults_are_the_empty_values_of_their_columns() -> None:
    for kind in (ImageRow, PairRow, CaptionRow):
        for field in fields(kind):
            if field.default is not MISSING:
                assert not field.default
