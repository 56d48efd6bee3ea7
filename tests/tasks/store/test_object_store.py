"""Datasets on an object store: a real S3 server on this machine, which fails on request."""

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from s3fs import S3FileSystem

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store import remote
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.scratch import UNUSED_S
from pairwright.tasks.store.snapshot import latest_snapshot
from tests.fixtures.s3_server import S3Server, s3_server
from tests.tasks.store.toy import build_toy, check, failures, read_toy

WORDS = ["a", "b", "bad", "c", "d", "e/1", "e/2", "f"]
Rows = dict[str, list[Any]]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "FIRST_PAUSE_S", 0.01)


@pytest.fixture
def root(server: S3Server, request: pytest.FixtureRequest) -> Iterator[str]:
    server.set_faults()
    yield f"s3://data/{request.node.name.replace('[', '-').rstrip(']').replace(' ', '-')}"
    server.set_faults()


@pytest.fixture
def folder(root: str) -> Folder:
    return Folder(root)


def rows(root: Path | str) -> Rows:
    tables = read_toy(root, WORDS)
    return {name: sorted(table, key=lambda row: row.key) for name, table in tables.items()}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Return what a build of the words on a local disk gives."""
    root = tmp_path_factory.mktemp("local")
    build_toy(root, WORDS, rows_per_shard=3)
    return rows(root)


def fault(
    method: str, what: str, path: str = "/data/", left: int = 999, every: int = 5
) -> dict[str, Any]:
    return {"method": method, "path": path, "what": what, "left": left, "every": every}


ERRORS = (("GET", "500"), ("PUT", "503"), ("HEAD", "500"), ("DELETE", "500"))
LOST = (("GET", "reset"), ("PUT", "reset"), ("PUT", "lost"), ("DELETE", "lost"))
SLOW = (("GET", "stall", "part-", 3, 5), ("GET", "drip", "/data/", 3, 3))


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(ERRORS, id="errors"),
        pytest.param(LOST, id="connections", marks=pytest.mark.slow),
        pytest.param(SLOW, id="slow reads", marks=pytest.mark.slow),
    ],
)
def test_a_build_through_faults_ends_with_the_rows_of_one_on_a_disk(
    server: S3Server, root: str, faults: tuple[tuple[Any, ...], ...], local: Rows
) -> None:
    server.set_faults(*(fault(*words) for words in faults))
    counts, outcomes = build_toy(root, WORDS, rows_per_shard=3)
    done = server.done()
    server.set_faults()
    assert failures(outcomes) == []
    assert all(done.get(what, 0) >= 2 for _, what, *_ in faults), done
    assert {count.failed + count.pending for count in counts} == {0}
    assert rows(root) == local
    check(root, WORDS)
    assert latest_snapshot(Folder(root)).number == 1


def test_one_of_many_gets_a_name(folder: Folder) -> None:
    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(lambda n: folder.create("snapshots/1.json", b"%d" % n), range(8)))
    assert won.count(True) == 1
    assert folder.read("snapshots/1.json") == b"%d" % won.index(True)


@pytest.mark.parametrize("what", ["lost", "500"])
def test_a_name_is_ones_own_where_the_answer_was_lost(
    server: S3Server, folder: Folder, what: str
) -> None:
    server.set_faults({"method": "PUT", "path": "mine", "what": what})
    assert folder.create("mine", b"1")
    assert not folder.create("mine", b"1")


def test_what_goes_on_failing_is_said_with_what_to_look_at(
    server: S3Server, folder: Folder
) -> None:
    server.set_faults({"method": "PUT", "path": "/x", "what": "503", "left": 99})
    with pytest.raises(StoreError, match=rf"{folder.url}/x: .*\b7\b.*s3://data"):
        folder.write("x", b"1")
    assert server.done() == {"503": remote.TRIES}
    server.set_faults()
    with pytest.raises(StoreError, match=r"s3://nowhere/x: .*bucket does not exist"):
        Folder("s3://nowhere").write("x", b"1")
    with pytest.raises(StoreError, match=rf"{folder.url}/missing"):
        folder.read("missing")


def test_a_refusal_is_not_asked_for_again(
    server: S3Server, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    S3FileSystem.clear_instance_cache()
    with pytest.raises(StoreError, match=r"Unable to locate credentials.*s3://data"):
        folder.write("x", b"1")
    S3FileSystem.clear_instance_cache()
    assert server.done() == {}


def test_a_part_is_read_in_few_requests(server: S3Server, folder: Folder) -> None:
    folder.write("x", bytes(range(256)) * 8192)  # 2 MB
    server.set_faults()
    with folder.open_for_reading("x") as file:
        assert file.seek(0, 2) == 2 << 20
        file.seek(-100, 2)
        assert file.read(100)[-3:] == b"\xfd\xfe\xff"
        for place in range(0, 2560, 256):  # near each other: one request
            file.seek(place)
            assert file.read(3) == b"\x00\x01\x02"
        room = bytearray(1 << 20)
        file.seek(1 << 19)
        assert file.readinto(room) == 1 << 20
    assert room == bytes(range(256)) * 4096
    assert server.done() == {"HEAD": 1, "GET": 3}


def test_workers_of_a_machine_share_their_copies_and_leave_none(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: Rows
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    copies = tmp_path / f"pairwright-{os.getuid()}/copies"
    for name, age_s in (("unused", 1.1 * UNUSED_S), ("used", 0.9 * UNUSED_S)):
        (copies / name).mkdir(parents=True)
        os.utime(copies / name, times=(time.time() - age_s,) * 2)
    copies.parent.chmod(0o700)
    _, outcomes = build_toy(root, WORDS, rows_per_shard=4, workers=2)
    assert len(outcomes) >= 8
    assert failures(outcomes) == []
    assert list(copies.iterdir()) == [copies / "used"]
    monkeypatch.undo()
    assert rows(root) == local
