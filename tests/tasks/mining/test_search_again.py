"""Whole builds through the search: what is extended equals what is built from scratch, byte by byte."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pairwright.flows.progress import LineWatcher
from pairwright.flows.run_build import Work, make_request, run_build
from pairwright.tasks.store.pool import Workers
from tests.fixtures.builds import ok_rows

NAMES = [f"{number:02d}.png" for number in range(40)]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Forty small pictures, near-duplicates in groups of four; 07 and 11 are the same picture twice as large."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(4)
    for number, name in enumerate(NAMES):
        if number % 4 == 0:
            base = np.kron(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8), np.ones((8, 8, 1), np.uint8))
        changed = base.copy()
        changed[8 * (number % 4) : 8 * (number % 4) + 8, :16] = rng.integers(0, 256, 3)
        Image.fromarray(changed).save(folder / name)
    twin = Image.open(folder / "07.png")
    twin.resize((64, 64), Image.Resampling.NEAREST).save(folder / "11.png")
    return folder


def build(tmp_path: Path, pictures: Path, names: list[str], *, out: str, settings: tuple[str, ...] = ()):
    """Put these pictures into the album, and build it up to the search."""
    album = tmp_path / "album"
    shutil.rmtree(album, ignore_errors=True)
    album.mkdir()
    for name in names:
        shutil.copy(pictures / name, album / name)
    words = ["run.workers=1", "search.k=5", "run.rows_per_shard_of={neighbours: 7}", *settings]
    request = make_request(
        str(tmp_path / out), str(album), profile="scenes", settings=words, limit=None, until="neighbours"
    )
    with Workers(1) as workers:
        report = run_build(request, Work(run_shards=workers.run, watcher=LineWatcher()))
    assert report.is_complete
    counts = report.counts[-1]
    stage = report.snapshot.content["stages"]["neighbours"]
    folder = f"tables/neighbours/{stage['fingerprint']}"
    return counts, {name: (tmp_path / out / folder / name).read_bytes() for name in stage["parts"]}, folder


STEPS = [NAMES[:30], NAMES, [*NAMES[:11], *NAMES[15:]], NAMES[3:35]]


@pytest.mark.parametrize(
    "settings",
    [pytest.param((), marks=pytest.mark.slow), ("search.max_exact_images=25", "search.probes=2")],
    ids=["exact", "index"],
)
def test_a_grown_and_shrunk_dataset_equals_one_from_scratch(tmp_path, pictures, settings):
    for number, names in enumerate(STEPS):
        counts, grown, _ = build(tmp_path, pictures, names, out="grown", settings=settings)
        assert counts.ok == counts.of == len(names)
        _, anew, _ = build(tmp_path, pictures, names, out=f"anew-{number}", settings=settings)
        assert grown == anew


def test_recall_and_cut_off_lists_are_in_status_and_rows(tmp_path, pictures):
    settings = ("search.max_exact_images=25", "search.probes=1", "search.min_similarity=0.2")
    counts, _, _ = build(tmp_path, pictures, NAMES, out="out", settings=settings)
    (low,) = [reason for reason in counts.reasons if "recall in the band below 0.99: raise search.probes" in reason]
    assert counts.ok == 40
    assert sum(counts.reasons.values()) == 40
    row = ok_rows(tmp_path / "out", "neighbours")[0]
    place = row["embedders"].index("gradients")
    assert row["cells"][place] == 32
    assert row["recalls"][place] < 0.99
    counts, _, _ = build(tmp_path, pictures, NAMES, out="out", settings=("search.min_similarity=0.2",))
    assert set(counts.reasons) == {"the k neighbours end inside the band: raise search.k"}
    assert low not in counts.reasons
