"""Preferences that a source brought get rejected images: the whole line on a tiny set, report and
export included."""

import io
import socket
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pairwright as pw
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.masks import decode_mask
from tests.fixtures.builds import ok_rows
from tests.fixtures.checkpoints import (
    READING_CLIP,
    write_clip_folder,
    write_grounding_folder,
    write_sam,
)
from tests.fixtures.command import counts_of, run, words_of
from tests.fixtures.lama_checkpoints import write_lama
from tests.fixtures.pictures import picture
from tests.fixtures.tables import IMAGE, struct, write_table
from tests.fixtures.tagger import REAL

DATA = [picture(seed, kind="JPEG", size=(96, 64)) for seed in range(3)]
CHOSEN = [
    "A dog and a ball. The ball is red.",
    "A person sits on a lawn.",
    "A cat with a ball.",
    "A dog.",
]
TAGS = [{"dog", "ball", "person"}, {"dog", "ball", "person"}, {"cat", "ball"}, {"dog"}]
"""What the texts about each one's image name, of the words that the tiny models know."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("rlaif")
    columns = {
        "image": [struct(DATA[n], f"{n}.jpg") for n in (0, 0, 1, 2)],
        "question": ["What is it?", "Where?", "What is it?", "What?"],
        "chosen": CHOSEN,
        "rejected": ["A horse.", "In a pool.", "Two cats.", "A cube."],
    }
    write_table(folder / "RLAIF-V-Dataset_000.parquet", columns, types={"image": IMAGE})
    return f"rlaif-v:{folder}"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return words of the command line for CLIP, tiny, to choose."""
    clip = write_clip_folder(tmp_path_factory.mktemp("models") / "clip", architecture=READING_CLIP)
    fields = [
        "embedding.embedders=[gradients, clip]",
        f"embedding.clip.checkpoint={clip}",
        "embedding.batch_size=8",
    ]
    return words_of([*fields, "rejections.scorer=clip", "run.workers=1"])


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no network."""
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *words, **_: pytest.fail(f"goes to the network: {words}")
    )


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return words of the command line for all models of photographs, tiny and random, in the true
    formats."""
    folder = tmp_path_factory.mktemp("seeing")
    write_grounding_folder(folder / "dino")
    write_sam(folder / "sam.pth")
    lama = write_lama(folder / "lama.pt")
    fields = [
        *("tagging.taggers=[nouns]", f"nouns.model={REAL}"),
        *("detection.detector=grounding-dino", f"detection.model={folder / 'dino'}"),
        *("detection.box_threshold=0.1", "detection.text_threshold=0.1"),
        *("segmentation.segmenter=sam", f"segmentation.checkpoint={folder / 'sam.pth'}"),
        *("segmentation.max_box_area=1", "elements.max_area=0.99"),
        *(
            "removals.inpainter=lama",
            f"removals.lama.checkpoint={folder / 'lama.pt'}",
            f"removals.lama.sha256={lama}",
        ),
        *("removals.dilate_pixels=0", "removals.feather_pixels=0"),
        *("inspection.detector_enabled=false", "inspection.max_rim=100"),
        *("inspection.max_left=100", "inspection.max_shift=255", "inspection.min_texture=0"),
    ]
    return words_of(fields)


@pytest.mark.slow
def test_images_are_rejected_by_models(
    source: str,
    settings: list[str],
    seeing: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    words = ["build", source, "--out", out, *settings, *seeing]
    assert run(*words) == 0
    counts = counts_of(out, capsys)
    names = [
        "mentions",
        "tags",
        "boxes",
        "masks",
        "elements",
        "removals",
        "inspected",
        "fitted",
        "rejections",
    ]
    filled = [name for name in counts if counts[name]["rows"]]
    assert filled == ["images", "given_preferences", "embeddings", *names, "preferences"]
    assert counts["fitted"]["ok"] == counts["removals"]["ok"] > 3
    elements = {row["key"]: row for row in ok_rows(out, "elements")}
    rows = ok_rows(out, "preferences")
    assert len(rows) == 4
    removed = [row for row in rows if row["rejected_image_maker"] == "removal"]
    assert removed
    for row in removed:
        (one,) = (score for score in row["removal_scores"] if score["chosen"])
        assert {score["tag"] for score in row["removal_scores"]} <= TAGS[
            CHOSEN.index(row["chosen"])
        ]
        assert one["clip"] == min(
            score["clip"] for score in row["removal_scores"] if not score["why"]
        )
        (shown,), (rejected,) = row["images"], row["rejected_images"]
        changed = (pixels(rejected) != pixels(shown)).any(axis=2)
        mask = decode_mask(Mask.model_validate_json(elements[one["removal"]]["mask"]))
        assert changed[mask].mean() > 0.9
        assert not changed[~mask].any()
    assert run("status", out) == 0
    pw.open(out).report(pairs=4)
    tally = pw.open(out).export("hf", str(tmp_path / "hf"))
    assert (tally.rows, tally.rejected_images, tally.crops) == (4, len(removed), 0)
    assert "the hole filled (LaMa)" in (tmp_path / "hf/README.md").read_text()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    assert run("resume", out) == 0
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")} == before, (
        "nothing is done twice"
    )
