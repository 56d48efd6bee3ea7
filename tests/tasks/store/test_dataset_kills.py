"""Kill builds with SIGKILL, their whole process group at a random moment, and resume them."""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairwright.tasks.store.files import TEMPORARY, Folder
from pairwright.tasks.store.part import Part, read_part
from tests.tasks.store.forge import ALL_DONE, Forge
from tests.tasks.store.toy import ToyConfig, build_toy, check, read_tree

WORDS = [f"{letter}{number}" for letter in "abc" for number in range(8)] + [
    "bad",
    "a1/again",
    "b2/again",
]
ROWS_PER_SHARD = 5
KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def forge() -> Iterator[Forge]:
    with Forge() as forge:
        yield forge


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the tables of a build that nobody disturbed."""
    root = tmp_path_factory.mktemp("unkilled")
    build_toy(root, WORDS, rows_per_shard=ROWS_PER_SHARD)
    return read_tree(root)


@pytest.mark.parametrize(
    ("workers", "kills", "seed"),
    [
        (1, 5, 1),
        pytest.param(1, 25, 2, marks=pytest.mark.slow),
        pytest.param(2, 6, 3, marks=pytest.mark.slow),
    ],
)
def test_killed_builds_end_like_an_unkilled_one(
    forge: Forge, unkilled: dict[str, bytes], tmp_path: Path, workers: int, kills: int, seed: int
) -> None:
    rng = random.Random(seed)
    config = ToyConfig(calls=str(tmp_path / "calls"), seconds_per_row=0.001)
    longest = _seconds(forge, tmp_path / "measured", config, workers)
    (tmp_path / "calls").unlink()
    left, number = kills, 0
    while left > 0:
        root, number = tmp_path / str(number), number + 1
        here, missing = 0, 1.0
        for _ in range(min(left, 8)):
            moment = longest * rng.uniform(0, 0.3 + 0.7 * missing)
            ended = _run(forge, root, config, workers=workers, seconds=moment)
            assert ended in (KILLED, ALL_DONE)
            here += ended == KILLED
            missing = 1 - _check_parts(root) / len(unkilled)
        assert _run(forge, root, config, workers=workers) == ALL_DONE
        left -= here
        _check_end(root, unkilled)
        _check_calls(tmp_path / "calls", kills=here * workers)


def _seconds(forge: Forge, root: Path, config: ToyConfig, workers: int) -> float:
    start = time.monotonic()
    assert _run(forge, root, config, workers=workers) == ALL_DONE
    return time.monotonic() - start


def _run(
    forge: Forge, root: Path, config: ToyConfig, *, workers: int, seconds: float | None = None
) -> int:
    """Build, and kill the build after some seconds; return how it ended."""
    process = forge.start(root, WORDS, config, rows_per_shard=ROWS_PER_SHARD, workers=workers)
    if seconds is not None:
        time.sleep(seconds)
        os.killpg(process, signal.SIGKILL)
    return forge.wait(process)


def _check_parts(root: Path) -> int:
    """Return how many parts there are, each of them whole: so is every file under a final name, at
    any moment."""
    folder, paths = Folder(str(root)), list(root.rglob("*.parquet"))
    for path in paths:
        assert len(read_part(Part(folder, str(path.relative_to(root)))))
    for path in root.glob("snapshots/*.json"):
        json.loads(path.read_text())
    return len(paths)


def _check_end(root: Path, unkilled: dict[str, bytes]) -> None:
    assert read_tree(root) == unkilled
    assert len(list(root.glob("snapshots/*.json"))) == 1
    assert not list(root.glob("journals/*/*"))
    assert not [path for path in root.glob("work/*") if path.is_dir()]
    check(root, WORDS)


def _check_calls(path: Path, *, kills: int) -> None:
    """A kill repeats at most a shard, and with a journal the row that was written last and the one
    in the making."""
    calls = Counter(path.read_text().splitlines())
    path.unlink()
    assert len([call for call in calls if call.startswith("item")]) == len(WORDS)
    repeated = Counter({call: count - 1 for call, count in calls.items()})
    journalled = sum(count for call, count in repeated.items() if not call.startswith("note"))
    assert journalled <= 2 * kills
    assert repeated.total() - journalled <= ROWS_PER_SHARD * kills


def test_what_a_kill_left_half_written_is_deleted(tmp_path: Path) -> None:
    build_toy(tmp_path, WORDS)
    tables = [path.parent for path in tmp_path.rglob("*.parquet")]
    for table in tables:
        (table / f"part-0.parquet{TEMPORARY}0").write_bytes(b"PAR1")
    build_toy(tmp_path, WORDS)
    assert len(set(tables)) == 6
    assert not list(tmp_path.rglob(f"*{TEMPORARY}*"))
