"""Reading the live rows of a table: by subject, and streamed."""

from dataclasses import replace

import pyarrow as pa
import pytest

from pairwright.schemas.rows import ImageRow, PairRow
from pairwright.tasks.store import index as index_module
from pairwright.tasks.store.dataset import Build, write_items
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import describe_version, find_live, read_live, stream_live, write_snapshot
from tests.tasks.store.toy import ToyConfig, build_toy, list_words, plan_toy, record_of

WORDS = [f"word{number:03d}" for number in range(25)]


@pytest.fixture
def toy(tmp_path):
    """Build the toy dataset, then take five words away; yield it settled."""
    build_toy(tmp_path, WORDS, rows_per_shard=10)
    planned = plan_toy(ToyConfig())
    folder = Folder(str(tmp_path))
    with Build(folder, planned, write_items(folder, list_words(WORDS[5:])), 10) as build:
        counts = [build.settle(stage) for stage in planned]
        yield build, planned, counts


def test_streamed_rows_are_the_live_ones_in_the_order_of_the_parts(toy, monkeypatch):
    build, planned, _ = toy
    monkeypatch.setattr(index_module, "ROWS_PER_GROUP", 4)  # cuts the streamed tables, not the file
    reads = []
    original = index_module.read_rows
    monkeypatch.setattr(
        index_module,
        "read_rows",
        lambda part, rows, columns: reads.append((part.name, tuple(rows))) or original(part, rows, columns),
    )
    table = pa.concat_tables(stream_live(build, planned[0], ["key", "name"]))
    assert sorted(table.column("name").to_pylist()) == WORDS[5:]
    assert reads == sorted(reads)
    assert all(rows[-1] // 4 == rows[0] // 4 for _, rows in reads)
    places = [(name, row) for name, rows in reads for row in rows]
    assert len(places) == len(set(places)) == 20


def test_rows_are_found_by_subject(toy):
    build, planned, _ = toy
    rows = list(read_live(build, planned[0], ImageRow))
    wanted = [rows[3].key, rows[11].key, "0" * 32]
    found = find_live(build, planned[0], ImageRow, subjects=wanted, without=("image",))
    assert [(row.key, row.name, row.image) for row in found] == [
        (row.key, row.name, b"") for row in sorted([rows[3], rows[11]], key=lambda row: row.subject)
    ]
    assert find_live(build, planned[0], ImageRow, subjects=[]) == []


def test_nothing_live_gives_nothing(tmp_path):
    build_toy(tmp_path, ["bad1", "bad2"])
    planned = plan_toy(ToyConfig())
    folder = Folder(str(tmp_path))
    with Build(folder, planned, write_items(folder, list_words(["bad1", "bad2"])), 10) as build:
        for stage in planned:
            build.settle(stage)
        assert list(stream_live(build, planned[0], ["key"])) == []
        assert find_live(build, planned[2], PairRow, subjects=["0" * 32]) == []


def test_a_version_is_named_only_while_it_is_what_there_is(toy):
    build, planned, counts = toy
    assert describe_version(build, planned) == "version 1, changed since", "five words are gone"
    write_snapshot(build, list(zip(planned, counts, strict=True)), record=record_of())
    assert describe_version(build, planned) == "version 2"
    other = replace(planned[-1], fingerprint="0" * 16)
    build.settle(other)
    assert describe_version(build, [*planned[:-1], other]) == "version 2, changed since"
    for name in build.folder.names("snapshots"):
        build.folder.delete(f"snapshots/{name}")
    assert describe_version(build, planned) == "not yet a version"
