"""Pair images whose captions share nouns, at several levels of similarity (paper 003, section 3.1).

Per anchor: images with one of its nouns are compared with it, starting with its rarest noun; their
shared nouns are counted; a level holds images with at least its number of shared nouns and fewer
than the next level's; of each level some are drawn. The paper takes 8 or more for its benchmark
(section 4); the other levels, pairs per level, the draw and the stop list are ours.

Work: at most ``max_candidates`` images per anchor. If a noun has more, the images after the anchor
in the noun's list are taken; the seed draws the list's order, so that each image is compared
equally often.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from pairwright.schemas.arrow import schema_of
from pairwright.schemas.config import NounPairsConfig
from pairwright.schemas.rows import Dropped, NounsRow, PairRow, make_key
from pairwright.tasks.store.stage import Stage, Uses

MEASURE = "nouns"
"""Entry in a pair's ``embedders``: its cosine is that of the two images' sets of nouns."""


@dataclass(frozen=True)
class NounIndex:
    """Images, numbered in an order drawn by the seed, and nouns, numbered from the rarest."""

    keys: list[str]
    """Keys of the images, by number."""
    words: list[str]
    """Nouns, by number."""
    nouns: Any
    """SciPy's ``csr_array``, ``(images, nouns)``: 1 if an image has a noun."""
    images: Any
    """The transposed array, ``(nouns, images)``."""

    def nouns_of(self, image: int) -> list[int]:
        """Return the sorted numbers of an image's nouns."""
        return _entries(self.nouns, image).tolist()


def pair_nouns(
    rows: Sequence[NounsRow],
    config: NounPairsConfig,
    *,
    everything: pa.Table,
) -> Iterator[PairRow | Dropped]:
    """Yield the pairs of each anchor, or the reason why there is none.

    ``everything`` holds the nouns of all images.
    """
    index = build_index(everything, config)
    numbers = {key: number for number, key in enumerate(index.keys)}
    for row in rows:
        anchor = numbers[row.subject]
        nouns = index.nouns_of(anchor)
        partners = draw_partners(index, anchor, config)
        for partner in partners:
            yield _pair(row, nouns, index, partner)
        if not partners:
            yield _drop(row, nouns, index, config)


def _pair(row: NounsRow, nouns: Sequence[int], index: NounIndex, partner: int) -> PairRow:
    """Return the pair of an anchor with the nouns ``nouns`` and a partner."""
    partner_nouns = index.nouns_of(partner)
    shared = set(nouns).intersection(partner_nouns)
    length = (len(nouns) * len(partner_nouns)) ** 0.5
    cosine = float(np.float32(len(shared) / length))
    shared_nouns = sorted(index.words[noun] for noun in shared)
    first, second = sorted((row.subject, index.keys[partner]))
    key = make_key("pair", first, second)
    return PairRow(
        key=key,
        source_key=row.key,
        subject=key,
        first=first,
        second=second,
        origin="noun-overlap",
        anchor=row.subject,
        cluster=-1,
        embedders=(MEASURE,),
        similarities=(cosine,),
        similarity=cosine,
        shared_nouns=tuple(shared_nouns),
    )


def _drop(
    row: NounsRow,
    nouns: Sequence[int],
    index: NounIndex,
    config: NounPairsConfig,
) -> Dropped:
    """Return an anchor without partners as dropped."""
    min_shared = config.levels[0]
    reason = "no image shares enough nouns"
    if len(nouns) < min_shared:
        reason = "too few nouns"
    listed = ", ".join(sorted(index.words[noun] for noun in nouns))
    return Dropped(
        source_key=row.key,
        reason=f"{reason} (noun_pairs.levels={min_shared})",
        detail=f"{len(nouns)}: {listed:.200}",
    )


def build_index(images: pa.Table, config: NounPairsConfig) -> NounIndex:
    """Return the index of the nouns of all images, without the words of the stop list."""
    keys, lists = _draw_order(images, config.seed)
    entries = _list_entries(lists, config.stop_words)
    counts = Counter(noun for _, noun in entries)
    words = sorted(counts, key=lambda noun: (counts[noun], noun))
    nouns = _make_matrix(entries, words, images=len(keys))
    return NounIndex(
        keys=keys,
        words=words,
        nouns=nouns,
        images=nouns.T.tocsr(),
    )


