"""Fields, pairs, splits and groups of manifests; lines that make no sense; paths that may not be
read."""

import json
import os

import pytest

from pairwright.schemas.config import ImagesConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, ImageRow, PairRow, make_key
from pairwright.tasks.sources.annotations import MAX_LINE_BYTES
from pairwright.tasks.sources.readers import READERS, recognise_source
from tests.fixtures.pictures import photograph, picture
from tests.fixtures.tables import config_of, read_all

A, B, C = (picture(number) for number in range(3))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "d" / "deep").mkdir(parents=True)
    for name, data in {"a.png": A, "b.png": B, "deep/c.png": C}.items():
        (tmp_path / "d" / name).write_bytes(data)
    (tmp_path / "secret.png").write_bytes(A)
    return tmp_path / "d"


def manifest(folder, *lines):
    """Write lines: objects as JSON, bytes as they are."""
    path = folder / "m.jsonl"
    path.write_bytes(
        b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    )
    return path


def listed(path, kind="jsonl", limit=None, **options):
    return list(READERS[kind].list_items(config_of(kind, path, **options), limit))


def read(path, kind="jsonl", **options):
    return read_all(config_of(kind, path, **options))[1]


def reasons(path, kind="jsonl", **options):
    rows = read(path, kind, **options)
    return {
        name: got[0].reason
        for name, got in rows.items()
        if isinstance(got[0], Dropped) and len(got) == 1
    }


def test_a_line_becomes_an_image_with_all_that_it_says(folder):
    line = {
        "image": "a.png",
        "caption": " A dog. ",
        "captions": ["A dog.", "Rex"],
        "license": "CC-BY-4.0",
        "group": 7,
    }
    path = manifest(folder, line)
    (row,) = read(path)["a.png"]
    about = {
        "source_key": listed(path)[0].key,
        "source": "jsonl",
        "licence": "CC-BY-4.0",
        "group": "7",
    }
    assert row == photograph(A, name="a.png", captions=("A dog.", "Rex"), **about)
    (row,) = read(path, limits=ImagesConfig(licence="CC0-1.0"), caption_column="license")["a.png"]
    assert (row.licence, row.captions) == ("CC0-1.0", ("CC-BY-4.0",))


@pytest.mark.parametrize("field", ["image_path", "file_name", "path"])
def test_every_name_of_the_field_and_lists_of_one(folder, field):
    path = manifest(folder, {field: "deep/c.png"}, {field: ["a.png"], "id": "x"})
    assert {name: rows[0].key for name, rows in read(path).items()} == {
        "deep/c.png": make_key(C),
        "x": make_key(A),
    }


@pytest.mark.parametrize(
    "line", [{"image1": "b.png", "image2": "a.png"}, {"images": ["b.png", "a.png"]}]
)
def test_two_images_are_a_pair_in_their_own_order(folder, line):
    texts = {"difference": "The dog left.", "captions": ["A cat came.", "The dog left."]}
    texts |= {"caption1": "a dog", "caption2": ["a cat", "the cat"]}
    path = manifest(folder, line | texts | {"licence": "CC0-1.0", "group": "film 3"})
    first, second, pair = read(path, "jsonl-pairs")["b.png a.png"]
    assert (first.key, first.captions, first.licence, first.group) == (
        make_key(B),
        ("a dog",),
        "CC0-1.0",
        "film 3",
    )
    assert (second.key, second.captions) == (make_key(A), ("a cat", "the cat"))
    differences = ("The dog left.", "A cat came.")
    key = make_key("pair", make_key(B), make_key(A), "given", "", *differences)
    named = {"key": key, "source_key": listed(path, "jsonl-pairs")[0].key, "subject": key}
    shown = {"first": make_key(B), "second": make_key(A), "human_differences": differences}
    assert pair == PairRow(**named, **shown, origin="given", anchor="", cluster=-1)


def test_a_line_of_another_number_of_images(folder):
    path = manifest(
        folder,
        {"images": ["a.png", "b.png"]},
        {"image": "a.png"},
        {"images": ["a.png"] * 3, "id": "3"},
    )
    assert reasons(path, "jsonl-pairs") == {
        "m.jsonl line 2": "not a pair",
        "m.jsonl line 3": "more than two images",
    }
    rows = read(path)
    assert [row.key for row in rows["a.png b.png"] if isinstance(row, ImageRow)] == [
        make_key(A),
        make_key(B),
    ]
    assert [row.key for row in rows["a.png"]] == [make_key(A)]


