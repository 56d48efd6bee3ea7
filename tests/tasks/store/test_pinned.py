"""Versions of a dataset: numbered, never changed, and read as they were published."""

from pathlib import Path

import pytest

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.files import Folder, seal
from pairwright.tasks.store.snapshot import (
    check_parts,
    describe_version,
    latest_snapshot,
    missing_files,
    read_snapshot,
    write_snapshot,
)
from tests.tasks.store.toy import (
    ToyConfig,
    build_toy,
    check_version,
    open_toy,
    record_of,
    toy_version,
)

WORDS = ["a1", "a1/again", "b2", "bad", "c3", "failing", "failing/too"]


def test_every_version_is_read_as_it_was_published(tmp_path: Path) -> None:
    versions = (["a", "b"], ["a", "b", "c"], ["b", "c", "d"], ["d"])
    for words in versions:
        build_toy(tmp_path, words, rows_per_shard=2)
    for number, words in enumerate(versions, 1):
        check_version(tmp_path, number, words)


def test_what_was_refused_is_known_of_a_version(tmp_path: Path) -> None:
    out, config = tmp_path / "out", ToyConfig(trouble=str(tmp_path / "trouble"))
    (tmp_path / "trouble").touch()
    counts, _ = build_toy(out, WORDS, config, rows_per_shard=1)
    with toy_version(out, 1) as build:
        images = build.planned[0]
        assert build.ledger.count_stage(images) == counts[0]
        refused = sorted(row[:2] for row in build.refused(images))
        assert refused == [("dropped", "bad word"), *[("failed", "trouble")] * 2]
        assert describe_version(build) == "version 1"
    (tmp_path / "trouble").unlink()
    build_toy(out, WORDS, config, rows_per_shard=1)
    check_version(out, 2, WORDS)
    check_version(out, 1, WORDS, failed=["failing", "failing/too"])


def test_what_is_gone_is_named(tmp_path: Path) -> None:
    build_toy(tmp_path, ["a", "b", "bad"], rows_per_shard=1)
    folder, snapshot = Folder(str(tmp_path)), read_snapshot(Folder(str(tmp_path)), 1)
    check_parts(folder, snapshot)
    paths = sorted(tmp_path.glob("tables/images/*/part-*"))
    assert len(paths) == 3
    for path in paths:
        path.unlink()
    gone = [str(path.relative_to(tmp_path)) for path in paths]
    assert sorted(missing_files(folder, snapshot)) == gone
    with pytest.raises(StoreError, match=r"part-.* 2 others.*version 1 .*`pairwright gc`"):
        check_parts(folder, snapshot)


def test_versions_follow_one_another(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    assert latest_snapshot(folder) is None
    build_toy(tmp_path, ["a", "b"])
    first = latest_snapshot(folder)
    assert first
    assert (first.number, first.content["version"], first.content["parent"]) == (1, 1, None)
    build_toy(tmp_path, ["a", "b"])
    assert latest_snapshot(folder) == first
    build_toy(tmp_path, ["a", "b", "c"])
    second = latest_snapshot(folder)
    assert second
    assert (second.number, second.content["parent"]) == (2, 1)
    images = second.content["stages"]["images"]
    assert (images["counts"]["in"], images["counts"]["ok"]) == (3, 3)
    assert sum(images["parts"].values()) == 3
    assert second.content["lineage"] == record_of().model_dump(mode="json")
    for part in images["parts"]:
        assert (tmp_path / "tables/images" / images["fingerprint"] / part).is_file()
    build_toy(tmp_path, ["a", "b"])
    third = latest_snapshot(folder)
    assert third
    assert (third.number, third.content["stages"]) == (3, first.content["stages"])
    assert read_snapshot(folder, 1).content == first.content


def test_of_two_that_write_at_once_the_second_takes_the_next_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_toy(tmp_path, ["a"])
    create = Folder.create
    other = seal({"version": 2, "items": [], "stages": {}})

    def create_late(folder: Folder, name: str, data: bytes) -> bool:
        create(folder, "snapshots/000002.json", other)
        return create(folder, name, data)

    monkeypatch.setattr(Folder, "create", create_late)
    with open_toy(tmp_path, ["a"]) as build:
        done = [(planned, build.resolve(planned)) for planned in build.planned]
        snapshot = write_snapshot(build, done, record=record_of(limit=3))
    assert (snapshot.number, snapshot.content["parent"]) == (3, 2)
    assert (tmp_path / "snapshots/000002.json").read_bytes() == other
