"""Scratch folders end with their process, also with a killed one."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.scratch import holding, own_temporary_folder, replacing, scratch_folder

WAITING = """
import sys, time
from pathlib import Path
from pairwright.tasks.store.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1])) as path:
    (path / "spill").write_bytes(b"x")
    print(path, flush=True)
    time.sleep(600)
"""


def test_that_of_a_killed_process_goes_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WAITING, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        killed, living = (
            Path((process.stdout or sys.stdin).readline().strip()) for process in processes
        )
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait()
        assert (killed / "spill").exists()
        with scratch_folder(tmp_path):
            assert not killed.exists()
            assert (living / "spill").exists()
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    with scratch_folder(tmp_path) as own:
        assert sorted(path.name for path in tmp_path.iterdir()) == [own.name, f"{own.name}.lock"]


def test_the_temporary_folder_is_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = own_temporary_folder()
    assert own == tmp_path / f"pairwright-{os.getuid()}" == own_temporary_folder()
    assert own.stat().st_mode & 0o777 == 0o700


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def fill(target, text):
    with replacing(target) as folder:
        (folder / "a").write_text(text)


def fail(target, error):
    with replacing(target) as folder:
        (folder / "half").write_text("half")
        raise error("stopped")


def test_a_folder_appears_whole_and_replaces_the_old_one(tmp_path):
    target = tmp_path / "deeper" / "out"
    fill(target, "one")
    (target / "left over").write_text("old")
    with replacing(target) as folder:
        assert names(folder) == []
        assert (target / "a").read_text() == "one", "the old one stays until the new one is whole"
        (folder / "a").write_text("two")
    assert (names(target), (target / "a").read_text()) == (["a"], "two")
    assert names(target.parent) == ["out"]


def test_where_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path):
    target, link = tmp_path / "large disk" / "out", tmp_path / "out"
    target.mkdir(parents=True)
    link.symlink_to(target)
    for text in ("one", "two"):
        fill(link, text)
        assert (names(tmp_path), names(target.parent)) == (["large disk", "out"], ["out"])
        assert (link.is_symlink(), (target / "a").read_text()) == (True, text)


def test_a_fault_at_either_rename_leaves_the_old_one(tmp_path, monkeypatch):
    target = tmp_path / "out"
    fill(target, "one")
    rename, calls, failing_at = type(target).rename, [], [0]

    def failing(self, to):
        calls.append(to)
        if len(calls) == failing_at[0]:
            raise OSError(5, "Input/output error")
        return rename(self, to)

    monkeypatch.setattr(type(target), "rename", failing)
    for number in (1, 2):
        failing_at[0] = number
        calls.clear()
        with pytest.raises(StoreError, match=r"out: .*Input/output error"):
            fill(target, "two")
        assert (names(tmp_path), (target / "a").read_text()) == (["out"], "one")


def test_what_a_killed_process_left_is_cleared_or_put_back(tmp_path):
    target = tmp_path / "out"
    # Killed while writing: half of a new one lies beside the old one.
    fill(target, "one")
    (tmp_path / ".out.new").mkdir()
    (tmp_path / ".out.new" / "half").write_text("half")
    fill(target, "two")
    assert (names(tmp_path), names(target)) == (["out"], ["a"])
    # Killed between the two renames: the name is free, the old one lies beside.
    target.rename(tmp_path / ".out.old")
    with pytest.raises(ValueError, match="stopped"):
        fail(target, ValueError)
    assert (names(tmp_path), (target / "a").read_text()) == (["out"], "two")


def test_two_at_once_are_refused_and_a_killed_one_is_not_in_the_way(tmp_path):
    target = tmp_path / "out"
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom pairwright.tasks.store.scratch "
        "import replacing\n"
    )
    code += "with replacing(Path(sys.argv[1])):\n    print('in', flush=True)\n    time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(target)], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "in\n"
        with pytest.raises(StoreError, match=str(target)):
            fill(target, "mine")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    fill(target, "mine")
    assert (names(tmp_path), (target / "a").read_text()) == (["out"], "mine")


def test_a_lock_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "folder.lock").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"folder\.lock: could not be locked: Is a directory"):
        holding(tmp_path / "folder.lock").__enter__()
    with pytest.raises(StoreError, match=r"file: could not be written: File exists"):
        scratch_folder(tmp_path / "file").__enter__()
    with holding(tmp_path / "taken.lock"), pytest.raises(StoreError, match=r"^somebody has it$"):
        holding(tmp_path / "taken.lock", fault="somebody has it").__enter__()
