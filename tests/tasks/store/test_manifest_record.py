"""The record of a folder whose files change: each is as written, or as before a killed write."""

from pathlib import Path

import pytest

from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.manifest import list_changed, record_files, replace_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.arrow").write_bytes(b"rows")
    record_files(tmp_path, ["rows.arrow", "not-there"])
    replace_file(tmp_path, "metrics.parquet", b"one")
    replace_file(tmp_path, "metrics.parquet", b"two")
    return tmp_path


def test_files_as_written_pass_and_others_are_named(folder: Path) -> None:
    assert list_changed(folder) == []
    (folder / "rows.arrow").write_bytes(b"rowz")
    (folder / "metrics.parquet").unlink()
    damaged = list_changed(folder)
    assert [
        str(folder / name) in line
        for name, line in zip(("rows.arrow", "metrics.parquet"), damaged, strict=True)
    ] == [True, True]
    assert "missing" in damaged[1]


def test_a_kill_between_record_and_file_is_no_damage(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Folder.write

    def die(self: Folder, name: str, data: bytes) -> None:
        if name != "files.json":
            raise KeyboardInterrupt
        write(self, name, data)

    monkeypatch.setattr(Folder, "write", die)
    for name in ("metrics.parquet", "new.json"):
        with pytest.raises(KeyboardInterrupt):
            replace_file(folder, name, b"three")
    assert list_changed(folder) == []


def test_a_folder_without_a_record_is_not_checked(tmp_path: Path) -> None:
    replace_file(tmp_path, "config.yaml", b"x")
    assert list_changed(tmp_path) == []
    assert not (tmp_path / "files.json").exists()
