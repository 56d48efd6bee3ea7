import os
import signal
import subprocess
import sys

import pytest

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.replace import replacing


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
    code = "import sys, time\nfrom pathlib import Path\nfrom pairwright.tasks.store.replace import replacing\n"
    code += "with replacing(Path(sys.argv[1])):\n    print('in', flush=True)\n    time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code, str(target)], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout.readline() == "in\n"
        with pytest.raises(StoreError, match=str(target)):
            fill(target, "mine")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    fill(target, "mine")
    assert (names(tmp_path), (target / "a").read_text()) == (["out"], "mine")
