"""Make rejected texts at random: the description of another pair, drawn, that is not true.

Reads ``DifferenceRow`` (a shard's, and the whole collection's), all ``SplitRow`` and, to check, the
pair's scene graphs; writes ``RejectedTextRow`` by the maker "random". Texts are drawn like ADPO's
candidates, every text of the split alike: the negatives of the arm "DPO" of paper 000, which
retrieves none. They are checked like retrieved ones; an unchanged pair gets a change.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from random import Random

import pyarrow as pa

from pairwright.schemas.config import RandomTextsConfig
from pairwright.schemas.rows import (
    DifferenceRow,
    Dropped,
    Images,
    Pairs,
    RejectedTextRow,
    make_key,
)
from pairwright.tasks.rejected.check_texts import truth_of
from pairwright.tasks.rejected.text_pool import POOL_USES, pool_texts, take_false
from pairwright.tasks.store.stage import Stage

SETTING = "random_texts.max_candidates"


def draw_texts(
    rows: Sequence[DifferenceRow],
    config: RandomTextsConfig,
    *,
    everything: pa.Table,
    splits: pa.Table,
    pairs: Pairs,
    images: Images,
) -> Iterator[RejectedTextRow | Dropped]:
    """Yield one text per description; ``splits`` has the columns ``DRAWN`` of every pair."""
    pool = pool_texts(everything, splits, config.max_searched)
    for row in rows:
        rng = Random(make_key("random", config.seed, row.key))
        candidates = pool.draw(row, rng, config.max_candidates)
        yield take_false(
            pool.descriptions_of(row),
            candidates,
            truth_of(row, pairs, images),
            maker="random",
            limit=SETTING if len(candidates) >= config.max_candidates else "",
        )


STAGE = Stage(
    name="random",
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=draw_texts,
    config=lambda profile: profile.complete(profile.random_texts),
    enabled=attrgetter("enabled"),
    rows_per_shard=5000,
    uses=POOL_USES,
)
