"""Columns found by type, splits by name, rows listed from footers; damaged and remote tables."""

import base64
import os
from contextlib import suppress

import datasets
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairwright.schemas.config import ImagesConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Failed, ImageRow, make_key
from pairwright.tasks.sources.find_files import FilePattern
from pairwright.tasks.sources.parquet_tables import split_of
from pairwright.tasks.sources.readers import recognise_source
from tests.fixtures.layouts import put
from tests.fixtures.pictures import photograph, picture
from tests.fixtures.sources import Source
from tests.fixtures.tables import IMAGE, struct, write_table

DATA = [picture(seed) for seed in range(6)]
KEYS = [make_key(data) for data in DATA]


def tables(path, **reading):
    return Source("parquet", path, **reading)


def write_images(path, data=DATA, **options):
    columns = {"id": list(range(len(data))), "image": [struct(one) for one in data]}
    return write_table(path, columns, types={"image": IMAGE}, **options)


def test_a_row_becomes_an_image_with_its_caption(tmp_path) -> None:
    columns = {"image": [struct(DATA[0], "dog.png")], "caption": [" a dog "], "label": [3]}
    path = write_table(tmp_path / "one.parquet", columns, types={"image": IMAGE})
    source = tables(path, limits=ImagesConfig(licence="CC0-1.0"))
    (item,) = source.items()
    assert item.name == "one.parquet#0"
    fields = {"source": "parquet", "licence": "CC0-1.0", "captions": ("a dog",)}
    name = "one.parquet#0 dog.png"
    assert source.row() == photograph(DATA[0], name=name, source_key=item.key, **fields)


LARGE_IMAGE = pa.struct([("path", pa.string()), ("bytes", pa.large_binary())])


@pytest.mark.parametrize(
    ("column", "kind", "value"),
    [
        ("image", IMAGE, struct(DATA[0])),
        ("image", LARGE_IMAGE, struct(DATA[0])),
        ("whatever", pa.large_binary(), DATA[0]),
    ],
)
def test_images_are_found_by_their_type(tmp_path, column, kind, value) -> None:
    write_table(tmp_path / "a.parquet", {"n": [1], column: [value]}, types={column: kind})
    assert tables(tmp_path).keys() == {"a.parquet#0": [KEYS[0]]}


def test_columns_are_the_usual_or_the_configured_ones(tmp_path) -> None:
    path = write_table(tmp_path / "a.parquet", {"mask": [DATA[0]], "image": [DATA[1]]})
    assert tables(path).row().key == KEYS[1]
    assert tables(path, image_column="mask").row().key == KEYS[0]
    other = write_table(tmp_path / "b.parquet", {"left": [DATA[0]], "right": [DATA[1]]})
    with pytest.raises(SourceError, match=r"b\.parquet: .*reading\.image_column; .*left \(binary"):
        tables(other).items()
    with pytest.raises(SourceError, match=r"reading\.image_column: 'up'"):
        tables(other, image_column="up").items()
    texts = {"text": ["a text"], "captions": [["one", "", " two "]], "alt": ["other"]}
    path = write_table(tmp_path / "a.parquet", {"image": [DATA[0]], **texts})
    assert tables(path).row().captions == ("one", "two")
    assert tables(path, caption_column="alt").row().captions == ("other",)
    with pytest.raises(SourceError, match=r"reading\.caption_column: 'image'"):
        tables(path, caption_column="image").items()


def test_several_images_of_a_row_are_one_group_and_all_or_none_are_taken(tmp_path) -> None:
    images = [[struct(DATA[0]), None, struct(DATA[1])], [struct(DATA[2]), struct(b"no")], [], None]
    columns = {"images": images, "caption": ["a"] * 4}
    source = tables(write_table(tmp_path / "a.parquet", columns, types={"images": pa.list_(IMAGE)}))
    first, second = source.rows()["a.parquet#0"]
    assert [first.key, second.key] == KEYS[:2]
    assert (first.group, first.captions) == (second.group, second.captions) == ("a.parquet#0", ())
    assert source.reasons() == {
        "a.parquet#1": "not an image",
        "a.parquet#2": "no image in the row",
        "a.parquet#3": "no image in the row",
    }


def test_text_that_is_not_utf_8_drops_its_row_only(tmp_path) -> None:
    offsets = pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0")
    text = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"a\xff"))
    pq.write_table(pa.table({"image": pa.array(DATA[:2]), "text": text}), tmp_path / "a.parquet")
    assert tables(tmp_path).reasons() == {"a.parquet#1": "damaged row"}


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("mimic_cgd/train-00000-of-00026-5a3b9c0f.parquet", "train"),
        ("data/train_sft-00000-of-00001.parquet", "train_sft"),
        ("my-set-test-00000-of-00001.parquet", "test"),
        ("default/validation/0000.parquet", "validation"),
        ("test/data-00000-of-00001.parquet", "test"),
        ("latest.parquet", "train"),
    ],
)
def test_splits_are_named_by_files_and_folders(path, split) -> None:
    assert split_of(path) == split


