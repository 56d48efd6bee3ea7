"""Clearing up a toy dataset: what goes, what stays, and a kill at every step."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import make_key
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.garbage import (
    GarbagePlan,
    LiveFiles,
    carry_out,
    dead_journals,
    dead_parts,
    left_work,
)
from pairwright.tasks.store.open_tables import alone
from pairwright.tasks.store.part import Part, read_part
from pairwright.tasks.store.snapshot import part_files, read_snapshot, snapshot_numbers
from pairwright.tasks.store.takedowns import write_takedown
from tests.tasks.store.faults import Killed, dying
from tests.tasks.store.toy import (
    build_toy,
    check,
    check_version,
    key_of,
    open_toy,
    settled_toy,
    toy_version,
)

WORDS = ["a1", "a2", "b1", "b1/again", "c1", "d1", "bad"]
LEFT = ["a1", "a2", "c1", "d1", "bad"]
ROWS = 4


def plan(
    root: Path | str, words: Sequence[str], *, gone: Sequence[int], kept: Sequence[int], sweep: bool
) -> GarbagePlan:
    """Return what goes when some versions are kept, as ``collect_garbage`` finds it."""
    folder, live = Folder(str(root)), LiveFiles()
    with settled_toy(root, words) as build:
        live.mark_build(build)
        tables = [planned.table_path for planned in build.planned]
    for number in kept:
        if sweep:
            with toy_version(root, number) as build:
                live.mark_build(build)
        else:
            live.files.update(part_files(read_snapshot(folder, number)))
    files = [*dead_parts(folder, live.files), *left_work(folder)]
    journals = list(dead_journals(folder, tables, everything=sweep))
    return GarbagePlan(versions=gone, files=files, folders=journals)


def clear_up(
    root: Path | str,
    words: Sequence[str] = WORDS,
    *,
    gone: Sequence[int] = (1,),
    kept: Sequence[int] = (2,),
    sweep: bool = True,
) -> None:
    list(carry_out(Folder(str(root)), plan(root, words, gone=gone, kept=kept, sweep=sweep)))


def make_removed(root: Path | str) -> None:
    """Build a dataset of two versions, the second without an image that was removed."""
    folder = Folder(str(root))
    build_toy(root, WORDS, rows_per_shard=ROWS)
    write_takedown(folder, [key_of("b1")], reason="")
    build_toy(root, WORDS, rows_per_shard=ROWS)
    folder.write("journals/links-0123456789abcdef/part-0.journal", b"b1" * 50)
    folder.write("work/0123456789abcdef0123456789abcdef/plan.arrow", b"b1" * 50)


def cells_of(root: Path) -> Iterator[str]:
    """Yield every text and every image of every part."""
    for path in root.rglob("*.parquet"):
        for row in read_part(Part(Folder(str(root)), str(path.relative_to(root)))).to_pylist():
            yield from map(str, row.values())


def parts_of(root: Path) -> dict[Path, bytes]:
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*.parquet")}


def test_nothing_of_a_removed_image_is_left_and_nothing_is_owed(tmp_path: Path) -> None:
    make_removed(tmp_path)
    # Pairs and what is made of them are named by both contents; links name their neighbours.
    pair = make_key(*sorted([key_of("a2"), key_of("b1")]))
    secrets = [key_of("b1"), pair, "b1" * 50, "b1" * 10]
    cells = list(cells_of(tmp_path))
    assert all(any(secret in cell for cell in cells) for secret in secrets)
    clear_up(tmp_path)
    assert not [cell for cell in cells_of(tmp_path) for secret in secrets if secret in cell]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    data = b"".join(path.read_bytes() for path in files if path.parent.name != "takedowns")
    assert b"b1b1b1" not in data
    assert key_of("b1").encode() not in data
    assert not (tmp_path / "journals").exists()
    assert build_toy(tmp_path, WORDS, rows_per_shard=ROWS)[1] == []
    assert snapshot_numbers(Folder(str(tmp_path))) == [2]
    assert plan(tmp_path, WORDS, gone=[], kept=[2], sweep=True).step_count == 0
    check(tmp_path, LEFT)
    check_version(tmp_path, 2, LEFT)


def kill_at(whole: Path, root: Path, at: int, *, late: bool) -> dict[Path, bytes]:
    """Clear up a copy of a dataset, die at a step, check, do the rest; return the parts."""
    shutil.copytree(whole, root)
    steps = carry_out(Folder(str(root)), plan(root, WORDS, gone=[1], kept=[2], sweep=True))
    with dying(at, late=late), pytest.raises(Killed):
        list(steps)
    check_version(root, 2, LEFT)
    assert build_toy(root, WORDS, rows_per_shard=ROWS)[1] == [], "nothing is unfinished"
    clear_up(root, gone=[number for number in snapshot_numbers(Folder(str(root))) if number != 2])
    parts = parts_of(root)
    shutil.rmtree(root)
    return parts


def test_a_kill_loses_nothing_and_the_next_run_does_the_rest(tmp_path: Path) -> None:
    """Once among the versions, twice among the files; every step is in ``make soak``."""
    whole, cleared = tmp_path / "whole", tmp_path / "cleared"
    make_removed(whole)
    shutil.copytree(whole, cleared)
    garbage = plan(cleared, WORDS, gone=[1], kept=[2], sweep=True)
    list(carry_out(Folder(str(cleared)), garbage))
    assert len(garbage.files) > 2
    for at in (1, 3, garbage.step_count):
        assert kill_at(whole, tmp_path / str(at), at, late=at == 3) == parts_of(cleared)


def test_only_what_no_kept_version_names_goes(tmp_path: Path) -> None:
    versions = (["a", "b"], ["a", "b", "c"], ["c", "d"])
    for words in versions:
        build_toy(tmp_path, words, rows_per_shard=1)
    assert plan(tmp_path, versions[2], gone=[], kept=[1, 2, 3], sweep=False).step_count == 0
    clear_up(tmp_path, versions[2], gone=[1], kept=[2, 3], sweep=False)
    check_version(tmp_path, 2, versions[1])
    check_version(tmp_path, 3, versions[2])
    before = parts_of(tmp_path)
    clear_up(tmp_path, versions[2], gone=[2], kept=[3], sweep=False)
    check_version(tmp_path, 3, versions[2])
    assert build_toy(tmp_path, versions[2], rows_per_shard=1)[1] == []
    left = {str(path) for path in parts_of(tmp_path)}
    assert left == set(part_files(read_snapshot(Folder(str(tmp_path)), 3)))
    assert len(left) < len(before)


def test_a_kept_version_from_before_the_image_stays_as_it_was(tmp_path: Path) -> None:
    words = ["a1", "b1", "c1"]
    build_toy(tmp_path, ["a1", "c1"], rows_per_shard=2)
    build_toy(tmp_path, words, rows_per_shard=2)
    write_takedown(Folder(str(tmp_path)), [key_of("b1")], reason="")
    build_toy(tmp_path, words, rows_per_shard=2)
    clear_up(tmp_path, words, gone=[2], kept=[1, 3])
    check_version(tmp_path, 1, ["a1", "c1"])
    check_version(tmp_path, 3, ["a1", "c1"])
    assert not [cell for cell in cells_of(tmp_path) if key_of("b1") in cell]


def test_an_object_store_is_cleared_up_alike() -> None:
    folder = Folder(f"memory://garbage-{make_key('test')}")
    make_removed(folder.url)
    with alone(folder):
        clear_up(folder.url, kept=[])
    assert snapshot_numbers(folder) == [2]
    assert build_toy(folder.url, WORDS, rows_per_shard=ROWS)[1] == []
    check(folder.url, LEFT)
    images = [name for name in part_files(read_snapshot(folder, 2)) if "/images/" in name]
    keys = [key for name in images for key in read_part(Part(folder, name))["key"].to_pylist()]
    assert key_of("b1") not in keys


def test_nothing_is_cleared_up_while_somebody_reads_or_builds(tmp_path: Path) -> None:
    build_toy(tmp_path, WORDS)
    folder = Folder(str(tmp_path))
    with open_toy(tmp_path, WORDS) as build:
        with alone(folder):
            pass
        with build.lock_stage(build.planned[0]), pytest.raises(StoreError, match=r"work/\w+\.lock"):
            alone(folder).__enter__()
    with alone(folder), pytest.raises(StoreError, match=str(tmp_path)):
        alone(folder).__enter__()
    with alone(folder):
        pass
