"""What a disk and a machine can do, looked at on real ones, and on folders that are none."""

import os
import resource
import time
from pathlib import Path

import pytest

from pairwright.schemas.health import Check
from pairwright.tasks.store.check_disk import check_clock, check_limits, check_place, check_processor, memory_bytes
from pairwright.tasks.store.pool import count_cores


def found(checks) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_a_folder_that_is_to_be_made_is_tried_above_it(tmp_path: Path) -> None:
    checks = found(check_place("dataset", str(tmp_path / "not" / "yet")))
    assert {check.state for check in checks.values()} <= {"ok", "warning"}
    assert str(tmp_path) in checks["dataset"].found
    assert checks["dataset: files"].state == checks["dataset: locks"].state == "ok"
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_a_file_is_no_place_for_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (check,) = check_place("dataset", str(tmp_path / "file" / "out"))
    assert (check.state, "--out" in check.mend) == ("missing", True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_leave_to_write_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    checks = found(check_place("dataset", str(tmp_path)))
    tmp_path.chmod(0o700)
    assert checks["dataset: files"].state == "missing"


@pytest.mark.skipif(not Path("/proc/self/fdinfo").exists(), reason="needs Linux")
def test_a_place_that_takes_no_files_is_said() -> None:
    checks = found(check_place("dataset", "/proc"))
    assert checks["dataset: files"].state == "missing"
    assert "/proc" in checks["dataset: files"].found


def test_an_object_store_takes_a_file_and_gives_it_back() -> None:
    (check,) = check_place("dataset", "memory://doctor/out")
    assert (check.state, "memory://doctor/out" in check.found) == ("ok", True)


def test_more_workers_than_cores_are_too_many() -> None:
    checks = found(check_processor(count_cores() + 1))
    assert (checks["cores"].state, checks["cores"].mend) == ("warning", f"--set run.workers={count_cores()}")
    assert found(check_processor(0))["cores"].state == "ok"
    assert memory_bytes() > 10**8


def test_few_open_files_are_a_warning() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        check = found(check_limits())["open files"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (check.state, check.mend) == ("warning", "ulimit -n 4096")


def test_a_version_from_the_future_is_a_wrong_clock(tmp_path: Path) -> None:
    (check,) = check_clock(str(tmp_path))
    assert check.state == "ok"
    (tmp_path / "snapshots").mkdir()
    version = tmp_path / "snapshots" / "000001.json"
    version.write_text("{}")
    os.utime(version, (time.time() + 3600, time.time() + 3600))
    (check,) = check_clock(str(tmp_path))
    assert check.state == "warning"
    assert "s later" in check.found
