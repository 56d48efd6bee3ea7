"""Keep hubs out: let one image be in a limited number of pairs (ours; the paper has no limit).

Reads all ``PairRow`` of the candidates at once, writes those that are kept. Pairs are taken by falling similarity, ties
in the order of their keys, as long as both images are in fewer pairs than allowed, so the choice depends neither on the
order of the source nor on how the work is cut.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pairwright.schemas.arrow import schema_of
from pairwright.schemas.config import MiningConfig
from pairwright.schemas.rows import Dropped, PairRow
from pairwright.tasks.store.stage import Stage, Uses

REASON = "image in too many pairs"


def limit_pairs(rows: Sequence[PairRow], config: MiningConfig, *, everything: pa.Table) -> Iterator[PairRow | Dropped]:
    """Yield the pairs of the shard that are kept, decided from all pairs.

    Args:
        rows: pairs of the shard.
        config: the limit.
        everything: ``key``, ``first``, ``second`` and ``similarity`` of every pair of the collection.
    """
    kept = _keep(everything, config.max_pairs_per_image)
    for pair in rows:
        if pair.key in kept:
            yield replace(pair, source_key=pair.key)
        else:
            yield Dropped(source_key=pair.key, reason=REASON, detail=f"similarity {pair.similarity:.4f}")


def _keep(pairs: pa.Table, most: int) -> set[str]:
    """Return the keys of the pairs that are kept."""
    keys, first, second = (pairs.column(name).to_numpy().astype(str) for name in ("key", "first", "second"))
    count: Counter[str] = Counter()
    kept: set[str] = set()
    for place in np.lexsort((keys, -pairs.column("similarity").to_numpy())).tolist():
        one, other = str(first[place]), str(second[place])
        if count[one] < most and count[other] < most:
            count.update((one, other))
            kept.add(str(keys[place]))
    return kept


REST = tuple(name for name in schema_of(PairRow).names if name not in ("key", "first", "second", "similarity"))

STAGE = Stage(
    name="pairs",
    version=1,
    group="mining",
    reads="candidates",
    row=PairRow,
    writes=PairRow,
    function=limit_pairs,
    config="mining",
    whole=True,
    uses=(Uses(table="candidates", row=PairRow, kind="table", without=REST, name="everything"),),
    rows_per_shard=100_000,
)
