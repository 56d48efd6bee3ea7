"""Sources of each layout build through mining with CLIP and DINOv2: tiny checkpoints, the real loaders."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.builds import build_through_mining, ok_rows
from tests.fixtures.checkpoints import write_clip_folder, write_dinov2_folder
from tests.fixtures.layouts import write_clevr_change, write_spot_the_diff
from tests.fixtures.photographs import write_photographs
from tests.fixtures.pictures import picture

COUNT = 12


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


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("photographs") / "in"
    write_photographs(folder, variants=2)
    return sorted(folder.iterdir())[:COUNT]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no network."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *words, **_: pytest.fail(f"goes to the network: {words}"))


def clevr_change(root: Path) -> tuple[str, bytes, int]:
    write_clevr_change(root)
    return f"clevr-change:{root}", (root / "images/CLEVR_default_000001.png").read_bytes(), 2


def spot_the_diff(root: Path) -> tuple[str, bytes, int]:
    write_spot_the_diff(root)
    return f"spot-the-diff:{root}", (root / "resized_images/12998_2.png").read_bytes(), 1


def instruct_pix2pix(root: Path) -> tuple[str, bytes, int]:
    data = [picture(seed, kind="JPEG", size=(96, 64)) for seed in range(6)]
    for number in range(3):
        folder = root / f"{number:07d}"
        folder.mkdir(parents=True)
        (folder / "prompt.json").write_text(json.dumps({"edit": "add a hat", "input": "a man", "output": "a hat"}))
        for side in (0, 1):
            (folder / f"5_{side}.jpg").write_bytes(data[2 * number + side])
    (root / "seeds.json").write_text(json.dumps([[f"{number:07d}", [5]] for number in range(3)]))
    return f"instructpix2pix:{root}", data[3], 1


@pytest.mark.parametrize("write", [clevr_change, spot_the_diff, instruct_pix2pix])
def test_brought_pairs_are_taken_and_benchmark_images_leave(
    tmp_path: Path, encoders: list[str], write: Callable[[Path], tuple[str, bytes, int]]
) -> None:
    source, image, leaving = write(tmp_path / "in")
    counts = build_through_mining(tmp_path / "out", source, *encoders)
    assert counts["embeddings"]["in"] == counts["admitted"]["in"] == 0
    brought = counts["pairs"]["rows"]
    assert brought == len(ok_rows(tmp_path / "out", "pairs")) > leaving
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark" / "test.png").write_bytes(image)
    # Untrained encoders find all images alike: only the hash tells them apart.
    excluding = [
        f"exclude.sources=['{tmp_path / 'benchmark'}']",
        "exclude.min_similarity=1",
        "exclude.max_hash_distance=0",
    ]
    counts = build_through_mining(tmp_path / "out", source, *encoders, *excluding)
    assert counts["embeddings"]["ok"] == counts["images"]["rows"]
    assert counts["pairs"]["rows"] == brought - leaving
    assert counts["pairs"]["reasons"] == {"an image of the pair is excluded or has no vector": leaving}
    admitted = counts["admitted"]
    images = counts["images"]["rows"]
    assert [admitted[name] for name in ("in", "ok", "dropped")] == [images, images - 1, 1]
    assert admitted["reasons"] == {"near-duplicate of an excluded image": 1}
