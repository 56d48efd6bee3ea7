"""What holds for every kind of source: order, keys, limits; bad images, hostile paths, changes."""

import errno
import os
from pathlib import Path

import pytest

from pairwright.flows.pipeline.stages import TABLES
from pairwright.schemas.config import ImagesConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, Failed, ImageRow, PairRow
from pairwright.tasks.sources.find_files import FilePattern
from pairwright.tasks.sources.read_llava import read_llava
from tests.fixtures.layouts import cut, put, put_lines, write_omnidiff
from tests.fixtures.pictures import bomb, picture
from tests.fixtures.sources import ANNOTATED, SAMPLES, TALK, Source, write_folder
from tests.fixtures.tables import IMAGE, build, struct, write_table


def samples(*kinds, of=SAMPLES):
    chosen = [sample for sample in of if sample.kind in kinds or not kinds]
    return pytest.mark.parametrize("sample", chosen, ids=lambda sample: sample.kind)


every_kind = samples()
annotated = samples(of=ANNOTATED)
listed = samples(of=ANNOTATED[:-1])
"""All of those but CaD-Inst, whose lists are tables too."""


@every_kind
def test_order_and_keys_are_the_same_each_time_and_elsewhere(sample, tmp_path) -> None:
    sample.write(tmp_path / "one")
    items = Source(sample.kind, tmp_path / "one").items()
    assert tuple(item.name for item in items) == sample.names
    assert len({item.key for item in items}) == len(items)
    assert all(item.locator.isascii() for item in items)
    (tmp_path / "one").rename(tmp_path / "two")
    moved = Source(sample.kind, tmp_path / "two")
    assert moved.items() == items
    assert [moved.items(limit) for limit in (0, 1, 3)] == [items[:0], items[:1], items[:3]]


@every_kind
def test_every_item_gives_its_images_and_what_else_it_brings(sample, tmp_path) -> None:
    sample.write(tmp_path)
    source = Source(sample.kind, tmp_path)
    rows = source.read()
    images = [row for row in rows if isinstance(row, ImageRow)]
    assert len({row.key for row in images}) == sample.images
    assert {row.source for row in images} == {sample.kind}
    brought = [row for row in rows if not isinstance(row, ImageRow)]
    assert {type(row) for row in brought} == set(source.reader.brings)
    assert len(brought) == len(source.reader.brings) * len(sample.names)
    pairs = [row for row in brought if isinstance(row, PairRow)]
    shown = {key for pair in pairs for key in (pair.first, pair.second)}
    assert not pairs or shown == {row.key for row in images}


def dropped(rows):
    return [(row.source_key, row.reason) for row in rows if isinstance(row, Dropped)]


@every_kind
def test_a_file_that_changes_or_vanishes_after_listing(sample, tmp_path) -> None:
    sample.write(tmp_path)
    source = Source(sample.kind, tmp_path)
    items = source.items()
    key = items[sample.position].key
    path = tmp_path / sample.file
    data = path.read_bytes()
    time_ns = path.stat().st_mtime_ns
    path.write_bytes(data + b"\0")
    os.utime(path, ns=(time_ns, time_ns))
    assert dropped(source.read(items)) == [(key, "changed since it was listed")]
    path.write_bytes(data)
    os.utime(path, ns=(5, 5))
    assert dropped(source.read(items)) == [(key, "changed since it was listed")]
    again = [item.name for item in source.items() if item not in items]
    assert again == [sample.names[sample.position]]
    path.unlink()
    assert dropped(source.read(items)) == [(key, "missing file")]


@annotated
def test_an_image_that_is_missing_when_listed_is_another_item(sample, tmp_path) -> None:
    sample.write(tmp_path)
    source = Source(sample.kind, tmp_path)
    before = source.items()[sample.position]
    (tmp_path / sample.file).unlink()
    gone = source.items()[sample.position]
    assert gone.key != before.key
    assert source.reasons() == {gone.name: "missing file"}


BAD_IMAGES = [
    pytest.param(b"", "empty file", id="nothing"),
    pytest.param(b"hello", "not an image", id="text"),
    pytest.param(picture()[:-200], "truncated image", id="a truncated PNG"),
    pytest.param(picture(kind="JPEG")[:400], "truncated image", id="a truncated JPEG"),
    pytest.param(picture(size=(7, 100)), "too few pixels", id="a tiny image"),
    pytest.param(picture(kind="BMP", size=(400, 400)), "file too large", id="a large file"),
    pytest.param(bomb(), "too many pixels", id="a bomb"),
]


