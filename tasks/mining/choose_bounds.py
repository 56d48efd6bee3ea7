"""Choose the bounds of similarity by the album itself, not by numbers of another encoder (ours).

A cosine of 0.8 is a near view by CLIP, and means nothing by SigLIP 2 or DINOv3. With
``mining.quantile`` the lowest similarity of a pair is that quantile of the similarities of random
pairs of the album's images, in each space. The other two bounds keep the paper's proportions of
distances (1 - similarity): its best neighbour is at 0.20, its lower bound at 0.22, its upper one at
0.05.
"""

import numpy as np

from pairwright.schemas.config import MiningConfig
from pairwright.tasks.store.vectors import Vectors, to_units

PAIRS = 50_000
"""Random pairs of images: a quantile of 0.999 is then known to a few in a hundred thousand."""
BATCH = 2_000
BEST = 0.20 / 0.22
"""Distance of ``min_best_similarity``, as a share of that of ``min_similarity``."""
NEAREST = 0.05 / 0.22
"""The same of ``max_similarity``."""
DIGITS = 4


def choose_bounds(vectors: Vectors, config: MiningConfig) -> MiningConfig:
    """Return the settings with the bounds of one space; unchanged without a quantile.

    An album of fewer than two images has no pairs, and keeps the bounds that are set.
    """
    count = len(vectors.keys)
    if not config.quantile or count < 2:
        return config
    low = _measure_quantile(vectors, config, count)
    distance = 1 - low
    update = {
        "min_similarity": low,
        "min_best_similarity": round(1 - BEST * distance, DIGITS),
        "max_similarity": round(1 - NEAREST * distance, DIGITS),
    }
    return config.model_copy(update=update)


def _measure_quantile(vectors: Vectors, config: MiningConfig, count: int) -> float:
    """Return the quantile of the cosines of random pairs, drawn by the seed."""
    rng = np.random.default_rng(config.seed)
    first = rng.integers(0, count, PAIRS)
    second = (first + rng.integers(1, count, PAIRS)) % count  # another image
    cosines: list[float] = []
    for start in range(0, PAIRS, BATCH):
        rows = first[start : start + BATCH], second[start : start + BATCH]
        left, right = (to_units(vectors.matrix[side]) for side in rows)
        cosines.extend((left * right).sum(axis=1).tolist())
    return round(float(np.quantile(cosines, config.quantile)), DIGITS)
