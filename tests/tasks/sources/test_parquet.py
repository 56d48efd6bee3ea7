"""Columns found by type, splits by name, rows listed from footers; damaged, hostile and remote
tables; a build."""

import os
import re
from contextlib import suppress

import datasets
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairwright.schemas.config import ImagesConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, Failed, ImageRow, make_key
from pairwright.tasks.sources.find_files import FilePattern
from pairwright.tasks.sources.parquet_tables import split_of
from pairwright.tasks.sources.readers import READERS, recognise_source
from tests.fixtures.pictures import photograph, picture
from tests.fixtures.tables import IMAGE, read_all, struct, write_table
from tests.fixtures.tables import config_of as source_config

DATA = [picture(seed) for seed in range(6)]


def config_of(path, **reading):
    return source_config("parquet", path, limits=ImagesConfig(licence="CC0-1.0"), **reading)


def listed(path, **reading):
    return [item.name for item in READERS["parquet"].list_items(config_of(path, **reading), None)]


def keys_of(found):
    return {
        name: [row.key for row in rows if isinstance(row, ImageRow)] for name, rows in found.items()
    }


def reasons_of(found):
    return {
        name: rows[0].reason for name, rows in found.items() if not isinstance(rows[0], ImageRow)
    }


def write_images(path, data=DATA, **options):
    columns = {"id": list(range(len(data))), "image": [struct(one) for one in data]}
    return write_table(path, columns, types={"image": IMAGE}, **options)


def test_a_row_becomes_an_image_with_its_caption(tmp_path):
    columns = {"image": [struct(DATA[0], "dog.png")], "caption": [" a dog "], "label": [3]}
    path = write_table(tmp_path / "one.parquet", columns, types={"image": IMAGE})
    (item,), found = read_all(config_of(path))
    assert item.name == "one.parquet#0"
    (row,) = found["one.parquet#0"]
    about = {
        "source_key": item.key,
        "source": "parquet",
        "licence": "CC0-1.0",
        "captions": ("a dog",),
    }
    assert row == photograph(DATA[0], name="one.parquet#0 dog.png", **about)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("image", IMAGE),
        ("image", pa.struct([("path", pa.string()), ("bytes", pa.large_binary())])),
        ("whatever", pa.large_binary()),
    ],
)
def test_images_are_found_by_their_type(tmp_path, column, kind):
    value = (
        DATA[0] if pa.types.is_large_binary(kind) or pa.types.is_binary(kind) else struct(DATA[0])
    )
    write_table(tmp_path / "a.parquet", {"n": [1], column: [value]}, types={column: kind})
    _, found = read_all(config_of(tmp_path))
    assert keys_of(found) == {"a.parquet#0": [make_key(DATA[0])]}


def test_image_column_is_the_usual_or_the_configured_name(tmp_path):
    path = write_table(tmp_path / "a.parquet", {"mask": [DATA[0]], "image": [DATA[1]]})
    assert keys_of(read_all(config_of(path))[1]) == {"a.parquet#0": [make_key(DATA[1])]}
    assert keys_of(read_all(config_of(path, image_column="mask"))[1]) == {
        "a.parquet#0": [make_key(DATA[0])]
    }
    other = write_table(tmp_path / "b.parquet", {"left": [DATA[0]], "right": [DATA[1]]})
    with pytest.raises(
        SourceError, match=r"b\.parquet: .* reading\.image_column; .*left \(binary\)"
    ):
        listed(other)
    with pytest.raises(SourceError, match=r"reading\.image_column: 'up'"):
        listed(other, image_column="up")


def test_captions_are_found_by_name_or_configured(tmp_path):
    columns = {
        "image": [DATA[0]],
        "text": ["a text"],
        "captions": [["one", "", " two "]],
        "alt": ["other"],
    }
    path = write_table(tmp_path / "a.parquet", columns)
    (row,) = read_all(config_of(path))[1]["a.parquet#0"]
    assert row.captions == ("one", "two")
    (row,) = read_all(config_of(path, caption_column="alt"))[1]["a.parquet#0"]
    assert row.captions == ("other",)
    with pytest.raises(SourceError, match=r"reading\.caption_column: 'image'"):
        listed(path, caption_column="image")


