"""Scratch folders end with their process, also with a killed one; a folder is replaced whole."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.scratch import holding, own_temporary_folder, replacing, scratch_folder
from tests.tasks.store.faults import fault_of

HOLDING = """
import sys, time
from pathlib import Path
from pairwright.tasks.store.scratch import replacing, scratch_folder
with {call}(Path(sys.argv[1])) as path:
    (path / "spill").write_bytes(b"x")
    print(path, flush=True)
    time.sleep(600)
"""


@contextmanager
def another_process(call: str, folder: Path) -> Iterator[Path]:
    """Hold a folder in another process; give the folder that it has."""
    command = [sys.executable, "-c", HOLDING.format(call=call), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_that_of_a_killed_process_goes_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    with another_process("scratch_folder", tmp_path) as living:
        with another_process("scratch_folder", tmp_path) as killed:
            pass
        assert (killed / "spill").exists()
        with scratch_folder(tmp_path):
            assert not killed.exists()
            assert (living / "spill").exists()
    with scratch_folder(tmp_path) as own:
        assert names(tmp_path) == [own.name, f"{own.name}.lock"]


def test_the_temporary_folder_is_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = own_temporary_folder()
    assert folder == tmp_path / f"pairwright-{os.getuid()}" == own_temporary_folder()
    assert folder.stat().st_mode & 0o777 == 0o700


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fill(target: Path, text: str) -> None:
    with replacing(target) as folder:
        (folder / "a").write_text(text)


def fail_half_way(target: Path) -> None:
    with replacing(target) as folder:
        (folder / "half").write_text("half")
        raise ZeroDivisionError


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Return a folder that was written once."""
    fill(tmp_path / "deeper/out", "one")
    return tmp_path / "deeper/out"


def test_a_folder_appears_whole_and_replaces_the_old_one(target: Path) -> None:
    (target / "left over").write_text("old")
    with replacing(target) as folder:
        assert names(folder) == []
        assert (target / "a").read_text() == "one", "the old one stays until the new one is whole"
        (folder / "a").write_text("two")
    assert (names(target), (target / "a").read_text()) == (["a"], "two")
    assert names(target.parent) == ["out"]


def test_where_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    target, link = tmp_path / "large disk" / "out", tmp_path / "out"
    target.mkdir(parents=True)
    link.symlink_to(target)
    for text in ("one", "two"):
        fill(link, text)
        assert (names(tmp_path), names(target.parent)) == (["large disk", "out"], ["out"])
        assert (link.is_symlink(), (target / "a").read_text()) == (True, text)


@pytest.mark.parametrize("at", [1, 2])
def test_a_fault_at_either_rename_leaves_the_old_one(
    target: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    rename, calls = type(target).rename, list[str]()

    def failing(path: Path, to: Path) -> Path:
        calls.append(path.name)
        if len(calls) == at:
            raise fault_of("EIO")
        return rename(path, to)

    monkeypatch.setattr(type(target), "rename", failing)
    with pytest.raises(StoreError, match=r"out: .*Input/output error"):
        fill(target, "two")
    assert (names(target.parent), (target / "a").read_text()) == (["out"], "one")


def test_what_a_kill_left_of_a_new_or_old_folder_is_cleared(target: Path) -> None:
    (target.parent / ".out.new").mkdir()
    (target.parent / ".out.new/half").write_text("half")
    fill(target, "two")
    assert (names(target.parent), names(target)) == (["out"], ["a"])
    target.rename(target.parent / ".out.old")
    with pytest.raises(ZeroDivisionError):
        fail_half_way(target)
    assert (names(target.parent), (target / "a").read_text()) == (["out"], "two")


def test_two_at_once_are_refused_and_a_killed_one_is_not_in_the_way(target: Path) -> None:
    with (
        another_process("replacing", target),
        pytest.raises(StoreError, match=str(target)),
    ):
        fill(target, "mine")
    fill(target, "mine")
    assert (names(target.parent), (target / "a").read_text()) == (["out"], "mine")


@pytest.mark.parametrize(
    ("lock", "message"),
    [
        (lambda root: holding(root / "folder.lock"), r"folder\.lock: could not be locked: Is a d"),
        (lambda root: scratch_folder(root / "file"), "file: could not be written: File exists"),
        (lambda root: holding(root / "taken.lock", fault="somebody has it"), "^somebody has it$"),
    ],
)
def test_a_lock_that_cannot_be_had_says_why(
    tmp_path: Path, lock: Callable[[Path], AbstractContextManager[object]], message: str
) -> None:
    (tmp_path / "folder.lock").mkdir()
    (tmp_path / "file").touch()
    with holding(tmp_path / "taken.lock"), pytest.raises(StoreError, match=message):
        lock(tmp_path).__enter__()


def test_a_temporary_folder_that_others_may_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    planted = tmp_path / f"pairwright-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    with pytest.raises(StoreError, match="TMPDIR"):
        own_temporary_folder()
    planted.rmdir()
    (tmp_path / "elsewhere").mkdir()
    planted.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="TMPDIR"):
        own_temporary_folder()
    planted.unlink()
    assert own_temporary_folder() == planted