@every_kind
@pytest.mark.parametrize(("data", "reason"), BAD_IMAGES)
def test_a_bad_image_drops_its_item_alone(sample, data, reason, tmp_path) -> None:
    sample.write(tmp_path)
    sample.spoil(tmp_path, data)
    source = Source(sample.kind, tmp_path, limits=ImagesConfig(min_side=8, max_bytes=400_000))
    name = sample.names[sample.position]
    assert source.reasons() == {name: reason}
    assert name in next(row.detail for row in source.read() if isinstance(row, Dropped))


ADDRESS = "an address, not a path: download the file first"


def name_in_manifest(root, path):
    put_lines(root, "train.jsonl", {"image": "a.png"}, {"image": path})
    return Source("jsonl", root).read()


def name_in_pairs(root, path):
    good = {"image1": "a.png", "image2": "sub/b.jpg"}
    put_lines(root, "train.jsonl", good, {"image1": "a.png", "image2": path})
    return Source("omnidiff", root).read()


def name_in_cad_inst(root, path):
    names = (["a.png", "sub/b.jpg"], ["a.png", path])
    put(root, "a.json", [{"image": both, "conversations": TALK} for both in names])
    return Source("cad-inst", root).read()


def name_in_requests(root, path):
    put(root, "train.json", [{"img0": "a.png", "img1": path, "sents": ["a"], "uid": "1"}])
    return Source("image-editing-request", root).read()


def name_in_table(root, path):
    columns = {"image": [struct(cut(0)), struct(None, path)]}
    write_table(root / "a.parquet", columns, types={"image": IMAGE})
    return Source("parquet", root).read()


def name_in_llava(root, path):
    put(root, "mix.json", [{"image": path, "conversations": TALK}])
    return read_llava(root / "mix.json", seed=0)


HOSTILE_PATHS = {
    "the folder above": ("../secret.png", "path leaves the folder"),
    "a link out": ("out.png", "path leaves the folder"),
    "an address": ("http://x.example/a.png", ADDRESS),
    "a link to itself": ("loop.png", "symlink loop"),
    "a pipe": ("pipe.png", "not a regular file"),
    "a missing file": ("none.png", "missing file"),
    "a file in a file": ("a.png/x", "missing file"),
    "a name too long for the disk": ("y" * 300, "unreadable file"),
    "text": ("words.png", "not an image"),
}


@pytest.mark.parametrize(
    "read",
    [
        name_in_manifest,
        name_in_pairs,
        name_in_cad_inst,
        name_in_requests,
        name_in_table,
        name_in_llava,
    ],
)
@pytest.mark.parametrize(("path", "reason"), HOSTILE_PATHS.values(), ids=HOSTILE_PATHS)
def test_a_hostile_path_drops_its_item(read, path, reason, tmp_path) -> None:
    root = tmp_path / "in/deeper"
    write_folder(root)
    put(tmp_path, "secret.png", picture())
    put(root, "words.png", b"no image")
    (root / "out.png").symlink_to(tmp_path / "secret.png")
    (root / "loop.png").symlink_to(root / "loop.png")
    os.mkfifo(root / "pipe.png")
    refused = [row for row in read(root, path) if isinstance(row, Dropped)]
    assert [row.reason for row in refused] == [reason]


@annotated
def test_images_may_be_elsewhere(sample, tmp_path) -> None:
    sample.write(tmp_path / "in")
    pictures = tmp_path / "pictures"
    for path in (tmp_path / "in").rglob("*.*[fg]"):
        moved = pictures / path.relative_to(tmp_path / "in")
        moved.parent.mkdir(parents=True, exist_ok=True)
        path.rename(moved)
    keys = Source(sample.kind, tmp_path / "in", images=str(pictures)).keys()
    assert len({key for found in keys.values() for key in found}) == sample.images


