"""Parts: their layout, and that no changed byte goes unnoticed."""

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairwright.schemas.arrow import schema_of, to_table
from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import Dropped, ImageRow, PreferenceRow, make_key
from pairwright.tasks.store import part as part_file
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.part import (
    Part,
    encode_part,
    read_about,
    read_part,
    read_part_columns,
    read_positions,
)
from tests.fixtures.rows import row_of
from tests.tasks.store.faults import flipped

ABOUT = {"stage": "images", "rows": "130"}


def image(number: int) -> ImageRow:
    fields = {"name": f"image {number}", "width": number, "captions": ("a", "bb")[: number % 3]}
    data = random.Random(number).randbytes(24)
    return row_of(ImageRow, number, source=make_key(number), image=data, **fields)


TABLE = to_table([image(number) for number in range(130)], ImageRow)
DATA = bytes(encode_part(TABLE, ABOUT))
FOOTER = len(DATA) - 8 - int.from_bytes(DATA[-8:-4], "little")
SOME = ["key", "captions"]
NAMED = r"part-1\.parquet"


@pytest.fixture
def part(tmp_path: Path) -> Part:
    part = Part(Folder(f"memory://part{tmp_path}"), "tables/x/part-1.parquet")
    part.folder.write(part.name, DATA)
    return part


def test_a_part_gives_back_its_rows_and_what_it_says_of_itself(part: Part) -> None:
    assert read_part(part).equals(TABLE)
    table, about = read_part_columns(part, ["key", "anchor", "captions"])
    assert table.equals(TABLE.select(["key", "captions"]))
    assert about == read_about(part) == ABOUT
    assert read_positions(part, [0, 99, 100, 129]).equals(TABLE.take([0, 99, 100, 129]))
    assert read_positions(part, [129], ["name"]).to_pylist() == [{"name": "image 129"}]
    assert read_positions(part, []).equals(TABLE.slice(0, 0))
    with pytest.raises(StoreError, match=r"part-2\.parquet"):
        read_part(Part(part.folder, "tables/x/part-2.parquet"))
    with pytest.raises(StoreError, match=NAMED):
        read_positions(part, [130])


def test_another_reader_finds_the_layout_of_the_design() -> None:
    file = pq.ParquetFile(pa.BufferReader(DATA))
    assert file.read().equals(TABLE)
    assert [file.metadata.row_group(i).num_rows for i in range(2)] == [part_file.ROWS_PER_GROUP, 30]
    columns = {c["path_in_schema"]: c for c in file.metadata.row_group(0).to_dict()["columns"]}
    assert columns["image"]["compression"] == "UNCOMPRESSED"
    assert columns["name"]["compression"] == "ZSTD"
    assert columns["captions.list.element"]["compression"] == "ZSTD"
    assert not columns["image"]["has_dictionary_page"]
    assert not columns["name"]["has_dictionary_page"]
    assert not columns["name"]["is_stats_set"]


def test_one_of_many_large_rows_is_read_with_few_others(tmp_path: Path) -> None:
    images = pa.array([bytes([number]) * 400_000 for number in range(7)], pa.large_binary())
    rows = TABLE.slice(0, 7).drop_columns("image").append_column("image", images)
    rows = rows.select(TABLE.column_names)
    part = Part(Folder(str(tmp_path)), "part-1.parquet")
    part.folder.write(part.name, encode_part(rows, ABOUT))
    metadata = pq.read_metadata(tmp_path / part.name)
    assert [metadata.row_group(group).num_rows for group in range(4)] == [2, 2, 2, 1]
    assert read_positions(part, [1, 2, 6]).equals(rows.take([1, 2, 6]))
    assert read_part(part).equals(rows)


def test_any_changed_byte_is_found_and_the_file_named(part: Part) -> None:
    rng = random.Random(0)
    for place in (*range(0, FOOTER, 5), *range(FOOTER, len(DATA), 2)):
        part.folder.write(part.name, flipped(DATA, place, 1 << rng.randrange(8)))
        with pytest.raises(StoreError, match=NAMED):
            read_part(part)


