"""Names that others chose reach files below their folder and nothing else."""

import errno
import os
from pathlib import Path

import pytest

from pairwright.schemas.config import ImagesConfig
from pairwright.schemas.rows import Dropped, Failed, ItemRow
from pairwright.tasks.sources.layout.read_below import is_below, read_below, size_and_time

ITEM = ItemRow(key="k", source_key="k", subject="k", name="row 1", locator="{}")
CONFIG = ImagesConfig(max_bytes=100)


@pytest.mark.parametrize("name", ["a.png", "a/b.png", "a..png", "./a.png", "é 😀.png", "a:b.png/c"])
def test_names_below(name):
    assert is_below(name)


@pytest.mark.parametrize(
    "name",
    ["", "/a", "../a", "a/../../b", "..", "\\a", "a\\..\\..\\b", "C:/a", "s3://b/a", "a\0", "\ud800", "x" * 5000],
)
def test_names_that_are_not_below(name):
    assert not is_below(name)
    assert size_and_time("/", name) == (-1, 0)
    refused = read_below(ITEM, "/", name, CONFIG)
    assert isinstance(refused, Dropped)
    assert refused.reason == "path leaves the folder"
    assert len(refused.detail) < 500
    refused.detail.encode()


def test_what_lies_below_is_read_if_it_is_a_file_of_some_size(tmp_path):
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "d/a.png").write_bytes(b"data")
    (root / "large").write_bytes(bytes(101))
    (tmp_path / "secret").write_bytes(b"secret")
    (root / "inside").symlink_to(root / "d")
    (root / "outside").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")
    os.mkfifo(root / "pipe")
    assert read_below(ITEM, str(root), "d/a.png", CONFIG) == b"data"
    assert read_below(ITEM, str(root), "inside/a.png", CONFIG) == b"data"
    reasons = {
        name: read_below(ITEM, str(root), name, CONFIG).reason
        for name in ("outside/secret", "large", "d", "pipe", "loop", "none", "d/a.png/x", "d/" + "y" * 300)
    }
    assert reasons == {
        "outside/secret": "path leaves the folder",
        "large": "file too large",
        "d": "not a regular file",
        "pipe": "not a regular file",
        "loop": "unreadable file",
        "none": "missing file",
        "d/a.png/x": "missing file",
        "d/" + "y" * 300: "unreadable file",
    }
    assert size_and_time(str(root), "d/a.png") == (4, (root / "d/a.png").stat().st_mtime_ns)
    assert size_and_time(str(root), "none") == (-1, 0)


def test_a_disk_that_fails_is_owed_again(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"x")

    def refuse(path, flags):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "open", refuse)
    failed = read_below(ITEM, str(tmp_path), "a", CONFIG)
    assert isinstance(failed, Failed)
    assert (failed.reason, failed.source_key) == ("I/O error", "k")


def test_a_root_that_is_a_link_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    Path(tmp_path / "real" / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read_below(ITEM, str(tmp_path / "link"), "a", CONFIG) == b"x"
