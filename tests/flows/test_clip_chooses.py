"""Pairs of rendered scenes whose rejected images CLIP chooses: the whole line, and vectors that come late."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pairwright.flows.progress import LineWatcher
from pairwright.flows.run_build import Report, Work, make_request, run_build
from pairwright.flows.version import open_present
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.pool import Outcome, ShardFailed, Workers
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.stage import Planned
from tests.fixtures.builds import ok_rows
from tests.fixtures.checkpoints import READING_CLIP, write_clip_folder
from tests.flows.conftest import SMALL, WIDE, with_images_of


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clip_folder(tmp_path_factory.mktemp("clip"), architecture=READING_CLIP)


@pytest.fixture(scope="module")
def built(rendered: Path, clip: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of which the vectors without an element came with its second build alone."""
    out = with_images_of(rendered, tmp_path_factory.mktemp("scenes") / "out")
    first = build(out, clip, losing="fitted")
    assert [failed.name for failed in first.failures]
    assert not first.is_complete
    assert {row["why"] for row in ok_rows(out, "rejections")} == {"no element can be removed"}
    assert {row["rejected_image_maker"] for row in ok_rows(out, "preferences")} == {""}
    assert build(out, clip).is_complete
    return out


def build(out: Path, clip: Path, losing: str = "") -> Report:
    """Build, as the command line does; all shards of one stage may be lost."""
    own = ["embedding.embedders=[colour-layout, clip]", f"embedding.clip.checkpoint={clip}", "embedding.batch_size=8"]
    settings = [*SMALL, *WIDE, *own, "rejections.scorer=clip"]
    request = make_request(str(out), None, profile="scenes", settings=settings, limit=None, until="")
    with Workers(1) as workers:

        def run(planned: Planned, shards: Sequence[ShardRef]) -> Iterator[Outcome]:
            if planned.stage.name != losing:
                yield from workers.run(planned, shards)
                return
            for shard in shards:
                yield Outcome(shard=shard, result=ShardFailed(name=shard.name, error="lost"), seconds=0.0)

        return run_build(request, Work(run_shards=run, watcher=LineWatcher()))


def live(out: Path, table: str) -> list[dict[str, Any]]:
    """Return the rows that count: of each subject, that of the second build."""
    rows = {row["subject"]: row for row in sorted(ok_rows(out, table), key=lambda row: bool(row["removal_scores"]))}
    return list(rows.values())


def test_rows_are_owed_again_when_vectors_come(built: Path) -> None:
    counts = {count.stage: count for count in open_present(Folder(str(built))).counts()}
    assert counts["fitted"].ok == counts["removals"].ok == counts["inspected"].ok
    assert counts["rejections"].rows == counts["preferences"].rows == counts["pairs"].rows
    assert "no element can be removed" not in counts["rejections"].reasons
    rows = live(built, "rejections")
    assert len(rows) == counts["pairs"].rows
    assert all(len(row["removal_scores"]) > 5 for row in rows)
    assert {row["maker"] for row in rows} >= {"removal"}
