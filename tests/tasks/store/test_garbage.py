"""Clearing up a toy dataset: what goes, what stays, and a kill at every step."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import Row, make_key
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.garbage import (
    GarbagePlan,
    LiveFiles,
    carry_out,
    dead_journals,
    dead_parts,
    erase_rows,
    find_removed,
    left_work,
)
from pairwright.tasks.store.open_tables import Build, alone
from pairwright.tasks.store.part import Part, read_part
from pairwright.tasks.store.snapshot import (
    part_files,
    read_snapshot,
    rename_parts,
    snapshot_numbers,
    write_snapshot,
)
from pairwright.tasks.store.takedowns import write_takedown
from tests.tasks.store.faults import Killed, dying
from tests.tasks.store.toy import (
    ToyConfig,
    build_toy,
    check_version,
    key_of,
    live_rows,
    open_toy,
    plan_toy,
    record_of,
    resolved,
    settled_toy,
    toy_version,
)

WORDS = ["a1", "a2", "b1", "b1/again", "c1", "d1", "bad"]
ROWS = 4


def plan(
    root: Path | str, words: Sequence[str], *, gone: Sequence[int], kept: Sequence[int], sweep: bool
) -> GarbagePlan:
    """Return what goes when some versions are kept, as ``collect_garbage`` finds it."""
    folder, live = Folder(str(root)), LiveFiles()
    with settled_toy(root, words) as build:
        removed = find_removed(build)
    with resolved(replace(open_toy(root, words), without=removed)) as build:
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


def erase(root: Path | str, number: int, rows_per_shard: int = ROWS) -> None:
    """Write the parts of a version without its removed images, and publish one that names them."""
    folder = Folder(str(root))
    names: dict[str, str] = {}
    with toy_version(root, number) as build:
        for path, rows in find_removed(build).items():
            names[path] = erase_rows(folder, path, rows, takedown=build.takedowns)
    snapshot = read_snapshot(folder, number)
    renamed = replace(snapshot, content=rename_parts(snapshot.content, names))
    with Build(
        folder, plan_toy(ToyConfig()), renamed.content["items"], rows_per_shard, {}, renamed
    ) as build:
        done = [(planned, build.resolve(planned)) for planned in build.planned]
        write_snapshot(build, done, record=record_of(rows_per_shard))


def make_removed(root: Path | str) -> None:
    """Build a dataset of two versions, the second without an image that was removed."""
    folder = Folder(str(root))
    build_toy(root, WORDS, rows_per_shard=ROWS)
    write_takedown(folder, [key_of("b1")], reason="")
    erase(root, 1)
    folder.write("journals/links-0123456789abcdef/part-0.journal", b"b1" * 50)
    folder.write("work/0123456789abcdef0123456789abcdef/plan.arrow", b"b1" * 50)


def cells_of(root: Path) -> Iterator[str]:
    """Yield every text and every image of every part."""
    for path in root.rglob("*.parquet"):
        for row in read_part(Part(Folder(str(root)), str(path.relative_to(root)))).to_pylist():
            yield from map(str, row.values())


def parts_of(root: Path) -> dict[Path, bytes]:
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*.parquet")}


def live_rows_left(root: Path | str) -> dict[str, list[Row]]:
    """Return the rows of all tables but the removed ones, in the form of a build."""
    with settled_toy(root, WORDS) as build:
        return live_rows(build)


def test_the_content_of_a_removed_image_is_erased_and_the_rest_stays(tmp_path: Path) -> None:
    make_removed(tmp_path)
    with toy_version(tmp_path, 1) as build:
        before = live_rows(build)
    secrets = ["b1" * 50, "a2 b1", "b1 c1", "b1/again"]
    cells = list(cells_of(tmp_path))
    assert any(secret in cell for cell in cells for secret in secrets)
    clear_up(tmp_path)
    tables = [path for path in (tmp_path / "tables").rglob("*") if "items" not in path.parts]
    data = b"".join(path.read_bytes() for path in tables if path.is_file())
    assert b"b1b1b1" not in data
    cells = [cell for cell in cells_of(tmp_path) if "word" not in cell]
    assert not [cell for cell in cells for secret in secrets[:3] if secret in cell]
    assert not (tmp_path / "journals").exists()
    assert live_rows_left(tmp_path) == before
    with toy_version(tmp_path, 2) as build:
        assert live_rows(build) == before
    assert build_toy(tmp_path, WORDS, rows_per_shard=ROWS)[1] == [], "nothing is unfinished"
    assert snapshot_numbers(Folder(str(tmp_path))) == [2]
    assert plan(tmp_path, WORDS, gone=[], kept=[2], sweep=True).step_count == 0


def kill_at(whole: Path, root: Path, at: int, *, late: bool) -> dict[Path, bytes]:
    """Clear up a copy of a dataset, die at a step, check, do the rest; return the parts."""
    shutil.copytree(whole, root)
    steps = carry_out(Folder(str(root)), plan(root, WORDS, gone=[1], kept=[2], sweep=True))
    with dying(at, late=late), pytest.raises(Killed):
        list(steps)
    with toy_version(root, 2) as build:
        assert live_rows(build) == live_rows_left(root)
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


def test_an_object_store_is_cleared_up_alike() -> None:
    folder = Folder(f"memory://garbage-{make_key('test')}")
    make_removed(folder.url)
    with alone(folder):
        clear_up(folder.url, kept=[])
    assert snapshot_numbers(folder) == [2]
    assert build_toy(folder.url, WORDS, rows_per_shard=ROWS)[1] == []
    names = [name for name in part_files(read_snapshot(folder, 2)) if "/images/" in name]
    images = [image for name in names for image in read_part(Part(folder, name))["image"]]
    assert b"b1" * 50 not in [image.as_py() for image in images]


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
