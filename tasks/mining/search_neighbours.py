"""Search the nearest neighbours of images in each embedder's space (paper 001, Appendix D.1, step 2).

Reads ``AdmittedRow`` and the matrices of the admitted images' vectors, writes ``NeighbourRow``: the raw result, before
any threshold, so that thresholds can be moved without searching again. CPU, or a GPU where Faiss has one; no network.

Up to ``max_exact_images`` images the search is exact. When images came or went since the last build, an image that was
there then is compared with the new ones only, and its old neighbours are taken over: N times the new ones instead of
N times N. Where one of the old neighbours is gone, somebody unknown moves up, and the image is searched again.

Above, an index of cells is searched (``tasks.models.search_index``), at N times a sixteenth of N. Its recall is
measured on a sample, stored in the rows, and warned of below 0.99.

Either way the rows are the same as those of a build from scratch.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import SearchConfig
from pairwright.schemas.rows import LEAST_RECALL, AdmittedRow, Dropped, EmbeddingRow, NeighbourRow, Row, make_key
from pairwright.tasks.models import perceptual_hash
from pairwright.tasks.models.rescore import rank
from pairwright.tasks.models.search_index import find_recall, open_index, probes_of, search_cells, top_k
from pairwright.tasks.store.index import Before
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.store.vectors import Vectors

log = logging.getLogger(__name__)
NOTHING = Before(np.empty(0, dtype="S32"), {})


@dataclass(frozen=True)
class Found:
    """Hold what was found in one space: per row its neighbours' places in the matrix, -1 at the end, and products."""

    near: NDArray[np.int64]
    products: NDArray[np.float32]
    cells: int = 0
    recall: float = 1.0


def search_neighbours(
    rows: Sequence[Row], config: SearchConfig, *, vectors: Mapping[str, Vectors], before: Before = NOTHING
) -> Iterator[NeighbourRow | Dropped]:
    """Yield the ``k`` nearest other images of each row's ``subject``, in every space."""
    vectors = {name: space for name, space in vectors.items() if name != perceptual_hash.NAME}
    present = [row for row in rows if vectors and not _lacking(row, vectors)]
    images = [row.subject for row in present]
    found = [
        _search_index(images, config, space=space, name=name)
        if len(space.matrix) > config.max_exact_images
        else _search_all(images, config, space=space, name=name, before=before)
        for name, space in vectors.items()
    ]
    places = {row.key: place for place, row in enumerate(present)}
    for row in rows:
        if (place := places.get(row.key)) is None:
            yield Dropped(source_key=row.key, reason="no vector", detail=", ".join(_lacking(row, vectors)))
        else:
            yield _row(row, place, found=found, vectors=vectors, config=config)


def _lacking(row: Row, vectors: Mapping[str, Vectors]) -> list[str]:
    """Return the embedders that have no vector of the image."""
    return [name for name, space in vectors.items() if _places(space, [row.subject])[0] < 0]


def _places(space: Vectors, images: Sequence[str]) -> NDArray[np.int64]:
    """Return where images are in the matrix, -1 for those that are not."""
    wanted = np.array([image.encode() for image in images], dtype="S32")
    places = np.minimum(np.searchsorted(space.keys, wanted), len(space.keys) - 1)
    return np.where(space.keys[places] == wanted, places, -1) if len(space.keys) else np.full(len(wanted), -1)


def _search_index(images: Sequence[str], config: SearchConfig, *, space: Vectors, name: str) -> Found:
    """Search the index; whoever makes it for all workers also measures it."""
    with TemporaryDirectory() as folder:
        place = space.index or Path(folder)
        index = open_index(space.matrix, place)
        probes, band = probes_of(index.nlist, config.probes), config.min_similarity
        hits, total, new = find_recall(place, space.matrix, index, k=config.k, probes=probes, band=band)
        near, products = search_cells(space.matrix, space.rows_of(images), index=index, k=config.k, probes=probes)
    recall = hits / total if total else 1.0
    if new:
        about = f"{name}: {hits} of {total} sampled neighbours of similarity {band} or more are found"
        if recall < LEAST_RECALL:
            text = "%s: a recall of %.4f, below %s. Raise search.probes (now %d of %d cells)"
            log.warning(text, about, recall, LEAST_RECALL, probes, index.nlist)
        else:
            log.info("%s, with %d of %d cells probed", about, probes, index.nlist)
    return Found(near, products, index.nlist, recall)


