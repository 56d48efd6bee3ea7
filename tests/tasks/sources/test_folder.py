"""Listing order, odd names, links; and a corpus of bad files, each of which must become a dropped
row."""

import errno
import os
import socket
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwright.schemas.config import ImagesConfig, Profile
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, Failed, ImageRow
from pairwright.tasks.sources.folder import list_items, read_items
from tests.fixtures.pictures import photograph, picture

CONFIG = ImagesConfig(licence="CC0-1.0")


def put(root, name, data):
    path = Path(root) / os.fsdecode(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def config_of(root, images=CONFIG):
    return Profile(source=f"folder:{root}", images=images).sources


def listed(root, **options):
    return list(list_items(config_of(root), **options))


def names(root, **options):
    return [item.name for item in listed(root, **options)]


def read(root, images=CONFIG):
    return {item.name: list(read_items([item], config_of(root, images))) for item in listed(root)}


def read_one(item, root):
    return list(read_items([item], config_of(root)))


@settings(max_examples=30)
@given(
    st.sets(
        st.lists(st.text("aB-.é", min_size=1, max_size=3), min_size=1, max_size=3).map("/".join),
        max_size=12,
    )
)
def test_order_and_completeness_for_any_tree(tmp_path_factory, stems):
    root = tmp_path_factory.mktemp("tree")
    wanted = {
        f"{stem}.png" for stem in stems if not any(part.startswith(".") for part in stem.split("/"))
    }
    for name in wanted:
        put(root, name, b"")
    if not wanted:
        with pytest.raises(SourceError, match=r"\.jpg \.jpeg \.png"):
            names(root)
    else:
        assert names(root) == sorted(wanted, key=str.encode)
        assert names(root, limit=2) == names(root)[:2]


def test_odd_names_are_shown_escaped_and_found_again(tmp_path):
    for name in (
        b"new\nline.png",
        b"\xff\xfe.png",
        "smile 😀.png".encode(),
        b"back\\slash.png",
        b"%41 b.png",
    ):
        put(tmp_path, name, picture())
    assert names(tmp_path) == [
        "%41 b.png",
        r"back\\slash.png",
        r"new\nline.png",
        "smile 😀.png",
        r"\xff\xfe.png",
    ]
    assert all(isinstance(row, ImageRow) for rows in read(tmp_path).values() for row in rows)
    for item in listed(tmp_path):
        item.locator.encode("utf-8")


def test_links_are_followed_once_and_never_loop(tmp_path):
    root = tmp_path / "root"
    put(root, "d/a.png", picture(1))
    put(tmp_path, "outside/b.png", picture(2))
    (root / "d" / "self").symlink_to(root)
    for name in "efgh":
        (root / name).symlink_to(root / "d")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "file.png").symlink_to(tmp_path / "outside" / "b.png")
    assert names(root) == ["d/a.png", "file.png", "out/b.png"]
    rows = read(root)
    assert rows["file.png"][0].key == rows["out/b.png"][0].key
    assert rows["file.png"][0].source_key != rows["out/b.png"][0].source_key


@pytest.mark.parametrize("place", ["missing", "file.png", "empty", "s3://bucket/photos"])
def test_nothing_to_list_is_a_source_error(tmp_path, place):
    put(tmp_path, "file.png", picture())
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=place):
        listed(place if "://" in place else tmp_path / place)


def test_a_good_image_becomes_a_row(tmp_path):
    data = picture(kind="JPEG", size=(40, 30))
    put(tmp_path, "sub/photo.jpeg", data)
    (item,) = listed(tmp_path)
    (row,) = read_one(item, tmp_path)
    assert row == photograph(
        data, source_key=item.key, name="sub/photo.jpeg", source="folder", licence="CC0-1.0"
    )


def bomb():
    """Return a PNG of half a megabyte that decodes to 660 MB."""

    def chunk(name, body):
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(1 + 3 * 14832)) for _ in range(20)) + packer.flush()
    header = struct.pack(">IIBBBBB", 14832, 14832, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def test_the_corpus_of_bad_files(tmp_path):
    bad = {
        "bomb.png": (bomb(), "too many pixels"),
        "large.bmp": (picture(kind="BMP", size=(400, 400)), "file too large"),
        "text.jpg": (b"hello", "not an image"),
        "tiny.png": (picture(size=(8, 100)), "too few pixels"),
        "truncated.jpg": (picture(kind="JPEG")[:400], "truncated image"),
        "truncated.png": (picture()[:-200], "truncated image"),
        "zero.jpg": (b"", "empty file"),
    }
    good = {
        "a good.png": picture(),
        "a good copy.png": picture(),
        "wrong ending.gif": picture(kind="JPEG"),
    }
    for name, data in {**good, **{name: data for name, (data, _) in bad.items()}}.items():
        put(tmp_path, name, data)
    (tmp_path / "dangling.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.png"))
        rows = read(tmp_path, ImagesConfig(max_bytes=400_000))
    assert all(len(got) == 1 for got in rows.values())
    reasons = {name: got[0].reason for name, got in rows.items() if isinstance(got[0], Dropped)}
    odd = {"dangling.png": "missing file", "loop.png": "symlink loop"}
    odd |= dict.fromkeys(("pipe.png", "socket.png"), "not a regular file")
    assert reasons == {name: reason for name, (_, reason) in bad.items()} | odd
    assert all(name in got[0].detail for name, got in rows.items() if isinstance(got[0], Dropped))
    assert rows["a good.png"][0].key == rows["a good copy.png"][0].key
    assert rows["wrong ending.gif"][0].format == "jpeg"


@pytest.mark.parametrize(
    ("number", "kind", "reason"),
    [(errno.EACCES, Dropped, "unreadable file"), (errno.EIO, Failed, "I/O error")],
)
def test_what_the_system_refuses_to_open(tmp_path, monkeypatch, number, kind, reason):
    put(tmp_path, "a.png", picture())
    (item,) = listed(tmp_path)

    def refuse(path, mode):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "open", refuse)
    (row,) = read_one(item, tmp_path)
    assert (type(row), row.reason, row.source_key) == (kind, reason, item.key)


def test_a_folder_that_cannot_be_listed_becomes_a_dropped_row(tmp_path, monkeypatch):
    put(tmp_path, "a.png", picture())
    put(tmp_path, "closed/b.png", picture())
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    rows = read(tmp_path)
    assert rows["closed/"][0].reason == "unreadable folder"
    assert isinstance(rows["a.png"][0], ImageRow)
