"""Keep what a model says to held-out rows beside its run: a few for its page, or all for their scores.

    RUN/samples/samples.jsonl    one row per line: key, prompt, reference, answer, rejected, names of its images
    RUN/samples/*.png            the images, each once
    RUN/answers/*.jsonl          predictions and references by key, as ``pairwright evaluate captions`` reads them

Needs no PyTorch: the answers come from elsewhere.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from pairwright.schemas.rows import make_key
from pairwright.tasks.store.images import decode_rgb, encode_png
from pairwright.tasks.store.scratch import replacing

FOLDER, FILE = "samples", "samples.jsonl"
MOST_SIDE = 480
"""Longest side of a shown image in pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Held-out row, and what the model says to it."""

    key: str
    prompt: str
    images: tuple[bytes, ...]
    """As the dataset has them."""
    reference: str
    answer: str
    rejected: str = ""
    cut: bool = False
    """Whether the answer ended where no more tokens were allowed."""


def write_samples(run: Path, samples: Iterable[Sample]) -> None:
    """Write samples beside a run; those that were there go."""
    with replacing(run / FOLDER) as folder:
        rows = [{**asdict(one), "images": [_write_image(folder, image) for image in one.images]} for one in samples]
        (folder / FILE).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_answers(folder: Path, rows: Iterable[tuple[str, str, str]]) -> None:
    """Write rows of key, answer and reference; those that were there go."""
    kept = list(rows)
    with replacing(folder) as place:
        for side, name in enumerate(("predictions", "references"), start=1):
            lines = (json.dumps({"id": row[0], "text": row[side]}, ensure_ascii=False) + "\n" for row in kept)
            (place / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


def _write_image(folder: Path, image: bytes) -> str:
    name = f"{make_key(image)}.png"
    if not (folder / name).exists():
        pixels = Image.fromarray(decode_rgb(image))
        pixels.thumbnail((MOST_SIDE, MOST_SIDE), Image.Resampling.LANCZOS)
        (folder / name).write_bytes(encode_png(np.asarray(pixels)))
    return name
