"""Clearing up a toy dataset: what goes, what stays, and a kill at every step."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

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
from tests.tasks.store.faults import Killed
from tests.tasks.store.test_pinned import check as check_version
from tests.tasks.store.test_pinned import toy_version
from tests.tasks.store.toy import build_toy, check, key_of, open_toy

WORDS = ["a1", "a2", "b1", "b1/again", "c1", "d1", "bad"]
LEFT = ["a1", "a2", "c1", "d1", "bad"]
ROWS = 4


def plan(
    root: Path | str, words: Sequence[str], *, gone: Sequence[int], kept: Sequence[int], sweep: bool
) -> GarbagePlan:
    """Return what goes when some versions are kept, as ``flows.versions.collect_garbage`` finds it
    for real datasets."""
    folder, live = Folder(str(root)), LiveFiles()
    with open_toy(root, words) as build:
        for planned in build.planned:
            build.settle(planned)
        live.mark_build(build)
        tables = [planned.table for planned in build.planned]
    for number in kept:
        if sweep:
            with toy_version(Path(root), number) as build:
                live.mark_build(build)
        else:
            live.files.update(part_files(read_snapshot(folder, number)))
    return GarbagePlan(
        versions=gone,
        files=[*dead_parts(folder, live.files), *left_work(folder)],
        folders=list(dead_journals(folder, tables, everything=sweep)),
    )


def make_removed(root: Path) -> None:
    """Build a dataset of two versions, the second without an image that was removed."""
    build_toy(root, WORDS, rows_per_shard=ROWS)
    write_takedown(Folder(str(root)), [key_of("b1")], reason="")
    build_toy(root, WORDS, rows_per_shard=ROWS)
    (root / "journals/links-0123456789abcdef").mkdir(parents=True)
    (root / "journals/links-0123456789abcdef/part-0.journal").write_bytes(b"b1" * 50)
    (root / "work/0123456789abcdef0123456789abcdef").mkdir(parents=True)
    (root / "work/0123456789abcdef0123456789abcdef/plan.arrow").write_bytes(b"b1" * 50)


def cells_of(root: Path) -> Iterator[str]:
    """Yield every text and every image of every part."""
    for path in root.rglob("*.parquet"):
        for row in read_part(Part(Folder(str(root)), str(path.relative_to(root)))).to_pylist():
            yield from map(str, row.values())


def test_nothing_of_a_removed_image_is_left_and_nothing_is_owed(tmp_path: Path) -> None:
    make_removed(tmp_path)
    # Pairs and what is made of them are named by both contents; the links of a2 and b1 name their
    # neighbours.
    gone = {key_of("b1"), make_key(*sorted([key_of("a2"), key_of("b1")])), "b1" * 50, "b1" * 10}
    assert all(any(one in cell for cell in cells_of(tmp_path)) for one in gone)
    list(carry_out(Folder(str(tmp_path)), plan(tmp_path, WORDS, gone=[1], kept=[2], sweep=True)))
    assert not [cell for cell in cells_of(tmp_path) if any(one in cell for one in gone)]
    files = [
        path for path in tmp_path.rglob("*") if path.is_file() and "takedowns" not in path.parts
    ]
    assert not [
        path
        for path in files
        if b"b1b1b1" in path.read_bytes() or key_of("b1").encode() in path.read_bytes()
    ]
    assert not (tmp_path / "journals").exists()
    _, outcomes = build_toy(tmp_path, WORDS, rows_per_shard=ROWS)
    assert outcomes == []
    assert snapshot_numbers(Folder(str(tmp_path))) == [2]
    assert plan(tmp_path, WORDS, gone=[], kept=[2], sweep=True).steps == 0
    check(tmp_path, LEFT)
    check_version(tmp_path, 2, LEFT)


class Mortal:
    """Let the process die at the ``at``-th change of the folder, before or after it takes
    effect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, *, late: bool) -> None:
        self.at, self.late, self.count = at, late, 0
        for name in ("write", "delete"):
            monkeypatch.setattr(Folder, name, self._wrap(getattr(Folder, name)))
        monkeypatch.setattr(shutil, "rmtree", self._wrap(shutil.rmtree))

    def _wrap(self, real: Callable[..., Any]) -> Callable[..., None]:
        def call(*args: Any, **options: Any) -> None:
            self.count += 1
            if self.count == self.at and not self.late:
                raise Killed
            real(*args, **options)
            if self.count == self.at:
                raise Killed

        return call


