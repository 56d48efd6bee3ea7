"""A build on an object store, in two worker processes, gives the rows of one on a disk, and owes nothing then."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import pairwright as pw
from pairwright.flows.progress import LineWatcher
from pairwright.flows.run_build import Work, make_request, run_build
from pairwright.flows.stages import TABLES
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.pool import Workers
from tests.fixtures.s3_server import s3_server

pytestmark = pytest.mark.slow
OUT = "s3://data/photographs"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, mined: Path) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("s3")
    words = {"profile": "scenes", "settings": ["run.rows_per_shard=4"], "limit": None, "until": "mining"}
    with s3_server(folder), pytest.MonkeyPatch.context() as patches:
        patches.setenv("TMPDIR", str(folder))
        request = make_request(OUT, str(mined.parent / "in"), **words)
        with Workers(2) as workers:
            assert run_build(request, Work(run_shards=workers.run, watcher=LineWatcher())).is_complete
        yield OUT


def test_its_rows_are_those_of_a_build_on_a_disk(built: str, mined: Path) -> None:
    tables = ("images", "embeddings", "neighbours", "pairs")
    assert set(tables) <= set(TABLES)
    for table in tables:
        local = sorted(pw.open(mined)[table].rows(), key=lambda row: row.key)
        assert local, table
        assert sorted(pw.open(built)[table].rows(), key=lambda row: row.key) == local


def test_it_leaves_no_work_behind(built: str) -> None:
    assert [name for name in Folder(built).folders("") if name not in ("tables", "snapshots")] == []


def test_it_owes_nothing(built: str, mined: Path) -> None:
    words = {"profile": "scenes", "settings": ["run.workers=1"], "limit": None, "until": "mining"}
    outcomes: list[object] = []

    class Watcher(LineWatcher):
        def advance(self, *about: object) -> None:
            outcomes.append(about)

    with Workers(1) as workers:
        request = make_request(built, str(mined.parent / "in"), **words)
        assert run_build(request, Work(run_shards=workers.run, watcher=Watcher())).is_complete
    assert outcomes == []
