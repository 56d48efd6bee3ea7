"""Refiltering: the pairs of other thresholds are those of a build with them, nothing before them is
made again."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pairwright as pw
from pairwright.flows.building.make_request import Request
from pairwright.flows.cli import app
from pairwright.flows.versions.refilter_dataset import (
    Refiltered,
    change_thresholds,
    refilter_dataset,
)
from pairwright.flows.versions.version import open_present
from pairwright.schemas.rows import ImageRow
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.open_tables import read_record
from pairwright.tasks.store.pool import Workers
from pairwright.tasks.store.snapshot import latest_snapshot, stream_live
from tests.fixtures.builds import run_request
from tests.fixtures.command import words_of
from tests.flows.conftest import build

TIGHTER = ["mining.min_similarity=0.85", "mining.min_best_similarity=0.85"]


@pytest.fixture
def dataset(mined: Path, tmp_path: Path) -> Folder:
    return Folder(str(shutil.copytree(mined, tmp_path / "dataset")))


def refilter(folder: Folder, settings: list[str], *, keep: bool = False) -> Refiltered:
    present = open_present(folder)
    with Workers(1) as workers:
        return refilter_dataset(present, change_thresholds(present, settings), workers, keep=keep)


def pairs_of(folder: Folder) -> set[str]:
    with open_present(folder).resolved() as (opened, stages):
        pairs = next(planned for planned, _ in stages if planned.stage.name == "pairs")
        tables = stream_live(opened, pairs, ["key"])
        return {key for table in tables for key in table.column("key").to_pylist()}


def by_name(counts: list[Counts]) -> dict[str, Counts]:
    return {count.stage: count for count in counts}


def test_pairs_are_those_of_a_build_with_the_new_thresholds(
    dataset: Folder, mined: Path, tmp_path: Path
) -> None:
    old = pairs_of(dataset)
    found = refilter(dataset, TIGHTER)
    settings = ["run.workers=1", *TIGHTER]
    source = str(mined.parent / "in")
    other = build(tmp_path / "other", source, until="mining", settings=settings)
    new = pairs_of(Folder(str(other)))
    counts = (len(old & new), len(new - old), len(old - new))
    assert (found.kept, found.gained, found.lost) == counts
    assert found.lost > 0
    assert found.after[-1] == by_name(open_present(Folder(str(other))).stage_counts())["pairs"]
    assert found.before[-1] == by_name(open_present(dataset).stage_counts())["pairs"]


def test_the_dataset_is_as_it_was_unless_the_thresholds_are_kept(dataset: Folder) -> None:
    request, version, pairs = read_record(dataset), latest_snapshot(dataset), pairs_of(dataset)
    found = refilter(dataset, TIGHTER)
    assert (read_record(dataset), latest_snapshot(dataset)) == (request, version)
    assert pairs_of(dataset) == pairs
    assert len(dataset.folders("tables/pairs")) == 2
    for name in ("images", "embeddings", "neighbours"):
        assert len(dataset.folders(f"tables/{name}")) == 1
    assert refilter(dataset, TIGHTER, keep=True) == found
    kept = open_present(dataset)
    assert (kept.profile.mining.min_similarity, kept.pipeline.until) == (0.85, "mining")
    assert by_name(open_present(dataset).stage_counts())["pairs"] == found.after[-1]
    report = run_request(Request(version=kept))
    assert report.is_complete
    assert report.snapshot.number == 2
    assert refilter(dataset, TIGHTER).gained == refilter(dataset, TIGHTER).lost == 0


def test_matched_pairs_go_with_more_matches(dataset: Folder) -> None:
    found = refilter(dataset, ["matching.min_matches=9999"])
    before, after = by_name(found.before)["matched_pairs"], by_name(found.after)["matched_pairs"]
    assert before.rows > after.rows == 0
    assert by_name(found.before)["similar_pairs"] == by_name(found.after)["similar_pairs"]


def test_pairs_that_come_are_named(dataset: Folder) -> None:
    tighter = refilter(dataset, TIGHTER, keep=True)
    settings = ["mining.min_similarity=0", "mining.min_best_similarity=0"]
    found = refilter(dataset, settings)
    assert found.gained >= tighter.lost > 0
    names = {row.name for row in pw.open(dataset.url)["images"].rows() if isinstance(row, ImageRow)}
    assert len(found.gained_names) == min(3, found.gained)
    assert {name for pair in found.gained_names for name in pair.split(" with ")} <= names
    words = ["refilter", dataset.url, *words_of(settings)]
    said = CliRunner().invoke(app, words).output
    assert "Stricter thresholds can also add pairs" in said
    assert found.gained_names[0] in said
    assert f"refilter {dataset.url} {' '.join(words[2:])} --keep" in said
    assert f"pairwright resume {dataset.url}" in CliRunner().invoke(app, [*words, "--keep"]).output
