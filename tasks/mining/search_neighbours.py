"""Search the nearest neighbours of images in each embedder's space (paper 001, Appendix D.1, step 2).

Reads rows that name images and the matrices of all images' vectors, writes ``NeighbourRow``: the raw result, before
any threshold, so that thresholds can be moved without searching again. CPU; no network.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from schemas.config import SearchConfig
from schemas.rows import Dropped, EmbeddingRow, ImageRow, NeighbourRow, Row, make_key
from tasks.models import perceptual_hash
from tasks.models.search import top_k
from tasks.store.stage import Stage, Uses
from tasks.store.vectors import Vectors


def search_neighbours(
    rows: Sequence[Row], config: SearchConfig, *, vectors: Mapping[str, Vectors]
) -> Iterator[NeighbourRow | Dropped]:
    """Yield the ``k`` nearest other images of each row's ``subject``, in every space."""
    vectors = {name: space for name, space in vectors.items() if name != perceptual_hash.NAME}
    present = [row for row in rows if not _lacking(row, vectors)]
    results = [_search(present, config, space) for space in vectors.values()]
    places = {row.key: place for place, row in enumerate(present)}
    for row in rows:
        if (place := places.get(row.key)) is None:
            yield Dropped(source_key=row.key, reason="no vector", detail=", ".join(_lacking(row, vectors)))
            continue
        neighbours = tuple(found[place][0] for found in results)
        similarities = tuple(found[place][1] for found in results)
        yield NeighbourRow(
            key=make_key("neighbours", row.subject, repr(tuple(vectors)), repr(neighbours), repr(similarities)),
            source_key=row.key,
            subject=row.subject,
            embedders=tuple(vectors),
            neighbours=neighbours,
            similarities=similarities,
        )


def _lacking(row: Row, vectors: Mapping[str, Vectors]) -> list[str]:
    """Return the embedders that have no vector of the image."""
    return [name for name, space in vectors.items() if not _holds(space, row.subject)]


def _holds(space: Vectors, image: str) -> bool:
    place = int(np.searchsorted(space.keys, np.bytes_(image.encode())))
    return place < len(space.keys) and bytes(space.keys[place]).decode() == image


Found = tuple[tuple[str, ...], tuple[float, ...]]


def _search(rows: Sequence[Row], config: SearchConfig, space: Vectors) -> list[Found]:
    """Return neighbours and similarities of each row in one space."""
    near, products = top_k(space.matrix, space.rows_of(row.subject for row in rows), k=config.k)
    return [
        (tuple(key.decode() for key in space.keys[found].tolist()), tuple(scores.tolist()))
        # Rounded to float16, a unit vector may be longer than 1; a cosine may not.
        for found, scores in zip(near, np.clip(products, -1, 1), strict=True)
    ]


STAGE = Stage(
    name="neighbours",
    version=1,
    group="mining",
    reads="images",
    row=ImageRow,
    writes=NeighbourRow,
    function=search_neighbours,
    config="search",
    whole=True,
    without=("image", "graph"),
    uses=(Uses(table="embeddings", row=EmbeddingRow, kind="vectors", name="vectors"),),
    rows_per_shard=1000,
)
