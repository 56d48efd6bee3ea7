"""Pair images whose captions share nouns, at several levels of similarity (paper 003, section 3.1).

Reads ``NounsRow`` of the anchors and the nouns of all images, writes ``PairRow`` with the shared nouns. CPU only.

Per anchor: images that have one of its nouns are looked at, those of its rarest noun first; their shared nouns are
counted, all of them; a level holds those that share at least its number of nouns and less than the next level's; of
each level some are drawn. An anchor that gives no pair leaves one ``Dropped``. A pair drawn from both of its images has
one key; the reader keeps one of the two.

The paper counts overlapping nouns to have "different levels of similarity", and takes 8 or more for its benchmark
(section 4). Ours: the other levels, pairs per level, how they are drawn, the stop list.

Work: at most ``max_candidates`` images per anchor: it grows with the images and not with their square. All images of a
noun are looked at where that allows it; else those that follow the anchor in the noun's list, whose order is drawn by
the seed, so that each image is looked at equally often. Pairs that share a rare noun are thus all found; of the many
that share only common ones, a sample. 100,000 images of 5 to 10 nouns take a minute on one core. Memory: 56 bytes per
image, 12 per noun that an image has, and while the index is made some 60 per noun.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairwright.schemas.arrow import schema_of
from pairwright.schemas.config import NounPairsConfig
from pairwright.schemas.rows import Dropped, NounsRow, PairRow, make_key
from pairwright.tasks.store.stage import Stage, Uses

MEASURE = "nouns"
"""What stands among a pair's ``embedders``: the cosine is that of the two images' sets of nouns."""
ANCHORS, CANDIDATES = 256, 30_000
"""Anchors, and images looked at for them, that are held at a time."""

Numbers = NDArray[np.int64]
Draws = NDArray[np.uint64]


@dataclass(frozen=True)
class NounIndex:
    """Images numbered in an order drawn by the seed, and nouns by how many images have them, rarest first."""

    keys: NDArray[np.bytes_]  # of the images, by number
    words: list[str]  # the nouns, by number
    draws: Draws  # a random number of each image, by which they are numbered
    image_starts: Numbers  # the nouns of image i are image_nouns[image_starts[i]:image_starts[i + 1]]
    image_nouns: NDArray[np.int32]  # rarest first
    places: NDArray[np.int32]  # where the image stands in each of these nouns' lists
    noun_starts: Numbers  # the images of noun i are noun_images[noun_starts[i]:noun_starts[i + 1]]
    noun_images: NDArray[np.int32]  # rising

    def numbers_of(self, keys: Sequence[str]) -> Numbers:
        """Return the numbers of images that are in the index."""
        by_key = np.argsort(self.keys)
        return by_key[np.searchsorted(self.keys, np.array(keys, dtype=self.keys.dtype), sorter=by_key)]

    def nouns_of(self, number: int) -> list[int]:
        """Return the numbers of an image's nouns, rarest first."""
        start, stop = self.image_starts[number : number + 2]
        return self.image_nouns[start:stop].tolist()


def pair_nouns(
    rows: Sequence[NounsRow], config: NounPairsConfig, *, everything: pa.Table
) -> Iterator[PairRow | Dropped]:
    """Yield the pairs of each anchor, by ``subject`` and ``nouns`` of every image, or why there is none."""
    index = build_index(everything, config)
    anchors = index.numbers_of([row.subject for row in rows])
    size = max(1, min(ANCHORS, CANDIDATES // config.max_candidates))
    for start in range(0, len(rows), size):
        some = anchors[start : start + size]
        partners = draw_partners(index, some, config)
        for row, anchor, found in zip(rows[start : start + size], some.tolist(), partners, strict=True):
            nouns = index.nouns_of(anchor)
            for other in found.tolist():
                yield _pair(row, nouns, index=index, other=other)
            if not len(found):
                reason = "too few nouns" if len(nouns) < config.levels[0] else "no image shares enough nouns"
                detail = f"{len(nouns)}: {', '.join(sorted(index.words[noun] for noun in nouns)):.200}"
                yield Dropped(source_key=row.key, reason=reason, detail=detail)


def _pair(row: NounsRow, nouns: Sequence[int], *, index: NounIndex, other: int) -> PairRow:
    theirs = index.nouns_of(other)
    shared = set(nouns).intersection(theirs)
    cosine = float(np.float32(len(shared) / (len(nouns) * len(theirs)) ** 0.5))
    first, second = sorted((row.subject, index.keys[other].decode()))
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
        shared_nouns=tuple(sorted(index.words[noun] for noun in shared)),
    )


def build_index(images: pa.Table, config: NounPairsConfig) -> NounIndex:
    """Return the index of ``subject`` and ``nouns`` of every image, words of the stop list left out."""
    subjects = images.column("subject").to_pylist()
    draws = _draw(subjects, config.seed)
    keys = np.array(subjects, dtype="S32")
    order = np.lexsort((keys, draws))
    owners, nouns, words = _entries(images.column("nouns").take(pa.array(order)), config)
    by_noun = np.argsort(nouns, kind="stable")  # the images of one noun stay in their order
    noun_starts = np.append(0, np.cumsum(np.bincount(nouns, minlength=len(words))))
    places = np.empty(len(nouns), dtype=np.int32)
    places[by_noun] = np.arange(len(nouns)) - noun_starts[nouns[by_noun]]
    return NounIndex(
        keys=keys[order],
        words=words,
        draws=draws[order],
        image_starts=np.append(0, np.cumsum(np.bincount(owners, minlength=len(keys)))),
        image_nouns=nouns.astype(np.int32),
        places=places,
        noun_starts=noun_starts,
        noun_images=owners[by_noun].astype(np.int32),
    )


def _draw(subjects: list[str], seed: int) -> Draws:
    """Return a number for each image, drawn by its key and the seed: a finaliser's mix of both (MurmurHash3)."""
    halves = np.frombuffer(bytes.fromhex("".join(subjects)), dtype=">u8").reshape(-1, 2)
    mixed = halves[:, 0].astype(np.uint64) ^ np.uint64(int(make_key("noun pairs", seed), 16) >> 64)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(33))