def _search_all(images: Sequence[str], config: SearchConfig, *, space: Vectors, name: str, before: Before) -> Found:
    """Search exactly, extending the lists of an earlier build where they are still whole."""
    rows = space.rows_of(images)
    near = np.full((len(rows), min(config.k, max(len(space.matrix) - 1, 0))), -1, dtype=np.int64)
    products = np.full(near.shape, -np.inf, dtype=np.float32)
    old = [_old_list(before.rows.get(image), name, space=space, k=config.k) for image in images]
    kept = np.array([known is not None for known in old], dtype=bool)
    if kept.any():
        lists = [known for known in old if known is not None]
        width = max(map(len, lists))
        padded = [np.pad(known, (0, width - len(known)), constant_values=-1) for known in lists]
        new = np.flatnonzero(~np.isin(space.keys, before.images))  # images that the earlier build had not
        found, _ = top_k(space.matrix, rows[kept], k=near.shape[1], among=new)
        both = np.sort(np.concatenate([np.array(padded, dtype=np.int64), found], axis=1), axis=1)
        both[:, 1:][both[:, 1:] == both[:, :-1]] = -1
        near[kept], products[kept] = rank(space.matrix, rows[kept], both, k=near.shape[1])
    near[~kept], products[~kept] = top_k(space.matrix, rows[~kept], k=config.k)
    return Found(near, products)


def _names(space: Vectors, rows: NDArray[np.int64]) -> list[str]:
    return [key.decode() for key in space.keys[rows].tolist()]


def _old_list(row: NeighbourRow | None, name: str, *, space: Vectors, k: int) -> NDArray[np.int64] | None:
    """Return an anchor's old neighbours, or ``None`` where they do not tell who is nearest of those still there."""
    if row is None or name not in row.embedders:
        return None
    number = row.embedders.index(name)
    if row.cells[number]:
        return None
    places = _places(space, row.neighbours[number])
    whole = len(places) < k  # it held all images that there were
    return places[places >= 0] if whole or (places >= 0).all() else None


def _row(
    row: Row, place: int, *, found: Sequence[Found], vectors: Mapping[str, Vectors], config: SearchConfig
) -> NeighbourRow:
    spaces = tuple(vectors.values())
    near = [one.near[place][one.near[place] >= 0] for one in found]
    neighbours = tuple(tuple(_names(space, own)) for space, own in zip(spaces, near, strict=True))
    # Rounded to float16, a unit vector may be longer than 1; a cosine may not.
    cosines = [np.clip(one.products[place][: len(own)], -1, 1) for one, own in zip(found, near, strict=True)]
    similarities = tuple(tuple(values.tolist()) for values in cosines)
    return NeighbourRow(
        key=make_key("neighbours", row.subject, repr(tuple(vectors)), repr(neighbours), repr(similarities)),
        source_key=row.key,
        subject=row.subject,
        embedders=tuple(vectors),
        neighbours=neighbours,
        similarities=similarities,
        cells=tuple(one.cells for one in found),
        recalls=tuple(float(np.float32(one.recall)) for one in found),
        cut_off=any(
            len(values) == config.k < len(space.keys) - 1 and values[-1] >= config.min_similarity
            for values, space in zip(similarities, spaces, strict=True)
        ),
    )


STAGE = Stage(
    name="neighbours",
    version=2,
    group="mining",
    reads={"admitted": AdmittedRow},
    writes=NeighbourRow,
    function=search_neighbours,
    config="search",
    whole=True,
    uses=(
        Uses(table="embeddings", row=EmbeddingRow, kind="vectors", only_in="admitted", name="vectors"),
        Uses(table="", row=NeighbourRow, kind="before", name="before"),
    ),
    rows_per_shard=2000,
)