def test_the_layout_of_the_hub_and_its_splits(tmp_path) -> None:
    names = ("train-00001-of-00002", "train-00000-of-00002", "test-00000-of-00001")
    for name in names:
        write_images(tmp_path / f"data/{name}.parquet", DATA[:1])
    put(tmp_path, "README.md", b"card")
    write_images(tmp_path / ".cache/x.parquet")
    train = [f"train-0000{number}-of-00002.parquet#0" for number in (0, 1)]
    test = "data/test-00000-of-00001.parquet#0"
    assert tables(tmp_path).names() == [test, *(f"data/{name}" for name in train)]
    assert tables(tmp_path, splits=("test",)).names() == [test]
    assert tables(tmp_path / "data/train-*.parquet").names() == train
    with pytest.raises(SourceError, match=r"reading\.splits .*'validation'; .*test, train"):
        tables(tmp_path, splits=("validation", "train")).names()


def test_reads_datasets_parquet_and_refuses_save_to_disk(tmp_path) -> None:
    features = datasets.Features({"image": datasets.Image(), "caption": datasets.Value("string")})
    columns = {"image": [struct(one) for one in DATA[:3]], "caption": list("abc")}
    dataset = datasets.Dataset.from_dict(columns, features=features)
    dataset.to_parquet(tmp_path / "x.parquet")
    rows = tables(tmp_path / "x.parquet").read()
    assert [row.key for row in rows] == KEYS[:3]
    assert [row.captions for row in rows] == [("a",), ("b",), ("c",)]
    dataset.save_to_disk(tmp_path / "saved")
    with pytest.raises(SourceError, match="to_parquet"):
        tables(tmp_path / "saved").items()


def test_damaged_files_are_items_that_are_dropped(tmp_path) -> None:
    good = write_images(tmp_path / "b.parquet").read_bytes()
    put(tmp_path, "a.parquet", good[:-9])
    put(tmp_path, "c.parquet", b"")
    write_table(tmp_path / "d.parquet", {"n": [1]})
    rows = [f"b.parquet#{number}" for number in range(6)]
    assert tables(tmp_path).names() == ["a.parquet", *rows, "c.parquet", "d.parquet"]
    assert tables(tmp_path).reasons() == {
        "a.parquet": "damaged table",
        "c.parquet": "damaged table",
        "d.parquet": "wrong columns",
    }
    (tmp_path / "b.parquet").unlink()
    with pytest.raises(SourceError, match=r"a\.parquet: .*Parquet magic bytes"):
        tables(tmp_path).items()


