"""Search the nearest neighbours of images in each embedder's space (paper 001, Appendix D.1, step 2).

The result is stored before any threshold, so that thresholds can change without searching again. Up
to ``max_exact_images`` images the search is exact. Above, an index of cells is searched, one cell
in 16; its recall is measured on a sample and stored in the rows, with a warning below 0.99.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import SearchConfig
from pairwright.schemas.rows import (
    LEAST_RECALL,
    AdmittedRow,
    EmbeddingRow,
    NeighbourRow,
    Row,
    make_key,
)
from pairwright.tasks.models import perceptual_hash
from pairwright.tasks.models.search_index import (
    count_devices,
    find_recall,
    open_index,
    probes_of,
    search_cells,
    top_k,
)
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.store.vectors import Vectors

log = logging.getLogger(__name__)


def search_neighbours(
    rows: Sequence[Row], config: SearchConfig, *, vectors: Mapping[str, Vectors]
) -> Iterator[NeighbourRow]:
    """Yield the ``k`` nearest other images of each row's ``subject`` in every space."""
    vectors = {name: space for name, space in vectors.items() if name != perceptual_hash.NAME}
    images, names, spaces = [row.subject for row in rows], tuple(vectors), tuple(vectors.values())
    found = [_search(images, config, space=space, name=name) for name, space in vectors.items()]
    cells = tuple(cells for _, _, cells, _ in found)
    recalls = tuple(float(np.float32(recall)) for *_, recall in found)
    for place, row in enumerate(rows):
        neighbours: tuple[tuple[str, ...], ...] = ()
        similarities: tuple[tuple[float, ...], ...] = ()
        for space, (near, products, *_) in zip(spaces, found, strict=True):
            own = near[place][near[place] >= 0]
            neighbours += (tuple(key.decode() for key in space.keys[own].tolist()),)
            # A unit vector rounded to float16 may be longer than 1; a cosine may not.
            similarities += (tuple(np.clip(products[place][: len(own)], -1, 1).tolist()),)
        yield NeighbourRow(
            key=make_key(
                "neighbours", row.subject, repr(names), repr(neighbours), repr(similarities)
            ),
            source_key=row.key,
            subject=row.subject,
            embedders=names,
            neighbours=neighbours,
            similarities=similarities,
            cells=cells,
            recalls=recalls,
            cut_off=any(
                len(values) == config.k < len(space.keys) - 1
                and values[-1] >= config.min_similarity
                for values, space in zip(similarities, spaces, strict=True)
            ),
        )


def _search(
    images: Sequence[str], config: SearchConfig, *, space: Vectors, name: str
) -> tuple[NDArray[np.int64], NDArray[np.float32], int, float]:
    """Return per image the places of its neighbours in the matrix, padded with -1, and products; cells and recall.

    The search is exact, or in the index; the worker that makes the index for all also measures its
    recall.
    """
    rows = space.rows_of(images)
    if len(space.matrix) <= config.max_exact_images:
        return *top_k(space.matrix, rows, k=config.k), 0, 1.0
    with TemporaryDirectory() as folder:
        place = space.index or Path(folder)
        index = open_index(space.matrix, place)
        probes, band = probes_of(index.nlist, config.probes), config.min_similarity
        hits, total, new = find_recall(
            place, space.matrix, index, k=config.k, probes=probes, band=band
        )
        near, products = search_cells(space.matrix, rows, index=index, k=config.k, probes=probes)
    recall = hits / total if total else 1.0
    if new:
        about = (
            f"{name}: {hits} of {total} sampled neighbours of similarity {band} or more are found"
        )
        if recall < LEAST_RECALL:
            text = "%s: a recall of %.4f, below %s. Raise search.probes (now %d of %d cells)"
            log.warning(text, about, recall, LEAST_RECALL, probes, index.nlist)
        else:
            log.info("%s, with %d of %d cells probed", about, probes, index.nlist)
    return near, products, index.nlist, recall


STAGE = Stage(
    name="neighbours",
    version=2,
    group="mining",
    reads={"admitted": AdmittedRow},
    writes=NeighbourRow,
    function=search_neighbours,
    config=lambda profile: profile.search,
    whole=True,
    uses=(
        Uses(
            table="embeddings", row=EmbeddingRow, kind="vectors", only_in="admitted", name="vectors"
        ),
    ),
    processes=count_devices,
    rows_per_shard=2000,
)
