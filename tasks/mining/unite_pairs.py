"""Unite the pairs found by similarity, by nouns and by the source, without excluded images and too frequent ones.

A pair that is in several tables counts once, the source's own before the others. Limit (ours): one image is in a
limited number of pairs, so that hubs do not fill a dataset. Pairs are taken by falling similarity, ties in the order of
their keys, as long as both images are in fewer pairs than allowed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pairwright.schemas.arrow import no_rows, schema_of
from pairwright.schemas.config import UnitingConfig
from pairwright.schemas.rows import AdmittedRow, Dropped, PairRow
from pairwright.tasks.store.stage import Stage, Uses

EXCLUDED, HUB = "an image of the pair is excluded or has no vector", "image in too many pairs"
COLUMNS = ("key", "first", "second", "similarity")
REST = tuple(name for name in schema_of(PairRow).names if name not in COLUMNS)
NONE = no_rows(schema_of(PairRow)).select(COLUMNS)


def unite_pairs(
    rows: Sequence[PairRow],
    config: UnitingConfig,
    *,
    admitted: Mapping[str, AdmittedRow] | None = None,
    given: pa.Table = NONE,
    similar: pa.Table = NONE,
    by_nouns: pa.Table = NONE,
    all_admitted: pa.Table | None = None,
) -> Iterator[PairRow | Dropped]:
    """Yield the pairs of the shard that are kept.

    ``admitted`` holds the images of these pairs that are. Where there is a limit, ``given``, ``similar`` and
    ``by_nouns`` are ``COLUMNS`` of every pair, and ``all_admitted`` the ``key`` of every image; ``None``: all are.
    """
    everything = pa.concat_tables([table.select(COLUMNS) for table in (given, similar, by_nouns)])
    if all_admitted is not None:
        images = all_admitted.column("key")
        everything = everything.filter(pc.field("first").isin(images) & pc.field("second").isin(images))
    kept = _keep(everything, config.max_pairs_per_image) if config.max_pairs_per_image else None
    for pair in rows:
        images = (("first", pair.first), ("second", pair.second))
        lacking = [] if admitted is None else [word for word, image in images if image not in admitted]
        if lacking:
            yield Dropped(source_key=pair.key, reason=EXCLUDED, detail=" and ".join(lacking))
        elif kept is not None and pair.key not in kept:
            reason = f"{HUB} (mining.max_pairs_per_image={config.max_pairs_per_image})"
            yield Dropped(source_key=pair.key, reason=reason, detail=f"similarity {pair.similarity:.4f}")
        else:
            yield replace(pair, source_key=pair.key)


def _keep(pairs: pa.Table, limit: int) -> set[str]:
    """Return the keys of the pairs that are kept."""
    keys, first, second = (pairs.column(name).to_numpy().astype(str) for name in ("key", "first", "second"))
    count: Counter[str] = Counter()
    kept: set[str] = set()
    for place in np.lexsort((keys, -pairs.column("similarity").to_numpy())).tolist():
        one, other = str(first[place]), str(second[place])
        if str(keys[place]) not in kept and count[one] < limit and count[other] < limit:
            count.update((one, other))
            kept.add(str(keys[place]))
    return kept


def fit_stage(stage: Stage, config: UnitingConfig) -> Stage:
    """Return the stage as it runs: only a limit looks at all pairs, only exclusion at the images."""
    limited = config.max_pairs_per_image > 0
    uses = (*((ADMITTED,) if config.excludes else ()), *(EVERYTHING if limited else ()))
    if limited and config.excludes:
        uses = (*uses, ALL_ADMITTED)
    return replace(stage, uses=uses, whole=limited)


ADMITTED = Uses(table="admitted", row=AdmittedRow, on="images", counts=True)
EVERYTHING = tuple(
    Uses(table=table, row=PairRow, kind="table", without=REST, name=name)
    for table, name in (("given_pairs", "given"), ("similar_pairs", "similar"), ("noun_pairs", "by_nouns"))
)
ALL_ADMITTED = Uses(
    table="admitted", row=AdmittedRow, kind="table", without=("subject", "source_key"), name="all_admitted"
)
STAGE = Stage(
    name="pairs",
    version=2,
    group="mining",
    reads={"given_pairs": PairRow, "similar_pairs": PairRow, "noun_pairs": PairRow},
    writes=PairRow,
    function=unite_pairs,
    config="uniting",
    uses=(ADMITTED, *EVERYTHING, ALL_ADMITTED),
    fit=fit_stage,
    rows_per_shard=20_000,
)
