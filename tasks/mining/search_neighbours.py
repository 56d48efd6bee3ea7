"""Search images' nearest neighbours in each embedder's space (paper 001, Appendix D.1, step 2).

The result is stored before any threshold, so that thresholds can change without searching again. Up
to ``max_exact_images`` images the search is exact. Above, an index of cells is searched, one cell
in 16; its recall is measured on a sample and stored in the rows, with a warning below 0.99.

Copies of one picture are found first: one of them is searched and found, and the others are dropped
rows, so that many copies of one picture do not fill the lists of others.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairwright.schemas.arrow import no_rows, schema_of
from pairwright.schemas.config import SearchConfig
from pairwright.schemas.rows import (
    LEAST_RECALL,
    AdmittedRow,
    Dropped,
    EmbeddingRow,
    NeighbourRow,
    PairRow,
    Row,
    make_key,
)
from pairwright.tasks.mining.find_copies import find_copies
from pairwright.tasks.models import perceptual_hash
from pairwright.tasks.models.search_index import (
    count_devices,
    find_recall,
    open_neighbour_index,
    probes_of,
    search_cells,
    top_k,
)
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.store.vectors import Vectors

log = logging.getLogger(__name__)
PAIRED = "image of a pair that a source brought"
COPY = "copy of another image"
PAIR_IMAGES = ("first", "second")
NONE = no_rows(schema_of(PairRow)).select(PAIR_IMAGES)
REST = tuple(name for name in schema_of(PairRow).names if name not in PAIR_IMAGES)


@dataclass(frozen=True, slots=True)
class SpaceSearch:
    """Neighbours of images in one space."""

    keys: NDArray[np.bytes_]
    """Keys of all images of the space, by row of its matrix."""
    near: NDArray[np.int64]
    """Per image, the rows of its neighbours, padded with -1."""
    products: NDArray[np.float32]
    """Their inner products with the image."""
    cells: int = 0
    """Cells of the index; 0: an exact search."""
    recall: float = 1.0

    def neighbours_of(self, row_index: int) -> tuple[str, ...]:
        """Return the keys of an image's neighbours."""
        near = self.near[row_index]
        keys = self.keys[near[near >= 0]].tolist()
        return tuple(key.decode() for key in keys)

    def similarities_of(self, row_index: int) -> tuple[float, ...]:
        """Return the cosines of all of an image's neighbours."""
        count = np.count_nonzero(self.near[row_index] >= 0)
        products = self.products[row_index][:count]
        # A unit vector rounded to float16 may be longer than 1; a cosine may not.
        return tuple(np.clip(products, -1, 1).tolist())


def search_neighbours(
    rows: Sequence[Row],
    config: SearchConfig,
    *,
    vectors: Mapping[str, Vectors],
    given: pa.Table = NONE,
) -> Iterator[NeighbourRow | Dropped]:
    """Yield the ``k`` nearest other images of each row's ``subject`` in every space.

    Images of ``given`` pairs, which a source has paired itself, and copies have no neighbours and
    are none.
    """
    reasons = _leave_out(vectors, config, given)
    anchors = [row for row in rows if row.subject not in reasons]
    results: dict[str, SpaceSearch] = {}
    for name, space in vectors.items():
        if anchors and name != perceptual_hash.NAME:
            kept = [key.decode() not in reasons for key in space.keys.tolist()]
            searched = space.select(np.array(kept, dtype=bool))
            results[name] = _search(anchors, config, space=searched, name=name)
    anchor_rows = iter(_make_rows(anchors, results, config))
    for row in rows:
        if row.subject in reasons:
            yield Dropped(source_key=row.key, reason=reasons[row.subject])
        else:
            yield next(anchor_rows)


def _leave_out(
    vectors: Mapping[str, Vectors], config: SearchConfig, given: pa.Table
) -> dict[str, str]:
    """Return the reason why each image is left out that is not searched, by its key."""
    paired = {*given.column("first").to_pylist(), *given.column("second").to_pylist()}
    reasons = dict.fromkeys(paired, PAIRED)
    first = next(iter(vectors.values()), None)
    if first is None:
        return reasons
    keys = [key.decode() for key in first.keys.tolist()]
    usable = np.array([key not in paired for key in keys], dtype=bool)
    copies = find_copies(vectors, config.min_copy_similarity, usable)
    for position in np.flatnonzero(copies).tolist():
        reasons[keys[position]] = f"{COPY} (search.min_copy_similarity)"
    return reasons


