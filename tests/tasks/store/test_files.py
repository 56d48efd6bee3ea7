"""Files of a dataset's folder: whole or not there, and every fault named. Faults at each call:
test_dataset_faults."""

import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store import files
from pairwright.tasks.store.files import TEMPORARY, Folder


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder(str(tmp_path) if request.param == "local" else f"memory://files{tmp_path}")


def test_what_is_written_is_read_listed_and_deleted(folder: Folder) -> None:
    assert (folder.names("a"), folder.folders("a"), folder.exists("a/x")) == ([], [], False)
    folder.write("a/y", b"1")
    folder.write("a/x", memoryview(bytearray(b"2")))
    folder.write("a/b/z", b"")
    folder.write("a/x", b"345")
    assert (folder.names("a"), folder.folders("a"), folder.exists("a/x")) == (
        ["x", "y"],
        ["b"],
        True,
    )
    assert (folder.read("a/x"), folder.read("a/b/z")) == (b"345", b"")
    with folder.open("a/y") as file:
        assert file.read() == b"1"
    folder.delete("a/x")
    folder.delete("a/x")
    assert folder.names("a") == ["y"]


def test_a_name_is_taken_once(folder: Folder) -> None:
    assert folder.create("snapshots/1.json", b"first")
    assert not folder.create("snapshots/1.json", b"second")
    assert folder.read("snapshots/1.json") == b"first"
    assert folder.names("snapshots") == ["1.json"]


def test_a_folder_travels_to_another_process(folder: Folder) -> None:
    folder.write("x", b"1")
    twin = pickle.loads(pickle.dumps(folder))
    assert twin == folder
    assert twin.read("x") == b"1"
    assert len(pickle.dumps(folder)) < 500


def test_unknown_protocol_and_unwritable_path_are_named(
    tmp_path: Path,
) -> None:
    with pytest.raises(StoreError, match="nonsense://x"):
        Folder("nonsense://x").names("")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/x: .*(File exists|Not a directory)"):
        Folder(str(tmp_path / "file")).write("x", b"1")


def test_a_file_is_flushed_before_its_rename_and_its_folders_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    names: dict[int, str] = {}

    def open_file(path: Path, flags: int, *mode: int) -> int:
        descriptor = os.open(path, flags, *mode)
        names[descriptor] = (
            "file" if TEMPORARY in str(path) else str(Path(path).relative_to(tmp_path))
        )
        return descriptor

    def fsync(descriptor: int) -> None:
        calls.append(f"flush {names[descriptor]}")

    def replace(old: Path, new: Path) -> None:
        calls.append(f"rename to {Path(new).relative_to(tmp_path)}")
        Path(old).replace(new)

    system = SimpleNamespace(**{**vars(os), "open": open_file, "fsync": fsync, "replace": replace})
    monkeypatch.setattr(files, "os", system)
    Folder(str(tmp_path)).write("a/b/x", b"1")
    assert calls == ["flush .", "flush a", "flush file", "rename to a/b/x", "flush a/b"]


def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    folder = Folder(str(tmp_path))
    folder.write("x", b"old")
    monkeypatch.setattr(files, "os", SimpleNamespace(**{**vars(os), "fsync": refuse}))
    with pytest.raises(StoreError, match=r"x: .*Input/output error"):
        folder.write("x", b"new")
    assert (folder.read("x"), folder.names("")) == (b"old", ["x"])
