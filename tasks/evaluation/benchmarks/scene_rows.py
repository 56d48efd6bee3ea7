"""What benchmarks on rendered scenes have in common: which photographs and pairs of a dataset were not trained on.

Reads ``ImageRow`` with graphs, ``PairRow``, and ``PreferenceRow``.
"""

from dataclasses import dataclass

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import ImageRow, PairRow, PreferenceRow
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.evaluation.benchmark import Data

TRAIN = "train"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPair:
    """Be a pair with what its photographs show."""

    key: str
    images: tuple[bytes, bytes]
    graphs: tuple[SceneGraph, SceneGraph]


def read_scenes(data: Data) -> dict[str, ImageRow]:
    """Return the photographs of a dataset whose scenes are known, by their keys.

    Raises:
        ConfigError: there are none.
    """
    rows = {row.key: row for row in data.rows("images") if isinstance(row, ImageRow) and row.graph}
    if not rows:
        raise ConfigError(f"--data {data.folder}: its images have no scene graphs; build one with --profile scenes")
    return rows


def read_pairs(data: Data) -> tuple[list[ShownPair], int]:
    """Return the pairs of which no image was trained on, and how many pairs there are."""
    images, trained = read_scenes(data), trained_images(data)
    pairs = sorted((row for row in data.rows("pairs") if isinstance(row, PairRow)), key=lambda row: row.key)
    kept = [row for row in pairs if not {row.first, row.second} & trained and {row.first, row.second} <= images.keys()]
    return [_shown(row, images) for row in kept], len(pairs)


def _shown(row: PairRow, images: dict[str, ImageRow]) -> ShownPair:
    first, second = images[row.first], images[row.second]
    assert first.graph
    assert second.graph
    return ShownPair(key=row.key, images=(first.image, second.image), graphs=(first.graph, second.graph))


def trained_images(data: Data) -> frozenset[str]:
    """Return the keys of images that preferences of the training split show; none where there are no preferences."""
    try:
        rows = data.rows("preferences", without=("images", "rejected_images"))
        return frozenset(
            key for row in rows if isinstance(row, PreferenceRow) and row.split == TRAIN for key in row.image_keys
        )
    except ConfigError:  # a dataset that was built without them
        return frozenset()


def held_out(kept: int, of: int, data: Data) -> str:
    """Say how many of a dataset's photographs or pairs are asked about.

    Raises:
        ConfigError: none are.
    """
    if not kept:
        raise ConfigError(f"--data {data.folder}: all of its images are in the training split; name another dataset")
    return f"{kept:,} of {of:,} are asked about: those whose images no preference of the training split shows"
