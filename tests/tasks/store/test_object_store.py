"""Datasets on an object store: a real S3 server on this machine, which fails and dawdles on
request."""

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
from pairwright.tasks.store.executor import ShardFailed
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.scratch import UNUSED_S
from pairwright.tasks.store.snapshot import latest_snapshot
from tests.fixtures.s3_server import S3Server, s3_server
from tests.tasks.store.toy import build_toy, check, read_toy

WORDS = ["a", "b", "bad", "c", "d", "e/1", "e/2", "f"]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "FIRST_PAUSE_S", 0.01)


@pytest.fixture
def root(server: S3Server, request: pytest.FixtureRequest) -> Iterator[str]:
    yield f"s3://data/{request.node.name.replace('[', '-').rstrip(']')}"
    server.set_faults()


def rows(root: Path | str) -> dict[str, list[Any]]:
    return {
        name: sorted(found, key=lambda row: row.key)
        for name, found in read_toy(root, WORDS).items()
    }


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Return what a build of the words on a local disk gives."""
    root = tmp_path_factory.mktemp("local")
    build_toy(root, WORDS, rows_per_shard=3)
    return rows(root)


FAULTS = {
    "errors": [
        {"method": m, "path": "/data/", "what": w, "left": 999, "every": 5}
        for m, w in (("GET", "500"), ("PUT", "503"), ("HEAD", "500"), ("DELETE", "500"))
    ],
    "connections": [
        {"method": m, "path": "/data/", "what": w, "left": 999, "every": 5}
        for m, w in (("GET", "reset"), ("PUT", "reset"), ("PUT", "lost"), ("DELETE", "lost"))
    ],
    "slow reads": [
        {"method": "GET", "path": "part-", "what": "stall", "left": 3, "every": 5},
        {"method": "GET", "path": "/data/", "what": "drip", "left": 3, "every": 3},
    ],
}


@pytest.mark.parametrize(
    "kind",
    ["errors", *(pytest.param(k, marks=pytest.mark.slow) for k in ("connections", "slow reads"))],
)
def test_a_build_through_faults_ends_with_the_rows_of_one_on_a_disk(
    server: S3Server, root: str, kind: str, local: dict[str, list[Any]]
) -> None:
    server.set_faults(*FAULTS[kind])
    counts, outcomes = build_toy(root, WORDS, rows_per_shard=3)
    done = server.done()
    server.set_faults()
    assert not [outcome.result for outcome in outcomes if isinstance(outcome.result, ShardFailed)]
    assert all(done.get(rule["what"], 0) >= 2 for rule in FAULTS[kind]), done
    assert {count.failed + count.pending for count in counts} == {0}
    assert rows(root) == local
    check(root, WORDS)
    assert latest_snapshot(Folder(root)).number == 1


def test_one_of_many_gets_a_name(root: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        won = list(
            threads.map(lambda n: Folder(root).create("snapshots/1.json", b"%d" % n), range(8))
        )
    assert won.count(True) == 1
    assert Folder(root).read("snapshots/1.json") == b"%d" % won.index(True)


@pytest.mark.parametrize("what", ["lost", "500"])
def test_a_name_is_ones_own_where_the_answer_was_lost(
    server: S3Server, root: str, what: str
) -> None:
    server.set_faults({"method": "PUT", "path": "mine", "what": what})
    assert Folder(root).create("mine", b"1")
    assert not Folder(root).create("mine", b"1")
    server.set_faults({"method": "PUT", "path": "yours", "what": "500"})
    assert Folder(root).create("yours", b"1")


def test_what_goes_on_failing_is_said_with_what_to_look_at(server: S3Server, root: str) -> None:
    server.set_faults({"method": "PUT", "path": "/x", "what": "503", "left": 99})
    with pytest.raises(StoreError, match=rf"{root}/x: .*\b7\b.*s3://data"):
        Folder(root).write("x", b"1")
    assert server.done() == {"503": remote.TRIES}
    server.set_faults()
    with pytest.raises(StoreError, match=r"s3://nowhere/x: .*bucket does not exist"):
        Folder("s3://nowhere").write("x", b"1")
    with pytest.raises(StoreError, match=rf"{root}/missing"):
        Folder(root).read("missing")


def test_a_refusal_is_not_asked_for_again(
    server: S3Server, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    S3FileSystem.clear_instance_cache()
    server.set_faults()
    with pytest.raises(StoreError, match=r"Unable to locate credentials.*s3://data"):
        Folder(root).write("x", b"1")
    S3FileSystem.clear_instance_cache()
    assert server.done() == {}


def test_a_part_is_read_in_few_requests(server: S3Server, root: str) -> None:
    Folder(root).write("x", bytes(range(256)) * 8192)  # 2 MB
    server.set_faults()
    with Folder(root).open("x") as file:
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
    server: S3Server,
    root: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    local: dict[str, list[Any]],
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = tmp_path / f"pairwright-{os.getuid()}"
    unused, used = own / "copies/unused", own / "copies/used"
    for folder, age_s in ((unused, 1.1 * UNUSED_S), (used, 0.9 * UNUSED_S)):
        folder.mkdir(parents=True)
        os.utime(folder, times=(time.time() - age_s,) * 2)
    own.chmod(0o700)
    _, outcomes = build_toy(root, WORDS, rows_per_shard=4, workers=2)
    assert len(outcomes) >= 8
    assert not [outcome.result for outcome in outcomes if isinstance(outcome.result, ShardFailed)]
    assert list((own / "copies").iterdir()) == [used]
    monkeypatch.undo()
    assert rows(root) == {
        name: sorted(found, key=lambda row: row.key) for name, found in local.items()
    }