def _make_rows(
    anchors: Sequence[Row], searches: Mapping[str, SpaceSearch], config: SearchConfig
) -> Iterator[NeighbourRow]:
    """Yield the neighbours of each anchor in all spaces."""
    names = tuple(searches)
    results = list(searches.values())
    cells = tuple(result.cells for result in results)
    recalls = tuple(float(np.float32(result.recall)) for result in results)
    for row_index, row in enumerate(anchors):
        neighbours = tuple(result.neighbours_of(row_index) for result in results)
        similarities = tuple(result.similarities_of(row_index) for result in results)
        yield NeighbourRow(
            key=make_key(
                "neighbours",
                row.subject,
                repr(names),
                repr(neighbours),
                repr(similarities),
            ),
            source_key=row.key,
            subject=row.subject,
            embedders=names,
            neighbours=neighbours,
            similarities=similarities,
            cells=cells,
            recalls=recalls,
            cut_off=_is_cut_off(row_index, results, config),
        )


def _is_cut_off(
    row_index: int,
    results: Sequence[SpaceSearch],
    config: SearchConfig,
) -> bool:
    """Return whether ``k`` leaves out neighbours that are similar enough in a space."""
    for result in results:
        values = result.similarities_of(row_index)
        is_full = len(values) == config.k < len(result.keys) - 1
        if is_full and values[-1] >= config.min_similarity:
            return True
    return False


def _search(
    images: Sequence[Row],
    config: SearchConfig,
    *,
    space: Vectors,
    name: str,
) -> SpaceSearch:
    """Return the neighbours of images, by an exact search or in the index."""
    rows = space.rows_of([image.subject for image in images])
    if len(space.matrix) <= config.max_exact_images:
        near, products = top_k(space.matrix, rows, k=config.k)
        return SpaceSearch(space.keys, near, products)
    with TemporaryDirectory() as temporary:
        folder = space.index or Path(temporary)
        index = open_neighbour_index(space.matrix, folder)
        probes = probes_of(index.nlist, config.probes)
        recall = _find_recall(folder, index, config, space=space, name=name)
        near, products = search_cells(space.matrix, rows, index=index, k=config.k, probes=probes)
    return SpaceSearch(space.keys, near, products, index.nlist, recall)


def _find_recall(
    folder: Path,
    index: Any,
    config: SearchConfig,
    *,
    space: Vectors,
    name: str,
) -> float:
    """Return the recall of the index; the first worker that asks measures and logs it for all."""
    probes = probes_of(index.nlist, config.probes)
    band = config.min_similarity
    hits, total, is_new = find_recall(
        folder,
        space.matrix,
        index,
        k=config.k,
        probes=probes,
        band=band,
    )
    recall = hits / total if total else 1.0
    if is_new:
        text = (
            f"{name}: {hits} of {total} sampled neighbours of similarity {band} or more are found"
        )
        _log_recall(text, recall, probes=probes, cells=index.nlist)
    return recall


def _log_recall(text: str, recall: float, *, probes: int, cells: int) -> None:
    if recall < LEAST_RECALL:
        warning = "%s: a recall of %.4f, below %s. Raise search.probes (now %d of %d cells)"
        log.warning(warning, text, recall, LEAST_RECALL, probes, cells)
    else:
        log.info("%s, with %d of %d cells probed", text, probes, cells)


STAGE = Stage(
    name="neighbours",
    version=3,
    group="mining",
    reads={"admitted": AdmittedRow},
    writes=NeighbourRow,
    function=search_neighbours,
    config=lambda profile: profile.searching,
    uses=(
        Uses(
            table="embeddings",
            row=EmbeddingRow,
            kind="vectors",
            only_in="admitted",
            name="vectors",
        ),
        Uses(table="given_pairs", row=PairRow, kind="table", without=REST, name="given"),
    ),
    processes=count_devices,
    rows_per_shard=2000,
)
