"""Versions of a dataset: numbered, never changed, and read back as live rows."""

import json
from pathlib import Path

import pytest

from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import ImageRow
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import latest_snapshot, read_live, write_snapshot
from tests.tasks.store.toy import build_toy, open_toy, record_of

WORDS = [f"w{number:03}" for number in range(300)] + ["w001/again"]


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
    assert (images["counts"]["in"], images["counts"]["ok"], sum(images["parts"].values())) == (3, 3, 3)
    assert second.content["lineage"] == record_of().model_dump(mode="json")
    for part in images["parts"]:
        assert (tmp_path / "tables/images" / images["fingerprint"] / part).is_file()
    build_toy(tmp_path, ["a", "b"])
    third = latest_snapshot(folder)
    assert third
    assert (third.number, third.content["stages"]) == (3, first.content["stages"])
    assert json.loads(folder.read("snapshots/000001.json")) == first.content


def test_of_two_that_write_at_once_the_second_takes_the_next_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_toy(tmp_path, ["a"])
    taken = Folder.create
    other = json.dumps({"version": 2, "stages": {}}).encode()

    def create_late(folder: Folder, name: str, data: bytes) -> bool:
        if name.endswith("2.json"):
            taken(folder, name, other)
        return taken(folder, name, data)

    monkeypatch.setattr(Folder, "create", create_late)
    with open_toy(tmp_path, ["a"]) as build:
        done = [(planned, build.settle(planned)) for planned in build.planned]
        snapshot = write_snapshot(build, done, record=record_of(limit=3))
    assert (snapshot.number, snapshot.content["parent"]) == (3, 2)
    assert (tmp_path / "snapshots/000002.json").read_bytes() == other


def test_a_damaged_snapshot_is_named(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.write("snapshots/000007.json", b'{"version": 7')
    with pytest.raises(StoreError, match=r"000007\.json"):
        latest_snapshot(folder)


def test_live_rows_are_read_in_the_order_of_their_subjects(tmp_path: Path) -> None:
    build_toy(tmp_path, WORDS, rows_per_shard=70)
    with open_toy(tmp_path, WORDS) as build:
        images = build.planned[0]
        build.settle(images)
        rows = list(read_live(build, images, ImageRow, without=["image"]))
        assert [row.subject for row in rows] == sorted(row.subject for row in rows)
        assert len(rows) == len({row.key for row in rows}) == 300
        assert {row.image for row in rows} == {b""}
