"""A build on an object store, in two worker processes, gives the rows of one on a disk, and leaves
nothing unfinished then.

Its report names the command whose address opens in a browser.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

import pairwright as pw
from pairwright.flows.pipeline.stages import TABLES
from pairwright.tasks.store.files import Folder
from tests.fixtures.builds import Recorder, build_here
from tests.fixtures.command import run
from tests.fixtures.s3_server import s3_server
from tests.flows.verbs.test_view_dataset import Served

pytestmark = pytest.mark.slow
OUT = "s3://data/photographs"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, mined: Path) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("s3")
    with s3_server(), pytest.MonkeyPatch.context() as patches:
        patches.setenv("TMPDIR", str(folder))
        settings = ["run.rows_per_shard=4"]
        assert build_here(
            OUT, mined.parent / "in", until="mining", settings=settings, workers=2
        ).is_complete
        yield OUT


def test_s3_build_equals_disk_build(built: str, mined: Path) -> None:
    tables = ("images", "embeddings", "neighbours", "pairs")
    assert set(tables) <= set(TABLES)
    for table in tables:
        local = sorted(pw.open(mined)[table].rows(), key=lambda row: row.key)
        assert local, table
        assert sorted(pw.open(built)[table].rows(), key=lambda row: row.key) == local
    assert [name for name in Folder(built).folders("") if name not in ("tables", "snapshots")] == []
    recorder = Recorder()
    settings = ["run.workers=1"]
    again = build_here(
        built, mined.parent / "in", until="mining", settings=settings, watcher=recorder
    )
    assert (again.is_complete, recorder.ran) == (True, [])


def test_its_report_names_a_command_whose_address_opens(
    built: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("report", built) == 0
    said = capsys.readouterr().out.strip()
    assert f"{built}/report/index.html" in said
    assert Folder(built).read("report/index.html").startswith(b"<!doctype html>")
    assert said.endswith(f"pairwright view {built}")
    server = Served(said.rpartition(" ")[2])
    try:
        page = server.page(size=5)
        assert (page.status, page.total) == (200, len(list(pw.open(built)["pairs"].rows())))
        pictures = [
            given["src"] for tag, given in page.read.tags if tag == "img" and "src" in given
        ]
        assert pictures
        for name in pictures:
            assert server.client.get(f"/{name}").headers["content-type"].startswith("image/")
    finally:
        assert server.stop()[0] == 130
