"""Listing order, odd names, links, and what is no regular file."""

import errno
import os
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwright.schemas.config import ImagesConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, make_key
from tests.fixtures.layouts import put
from tests.fixtures.pictures import photograph, picture
from tests.fixtures.sources import Source

PART = st.text("aB-.é", min_size=1, max_size=3)
STEMS = st.sets(st.lists(PART, min_size=1, max_size=3).map("/".join), max_size=12)


@settings(max_examples=30)
@given(STEMS)
def test_order_and_completeness_for_any_tree(tmp_path_factory, stems) -> None:
    root = tmp_path_factory.mktemp("tree")
    put(root, "last.png", b"")
    visible = [stem for stem in stems if not any(part[0] == "." for part in stem.split("/"))]
    names = {"last.png", *(f"{stem}.png" for stem in visible)}
    for name in names:
        put(root, name, b"")
    expected = sorted(names, key=str.encode)
    assert Source("folder", root).names() == expected
    assert Source("folder", root).names(limit=2) == expected[:2]


@pytest.mark.parametrize("name", ["notes.txt", ".hidden.png", ".hidden/a.png"])
def test_a_folder_without_images_names_their_endings(tmp_path, name) -> None:
    put(tmp_path, name, picture())
    with pytest.raises(SourceError, match=r"\.jpg \.jpeg \.png"):
        Source("folder", tmp_path).items()


def test_odd_names_are_shown_escaped_and_found_again(tmp_path) -> None:
    shown = {
        b"back\\slash.png": r"back\\slash.png",
        b"new\nline.png": r"new\nline.png",
        "smile 😀.png".encode(): "smile 😀.png",
        b"\xff\xfe.png": r"\xff\xfe.png",
    }
    for name in shown:
        put(tmp_path, os.fsdecode(name), picture())
    source = Source("folder", tmp_path)
    assert source.names() == list(shown.values())
    assert all(isinstance(row, ImageRow) for row in source.read())
    for item in source.items():
        item.locator.encode("utf-8")


def test_links_are_followed_once_and_never_loop(tmp_path) -> None:
    root = tmp_path / "root"
    put(root, "d/a.png", picture(1))
    put(tmp_path, "outside/b.png", picture(2))
    (root / "d" / "self").symlink_to(root)
    for name in "efgh":
        (root / name).symlink_to(root / "d")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "file.png").symlink_to(tmp_path / "outside" / "b.png")
    source = Source("folder", root)
    assert source.keys() == {
        "d/a.png": [make_key(picture(1))],
        "file.png": [make_key(picture(2))],
        "out/b.png": [make_key(picture(2))],
    }
    assert len({item.key for item in source.items()}) == 3


@pytest.mark.parametrize("place", ["file.png", "s3://bucket/photos"])
def test_what_is_no_local_folder_is_a_source_error(tmp_path, place, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "file.png", picture())
    with pytest.raises(SourceError, match=place):
        Source("folder", place).items()


def test_a_good_image_becomes_a_row(tmp_path) -> None:
    data = picture(kind="JPEG", size=(40, 30))
    put(tmp_path, "sub/photo.gif", data)  # the wrong ending does not matter
    source = Source("folder", tmp_path, limits=ImagesConfig(licence="CC0-1.0"))
    fields = {"source_key": source.items()[0].key, "licence": "CC0-1.0"}
    assert source.row() == photograph(data, name="sub/photo.gif", source="folder", **fields)


def test_what_is_no_regular_file_is_dropped(tmp_path) -> None:
    (tmp_path / "dangling.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.png"))
        assert Source("folder", tmp_path).reasons() == {
            "dangling.png": "missing file",
            "loop.png": "symlink loop",
            "pipe.png": "not a regular file",
            "socket.png": "not a regular file",
        }


def test_a_folder_that_cannot_be_listed_is_dropped(tmp_path, monkeypatch) -> None:
    put(tmp_path, "a.png", picture())
    put(tmp_path, "closed/b.png", picture())
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    source = Source("folder", tmp_path)
    assert source.reasons() == {"closed/": "unreadable folder"}
    assert list(source.keys()) == ["a.png"]


def test_the_ending_does_not_decide_what_is_read(tmp_path) -> None:
    put(tmp_path, "web.jpg", picture(1, kind="AVIF"))
    put(tmp_path, "phone.HEIC", picture(2, kind="JPEG"))
    put(tmp_path, "scan.dat", picture(3, kind="PNG"))
    put(tmp_path, "plain", picture(4, kind="WEBP"))
    put(tmp_path, "notes.dat", b"no image")
    rows = Source("folder", tmp_path).rows()
    assert {name: row.format for name, (row,) in rows.items()} == {
        "phone.HEIC": "jpeg",
        "plain": "webp",
        "scan.dat": "png",
        "web.jpg": "avif",
    }


def test_formats_without_their_package_are_dropped_by_name(tmp_path) -> None:
    put(tmp_path, "a.png", picture())
    put(tmp_path, "b.heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40))
    put(tmp_path, "c.jxl", b"\xff\x0a" + bytes(40))
    reasons = Source("folder", tmp_path).reasons()
    assert reasons == dict.fromkeys(("b.heic", "c.jxl"), "format needs a package")


def write_metadata(root, ending, records):
    import pandas as pd

    frame = pd.DataFrame(records)
    path = root / f"metadata.{ending}"
    if ending == "csv":
        frame.to_csv(path, index=False)
    elif ending == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=True)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_an_imagefolder_has_captions(tmp_path, ending) -> None:
    put(tmp_path, "deep/a.png", picture(1))
    put(tmp_path, "deep/b/c.png", picture(2))
    put(tmp_path, "other.png", picture(3))
    records = [
        {"file_name": "a.png", "text": "A dog, old.", "license": "CC0-1.0"},
        {"file_name": "b/c.png", "text": None, "license": "CC0-1.0"},
        {"file_name": "../other.png", "text": "No.", "license": ""},
    ]
    write_metadata(tmp_path / "deep", ending, records)
    source = Source("folder", tmp_path)
    rows = {name: row for name, (row,) in source.rows().items()}
    assert rows["deep/a.png"].captions == ("A dog, old.",)
    assert rows["deep/a.png"].licence == "CC0-1.0"
    assert (rows["deep/b/c.png"].captions, rows["other.png"].captions) == ((), ())
    write_metadata(tmp_path / "deep", ending, [{"file_name": "a.png", "text": "", "alt": "A cat."}])
    (row, *_) = Source("folder", tmp_path, caption_column="alt").read()
    assert row.captions == ("A cat.",)
