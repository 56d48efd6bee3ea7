"""Whole builds through the search: what is found of it in the rows and in the status."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.fixtures.builds import build_here, ok_rows


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Forty small pictures, near-duplicates in groups of four."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(4)
    for number in range(40):
        if number % 4 == 0:
            base = np.kron(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8), np.ones((8, 8, 1), np.uint8))
        changed = base.copy()
        changed[8 * (number % 4) : 8 * (number % 4) + 8, :16] = rng.integers(0, 256, 3)
        Image.fromarray(changed).save(folder / f"{number:02d}.png")
    return folder


def build(out: Path, pictures: Path, *settings: str):
    """Build up to the search; return its counts."""
    words = ["run.workers=1", "search.k=5", "run.rows_per_shard_of={neighbours: 7}", "search.min_similarity=0.2"]
    report = build_here(out, pictures, settings=[*words, *settings], until="neighbours")
    assert report.is_complete
    return report.counts[-1]


def test_recall_and_cut_off_lists_are_in_status_and_rows(tmp_path, pictures):
    counts = build(tmp_path / "out", pictures, "search.max_exact_images=25", "search.probes=1")
    (low,) = [reason for reason in counts.reasons if "recall in the band below 0.99: raise search.probes" in reason]
    assert counts.ok == 40
    assert sum(counts.reasons.values()) == 40
    row = ok_rows(tmp_path / "out", "neighbours")[0]
    place = row["embedders"].index("gradients")
    assert row["cells"][place] == 32
    assert row["recalls"][place] < 0.99
    counts = build(tmp_path / "out", pictures)
    assert set(counts.reasons) == {"the k neighbours end inside the band: raise search.k"}
    assert low not in counts.reasons