def test_a_damaged_row_group_leaves_the_others(tmp_path) -> None:
    path = write_images(tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
    column = pq.ParquetFile(path).metadata.row_group(1).column(1)
    data = bytearray(path.read_bytes())
    start = column.data_page_offset
    data[start : start + column.total_compressed_size] = os.urandom(column.total_compressed_size)
    path.write_bytes(data)
    damaged = dict.fromkeys(("a.parquet#2", "a.parquet#3"), "damaged table")
    assert tables(path).reasons() == damaged
    assert tables(path).keys()["a.parquet#5"] == [KEYS[5]]


def test_every_flipped_byte_of_a_table_ends_in_rows_or_reasons(tmp_path) -> None:
    """Nor does it end the process."""
    path = write_images(tmp_path / "a.parquet", DATA[:1])
    good = path.read_bytes()
    for place in range(0, len(good), 29):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        with suppress(SourceError):
            rows = tables(tmp_path).rows()
            assert [len(found) for found in rows.values()] == [1]


def test_more_rows_than_bytes_are_not_believed(tmp_path) -> None:
    image = pa.array([DATA[0]] * 20_000)
    pq.write_table(pa.table({"image": image}), tmp_path / "a.parquet", row_group_size=20_000)
    size = (tmp_path / "a.parquet").stat().st_size
    assert size < 20_000
    with pytest.raises(SourceError, match=f"20000 rows in {size} bytes"):
        tables(tmp_path).items()


def test_a_small_file_does_not_unfold_to_many_large_values(tmp_path) -> None:
    value = DATA[0] + bytes(4_000_000)
    columns = {"image": pa.array([value] * 60), "n": list(range(60))}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", compression="zstd")
    del columns
    source = tables(tmp_path)
    before, most = pa.total_allocated_bytes(), 0
    for row in source.reader.read_items(source.items(40), source.config):
        assert isinstance(row, ImageRow)
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 10 * len(value)


def test_images_of_paths_are_below_the_table_or_the_setting(tmp_path) -> None:
    put(tmp_path, "set/pictures/a.png", DATA[0])
    columns = {"image": [struct(None, "pictures/a.png")]}
    path = write_table(tmp_path / "set/a.parquet", columns, types={"image": IMAGE})
    pictures = str(tmp_path / "set/pictures")
    assert tables(path).row().key == KEYS[0]
    assert tables(path, images=pictures).reasons() == {"a.parquet#0": "missing file"}
    names = write_table(tmp_path / "names.parquet", {"file": ["a.png"]})
    assert tables(names, image_column="file", images=pictures).row().key == KEYS[0]


def test_a_medium_that_fails_while_it_is_read_is_owed_again(tmp_path, monkeypatch) -> None:
    write_images(tmp_path / "a.parquet", DATA[:2])
    source = tables(tmp_path)
    items = source.items()

    class Broken:
        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return getattr(self.file, name)

        def read(self, size=-1):
            raise OSError(5, "Input/output error")

    opened = FilePattern.open_for_reading
    monkeypatch.setattr(
        FilePattern, "open_for_reading", lambda self, name: Broken(opened(self, name))
    )
    rows = source.read(items)
    assert [(type(row), row.reason) for row in rows] == [(Failed, "I/O error")] * 2
    with pytest.raises(SourceError, match=r"a\.parquet: .*OSError"):
        source.items()


def test_a_remote_store_is_read_like_a_disk(tmp_path) -> None:
    store = fsspec.filesystem("memory")
    data = write_images(tmp_path / "x.parquet", DATA[:2]).read_bytes()
    train, test = (f"data/{split}-00000-of-00001.parquet" for split in ("train", "test"))
    try:
        for name in (train, test):
            store.pipe_file(f"/bucket/set/{name}", data)
        store.pipe_file("/bucket/set/README.md", b"card")
        source = tables("memory://bucket/set", splits=("train",))
        items = source.items()
        assert source.keys() == {f"{train}#0": [KEYS[0]], f"{train}#1": [KEYS[1]]}
        assert len(tables("memory://bucket/set/data/*.parquet").items()) == 4
        store.pipe_file(f"/bucket/set/{train}", data[:-1] + b"x")
        assert {row.reason for row in source.read(items)} == {"changed since it was listed"}
        with pytest.raises(SourceError, match="memory://nowhere"):
            tables("memory://nowhere").items()
    finally:
        store.rm("/bucket", recursive=True)


@pytest.mark.parametrize(
    "place", ["x.parquet", "x/*.parquet", "hf://datasets/a/b", "s3://b/x.parquet"]
)
def test_tables_are_recognised_by_their_path(place, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert recognise_source(place).partition(":")[0] == "parquet"


def test_a_folder_of_tables_is_recognised_unless_it_has_images(tmp_path) -> None:
    write_images(tmp_path / "data/train-00000-of-00001.parquet")
    assert recognise_source(str(tmp_path)) == f"parquet:{tmp_path}"
    put(tmp_path, "a.png", DATA[0])
    assert recognise_source(str(tmp_path)) == f"folder:{tmp_path}"
    with pytest.raises(SourceError, match=r"x-\*\.parquet"):
        tables(tmp_path / "x-*.parquet").items()


MORE = pa.struct([("bytes", pa.binary()), ("path", pa.string()), ("width", pa.int32())])


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (MORE, lambda data: {"bytes": data, "path": None, "width": 32}),
        (pa.list_(MORE), lambda data: [{"bytes": data, "path": None, "width": 32}]),
        (pa.list_(pa.uint8()), list),
        (pa.string(), lambda data: base64.b64encode(data).decode()),
        (pa.string(), lambda data: f"data:image/png;base64,{base64.b64encode(data).decode()}"),
        (
            pa.struct([("bytes", pa.string()), ("name", pa.string())]),
            lambda data: {"bytes": base64.b64encode(data).decode(), "name": "a"},
        ),
    ],
    ids=["more fields", "list of structs", "numbers", "base64", "data address", "base64 inside"],
)
@pytest.mark.parametrize("named", ["", "image"])
def test_images_in_other_forms(tmp_path, kind, make, named) -> None:
    data = picture(3)
    write_table(tmp_path / "a.parquet", {"image": [make(data)]}, types={"image": kind})
    assert Source("parquet", tmp_path, image_column=named).row().key == make_key(data)
