"""Map images to two dimensions by their stored vectors, and find an image's nearest neighbours.

Reads the vectors of one embedder. The map is t-SNE (scikit-learn) of a bounded number of images, kept in a file.
"""

import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.store.vectors import Vectors

MOST_IMAGES = 2_000
"""Most images of a map: t-SNE takes about ten seconds for these, and time grows faster than their number."""
FEWEST, PERPLEXITY, STEPS = 10, 30.0, 500
CLUSTERS, COMPONENTS = 8, 50
ROWS = 50_000


Drawn = tuple[NDArray[np.float32], NDArray[np.int32]]
"""Coordinates (N, 2) from 0 to 1, and k-means clusters of the images."""


def map_images(space: Vectors, keys: Sequence[str], file: Path) -> Drawn:
    """Return the map of some images from a file, which is made if it is missing or damaged."""
    with suppress(OSError, ValueError, KeyError, zipfile.BadZipFile), np.load(file, allow_pickle=False) as kept:
        return kept["places"], kept["clusters"]
    places, clusters = _compute_map(space.matrix[space.rows_of(keys)].astype(np.float32))
    new = file.with_suffix(".new.npz")
    np.savez(new, places=places, clusters=clusters)
    new.replace(file)
    return places, clusters


def _compute_map(vectors: NDArray[np.float32]) -> Drawn:
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    count = len(vectors)
    distinct = len(np.unique(vectors, axis=0))
    if distinct < 3:
        return np.full((count, 2), 0.5, np.float32), np.zeros(count, np.int32)
    flat = PCA(min(COMPONENTS, *vectors.shape), random_state=0).fit_transform(vectors)
    groups = min(CLUSTERS, max(2, round((distinct / 2) ** 0.5)))
    clusters = KMeans(groups, n_init="auto", random_state=0).fit_predict(flat)
    if count >= FEWEST:
        perplexity = min(PERPLEXITY, (count - 1) / 3)
        flat = TSNE(init="pca", random_state=0, perplexity=perplexity, max_iter=STEPS).fit_transform(flat)
    places = flat[:, :2] - flat[:, :2].min(axis=0)
    return (places / np.maximum(places.max(axis=0), 1e-9)).astype(np.float32), clusters.astype(np.int32)


def find_nearest(space: Vectors, key: str, count: int) -> list[tuple[str, float]]:
    """Return an image and its nearest neighbours with their cosines, the image itself first."""
    (row,) = space.rows_of([key])
    own = space.matrix[row].astype(np.float32)
    starts = range(0, len(space.keys), ROWS)
    cosines = np.concatenate([space.matrix[at : at + ROWS].astype(np.float32) @ own for at in starts])
    order = np.argsort(-cosines, kind="stable")
    best = [row, *order[order != row][: count - 1]]
    keys: list[bytes] = space.keys[best].tolist()
    return [(one.decode(), cosine) for one, cosine in zip(keys, cosines[best].tolist(), strict=True)]