def test_several_images_of_a_row_are_one_group_and_all_or_none_are_taken(tmp_path):
    images = [[struct(DATA[0]), None, struct(DATA[1])], [struct(DATA[2]), struct(b"no")], [], None]
    columns = {"images": images, "caption": ["a"] * 4}
    path = write_table(tmp_path / "a.parquet", columns, types={"images": pa.list_(IMAGE)})
    _, found = read_all(config_of(path))
    first, second = found["a.parquet#0"]
    assert (first.key, second.key) == (make_key(DATA[0]), make_key(DATA[1]))
    assert (first.group, first.captions) == (second.group, second.captions) == ("a.parquet#0", ())
    empty = dict.fromkeys(["a.parquet#2", "a.parquet#3"], "no image in the row")
    assert reasons_of(found) == {"a.parquet#1": "not an image"} | empty
    assert all(len(rows) == 1 for name, rows in found.items() if name != "a.parquet#0")


def test_text_that_is_not_utf_8_drops_its_row_only(tmp_path):
    bad = pa.StringArray.from_buffers(
        2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")
    )
    pq.write_table(pa.table({"image": pa.array(DATA[:2]), "text": bad}), tmp_path / "a.parquet")
    _, found = read_all(config_of(tmp_path))
    assert reasons_of(found) == {"a.parquet#1": "damaged row"}


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("data/train-00000-of-00002.parquet", "train"),
        ("mimic_cgd/train-00000-of-00026-5a3b9c0f.parquet", "train"),
        ("data/train_sft-00000-of-00001.parquet", "train_sft"),
        ("my-set-test-00000-of-00001.parquet", "test"),
        ("default/validation/0000.parquet", "validation"),
        ("test/data-00000-of-00001.parquet", "test"),
        ("latest.parquet", "train"),
    ],
)
def test_splits_are_named_by_files_and_folders(path, split):
    assert split_of(path) == split


def test_the_layout_of_the_hub_and_its_splits(tmp_path):
    for name, data in (
        ("train-00001-of-00002", 2),
        ("train-00000-of-00002", 1),
        ("test-00000-of-00001", 3),
    ):
        write_images(tmp_path / f"data/{name}.parquet", [DATA[data]])
    (tmp_path / "README.md").write_text("card")
    write_images(tmp_path / ".cache/x.parquet")
    train = [f"train-0000{number}-of-00002.parquet#0" for number in (0, 1)]
    assert listed(tmp_path) == [
        f"data/{name}" for name in ("test-00000-of-00001.parquet#0", *train)
    ]
    assert listed(tmp_path, splits=("test",)) == ["data/test-00000-of-00001.parquet#0"]
    assert listed(tmp_path / "data" / "train-*.parquet") == train
    with pytest.raises(SourceError, match=r"reading\.splits .*'validation'; .*test, train"):
        listed(tmp_path, splits=("validation", "train"))


def test_reads_datasets_parquet_and_refuses_save_to_disk(tmp_path):
    features = datasets.Features({"image": datasets.Image(), "caption": datasets.Value("string")})
    rows = {"image": [struct(one) for one in DATA[:3]], "caption": list("abc")}
    made = datasets.Dataset.from_dict(rows, features=features)
    made.to_parquet(tmp_path / "x.parquet")
    _, found = read_all(config_of(tmp_path / "x.parquet"))
    read = [(row.key, row.captions) for (row,) in found.values()]
    assert read == [
        (make_key(data), (caption,)) for data, caption in zip(DATA[:3], "abc", strict=True)
    ]
    made.save_to_disk(tmp_path / "saved")
    with pytest.raises(SourceError, match="to_parquet"):
        listed(tmp_path / "saved")


