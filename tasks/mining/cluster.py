"""Cluster many small sets of candidates at once, each as ``sklearn.cluster.SpectralClustering`` would.

Reads float32 features, writes int32 labels; CPU only. Numba is loaded with the first call, which compiles the kernel
(about 8 CPU-seconds, once per machine: it is cached on disk); ``cluster_kernel.py`` says how it works.

The partition is that of ``SpectralClustering(n_clusters, affinity="rbf", gamma=gamma, random_state=seed)``, all else
left alone, tested with scikit-learn 1.9.1. Label numbers agree too as a rule, but only the partition is meant. Some
two sets in ten thousand differ, and there scikit-learn itself changes its answer when features move by one part in
1e14: candidates of k-means++ tie, or rounding decides an eigenvector. That can be some percent with more clusters than
structure, and most sets where one row's affinities are 1e-30 of another's: raw features may be that far apart.

Where scikit-learn raises or leaves it to chance, rules hold:

* identical rows share a label: each distinct row is clustered once, in order of first appearance;
* with no more distinct rows than clusters, each is its own cluster, numbered in that order;
* a set's labels depend on nothing but the set, its order and the settings.
"""

import math
import operator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

N_INIT = 10  # runs of k-means in SpectralClustering

Singles = NDArray[np.float32]
Integers = NDArray[np.int64]
Labels = NDArray[np.int32]


@dataclass(frozen=True)
class CandidateSets:
    """Sets of row numbers, end to end: set ``i`` is ``indices[offsets[i]:offsets[i + 1]]``."""

    indices: Integers
    offsets: Integers


def spectral_labels(
    features: Singles, n_clusters: int = 3, gamma: float = 0.1, seed: int = 0, *, threads: int = 1
) -> Labels:
    """Return the labels ``(sets, n)`` of features ``(sets, n, d)``."""
    _check_features(features, 3)
    n_sets, n, width = features.shape
    sets = CandidateSets(np.arange(n_sets * n), np.arange(n_sets + 1) * n)
    vectors = features.reshape(n_sets * n, width)
    labels = spectral_labels_gathered(vectors, sets, n_clusters=n_clusters, gamma=gamma, seed=seed, threads=threads)
    return labels.reshape(n_sets, n)


def spectral_labels_gathered(
    vectors: Singles, sets: CandidateSets, *, n_clusters: int = 3, gamma: float = 0.1, seed: int = 0, threads: int = 1
) -> Labels:
    """Return one label per index of ``sets``, whose rows the kernel gathers from ``vectors`` ``(N, d)`` as it goes.

    Working memory per thread is 4 n d + 16 n² bytes and some 200 kB, with n the size of the largest set. Any number of
    threads gives the same labels.
    """
    _check_features(vectors, 2)
    indices, offsets = _check_sets(sets, len(vectors))
    k, gamma, threads = _check_settings(n_clusters, gamma, threads)
    largest = int(np.diff(offsets).max(initial=0))
    job = _Job(_read_only(vectors), indices, offsets, gamma, _draws(seed, largest, k), largest, k)
    labels = np.zeros(len(indices), np.int32)
    bad = _run_in_threads(job, labels, threads)
    if bad is not None:
        raise ValueError(f"set {bad}: features are NaN, infinite or too large for their squares in float32")
    return labels


@dataclass(frozen=True)
class _Job:
    vectors: Singles
    indices: Integers
    offsets: Integers
    gamma: float
    draws: NDArray[np.float64]
    largest: int
    k: int

    def run(self, start: int, stop: int, labels: Labels) -> int | None:
        """Label the sets from ``start`` to ``stop``; return the first with impossible features."""
        from pairwright.tasks.mining.cluster_kernel import cluster_sets, new_scratch

        scratch = new_scratch(self.largest, self.vectors.shape[1], self.k)
        offsets = self.offsets[start : stop + 1]
        bad = cluster_sets(self.vectors, self.indices, offsets, (self.gamma, self.draws), scratch, labels)
        return start + bad if bad >= 0 else None


def _run_in_threads(job: _Job, labels: Labels, threads: int) -> int | None:
    n_sets = len(job.offsets) - 1
    if threads == 1 or n_sets < threads:
        return job.run(0, n_sets, labels)
    bounds = [n_sets * part // threads for part in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        found = pool.map(lambda start, stop: job.run(start, stop, labels), bounds[:-1], bounds[1:])
        return next((bad for bad in found if bad is not None), None)


def _check_features(features: Any, dimensions: int) -> None:
    dtype = getattr(features, "dtype", type(features).__name__)
    if dtype != np.float32 or not isinstance(features, np.ndarray):
        raise TypeError(f"features must be a NumPy array of float32, not {dtype}")
    if features.ndim != dimensions:
        raise ValueError(f"features must have {dimensions} dimensions, not the shape {features.shape}")
    if features.size == 0 and 0 not in features.shape[:-1]:
        raise ValueError(f"features have no columns: their shape is {features.shape}")


def _check_sets(sets: CandidateSets, n_rows: int) -> tuple[Integers, Integers]:
    indices, offsets = _as_integers(sets.indices, "indices"), _as_integers(sets.offsets, "offsets")
    if not offsets.size or offsets[0] != 0 or offsets[-1] != indices.size or (np.diff(offsets) < 0).any():
        raise ValueError("offsets must rise from 0 to the number of indices")
    if indices.size and not (indices.min() >= 0 and indices.max() < n_rows):
        raise ValueError(f"indices must lie between 0 and {n_rows - 1}")
    return indices, offsets


def _as_integers(values: Integers, name: str) -> Integers:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(f"{name} must be one row of integers, not {array.dtype} of shape {array.shape}")
    return _read_only(array.astype(np.int64, copy=False))


def _check_settings(n_clusters: int, gamma: float, threads: int) -> tuple[int, float, int]:
    k, threads = operator.index(n_clusters), operator.index(threads)
    if k < 1 or threads < 1:
        raise ValueError(f"n_clusters and threads must be at least 1, not {k} and {threads}")
    if not 0.0 < gamma < math.inf:
        raise ValueError(f"gamma must be a positive number, not {gamma}")
    return k, float(gamma), threads


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view of one kind whatever came in, since each kind would be compiled by itself."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _draws(seed: int, largest: int, k: int) -> NDArray[np.float64]:
    """Return what scikit-learn draws for the largest set; smaller sets use the same stream from its beginning.

    One number per row starts its solver; then each run of k-means++ takes one for the first centre and
    ``2 + int(log(k))`` for each of the others.
    """
    per_run = 1 + (k - 1) * (2 + int(math.log(k)))
    return _read_only(np.random.RandomState(operator.index(seed)).random_sample(largest + N_INIT * per_run))
