"""Pair images whose captions share nouns, at several levels of similarity (paper 003, section 3.1).

Reads ``NounsRow`` of the anchors and the nouns of all images, writes ``PairRow`` with the shared nouns. CPU only.

Per anchor: images that have one of its nouns are looked at, those of its rarest noun first; their shared nouns are
counted, all of them; a level holds those that share at least its number of nouns and less than the next level's; of
each level some are drawn. An anchor that gives no pair leaves one ``Dropped``. A pair drawn from both of its images has
one key; the reader keeps one of the two.

The paper counts overlapping nouns to have "different levels of similarity", and takes 8 or more for its benchmark
(section 4). Ours: the other levels, pairs per level, how they are drawn, the stop list. One image is never paired with
itself, however many people described it; images of one group may be paired, as in mining by similarity.

Work: at most ``max_candidates`` images per anchor: it grows with the images and not with their square. All images of a
noun are looked at where that allows it; else those that follow the anchor in the noun's list, whose order is drawn by
the seed, so that each image is looked at equally often. Pairs that share a rare noun are thus all found; of the many
that share only common ones, a sample. 100,000 images of 5 to 10 nouns took 20
seconds on one core. Memory: the index (``noun_index.py``), and of each anchor the numbers of its partners.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pairwright.schemas.arrow import schema_of
from pairwright.schemas.config import NounPairsConfig
from pairwright.schemas.rows import Dropped, NounsRow, PairRow, make_key
from pairwright.tasks.mining.noun_index import NounIndex, build_index
from pairwright.tasks.store.stage import Stage, Uses

MEASURE = "nouns"
"""What stands among a pair's ``embedders``: the cosine is that of the two images' sets of nouns."""


def pair_nouns(
    rows: Sequence[NounsRow], config: NounPairsConfig, *, everything: pa.Table
) -> Iterator[PairRow | Dropped]:
    """Yield the pairs of each anchor, or one ``Dropped`` that says why there is none.

    Args:
        rows: the anchors of the shard.
        config: levels, stop list and limits.
        everything: ``subject`` and ``nouns`` of every image.
    """
    from pairwright.tasks.mining.noun_kernel import draw_partners  # compiles

    index = build_index(everything, config)
    anchors = index.numbers_of([row.subject for row in rows])
    partners = np.empty((len(rows), len(config.levels), config.pairs_per_level), dtype=np.int64)
    draw_partners(anchors, index.lists, np.array(config.levels), config.max_candidates, partners)
    for place, (row, anchor) in enumerate(zip(rows, anchors.tolist(), strict=True)):
        nouns = index.nouns_of(anchor)
        found = partners[place][partners[place] >= 0].tolist()
        for other in found:
            yield _pair(row, nouns, index=index, other=other)
        if not found:
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
