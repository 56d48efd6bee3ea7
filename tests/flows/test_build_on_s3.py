"""A build on an object store, in two worker processes, gives the rows of one on a disk, and owes nothing then."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import pairwright as pw
from pairwright.flows.stages import TABLES
from pairwright.tasks.store.files import Folder
from tests.fixtures.builds import Recorder, build_here
from tests.fixtures.s3_server import s3_server

pytestmark = pytest.mark.slow
OUT = "s3://data/photographs"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, mined: Path) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("s3")
    with s3_server(folder), pytest.MonkeyPatch.context() as patches:
        patches.setenv("TMPDIR", str(folder))
        settings = ["run.rows_per_shard=4"]
        assert build_here(OUT, mined.parent / "in", until="mining", settings=settings, workers=2).is_complete
        yield OUT


def test_its_rows_are_those_of_a_build_on_a_disk_and_nothing_is_left_or_owed(built: str, mined: Path) -> None:
    tables = ("images", "embeddings", "neighbours", "pairs")
    assert set(tables) <= set(TABLES)
    for table in tables:
        local = sorted(pw.open(mined)[table].rows(), key=lambda row: row.key)
        assert local, table
        assert sorted(pw.open(built)[table].rows(), key=lambda row: row.key) == local
    assert [name for name in Folder(built).folders("") if name not in ("tables", "snapshots")] == []
    recorder = Recorder()
    settings = ["run.workers=1"]
    again = build_here(built, mined.parent / "in", until="mining", settings=settings, watcher=recorder)
    assert (again.is_complete, recorder.ran) == (True, [])
