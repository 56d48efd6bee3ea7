"""Five hundred planted pairs on 72 photographs and parts of photographs: all statements are true.

Run with ``make soak``; half an hour of CPU time. ``tests/tasks/planting/check_planted.py`` reads
masks, pixels and texts by code of its own.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
import skimage
import sklearn
from PIL import Image

from pairwright.schemas.config import PlantedConfig
from pairwright.schemas.rows import ImageRow
from pairwright.tasks.captioning.describe_differences import compose_difference
from pairwright.tasks.images.decode import RGB, encode_png
from pairwright.tasks.images.scale import scale_down
from pairwright.tasks.planting.draw_planting import CHANGES
from pairwright.tasks.planting.photograph_planted import photograph_planted
from pairwright.tasks.sources.planted import name_changes
from tests.tasks.planting.check_planted import find_faults, find_pair_faults, find_text_faults

SKIMAGE = Path(skimage.__file__).parent / "data"
SKLEARN = Path(sklearn.__file__).parent / "datasets" / "images"
PNG = (
    *("astronaut", "chelsea", "coffee", "camera", "ihc", "moon", "coins", "brick", "grass"),
    *("gravel", "color", "motorcycle_left", "motorcycle_right"),
)
FILES = (
    *(SKIMAGE / f"{name}.png" for name in PNG),
    *(SKIMAGE / f"{name}.jpg" for name in ("rocket", "hubble_deep_field", "retina")),
    *(SKLEARN / f"{name}.jpg" for name in ("china", "flower")),
)
PARTS = ((0, 0, 1, 1), (0, 0, 0.6, 1), (0.4, 0, 1, 1), (0, 0.4, 1, 1))
"""Left, top, right and bottom as shares: the whole, and three parts."""
CONFIG = PlantedConfig(photographs=3, samples_per_pixel=4)
WORLDS = 4
PAIRS = 500


def photographs() -> Iterator[tuple[str, RGB]]:
    for path in FILES:
        image = Image.open(path).convert("RGB")
        for number, share in enumerate(PARTS):
            box = np.array(share) * (*image.size, *image.size)
            part = image.crop(tuple(np.round(box).astype(int)))
            yield f"{path.stem}-{number}", scale_down(np.asarray(part), 640)


def rows_of(name: str, photograph: RGB, seed: int) -> list[ImageRow]:
    """Return the planted photographs of one world as rows; none without room."""
    planted = photograph_planted(photograph, CONFIG, world=name, seeds=(0, seed))
    rows: list[ImageRow] = []
    for number, made in enumerate(planted or []):
        row = ImageRow(
            key=f"{name}-{number}",
            source_key=name,
            subject=f"{name}-{number}",
            image=encode_png(made.pixels),
            format="png",
            width=photograph.shape[1],
            height=photograph.shape[0],
            name=f"{name}/{number}",
            source="planted",
            licence="",
            group=name,
            graph=made.graph,
        )
        rows.append(row)
    return rows


@pytest.mark.slow
def test_planted_pairs_are_true() -> None:
    faults: list[str] = []
    kinds = Counter[str]()
    pairs = 0
    used = set[str]()
    for number, (name, photograph) in enumerate(photographs()):
        for seed in range(WORLDS):
            rows = rows_of(name, photograph, 100 * number + seed)
            for row in rows:
                faults += find_faults(row, photograph)
            for second in rows[1:]:
                first = rows[0]
                types = name_changes(first.graph, second.graph)
                kinds.update(types)
                faults += find_pair_faults(first, second, types)
                text = compose_difference((first.graph, second.graph), Random(pairs))
                if text is not None:
                    faults += find_text_faults(text.text, first.graph, second.graph)
                pairs += 1
                used.add(name)
    assert faults == []
    assert pairs >= PAIRS
    assert len(used) >= 60
    assert {*kinds} >= {*CHANGES, "no_change"}
