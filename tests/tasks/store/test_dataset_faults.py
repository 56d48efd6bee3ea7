"""Let every single system call of a build fail: the error is clear, nothing is lost, and a resumed
build ends well."""

import errno
import os
from itertools import count
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store import shard as shard_file
from pairwright.tasks.store.executor import ShardFailed
from pairwright.tasks.store.files import Folder
from tests.tasks.store.faults import Killed, faulty
from tests.tasks.store.toy import STAGES, build_toy, check, read_tree

WORDS = ["a", "b", "bad", "c", "d"]
FIRST = STAGES[:1]
REASONS = {
    "ENOSPC": "No space left on device",
    "EIO": "Input/output error",
    "full": "No space left on device",
}


def _errors(root: Path, **options: Any) -> list[str]:
    """Build; return what went wrong, as a user would read it."""
    try:
        _, outcomes = build_toy(root, WORDS, rows_per_shard=3, **options)
    except StoreError as error:
        return [str(error)]
    return [outcome.result.error for outcome in outcomes if isinstance(outcome.result, ShardFailed)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, bytes]]:
    """Return the tables of undisturbed builds of the first stage, and of all."""
    roots = {number: tmp_path_factory.mktemp("undisturbed") for number in (1, len(STAGES))}
    for number, root in roots.items():
        build_toy(root, WORDS, rows_per_shard=3, stages=STAGES[:number])
    return {number: read_tree(root) for number, root in roots.items()}


@pytest.mark.parametrize(("fault", "first"), [("ENOSPC", 0), ("EIO", 2), ("full", 4)])
def test_fault_at_any_call_is_reported_and_resumed(
    fault: str,
    first: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    undisturbed: dict[int, dict[str, bytes]],
) -> None:
    for at in count(first, 6):
        root = tmp_path / str(at)
        with faulty(monkeypatch, fault, at) as system:
            errors = _errors(root, stages=FIRST)
        if not system.triggered:
            break
        assert len(errors) == 1
        assert errors[0].startswith(f"{root}/")
        assert REASONS[fault] in errors[0]
        assert ("Free space" in errors[0]) == (fault != "EIO")
        assert not _errors(root, stages=FIRST)
        assert read_tree(root) == undisturbed[1]
    assert at > 20


def test_a_short_write_is_continued(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, undisturbed: dict[int, dict[str, bytes]]
) -> None:
    for at in count(0, 3):
        root = tmp_path / str(at)
        with faulty(monkeypatch, "short", at) as system:
            assert not _errors(root, stages=FIRST)
        assert read_tree(root) == undisturbed[1]
        if not system.triggered:
            break
    assert at > 5


@pytest.mark.parametrize(("fault", "first"), [("ENOSPC", 0), ("EIO", 2)])
def test_after_a_fault_the_later_stages_catch_up(
    fault: str, first: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Stages after a failed shard saw less, so their parts are cut otherwise: the live rows are the
    same."""
    for at in count(first, 31):
        root = tmp_path / str(at)
        with faulty(monkeypatch, fault, at) as system:
            errors = _errors(root)
        if not system.triggered:
            break
        assert len(errors) == 1
        assert f"{root}/" in errors[0]
        assert not _errors(root)
        check(root, WORDS)
    assert at > 60


@pytest.mark.parametrize("fault", ["kill", "late kill"])
def test_a_kill_at_any_call_leaves_an_undisturbed_build_to_resume(
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    undisturbed: dict[int, dict[str, bytes]],
) -> None:
    for at in count(len(fault) % 8, 29):
        root = tmp_path / str(at)
        with faulty(monkeypatch, fault, at) as system:
            try:
                _errors(root)
            except Killed:
                assert system.triggered
        if not system.triggered:
            break
        assert not _errors(root)
        assert read_tree(root) == undisturbed[len(STAGES)]
    assert at > 60


class FaultyFile:
    """An open file; the ``at``-th read of any such file fails."""

    left = 0

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self._file.close()

    def read(self, *args: Any) -> Any:
        self._count()
        return self._file.read(*args)

    def readinto(self, *args: Any) -> Any:
        self._count()
        return self._file.readinto(*args)

    def _count(self) -> None:
        FaultyFile.left -= 1
        if FaultyFile.left == -1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_fault_of_reading_is_not_taken_for_damage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, undisturbed: dict[int, dict[str, bytes]]
) -> None:
    opened = Folder.open
    monkeypatch.setattr(Folder, "open", lambda folder, name: FaultyFile(opened(folder, name)))
    for at in count(0, 61):
        root = tmp_path / str(at)
        FaultyFile.left = at
        errors = _errors(root)
        if FaultyFile.left >= 0:
            break
        assert errors[0].startswith(f"{root}/")
        assert errors[0].endswith("Input/output error")
        FaultyFile.left = 10**9
        assert not _errors(root)
        check(root, WORDS)
    assert at > 100


def test_a_plan_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(path: str, schema: pa.Schema) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patches:
        patches.setattr(shard_file.pa.ipc, "new_file", refuse)
        with pytest.raises(StoreError, match=r"work/.*plan-images-.*: .*No space left"):
            build_toy(tmp_path, WORDS)
    assert not _errors(tmp_path)
