"""A source that brings pairs, built through mining with CLIP and DINOv2: tiny checkpoints, the real
loaders."""

import socket
from pathlib import Path

import pytest

from tests.fixtures.builds import build_through_mining, ok_rows
from tests.fixtures.checkpoints import write_clip_folder, write_dinov2_folder
from tests.fixtures.layouts import write_clevr_change


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the settings that embed with tiny encoders."""
    folder = tmp_path_factory.mktemp("checkpoints")
    clip, dinov2 = write_clip_folder(folder / "clip"), write_dinov2_folder(folder / "dinov2")
    return [
        "embedding.embedders=[clip, dinov2]",
        f"embedding.clip.checkpoint={clip}",
        f"embedding.dinov2.model={dinov2}",
        "embedding.batch_size=8",
    ]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no network."""
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *words, **_: pytest.fail(f"goes to the network: {words}")
    )


def test_brought_pairs_are_taken_and_benchmark_images_leave(
    tmp_path: Path, encoders: list[str]
) -> None:
    write_clevr_change(tmp_path / "in")
    source, leaving = f"clevr-change:{tmp_path / 'in'}", 2
    image = (tmp_path / "in/images/CLEVR_default_000001.png").read_bytes()
    counts = build_through_mining(tmp_path / "out", source, *encoders)
    assert counts["embeddings"]["in"] == counts["admitted"]["in"] == 0
    brought = counts["pairs"]["rows"]
    assert brought == len(ok_rows(tmp_path / "out", "pairs")) > leaving
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark" / "test.png").write_bytes(image)
    # Untrained encoders find all images alike: only the hash tells them apart.
    excluding = [f"exclude.sources=['{tmp_path / 'benchmark'}']", "exclude.min_similarity=1"]
    counts = build_through_mining(
        tmp_path / "out", source, *encoders, *excluding, "exclude.max_hash_distance=0"
    )
    assert counts["embeddings"]["ok"] == counts["images"]["rows"]
    assert counts["pairs"]["rows"] == brought - leaving
    assert counts["pairs"]["reasons"] == {
        "an image of the pair is excluded or has no vector": leaving
    }
    admitted = counts["admitted"]
    images = counts["images"]["rows"]
    assert [admitted[name] for name in ("in", "ok", "dropped")] == [images, images - 1, 1]
    assert admitted["reasons"] == {"near-duplicate of an excluded image": 1}