def _entries(nouns: pa.ChunkedArray, config: NounPairsConfig) -> tuple[Numbers, Numbers, list[str]]:
    """Return image and noun of every entry, sorted by both, and the words; nouns are numbered rarest first."""
    stopped = {word.casefold() for word in config.stop_words}
    lists = nouns.combine_chunks()
    lengths = lists.value_lengths().to_numpy()
    coded = lists.flatten().dictionary_encode()
    words = coded.dictionary.to_pylist()
    codes = coded.indices.to_numpy()
    kept = np.array([word not in stopped for word in words], dtype=bool)[codes]
    owners, codes = np.repeat(np.arange(len(lengths)), lengths)[kept], codes[kept]
    counts = np.bincount(codes, minlength=len(words))
    ranked = sorted(np.flatnonzero(counts).tolist(), key=lambda code: (counts[code], words[code]))
    ranks = np.zeros(len(words), dtype=np.int64)
    ranks[ranked] = np.arange(len(ranked))
    order = np.lexsort((ranks[codes], owners))
    return owners[order], ranks[codes][order], [words[code] for code in ranked]


def draw_partners(index: NounIndex, anchors: Numbers, config: NounPairsConfig) -> list[Numbers]:
    """Return the partners of each anchor, level by level, in the order in which they are drawn."""
    rows, others = _look(index, anchors, config)
    owned = np.zeros((len(anchors), len(index.words)), dtype=bool)
    entries, owners = _ranges(index.image_starts[anchors], index.image_starts[anchors + 1])
    owned[owners, index.image_nouns[entries]] = True
    entries, pairs = _ranges(index.image_starts[others], index.image_starts[others + 1])
    shared = np.bincount(pairs, weights=owned[rows[pairs], index.image_nouns[entries]], minlength=len(rows))
    levels = np.searchsorted(np.array(config.levels), shared, side="right") - 1
    rows, others, levels = (column[levels >= 0] for column in (rows, others, levels))
    group = rows * len(config.levels) + levels
    order = np.lexsort((_rank(index.draws[anchors[rows]], index.draws[others]), group))
    group = group[order]
    chosen = order[np.arange(len(order)) - np.searchsorted(group, group) < config.pairs_per_level]
    return np.split(others[chosen], np.searchsorted(rows[chosen], np.arange(1, len(anchors))))


def _look(index: NounIndex, anchors: Numbers, config: NounPairsConfig) -> tuple[Numbers, Numbers]:
    """Return the images that are looked at, each once per anchor, and the places of their anchors."""
    # Who shares n nouns with the anchor has one of any all but n - 1 of its nouns: the commonest are not needed.
    starts = index.image_starts[anchors]
    entries, rows = _ranges(starts, np.maximum(starts, index.image_starts[anchors + 1] - config.levels[0] + 1))
    nouns = index.image_nouns[entries]
    sizes = index.noun_starts[nouns + 1] - index.noun_starts[nouns]
    before = np.cumsum(sizes - 1) - (sizes - 1)
    before -= before[np.searchsorted(rows, rows)]  # of this anchor's own nouns
    steps, looks = _ranges(np.ones(len(sizes), np.int64), 1 + np.clip(config.max_candidates - before, 0, sizes - 1))
    others = index.noun_images[index.noun_starts[nouns[looks]] + (index.places[entries][looks] + steps) % sizes[looks]]
    return np.divmod(np.unique(rows[looks] * len(index.keys) + others), len(index.keys))


def _ranges(starts: Numbers, stops: Numbers) -> tuple[Numbers, Numbers]:
    """Return the numbers of all ranges one after the other, and which range each is of."""
    lengths = stops - starts
    owners = np.repeat(np.arange(len(lengths)), lengths)
    return np.arange(len(owners)) + (starts - np.cumsum(lengths) + lengths)[owners], owners


def _rank(anchors: Draws, others: Draws) -> Draws:
    """Return a random number of each pair, another one from its other side: SplitMix64's finaliser."""
    rank = anchors ^ ((others << np.uint64(32)) | (others >> np.uint64(32)))
    rank = (rank ^ (rank >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    rank = (rank ^ (rank >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return rank ^ (rank >> np.uint64(31))


REST = tuple(name for name in schema_of(NounsRow).names if name not in ("subject", "nouns"))
STAGE = Stage(
    name="noun_pairs",
    version=1,
    group="mining",
    reads={"nouns": NounsRow},
    writes=PairRow,
    function=pair_nouns,
    config="noun_pairs",
    tie="anchor",
    whole=True,
    uses=(Uses(table="nouns", row=NounsRow, kind="table", without=REST, name="everything"),),
    rows_per_shard=50_000,
)
