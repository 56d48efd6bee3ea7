"""Parts: their layout, and that no changed byte goes unnoticed."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    read_columns,
    read_part,
    read_rows,
)
from tests.fixtures.rows import row_of

ABOUT = {"stage": "images", "rows": "130"}


def _image(number: int) -> ImageRow:
    data = random.Random(number).randbytes(24)
    given = {
        "image": data,
        "width": number,
        "name": f"image {number}",
        "captions": ("a", "bb")[: number % 3],
    }
    return row_of(ImageRow, number, source=make_key(number), **given)


TABLE = to_table([_image(number) for number in range(130)], ImageRow)
DATA = bytes(encode_part(TABLE, ABOUT))
FOOTER = len(DATA) - 8 - int.from_bytes(DATA[-8:-4], "little")


@pytest.fixture
def part(tmp_path: Path) -> Part:
    folder = Folder(str(tmp_path))
    folder.write("tables/x/part-1.parquet", DATA)
    return Part(folder, "tables/x/part-1.parquet")


def test_a_part_gives_back_its_rows_and_what_it_says_of_itself(part: Part) -> None:
    assert read_part(part).equals(TABLE)
    table, about = read_columns(part, ["key", "anchor", "captions"])
    assert table.equals(TABLE.select(["key", "captions"]))
    assert about == read_about(part) == ABOUT
    assert read_rows(part, [0, 99, 100, 129]).equals(TABLE.take([0, 99, 100, 129]))
    assert read_rows(part, [129], ["name"]).to_pylist() == [{"name": "image 129"}]
    assert read_rows(part, []).equals(TABLE.slice(0, 0))


def test_another_reader_finds_the_layout_of_the_design() -> None:
    file = pq.ParquetFile(pa.BufferReader(DATA))
    assert file.read().equals(TABLE)
    assert [file.metadata.row_group(i).num_rows for i in range(2)] == [part_file.ROWS_PER_GROUP, 30]
    columns = {c["path_in_schema"]: c for c in file.metadata.row_group(0).to_dict()["columns"]}
    assert columns["image"]["compression"] == "UNCOMPRESSED"
    assert not columns["image"]["has_dictionary_page"]
    assert (
        columns["name"]["compression"] == columns["captions.list.element"]["compression"] == "ZSTD"
    )
    assert not columns["name"]["has_dictionary_page"]
    assert not columns["name"]["is_stats_set"]


def test_one_of_many_large_rows_is_read_with_few_others(tmp_path: Path) -> None:
    rows = TABLE.slice(0, 7)
    images = pa.array([bytes([number]) * 400_000 for number in range(7)], pa.large_binary())
    rows = rows.set_column(rows.schema.get_field_index("image"), "image", images)
    part = Part(Folder(str(tmp_path)), "part-1.parquet")
    part.folder.write(part.name, encode_part(rows, ABOUT))
    metadata = pq.read_metadata(tmp_path / part.name)
    assert [metadata.row_group(group).num_rows for group in range(4)] == [2, 2, 2, 1]
    assert read_rows(part, [1, 2, 6]).equals(rows.take([1, 2, 6]))
    assert read_part(part).equals(rows)


def test_any_changed_byte_is_found_and_the_file_named() -> None:
    rng = random.Random(0)
    part = Part(Folder("memory://flipped"), "part-1.parquet")
    for place in (*range(0, FOOTER, 5), *range(FOOTER, len(DATA), 2)):
        part.folder.write(part.name, _flip(place, 1 << rng.randrange(8)))
        with pytest.raises(StoreError, match=r"part-1\.parquet"):
            read_part(part)


def _flip(place: int, bits: int) -> bytes:
    return DATA[:place] + bytes([DATA[place] ^ bits]) + DATA[place + 1 :]


READERS: list[tuple[Callable[[Part], pa.Table], pa.Table]] = [
    (lambda part: read_rows(part, [3, 120]), TABLE.take([3, 120])),
    (lambda part: read_rows(part, [5], ["image"]), TABLE.take([5]).select(["image"])),
    (lambda part: read_columns(part, ["key", "captions"])[0], TABLE.select(["key", "captions"])),
]


@pytest.mark.parametrize("number", range(len(READERS)))
def test_a_read_of_some_of_a_part_never_gives_a_changed_value(number: int) -> None:
    read, right = READERS[number]
    rng = random.Random(number)
    part = Part(Folder(f"memory://some-{number}"), "part-1.parquet")
    found = 0
    for place in range(number, len(DATA), 9):
        part.folder.write(part.name, _flip(place, rng.randrange(1, 256)))
        try:
            table = read(part)
        except StoreError:
            found += 1
        else:
            assert table.equals(right)
    assert found > (len(DATA) - FOOTER) / 9


def test_a_part_that_is_cut_off_or_too_long_is_found(part: Part) -> None:
    rng = random.Random(0)
    lengths = {
        0,
        1,
        4,
        8,
        11,
        12,
        FOOTER,
        *(len(DATA) - n for n in range(1, 20)),
        *rng.sample(range(len(DATA)), 200),
    }
    spoilt = [DATA[:length] for length in lengths]
    spoilt += [
        DATA + b"\0",
        DATA + b"PAR1",
        DATA + DATA,
        DATA + DATA[FOOTER:],
        b"PAR1" + DATA,
        DATA[:4] + DATA,
    ]
    for data in spoilt:
        part.folder.write(part.name, data)
        for read in (read_part, read_about, lambda part: read_rows(part, [0])):
            with pytest.raises(StoreError, match=r"part-1\.parquet"):
                read(part)


def test_a_cell_may_imitate_the_digests(part: Part) -> None:
    text = "pairwright.check\x18\x20" + "0" * 64 + "pairwright.chunks" + "0" * 600
    rows = [Dropped(source_key=make_key(n), reason=text, detail=text) for n in range(3)]
    table = to_table(rows, ImageRow)
    part.folder.write(part.name, encode_part(table, {"rows": "3", "note": text}))
    assert read_part(part).equals(table)


def test_a_large_footer_is_read_too(part: Part) -> None:
    about = {"stage": "images", "note": "x" * 200_000}
    part.folder.write(part.name, encode_part(TABLE, about))
    assert read_about(part) == about
    assert read_rows(part, [129]).equals(TABLE.take([129]))


CELLS: dict[str, Callable[[random.Random], str]] = {
    "empty": lambda rng: "",
    "short": lambda rng: rng.choice("ab"),
    "incompressible": lambda rng: "".join(
        chr(rng.randrange(32, 0xD000)) for _ in range(rng.randrange(3_000))
    ),
}


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize(
    "count", [0, 1, 30, *(pytest.param(n, marks=pytest.mark.slow) for n in (99, 101, 1_000))]
)
def test_parts_of_cells_of_any_size_have_room(part: Part, kind: str, count: int) -> None:
    rng = random.Random(count)
    columns: dict[str, Any] = {
        field.name: [[CELLS[kind](rng)] * rng.randrange(4) for _ in range(count)]
        if pa.types.is_list(field.type) and field.type.value_type == pa.string()
        else [CELLS[kind](rng) for _ in range(count)]
        if field.type == pa.string()
        else [None] * count
        for field in schema_of(PreferenceRow)
    }
    table = pa.table(columns, schema=schema_of(PreferenceRow))
    part.folder.write(part.name, encode_part(table, {}))
    assert read_part(part).equals(table)


def test_a_missing_part_and_a_column_that_it_lacks_are_named(part: Part) -> None:
    with pytest.raises(StoreError, match=r"part-2\.parquet"):
        read_part(Part(part.folder, "tables/x/part-2.parquet"))
    with pytest.raises(StoreError, match=r"part-1\.parquet"):
        read_rows(part, [130])
