"""Drop pairs that a source brought where one of their images was kept out (``exclude_images``).

Reads ``PairRow`` and which images have vectors, writes the pairs both of whose images do.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pairwright.schemas.config import ExcludeConfig
from pairwright.schemas.rows import Dropped, EmbeddingRow, PairRow
from pairwright.tasks.store.stage import Stage, Uses

REASON = "an image of the pair is excluded or has no vector"


def admit_pairs(
    rows: Sequence[PairRow], config: ExcludeConfig, *, vectors: Mapping[str, tuple[EmbeddingRow, ...]]
) -> Iterator[PairRow | Dropped]:
    """Yield the pairs of admitted images."""
    del config  # what it says is done: the images that it refuses have no vectors
    for pair in rows:
        lacking = [
            word for word, image in (("first", pair.first), ("second", pair.second)) if not vectors.get(image, ())
        ]
        if lacking:
            yield Dropped(source_key=pair.key, reason=REASON, detail=" and ".join(lacking))
        else:
            yield replace(pair, source_key=pair.key)


STAGE = Stage(
    name="pairs",
    version=1,
    group="mining",
    reads="brought",
    row=PairRow,
    writes=PairRow,
    function=admit_pairs,
    config="exclude",
    uses=(
        Uses(
            table="admitted",
            row=EmbeddingRow,
            kind="many",
            on="images",
            without=("vector", "norm"),
            counts=True,
            name="vectors",
        ),
    ),
    rows_per_shard=3000,
)
