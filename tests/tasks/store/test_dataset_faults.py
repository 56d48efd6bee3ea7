"""Let each call of a build fail: the error is clear, and a resumed build loses nothing."""

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store import shard as shard_file
from pairwright.tasks.store.files import TEMPORARY
from tests.tasks.store.faults import Killed, fail, faulty
from tests.tasks.store.toy import STAGES, build_toy, check, failures, read_tree

WORDS = ["a", "b", "bad", "c", "d"]
FULL = r"ROOT/.*No space left on device.*Free space.*"
BROKEN = r"ROOT/((?!Free space).)*Input/output error((?!Free space).)*"
NOTHING = ""
Trees = dict[int, dict[str, bytes]]


def errors_of(root: Path, stages: int) -> str:
    """Build; return what went wrong, one line each, as a user would read it."""
    try:
        _, outcomes = build_toy(root, WORDS, rows_per_shard=3, stages=STAGES[:stages])
    except StoreError as error:
        return str(error)
    except Killed:
        return NOTHING
    return "\n".join(failures(outcomes))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    """Return the tables of undisturbed builds of the first stage, and of all."""
    trees: Trees = {}
    for stages in (1, len(STAGES)):
        root = tmp_path_factory.mktemp("undisturbed")
        build_toy(root, WORDS, rows_per_shard=3, stages=STAGES[:stages])
        trees[stages] = read_tree(root)
    return trees


def same_bytes(root: Path, stages: int, undisturbed: Trees) -> None:
    assert read_tree(root) == undisturbed[stages]


def same_rows(root: Path, stages: int, undisturbed: Trees) -> None:
    """Stages after a failed shard saw less, so their parts are cut otherwise."""
    check(root, WORDS)


FAULTS = {
    "no space": ("ENOSPC", (0, 6), 1, FULL, 20, same_bytes),
    "disk full within a write": ("full", (4, 6), 1, FULL, 20, same_bytes),
    "I/O error": ("EIO", (2, 6), 1, BROKEN, 20, same_bytes),
    "short write": ("short", (0, 3), 1, NOTHING, 5, same_bytes),
    "later no space": ("ENOSPC", (0, 31), 5, f".*{FULL}", 60, same_rows),
    "later I/O error": ("EIO", (2, 31), 5, f".*{BROKEN}", 60, same_rows),
    "killed before a call": ("kill", (4, 29), 5, NOTHING, 60, same_bytes),
    "killed after one": ("late kill", (1, 29), 5, NOTHING, 60, same_bytes),
    "read error": ("unreadable", (0, 61), 5, BROKEN, 100, same_rows),
}


@pytest.mark.parametrize(
    ("fault", "calls", "stages", "message", "least", "is_whole"), FAULTS.values(), ids=FAULTS
)
def test_a_build_after_a_fault_at_any_call_is_whole(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    undisturbed: Trees,
    fault: str,
    calls: tuple[int, int],
    stages: int,
    message: str,
    least: int,
    is_whole: Callable[[Path, int, Trees], None],
) -> None:
    for at in count(*calls):
        root = tmp_path / str(at)
        with faulty(monkeypatch, fault, at) as system:
            errors = errors_of(root, stages)
        if not system.triggered:
            break
        assert re.fullmatch(message.replace("ROOT", re.escape(str(root))), errors)
        assert errors_of(root, stages) == NOTHING
        is_whole(root, stages, undisturbed)
    assert errors == NOTHING
    assert at > least


def test_a_plan_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patches:
        patches.setattr(shard_file.pa.ipc, "new_file", fail("ENOSPC"))
        with pytest.raises(StoreError, match=r"work/.*plan-images-.*: .*No space left"):
            build_toy(tmp_path, WORDS)
    build_toy(tmp_path, WORDS)
    check(tmp_path, WORDS)


def test_what_was_left_half_written_is_deleted(tmp_path: Path) -> None:
    build_toy(tmp_path, WORDS)
    tables = {path.parent for path in tmp_path.rglob("*.parquet")}
    for table in tables:
        (table / f"part-0.parquet{TEMPORARY}0").write_bytes(b"PAR1")
    build_toy(tmp_path, WORDS)
    assert len(tables) == 6
    assert not list(tmp_path.rglob(f"*{TEMPORARY}*"))
