"""Rows of drawn scenes, 64 x 64 pixels, for the experiments: those of ``tests.proof.draw_scenes`` with larger cells."""

import io
from dataclasses import replace
from random import Random

from PIL import Image

from pairwright.schemas.claims import Graphs
from pairwright.schemas.rows import PreferenceRow, make_key
from pairwright.tasks.captioning.describe_differences import compose_difference
from tests.fixtures.preferences_to_train import preference
from tests.proof.draw_scenes import Grid, draw_pair, paint

GRID = Grid(side=64, cell=21, radius=8)


def draw_rows(train: int, test: int, *, seed: int = 0) -> tuple[list[PreferenceRow], dict[str, Graphs]]:
    """Return rows of the splits train and test, and the graphs of both images by the row's subject."""
    rows: list[PreferenceRow] = []
    graphs: dict[str, Graphs] = {}
    number = 0
    while len(rows) < train + test:
        number += 1
        rng = Random(f"{seed} {number}")
        pair = draw_pair(rng, str(number), GRID)
        said = compose_difference(pair, rng)
        if said is None:
            continue
        images: list[bytes] = []
        for graph in pair:
            file = io.BytesIO()
            Image.fromarray(paint(graph, rng, GRID)).save(file, "PNG")
            images.append(file.getvalue())
        key = make_key("drawn", str(seed), str(number))
        split = "train" if len(rows) < train else "test"
        row = replace(preference(0), key=key, subject=key, source_key=key, chosen=said.text, split=split)
        rows.append(replace(row, images=tuple(images), image_keys=tuple(make_key(image) for image in images)))
        graphs[key] = pair
    return rows, graphs