@listed
def test_missing_images_and_stores_are_refused(sample, tmp_path) -> None:
    sample.write(tmp_path)
    with pytest.raises(SourceError, match=r"s3://bucket/x: .* local disk"):
        Source(sample.kind, "s3://bucket/x").items()
    with pytest.raises(SourceError, match=r"nowhere: .*reading\.images"):
        Source(sample.kind, tmp_path, images=str(tmp_path / "nowhere")).items()


@every_kind
@pytest.mark.parametrize("place", ["missing", "empty"])
def test_nothing_to_list_is_a_source_error(sample, place, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=f"{place}: "):
        Source(sample.kind, tmp_path / place).items()


@pytest.mark.parametrize(
    "sample", [sample for sample in SAMPLES if sample.kind != "folder"], ids=lambda it: it.kind
)
def test_splits_that_are_not_there_are_refused(sample, tmp_path) -> None:
    sample.write(tmp_path)
    with_splits = sample.kind == "parquet" or sample in ANNOTATED[:-1]
    there = r".*'dev'.*(train|coco_train)" if with_splits else ""
    with pytest.raises(SourceError, match=rf"reading\.splits{there}"):
        Source(sample.kind, tmp_path, splits=("dev",)).items()


def refuse(number):
    def fail(*args, **options):
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("number", "kind", "reason"),
    [(errno.EACCES, Dropped, "unreadable file"), (errno.EIO, Failed, "I/O error")],
)
@samples("folder", "jsonl", "omnidiff", "cad-inst")
def test_what_the_disk_refuses_to_open(sample, number, kind, reason, tmp_path, monkeypatch) -> None:
    sample.write(tmp_path)
    source = Source(sample.kind, tmp_path)
    items = source.items()
    monkeypatch.setattr(Path, "open", refuse(number))
    rows = source.read(items)
    assert {(type(row), row.reason) for row in rows} == {(kind, reason)}
    assert [row.source_key for row in rows] == [item.key for item in items]


@samples("webdataset", "parquet", "rlaif-v")
def test_what_a_store_refuses_to_read_is_owed(sample, tmp_path, monkeypatch) -> None:
    sample.write(tmp_path)
    source = Source(sample.kind, tmp_path)
    items = source.items()
    monkeypatch.setattr(FilePattern, "open_for_reading", refuse(errno.EIO))
    rows = source.read(items)
    assert {(type(row), row.reason) for row in rows} == {(Failed, "I/O error")}
    assert [row.source_key for row in rows] == [item.key for item in items]
    with pytest.raises(SourceError, match="Input/output error"):
        source.items()


def test_a_build_of_pairs_counts_a_bad_image_and_owes_nothing(tmp_path) -> None:
    (sample,) = (sample for sample in SAMPLES if sample.kind == "clevr-change")
    sample.write(tmp_path / "in")
    sample.spoil(tmp_path / "in", b"no image")
    counts, _ = build(f"clevr-change:{tmp_path / 'in'}", tmp_path / "out")
    assert list(counts) == list(TABLES[: TABLES.index("pairs") + 1])
    images = counts["images"]
    # The bad image's other is in another pair too. Whether a distractor that equals its image
    # counts as a duplicate follows from the order of the keys, thus from the folder's name.
    assert (images.of, images.rows, images.reasons["not an image"]) == (8, 10, 1)
    assert images.ok + images.reasons.get("duplicate of another row", 0) == 7
    given, pairs = counts["given_pairs"], counts["pairs"]
    assert (given.of, given.rows, given.reasons) == (8, 7, {"not an image": 1})
    assert (pairs.of, pairs.rows, pairs.reasons) == (7, 7, {})
    assert images.pending == images.failed == 0
    assert build(f"clevr-change:{tmp_path / 'in'}", tmp_path / "out") == (counts, 0)


def test_the_same_record_twice_is_read_once(tmp_path) -> None:
    write_omnidiff(tmp_path / "in")
    line = (tmp_path / "in/train.jsonl").read_bytes().split(b"\n")[0]
    put_lines(tmp_path / "in", "train.jsonl", line, line, line)
    counts, _ = build(f"omnidiff:{tmp_path / 'in/train.jsonl'}", tmp_path / "out")
    found = {name: (count.of, count.rows) for name, count in counts.items() if count.of}
    assert found == {"images": (1, 2), "given_pairs": (1, 1), "pairs": (1, 1)}
