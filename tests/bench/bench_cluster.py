"""Measure clustering against scikit-learn: sets per CPU-second on the same features in one run.

Run with ``make bench BENCH=cluster``, or ``python -m tests.bench.bench_cluster``; takes a minute
and 1 GB. Features are what mining clusters: 0.4 CLIP and 0.6 DINOv2, as unit vectors, of neighbours
whose cosines lie between 0.8 and 0.95. Both sides run on one thread; the target of 20x is for 8 to
32 neighbours.
"""

import time

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import SpectralClustering
from threadpoolctl import threadpool_limits

from pairwright.tasks.mining.cluster import spectral_labels

SIZES = (8, 16, 32, 64)
SETS, SKLEARN_SETS, REPEATS = 1000, 250, 3


def make_rows(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """Make neighbours of one image after another, each of its own distance, 64 at a time."""
    parts: list[NDArray[np.float32]] = []
    for width, weight in ((768, 0.4), (1024, 0.6)):
        anchors = rng.standard_normal((count // 64, 1, width), dtype=np.float32)
        noise = rng.standard_normal((count // 64, 64, width), dtype=np.float32)
        rows = anchors + noise * rng.uniform(0.23, 0.5, (count // 64, 64, 1)).astype(np.float32)
        parts.append(
            (rows * weight / np.linalg.norm(rows, axis=-1, keepdims=True)).reshape(count, width)
        )
    return np.concatenate(parts, axis=1)


def measure(rows: NDArray[np.float32], n: int, rng: np.random.Generator) -> str:
    """Return one line of the table."""
    sets = list(np.arange(len(rows) // n * n).reshape(-1, n)[:SETS])
    times: list[float] = []
    labels: list[NDArray[np.int32]] = []
    for _ in range(REPEATS):
        start = time.process_time()
        labels = spectral_labels(rows, sets)
        times.append((time.process_time() - start) / len(sets))
    sample = rng.permutation(len(sets))[:SKLEARN_SETS]
    model = SpectralClustering(3, affinity="rbf", gamma=0.1, random_state=0)
    start = time.process_time()
    wanted = [model.fit_predict(rows[sets[place]]) for place in sample]
    theirs = (time.process_time() - start) / len(sample)
    pairs = [(labels[place], own) for place, own in zip(sample, wanted, strict=True)]
    same = np.mean(
        [np.array_equal(one[:, None] == one, other[:, None] == other) for one, other in pairs]
    )
    best = min(times)
    return f"{n:>4}{1 / best:>10,.0f}{1 / theirs:>12,.0f}{theirs / best:>8.0f}x{same:>12.2%}"


def main() -> None:
    """Print sets per CPU-second, their ratio to scikit-learn's and the share of equal
    partitions."""
    rng = np.random.default_rng(0)
    rows = make_rows(rng, 32_000)
    print("   n      ours     sklearn    ratio   same sets")
    with threadpool_limits(1):
        for n in SIZES:
            print(measure(rows, n, rng), flush=True)


if __name__ == "__main__":
    main()