def test_damaged_files_are_items_that_are_dropped(tmp_path):
    good = write_images(tmp_path / "b.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(good[:-9])
    (tmp_path / "c.parquet").write_bytes(b"")
    write_table(tmp_path / "d.parquet", {"n": [1]})
    _, found = read_all(config_of(tmp_path))
    assert list(found) == [
        "a.parquet",
        *(f"b.parquet#{n}" for n in range(6)),
        "c.parquet",
        "d.parquet",
    ]
    damaged = dict.fromkeys(["a.parquet", "c.parquet"], "damaged table")
    assert reasons_of(found) == damaged | {"d.parquet": "wrong columns"}
    (tmp_path / "b.parquet").unlink()
    with pytest.raises(SourceError, match=r"a\.parquet: .*Parquet magic bytes"):
        listed(tmp_path)


def test_a_damaged_row_group_leaves_the_others(tmp_path):
    path = write_images(
        tmp_path / "a.parquet", rows_per_group=2, compression="zstd", use_dictionary=False
    )
    column = pq.ParquetFile(path).metadata.row_group(1).column(1)
    data = bytearray(path.read_bytes())
    start = column.data_page_offset
    data[start : start + column.total_compressed_size] = os.urandom(column.total_compressed_size)
    path.write_bytes(data)
    _, found = read_all(config_of(path))
    assert reasons_of(found) == {"a.parquet#2": "damaged table", "a.parquet#3": "damaged table"}
    assert keys_of(found)["a.parquet#5"] == [make_key(DATA[5])]


def test_every_flipped_byte_of_a_table_ends_in_rows_or_reasons(tmp_path):
    """Nor does it end the process."""
    path = write_images(tmp_path / "a.parquet", DATA[:1])
    good = path.read_bytes()
    for place in range(0, len(good), 29):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        with suppress(SourceError):
            items, found = read_all(config_of(tmp_path))
            assert len(items) == 1
            assert all(len(rows) == 1 for rows in found.values())


def test_more_rows_than_bytes_are_not_believed(tmp_path):
    image = pa.array([DATA[0]] * 20_000)
    pq.write_table(pa.table({"image": image}), tmp_path / "a.parquet", row_group_size=20_000)
    size = (tmp_path / "a.parquet").stat().st_size
    assert size < 20_000
    with pytest.raises(SourceError, match=f"20000 rows in {size} bytes"):
        listed(tmp_path)


def test_a_small_file_does_not_unfold_to_many_large_values(tmp_path):
    value = DATA[0] + bytes(4_000_000)
    image = pa.array([value] * 60)
    pq.write_table(
        pa.table({"image": image, "n": list(range(60))}), tmp_path / "a.parquet", compression="zstd"
    )
    del image
    before, most = pa.total_allocated_bytes(), 0
    config = config_of(tmp_path)
    reader = READERS["parquet"]
    for row in reader.read_items(list(reader.list_items(config, 40)), config):
        assert isinstance(row, ImageRow)
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 10 * len(value)


def test_paths_are_read_below_the_folder_only(tmp_path):
    root = tmp_path / "set"
    (root / "pictures").mkdir(parents=True)
    (root / "pictures" / "a.png").write_bytes(DATA[0])
    (tmp_path / "secret.png").write_bytes(DATA[1])
    (root / "out.png").symlink_to(tmp_path / "secret.png")
    columns = {
        "image": [
            struct(None, path)
            for path in ("pictures/a.png", "../secret.png", "out.png", "none.png")
        ]
    }
    write_table(root / "a.parquet", columns, types={"image": IMAGE})
    _, found = read_all(config_of(root))
    assert keys_of(found)["a.parquet#0"] == [make_key(DATA[0])]
    assert list(reasons_of(found).values()) == [*["path leaves the folder"] * 2, "missing file"]
    _, found = read_all(config_of(root / "a.parquet", images=str(root / "pictures")))
    assert reasons_of(found)["a.parquet#0"] == "missing file"
    names = write_table(tmp_path / "names.parquet", {"file": ["a.png"]})
    _, found = read_all(config_of(names, image_column="file", images=str(root / "pictures")))
    assert keys_of(found) == {"names.parquet#0": [make_key(DATA[0])]}


def test_files_that_change_or_vanish_after_listing(tmp_path):
    path = write_images(tmp_path / "a.parquet", DATA[:1])
    config = config_of(tmp_path)
    items = list(READERS["parquet"].list_items(config, None))
    write_images(path, DATA[:2])
    (row,) = READERS["parquet"].read_items(items, config)
    assert (row.reason, row.source_key) == ("changed since it was listed", items[0].key)
    path.unlink()
    (row,) = READERS["parquet"].read_items(items, config)
    assert isinstance(row, Dropped)
    assert row.reason == "missing file"


def test_a_medium_that_fails_is_owed_again(tmp_path, monkeypatch):
    write_images(tmp_path / "a.parquet", DATA[:2])
    config = config_of(tmp_path)
    items = list(READERS["parquet"].list_items(config, None))

    class Broken:
        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return getattr(self.file, name)

        def read(self, size=-1):
            raise OSError(5, "Input/output error")

    opened = FilePattern.open
    monkeypatch.setattr(FilePattern, "open", lambda self, name: Broken(opened(self, name)))
    rows = list(READERS["parquet"].read_items(items, config))
    assert [type(row) for row in rows] == [Failed, Failed]
    assert {row.reason for row in rows} == {"I/O error"}
    with pytest.raises(SourceError, match=r"a\.parquet: .*OSError"):
        list(READERS["parquet"].list_items(config, None))


@pytest.mark.parametrize("place", ["empty", "missing.parquet", "x-*.parquet"])
def test_nothing_to_list_is_a_source_error(tmp_path, place):
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=re.escape(place)):
        listed(tmp_path / place)


