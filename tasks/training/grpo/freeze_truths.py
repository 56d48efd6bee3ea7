"""Freeze the truths of a run's pairs: the scene graphs by which GRPO scores an answer.

Reads ``PreferenceRow`` and ``ImageRow`` without pixels; writes ``truths.arrow`` into the run's
folder: the row's key and the JSON of ``dump_truth``, some kilobytes each. Needs no PyTorch.
"""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyarrow.feather import read_table, write_feather

from pairwright.schemas.claims import is_no_change
from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import ImageRow
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.images.regions import same_world
from pairwright.tasks.scenes.reward_answers import dump_truth, find_changes
from pairwright.tasks.training.objective import DatasetTables
from pairwright.tasks.training.runs import TRUTHS

IMAGES = ("image", "captions")
PIXELS = ("images", "rejected_images", "removal_scores")


def read_truths(tables: DatasetTables) -> dict[str, str]:
    """Return the truth of each preference about a pair of photographs of one scene, by its key."""
    graphs: dict[str, SceneGraph] = {}
    for image in tables.read_rows("images", without=IMAGES):
        assert isinstance(image, ImageRow)
        if image.graph:
            graphs[image.key] = image.graph
    truths: dict[str, str] = {}
    for row in tables.read_rows("preferences", without=PIXELS):
        truth = find_truth([graphs.get(key) for key in row.image_keys])
        if truth:
            truths[row.key] = truth
    return truths


def find_truth(graphs: list[SceneGraph | None]) -> str:
    """Return the truth of a pair; empty: it is none of one scene whose changes are known."""
    if len(graphs) != 2 or not graphs[0] or not graphs[1]:
        return ""
    pair = same_world((graphs[0], graphs[1]))
    if pair is None or not (is_no_change(pair) or find_changes(pair)):
        return ""
    return dump_truth(pair)


def write_truths(folder: Path, truths: Mapping[str, str]) -> None:
    """Write the truths of some rows into a run's folder."""
    table = pa.table({"key": list(truths), "truth": list(truths.values())})
    write_feather(table, str(folder / TRUTHS))


def open_truths(folder: Path) -> dict[str, str]:
    """Return a run's truths by the rows' keys."""
    try:
        table = read_table(folder / TRUTHS)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{folder / TRUTHS}: cannot be read: {error}. Start over with another --name"
        ) from error
    return dict(zip(table["key"].to_pylist(), table["truth"].to_pylist(), strict=True))
