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
    rows: Sequence[NounsRow], config: NounPairsConfig, *, everything: pa.Table
) -> Iterator[PairRow | Dropped]:
    """Yield the pairs of each anchor, or the reason why there is none; ``everything``: all images' nouns."""
    index = build_index(everything, config)
    numbers = {key: number for number, key in enumerate(index.keys)}
    for row in rows:
        anchor = numbers[row.subject]
        ours = index.nouns_of(anchor)
        partners = draw_partners(index, anchor, config)
        for other in partners:
            theirs = index.nouns_of(other)
            shared = set(ours).intersection(theirs)
            cosine = float(np.float32(len(shared) / (len(ours) * len(theirs)) ** 0.5))
            first, second = sorted((row.subject, index.keys[other]))
            key = make_key("pair", first, second)
            yield PairRow(
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
                shared_nouns=tuple(sorted(index.words[noun] for noun in shared)),
            )
        if not partners:
            why = (
                "too few nouns" if len(ours) < config.levels[0] else "no image shares enough nouns"
            )
            detail = f"{len(ours)}: {', '.join(sorted(index.words[noun] for noun in ours)):.200}"
            yield Dropped(
                source_key=row.key,
                reason=f"{why} (noun_pairs.levels={config.levels[0]})",
                detail=detail,
            )


def build_index(images: pa.Table, config: NounPairsConfig) -> NounIndex:
    """Return the index of ``subject`` and ``nouns`` of every image, without the words of the stop list."""
    from scipy.sparse import csr_array

    stopped = {word.casefold() for word in config.stop_words}
    lists = zip(
        images.column("subject").to_pylist(), images.column("nouns").to_pylist(), strict=True
    )
    drawn = sorted(lists, key=lambda row: xxhash.xxh3_64_intdigest(row[0].encode(), config.seed))
    entries = [
        (image, noun)
        for image, (_, nouns) in enumerate(drawn)
        for noun in nouns
        if noun not in stopped
    ]
    counts = Counter(noun for _, noun in entries)
    words = sorted(counts, key=lambda noun: (counts[noun], noun))
    numbers = {word: number for number, word in enumerate(words)}
    places = [image for image, _ in entries], [numbers[noun] for _, noun in entries]
    nouns = csr_array((np.ones(len(entries), np.int32), places), shape=(len(drawn), len(words)))
    return NounIndex(
        keys=[key for key, _ in drawn], words=words, nouns=nouns, images=nouns.T.tocsr()
    )


def draw_partners(index: NounIndex, anchor: int, config: NounPairsConfig) -> list[int]:
    """Return the partners of an image by level, in an order drawn by the seed and the two images' keys."""

    def rank(other: int) -> int:
        return xxhash.xxh3_64_intdigest(
            (index.keys[anchor] + index.keys[other]).encode(), config.seed
        )

    parts: list[NDArray[np.integer]] = [np.empty(0, np.int64)]
    left, nouns = config.max_candidates, index.nouns_of(anchor)
    # An image that shares n nouns with the anchor shares one even without the n - 1 commonest:
    # these are skipped.
    for noun in nouns[: max(len(nouns) - config.levels[0] + 1, 0)]:
        having = _entries(index.images, noun)
        place = int(np.searchsorted(having, anchor))
        following = np.concatenate(
            [having[place + 1 : place + 1 + left], having[: min(place, left)]]
        )[:left]
        parts.append(following)
        left -= len(following)
    found = np.unique(np.concatenate(parts)).astype(np.int64)
    shared = index.nouns[found] @ index.nouns[[anchor]].toarray()[0]
    levels = np.searchsorted(np.array(config.levels), shared, side="right")
    members = [found[levels == level].tolist() for level in range(1, len(config.levels) + 1)]
    return [
        other for some in members for other in nsmallest(config.pairs_per_level, some, key=rank)
    ]


def _entries(matrix: Any, row: int) -> NDArray[np.int32]:
    """Return the sorted columns of a row's entries."""
    return matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]


REST = tuple(name for name in schema_of(NounsRow).names if name not in ("subject", "nouns"))
STAGE = Stage(
    name="noun_pairs",
    version=2,
    group="mining",
    reads={"nouns": NounsRow},
    writes=PairRow,
    function=pair_nouns,
    config=lambda profile: profile.complete(profile.noun_pairs),
    tie="anchor",
    whole=True,
    uses=(Uses(table="nouns", row=NounsRow, kind="table", without=REST, name="everything"),),
    rows_per_shard=50_000,
)