def test_a_remote_store_is_read_like_a_disk(tmp_path):
    store = fsspec.filesystem("memory")
    try:
        for name in ("data/train-00000-of-00001", "data/test-00000-of-00001"):
            data = write_images(tmp_path / "x.parquet", DATA[:2]).read_bytes()
            store.pipe_file(f"/bucket/set/{name}.parquet", data)
        store.pipe_file("/bucket/set/README.md", b"card")
        config = config_of("memory://bucket/set", splits=("train",))
        items, found = read_all(config)
        assert [item.name for item in items] == [
            f"data/train-00000-of-00001.parquet#{n}" for n in (0, 1)
        ]
        assert [key for keys in keys_of(found).values() for key in keys] == [
            make_key(one) for one in DATA[:2]
        ]
        assert len(listed("memory://bucket/set/data/*.parquet")) == 4
        store.pipe_file("/bucket/set/data/train-00000-of-00001.parquet", data[:-1] + b"x")
        (row, _) = READERS["parquet"].read_items(items, config)
        assert row.reason == "changed since it was listed"
        with pytest.raises(SourceError, match="memory://nowhere"):
            listed("memory://nowhere")
    finally:
        store.rm("/bucket", recursive=True)


def test_which_paths_are_tables(tmp_path):
    write_images(tmp_path / "hub" / "data" / "train-00000-of-00001.parquet")
    write_images(tmp_path / "mixed" / "metadata.parquet")
    (tmp_path / "mixed" / "a.png").write_bytes(DATA[0])
    tables = ("hub", "x.parquet", "x/*.parquet", "hf://datasets/a/b", "s3://b/x.parquet")
    for name, kind in {**dict.fromkeys(tables, "parquet"), "mixed": "folder"}.items():
        assert (
            recognise_source(name if "://" in name else str(tmp_path / name)).partition(":")[0]
            == kind
        ), name