def _make_matrix(
    entries: Sequence[tuple[int, str]],
    vocabulary: Sequence[str],
    *,
    images: int,
) -> Any:
    """Return the ``(images, nouns)`` array with 1 for each entry, an image with a noun."""
    from scipy.sparse import csr_array

    numbers = {noun: number for number, noun in enumerate(vocabulary)}
    rows = [image for image, _ in entries]
    columns = [numbers[noun] for _, noun in entries]
    ones = np.ones(len(entries), np.int32)
    shape = (images, len(vocabulary))
    return csr_array((ones, (rows, columns)), shape=shape)


def _draw_order(images: pa.Table, seed: int) -> tuple[list[str], list[list[str]]]:
    """Return the keys of the images and their lists of nouns, in an order drawn by the seed."""
    keys = images.column("subject").to_pylist()
    lists = images.column("nouns").to_pylist()
    hashes = [xxhash.xxh3_64_intdigest(key.encode(), seed) for key in keys]
    order = sorted(range(len(keys)), key=hashes.__getitem__)
    return [keys[row] for row in order], [lists[row] for row in order]


def _list_entries(
    lists: Sequence[Sequence[str]],
    stop_words: Sequence[str],
) -> list[tuple[int, str]]:
    """Return each image's number with each of its nouns, without the stop list's."""
    stopped = {word.casefold() for word in stop_words}
    entries: list[tuple[int, str]] = []
    for image, nouns in enumerate(lists):
        entries += [(image, noun) for noun in nouns if noun not in stopped]
    return entries


def draw_partners(index: NounIndex, anchor: int, config: NounPairsConfig) -> list[int]:
    """Return the partners of an image by level, in a drawn order.

    The order depends on the seed and the two images' keys.
    """

    def hash_pair(other: int) -> int:
        keys = index.keys[anchor] + index.keys[other]
        return xxhash.xxh3_64_intdigest(keys.encode(), config.seed)

    candidates = _find_candidates(index, anchor, config)
    anchor_nouns = index.nouns[[anchor]].toarray()[0]
    shared = index.nouns[candidates] @ anchor_nouns
    bounds = np.array(config.levels)
    levels = np.searchsorted(bounds, shared, side="right")
    partners: list[int] = []
    for level in range(1, len(bounds) + 1):
        members = candidates[levels == level].tolist()
        partners += nsmallest(
            config.pairs_per_level,
            members,
            key=hash_pair,
        )
    return partners


def _find_candidates(
    index: NounIndex,
    anchor: int,
    config: NounPairsConfig,
) -> NDArray[np.int64]:
    """Return the sorted images that are compared with an anchor."""
    parts: list[NDArray[np.integer]] = [np.empty(0, np.int64)]
    left = config.max_candidates
    nouns = index.nouns_of(anchor)
    # An image that shares n nouns with the anchor shares one even without the n - 1 commonest:
    # these are skipped.
    count = max(len(nouns) - config.levels[0] + 1, 0)
    for noun in nouns[:count]:
        images = _entries(index.images, noun)
        following = _take_after(images, anchor, left)
        parts.append(following)
        left -= len(following)
    candidates = np.unique(np.concatenate(parts))
    return candidates.astype(np.int64)


def _take_after(
    images: NDArray[np.int32],
    anchor: int,
    limit: int,
) -> NDArray[np.int32]:
    """Return the images after the anchor, then from the start of the list."""
    position = int(np.searchsorted(images, anchor))
    start = position + 1
    after = images[start : start + limit]
    before = images[: min(position, limit)]
    following = np.concatenate([after, before])
    return following[:limit]


def _entries(matrix: Any, row: int) -> NDArray[np.int32]:
    """Return the sorted columns of a row's entries."""
    start = matrix.indptr[row]
    end = matrix.indptr[row + 1]
    return matrix.indices[start:end]


REST = tuple(name for name in schema_of(NounsRow).names if name not in ("subject", "nouns"))
STAGE = Stage(
    name="noun_pairs",
    version=2,
    group="mining",
    reads={"nouns": NounsRow},
    writes=PairRow,
    function=pair_nouns,
    config=lambda profile: profile.complete(profile.noun_pairs),
    uses=(Uses(table="nouns", row=NounsRow, kind="table", without=REST, name="everything"),),
    rows_per_shard=50_000,
)
