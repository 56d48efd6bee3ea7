"""Files of a dataset's folder: whole or not there, and every fault named."""

import os
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store import files
from pairwright.tasks.store.files import Folder
from tests.tasks.store.faults import fail
from tests.tasks.store.power import Disk


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder({"local": str(tmp_path), "memory": f"memory://files{tmp_path}"}[request.param])


def test_what_is_written_is_read_listed_and_deleted(folder: Folder) -> None:
    assert (folder.names("a"), folder.folders("a"), folder.exists("a/x")) == ([], [], False)
    folder.write("a/y", b"1")
    folder.write("a/x", memoryview(bytearray(b"2")))
    folder.write("a/b/z", b"")
    folder.write("a/x", b"345")
    assert (folder.names("a"), folder.folders("a")) == (["x", "y"], ["b"])
    assert folder.exists("a/x")
    assert (folder.read("a/x"), folder.read("a/b/z")) == (b"345", b"")
    with folder.open_for_reading("a/y") as file:
        assert file.read() == b"1"
    folder.delete("a/x")
    folder.delete("a/x")
    assert folder.names("a") == ["y"]
    assert not folder.create("a/y", b"taken")
    assert folder.create("a/new", b"first")
    assert (folder.read("a/y"), folder.read("a/new")) == (b"1", b"first")


def test_unknown_protocol_and_unwritable_path_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nonsense://x"):
        Folder("nonsense://x").names("")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/x: .*(File exists|Not a directory)"):
        Folder(str(tmp_path / "file")).write("x", b"1")


def test_a_written_file_is_on_the_disk_and_never_half(tmp_path: Path) -> None:
    (root := tmp_path / "data").mkdir()
    disk = Disk(root)
    with disk.recording():
        Folder(str(root)).write("a/b/x", b"new")
    for moment in range(disk.moment + 1):
        for share in (0.0, 0.5, 1.0):
            left = tmp_path / f"{moment} {share}"
            disk.lay_down(left, moment, Random(0), share)
            assert [path.read_bytes() for path in left.glob("a/b/x")] in ([], [b"new"])
    assert (tmp_path / f"{disk.moment} 0.0/a/b/x").exists()


def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(str(tmp_path))
    folder.write("x", b"old")
    system = SimpleNamespace(**{**vars(os), "fsync": fail("EIO")})
    monkeypatch.setattr(files, "os", system)
    with pytest.raises(StoreError, match=r"x: .*Input/output error"):
        folder.write("x", b"new")
    assert (folder.read("x"), folder.names("")) == (b"old", ["x"])