def test_lines_that_make_no_sense_are_dropped_with_their_number(folder, tmp_path):
    (folder / "out.png").symlink_to(tmp_path / "secret.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    os.mkfifo(folder / "pipe.png")
    (folder / "large.bmp").write_bytes(picture(kind="BMP", size=(100, 100)))
    (folder / "words.png").write_text("no image")
    lines = [
        (b"{", "damaged line"),
        (b"[1]", "no record"),
        (b'{"image": "caf\xe9.png"}', "damaged line"),
        (b"[" * 100_000, "damaged line"),
        (b'{"x": ' + b"9" * 5000 + b"}", "damaged line"),
        ({"caption": "no image"}, "names no image"),
        ({"image": "../secret.png"}, "path leaves the folder"),
        ({"image": str(tmp_path / "secret.png")}, "path leaves the folder"),
        ({"image": "https://x.example/a.png"}, "an address, not a path: download the file first"),
        ({"image": "C:\\a.png"}, "path leaves the folder"),
        ({"image": 7}, "no path of an image"),
        ({"image": "half \ud83d.png"}, "path leaves the folder"),
        ({"image": "b.png", "caption": "half \ud83d"}, "text is not Unicode"),
        ({"image": "b.png", "caption": {"en": "a"}}, "captions are not texts"),
        ({"image": "b.png", "group": ["a"]}, "damaged field"),
        ({"image": "b.png", "group": "x" * 2000}, "damaged field"),
        (b'{"image": "b.png", "caption": "' + b"x" * MAX_LINE_BYTES + b'"}', "line too long"),
    ]
    files = {
        "out.png": "path leaves the folder",
        "loop.png": "symlink loop",
        "pipe.png": "not a regular file",
    }
    files |= {
        "large.bmp": "file too large",
        "words.png": "not an image",
        "none.png": "missing file",
    }
    files |= {"deep": "not a regular file", "y" * 300: "unreadable file", "a.png/x": "missing file"}
    images = [{"image": name} for name in (*files, "deep/c.png")]
    path = manifest(folder, {"image": "a.png"}, b"", *(line for line, _ in lines), *images)
    numbered = {f"m.jsonl line {number}": reason for number, (_, reason) in enumerate(lines, 3)}
    assert reasons(path, limits=ImagesConfig(max_bytes=20_000)) == numbered | files
    rows = read(path)
    assert [name for name, got in rows.items() if isinstance(got[0], ImageRow)] == [
        "a.png",
        "large.bmp",
        "deep/c.png",
    ]


def test_change_types_travel_and_scenes_are_groups(folder):
    both = {"image1": "a.png", "image2": "b.png"}
    path = manifest(
        folder,
        {
            **both,
            "change_types": ["addition", "viewpoint"],
            "source": "real",
            "scene": "office-3",
            "id": "typed",
        },
        {**both, "change_types": "pose", "scene": 7, "id": "one"},
        {**both, "source": "real", "id": "none"},
    )
    rows = read(path, "omnidiff")
    assert {name: (first.group, pair.change_types) for name, (first, _, pair) in rows.items()} == {
        "typed": ("real/office-3", ("addition", "viewpoint")),
        "one": ("7", ("pose",)),
        "none": ("", ()),
    }


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ({"no_change": True}, True),
        ({"no_change": 1}, False),
        ({"change_types": ["no_change"]}, True),
        ({"change_types": ["no_change", "pose"]}, False),
        ({}, False),
    ],
)
def test_only_where_nothing_changed_may_both_be_one_file(folder, line, kept):
    path = manifest(folder, {"image1": "a.png", "image2": "a.png", "id": "x", **line})
    assert isinstance(read(path, "jsonl-pairs")["x"][-1], PairRow if kept else Dropped)


def test_files_of_a_folder_are_splits_and_lines_name_theirs(folder):
    for name in ("train.jsonl", "test.jsonl", ".hidden.jsonl"):
        (folder / name).write_text('{"image": "%s.png"}\n' % ("a" if name[0] == "t" else "x"))
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "train.jsonl").write_text('{"image": "b.png"}\n{"image": "a.png", "split": "val"}\n')
    assert [item.name for item in listed(folder)] == ["a.png", "b.png", "a.png"]
    assert [item.name for item in listed(folder, splits=("train",))] == ["b.png"]
    with pytest.raises(SourceError, match="test, train, val"):
        listed(folder, splits=("dev",))

    path = manifest(
        folder, {"image": "a.png", "split": "train"}, {"image": "b.png", "split": "val"}, b"{"
    )
    assert [item.name for item in listed(path, splits=("val",))] == ["b.png", "m.jsonl line 3"]
    with pytest.raises(SourceError, match=r"reading\.splits .*'test'.*train, val"):
        listed(path, splits=("train", "test"))


def test_keys_follow_line_and_image_but_neither_order_nor_place(folder, tmp_path):
    lines = [{"image": name} for name in ("a.png", "b.png", "deep/c.png")]
    before = {item.name: item.key for item in listed(manifest(folder, *lines))}
    assert list(before) == ["a.png", "b.png", "deep/c.png"]
    assert [item.name for item in listed(folder / "m.jsonl", limit=2)] == ["a.png", "b.png"]
    manifest(folder, {"image": "new.png"}, lines[2], {**lines[1], "caption": "new"}, lines[0])
    os.utime(folder / "a.png", ns=(1, 1))
    folder.rename(tmp_path / "moved")
    after = {item.name: item.key for item in listed(tmp_path / "moved" / "m.jsonl")}
    assert [name for name in before if before[name] == after[name]] == ["deep/c.png"]


@pytest.mark.parametrize("text", [b"\n\n", b"\x89PNG\r\n\x1a\n" * 50, b'[{"image": "a.png"}]'])
def test_a_file_that_is_no_manifest_is_a_source_error(folder, text):
    (folder / "m.jsonl").write_bytes(text)
    with pytest.raises(SourceError, match=r"m\.jsonl: .*image_path"):
        listed(folder / "m.jsonl")


def test_the_first_line_that_names_images_tells_the_kind(folder):
    path = manifest(
        folder, b"{", {"note": "a line without images"}, {"image1": "a.png", "image2": "b.png"}
    )
    assert recognise_source(str(path)) == f"jsonl-pairs:{path}"
    manifest(folder, b"{", {"image": "a.png"}, {"image1": "a.png", "image2": "b.png"})
    assert recognise_source(str(path)) == f"jsonl:{path}"
    assert recognise_source("/nowhere/m.jsonl") == "jsonl:/nowhere/m.jsonl"
