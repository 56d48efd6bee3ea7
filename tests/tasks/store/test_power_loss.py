"""Cut the power in the life of a dataset: what was flushed is there, and of the rest any part.

The life: a build, one of other words, a removal on request, clearing up. After the cut, the step
that was cut off is repeated.
"""

import random
import shutil
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pairwright.schemas.rows import Row
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import snapshot_numbers
from pairwright.tasks.store.takedowns import (
    last_unswept,
    read_takedowns,
    write_swept,
    write_takedown,
)
from tests.tasks.store.power import Disk
from tests.tasks.store.test_garbage import cells_of, clear_up, erase
from tests.tasks.store.toy import build_toy, key_of, live_rows, read_tree, toy_version

FIRST = ["a1", "a2", "b1", "bad", "c1"]
SECOND = ["a1", "a2", "b1", "b1/again", "d1", "bad"]
Rows = dict[str, list[Row]]


def build(root: Path, words: list[str]) -> None:
    build_toy(root, words, rows_per_shard=3)


def remove(root: Path) -> None:
    folder = Folder(str(root))
    if not read_takedowns(folder):
        write_takedown(folder, [key_of("b1")], reason="on request")


def sweep(root: Path) -> None:
    folder = Folder(str(root))
    gone = [number for number in snapshot_numbers(folder) if number != 3]
    clear_up(root, SECOND, gone=gone, kept=[3])
    write_swept(folder, 1)


STEPS: tuple[Callable[[Path], None], ...] = (
    lambda root: build(root, FIRST),
    lambda root: build(root, SECOND),
    remove,
    lambda root: erase(root, 2, 3),
    sweep,
)
PROMISED = ([], [1], [1, 2], [1, 2], [3], [3])
"""Versions that there must be after so many steps, but for those that the next step deletes."""


@dataclass(frozen=True)
class Life:
    """A dataset built without a power cut."""

    disk: Disk
    ends: list[int]
    """The moment at which each step was over."""
    tree: dict[str, bytes]
    rows: dict[tuple[int, bool], Rows]
    """Rows of each version before and after the removal."""


def read_versions(root: Path) -> dict[tuple[int, bool], Rows]:
    """Return the rows of each version, and whether images are removed."""
    folder = Folder(str(root))
    rows: dict[tuple[int, bool], Rows] = {}
    for number in snapshot_numbers(folder):
        with toy_version(root, number) as version:
            rows[number, bool(read_takedowns(folder))] = live_rows(version)
    return rows


def live(root: Path) -> Life:
    """Go through all steps, and record them."""
    root.mkdir()
    disk, ends = Disk(root), list[int]()
    rows: dict[tuple[int, bool], Rows] = {}
    with disk.recording():
        for step in STEPS:
            step(root)
            ends.append(disk.tick())
            rows |= read_versions(root)
    return Life(disk, ends, read_tree(root), rows)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    return live(tmp_path_factory.mktemp("whole") / "data")


def cut(life: Life, root: Path, seed: int) -> None:
    """Cut the power at a moment of the seed's, one time in three after a step; then go on."""
    rng = random.Random(seed)
    anywhere = [rng.randrange(life.disk.moment), rng.randrange(life.disk.moment)]
    moment = rng.choice([*anywhere, rng.choice(life.ends) + 1])
    share = rng.choice([0.0, 0.5, 0.9, 1.0])
    life.disk.lay_down(root, moment, rng, share)
    done = bisect_right(life.ends, moment - 1)
    look(life, root, done)
    for step in STEPS[done:]:
        step(root)
    assert read_tree(root) == life.tree
    look(life, root, len(STEPS))
    shutil.rmtree(root)


def look(life: Life, root: Path, done: int) -> None:
    """What a finished step has promised is there, and every version that is there is whole."""
    folder = Folder(str(root))
    numbers = snapshot_numbers(folder)
    assert set(PROMISED[done]) <= set(numbers)
    for state, rows in read_versions(root).items():
        assert rows == life.rows[state]
    if done >= 3:
        assert [entry.keys for entry in read_takedowns(folder)] == [(key_of("b1"),)]
    if done >= 3 and not last_unswept(folder, read_takedowns(folder)):
        assert not [cell for cell in cells_of(root) if "b1" * 50 in cell]


@pytest.mark.parametrize("seed", range(5))
def test_a_loss_of_power_loses_and_doubles_nothing(life: Life, tmp_path: Path, seed: int) -> None:
    cut(life, tmp_path / "cut", seed)


def files_of(root: Path) -> dict[str, bytes]:
    paths = [path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock"]
    names = {str(path.relative_to(root)): path for path in paths if "work" not in path.parts}
    return {name: path.read_bytes() for name, path in names.items()}


def test_a_cut_really_loses_what_was_not_flushed(tmp_path: Path) -> None:
    (root := tmp_path / "data").mkdir()
    disk = Disk(root)
    with disk.recording():
        Folder(str(root)).write("flushed", b"flushed")
        (root / "flushed").replace(root / "renamed")
        (root / "folder").mkdir()
        Folder(str(root)).write("folder/kept", b"kept")
    for share in (0.0, 1.0):
        disk.lay_down(tmp_path / str(share), disk.moment, random.Random(0), share)
    assert files_of(tmp_path / "0.0") == {"flushed": b"flushed"}
    assert files_of(tmp_path / "1.0") == {"renamed": b"flushed", "folder/kept": b"kept"}