@pytest.mark.parametrize(
    ("number", "read", "expected"),
    [
        (0, lambda part: read_positions(part, [3, 120]), TABLE.take([3, 120])),
        (1, lambda part: read_positions(part, [5], ["image"]), TABLE.take([5]).select(["image"])),
        (2, lambda part: read_part_columns(part, SOME)[0], TABLE.select(SOME)),
    ],
    ids=["rows", "cells", "columns"],
)
def test_a_read_of_some_of_a_part_never_gives_a_changed_value(
    part: Part, number: int, read: Callable[[Part], pa.Table], expected: pa.Table
) -> None:
    rng = random.Random(number)
    faults = 0
    for place in range(number, len(DATA), 9):
        part.folder.write(part.name, flipped(DATA, place, rng.randrange(1, 256)))
        try:
            table = read(part)
        except StoreError:
            faults += 1
        else:
            assert table.equals(expected)
    assert faults > (len(DATA) - FOOTER) / 9


LENGTHS = {0, 1, 4, 8, 11, 12, FOOTER, *range(len(DATA) - 19, len(DATA))}
LENGTHS |= set(random.Random(0).sample(range(len(DATA)), 200))


@pytest.mark.parametrize("read", [read_part, read_about, lambda part: read_positions(part, [0])])
def test_a_part_that_is_cut_off_or_too_long_is_found(
    part: Part, read: Callable[[Part], object]
) -> None:
    damaged = [DATA[:length] for length in LENGTHS]
    damaged += [DATA + b"\0", DATA + b"PAR1", DATA + DATA, DATA + DATA[FOOTER:]]
    damaged += [b"PAR1" + DATA, DATA[:4] + DATA]
    for data in damaged:
        part.folder.write(part.name, data)
        with pytest.raises(StoreError, match=NAMED):
            read(part)


def test_a_cell_may_imitate_the_digests_and_a_footer_be_large(part: Part) -> None:
    text = "pairwright.check\x18\x20" + "0" * 64 + "pairwright.chunks" + "0" * 600
    rows = [Dropped(source_key=make_key(n), reason=text, detail=text) for n in range(3)]
    table = to_table(rows, ImageRow)
    part.folder.write(part.name, encode_part(table, {"rows": "3", "note": text}))
    assert read_part(part).equals(table)
    about = {"stage": "images", "note": "x" * 200_000}
    part.folder.write(part.name, encode_part(TABLE, about))
    assert read_about(part) == about
    assert read_positions(part, [129]).equals(TABLE.take([129]))


def incompressible(rng: random.Random) -> str:
    return "".join(chr(rng.randrange(32, 0xD000)) for _ in range(rng.randrange(3_000)))


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(lambda rng: "", id="empty"),
        pytest.param(lambda rng: rng.choice("ab"), id="short"),
        pytest.param(incompressible, id="incompressible"),
    ],
)
@pytest.mark.parametrize(
    "count", [0, 1, 30, *(pytest.param(n, marks=pytest.mark.slow) for n in (99, 101, 1_000))]
)
def test_parts_of_cells_of_any_size_have_room(
    part: Part, cell: Callable[[random.Random], str], count: int
) -> None:
    rng = random.Random(count)
    texts, lists = pa.string(), pa.list_(pa.string())
    makers: dict[pa.DataType, Callable[[], object]] = {
        texts: lambda: cell(rng),
        lists: lambda: [cell(rng)] * rng.randrange(4),
    }
    schema = schema_of(PreferenceRow)
    columns = {
        field.name: [makers.get(field.type, lambda: None)() for _ in range(count)]
        for field in schema
    }
    table = pa.table(columns, schema=schema)
    part.folder.write(part.name, encode_part(table, {}))
    assert read_part(part).equals(table)
