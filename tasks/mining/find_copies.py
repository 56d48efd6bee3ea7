"""Find copies among images by their vectors: the same picture in other bytes (ours).

Images of one perceptual hash are compared with the one of the lowest key; those that are similar
enough in every other space are its copies. Of photographs saved as JPEG of quality 70 or scaled to
three quarters, the hash stays the same. Needs no pixels.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.models import perceptual_hash
from pairwright.tasks.store.vectors import Vectors, to_units

Flags = NDArray[np.bool_]
ROUNDING = 1e-6
"""Error of the cosine of one vector stored twice as float16, normalised again."""


def find_copies(spaces: Mapping[str, Vectors], min_similarity: float, usable: Flags) -> Flags:
    """Return which images are copies of one that stays, in the order of the keys.

    ``spaces`` hold the same images, with the perceptual hash; without it, none is a copy. Only
    ``usable`` images are compared.
    """
    is_copy = np.zeros(len(usable), dtype=bool)
    hashes = spaces.get(perceptual_hash.NAME)
    if hashes is None:
        return is_copy
    others = [space.matrix for name, space in spaces.items() if name != perceptual_hash.NAME]
    bound = min(min_similarity, 1 - ROUNDING)
    for group in _group_equal(hashes.matrix, np.flatnonzero(usable)):
        pending = group
        while len(pending) > 1:
            is_similar = np.ones(len(pending), dtype=bool)
            for matrix in others:
                units = to_units(matrix[pending])
                is_similar &= units @ units[0] >= bound
            is_similar[0] = False
            is_copy[pending[is_similar]] = True
            pending = pending[1:][~is_similar[1:]]
    return is_copy


def _group_equal(
    hashes: NDArray[np.float16], positions: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """Return the positions of each hash that several images have, rising; flat images have none."""
    matrix = hashes[positions]
    positions = positions[matrix.any(axis=1)]
    bits = np.packbits(matrix[matrix.any(axis=1)] > 0, axis=1)
    numbers = np.ascontiguousarray(bits).view(np.uint64).ravel()
    order = np.argsort(numbers, kind="stable")
    ends = np.flatnonzero(np.diff(numbers[order])) + 1
    groups = np.split(positions[order], ends)
    return [group for group in groups if len(group) > 1]
