"""Scratch folders end with their process, also with a killed one."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pairwright.tasks.store.scratch import own_temporary_folder, scratch_folder

WAITING = """
import sys, time
from pathlib import Path
from pairwright.tasks.store.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1])) as path:
    (path / "spill").write_bytes(b"x")
    print(path, flush=True)
    time.sleep(600)
"""


def test_a_folder_ends_with_its_block(tmp_path: Path) -> None:
    with scratch_folder(tmp_path / "work") as one, scratch_folder(tmp_path / "work") as other:
        assert one != other
        (one / "inner").mkdir()
        (one / "inner" / "file").write_bytes(b"x")
        assert one.is_dir()
        assert other.is_dir()
    assert list((tmp_path / "work").iterdir()) == []


def test_that_of_a_killed_process_goes_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", WAITING, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        killed, living = (Path((process.stdout or sys.stdin).readline().strip()) for process in processes)
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


def test_the_temporary_folder_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = own_temporary_folder()
    assert own == tmp_path / f"pairwright-{os.getuid()}" == own_temporary_folder()
    assert own.stat().st_mode & 0o777 == 0o700
    own.rmdir()
    (tmp_path / "elsewhere").mkdir()
    own.symlink_to(tmp_path / "elsewhere")
    other = own_temporary_folder()
    assert other.is_dir()
    assert other not in (own, tmp_path / "elsewhere")
