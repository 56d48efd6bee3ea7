"""Draw partners that share nouns, in one compiled loop: the part of ``pair_nouns.py`` that needs numba.

Reads the lists of ``noun_index.py``, writes the numbers of the partners; imported only when images are paired. The
first call on a machine compiles for some seconds.
"""

import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.mining.cluster_jit import compiled, compiled_entry
from pairwright.tasks.mining.noun_index import Lists

Numbers = NDArray[np.int64]
Short = NDArray[np.int32]
Draws = NDArray[np.uint64]


@compiled_entry()
def draw_partners(anchors: Numbers, lists: Lists, levels: Numbers, looked_at: int, partners: Numbers) -> None:
    """Fill ``partners`` (anchors, levels, pairs per level); -1 where a level has fewer."""
    owner = np.full(len(lists.noun_starts) - 1, -1, np.int32)  # the last anchor that has the noun
    seen = np.full(len(lists.image_starts) - 1, -1, np.int32)
    ranks = np.zeros(partners.shape[1:], np.uint64)
    partners[:] = -1
    for row in range(len(anchors)):
        anchor, left = anchors[row], looked_at
        first, last = lists.image_starts[anchor], lists.image_starts[anchor + 1]
        for entry in range(first, last):
            owner[lists.image_nouns[entry]] = row
        seen[anchor] = row
        # Who shares n nouns with the anchor has one of any all but n - 1 of its nouns: the commonest are not needed.
        for entry in range(first, last - levels[0] + 1):
            noun = lists.image_nouns[entry]
            start, size = lists.noun_starts[noun], lists.noun_starts[noun + 1] - lists.noun_starts[noun]
            looked = min(size - 1, left)
            left -= looked
            for step in range(1, looked + 1):
                place = lists.places[entry] + step
                other = int(lists.noun_images[start + (place if place < size else place - size)])
                if seen[other] != row:
                    seen[other] = row
                    shared = count_owned(lists, other, owner, row)
                    level = np.searchsorted(levels, shared, side="right") - 1
                    if level >= 0:
                        keep_lowest(partners[row, level], ranks[level], other, rank_of(lists.draws, anchor, other))


@compiled
def count_owned(lists: Lists, other: int, owner: Short, row: int) -> int:
    """Return how many nouns of an image the anchor has, too."""
    shared = 0
    for entry in range(lists.image_starts[other], lists.image_starts[other + 1]):
        shared += owner[lists.image_nouns[entry]] == row
    return shared


@compiled
def rank_of(draws: Draws, anchor: int, other: int) -> int:
    """Return a random number of the pair, another one from its other side: SplitMix64's finaliser."""
    turned = (draws[other] << np.uint64(32)) | (draws[other] >> np.uint64(32))
    rank = draws[anchor] ^ turned
    rank = (rank ^ (rank >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    rank = (rank ^ (rank >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return rank ^ (rank >> np.uint64(31))


@compiled
def keep_lowest(kept: Numbers, ranks: Draws, other: int, rank: int) -> None:
    """Put an image among those of lowest rank, if it is one."""
    place = len(kept)
    while place > 0 and (kept[place - 1] < 0 or rank < ranks[place - 1]):
        place -= 1
        if place + 1 < len(kept):
            kept[place + 1], ranks[place + 1] = kept[place], ranks[place]
    if place < len(kept):
        kept[place], ranks[place] = other, rank