def kill_at(whole: Path, root: Path, at: int, *, late: bool) -> dict[Path, bytes]:
    """Clear up a copy of a dataset, die at a step, look at what there is, do the rest; return the
    parts."""
    shutil.copytree(whole, root)
    found = plan(root, WORDS, gone=[1], kept=[2], sweep=True)
    with pytest.MonkeyPatch.context() as patches:
        Mortal(patches, at, late=late)
        with pytest.raises(Killed):
            list(carry_out(Folder(str(root)), found))
    check_version(root, 2, LEFT)
    assert build_toy(root, WORDS, rows_per_shard=ROWS)[1] == [], "nothing is owed"
    left = [number for number in snapshot_numbers(Folder(str(root))) if number != 2]
    list(carry_out(Folder(str(root)), plan(root, WORDS, gone=left, kept=[2], sweep=True)))
    parts = {path.relative_to(root): path.read_bytes() for path in root.rglob("*.parquet")}
    shutil.rmtree(root)
    return parts


def test_a_kill_loses_nothing_and_the_next_run_does_the_rest(tmp_path: Path) -> None:
    """Once among the versions, twice among the files; every step is in ``make soak``."""
    whole, made = tmp_path / "whole", tmp_path / "made"
    make_removed(whole)
    shutil.copytree(whole, made)
    found = plan(made, WORDS, gone=[1], kept=[2], sweep=True)
    list(carry_out(Folder(str(made)), found))
    expected = {path.relative_to(made): path.read_bytes() for path in made.rglob("*.parquet")}
    assert len(found.files) > 2
    for at in (1, 3, found.steps):
        assert kill_at(whole, tmp_path / str(at), at, late=at == 3) == expected


def test_only_what_no_kept_version_names_goes(tmp_path: Path) -> None:
    steps = (["a", "b"], ["a", "b", "c"], ["c", "d"])
    for words in steps:
        build_toy(tmp_path, words, rows_per_shard=1)
    assert plan(tmp_path, steps[2], gone=[], kept=[1, 2, 3], sweep=False).steps == 0
    list(
        carry_out(
            Folder(str(tmp_path)), plan(tmp_path, steps[2], gone=[1], kept=[2, 3], sweep=False)
        )
    )
    check_version(tmp_path, 2, steps[1])
    check_version(tmp_path, 3, steps[2])
    before = set(tmp_path.rglob("*.parquet"))
    list(
        carry_out(Folder(str(tmp_path)), plan(tmp_path, steps[2], gone=[2], kept=[3], sweep=False))
    )
    check_version(tmp_path, 3, steps[2])
    assert build_toy(tmp_path, steps[2], rows_per_shard=1)[1] == []
    named = set(part_files(read_snapshot(Folder(str(tmp_path)), 3)))
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")}
    assert left == named
    assert len(left) < len(before)


def test_a_kept_version_from_before_the_image_stays_as_it_was(tmp_path: Path) -> None:
    build_toy(tmp_path, ["a1", "c1"], rows_per_shard=2)
    build_toy(tmp_path, ["a1", "b1", "c1"], rows_per_shard=2)
    write_takedown(Folder(str(tmp_path)), [key_of("b1")], reason="")
    build_toy(tmp_path, ["a1", "b1", "c1"], rows_per_shard=2)
    list(
        carry_out(
            Folder(str(tmp_path)),
            plan(tmp_path, ["a1", "b1", "c1"], gone=[2], kept=[1, 3], sweep=True),
        )
    )
    check_version(tmp_path, 1, ["a1", "c1"])
    check_version(tmp_path, 3, ["a1", "c1"])
    assert not [cell for cell in cells_of(tmp_path) if key_of("b1") in cell]


def test_an_object_store_is_cleared_up_alike(tmp_path: Path) -> None:
    del tmp_path
    url = f"memory://garbage-{make_key('test')}"
    folder = Folder(url)
    build_toy(url, WORDS, rows_per_shard=ROWS)
    write_takedown(folder, [key_of("b1")], reason="")
    build_toy(url, WORDS, rows_per_shard=ROWS)
    folder.write("work/left/plan.arrow", b"")
    with alone(folder):
        list(carry_out(folder, plan(url, WORDS, gone=[1], kept=[], sweep=True)))
    assert snapshot_numbers(folder) == [2]
    assert build_toy(url, WORDS, rows_per_shard=ROWS)[1] == []
    check(url, LEFT)
    images = [name for name in part_files(read_snapshot(folder, 2)) if "/images/" in name]
    tables = [read_part(Part(folder, name)) for name in images]
    assert {key for table in tables for key in table["key"].to_pylist()}.isdisjoint({key_of("b1")})


def test_nothing_is_cleared_up_while_somebody_reads_or_builds(tmp_path: Path) -> None:
    build_toy(tmp_path, WORDS)
    folder = Folder(str(tmp_path))
    with open_toy(tmp_path, WORDS) as build:
        with alone(folder):
            pass
        with build.locked(build.planned[0]), pytest.raises(StoreError, match=r"work/\w+\.lock"):
            alone(folder).__enter__()
    with alone(folder), pytest.raises(StoreError, match=str(tmp_path)):
        alone(folder).__enter__()
    with alone(folder):
        pass
