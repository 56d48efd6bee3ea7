"""Measure the clustering kernel against scikit-learn: sets per CPU-second on the same features in one run.

Run with ``make bench BENCH=cluster``, or ``python -m tests.bench.bench_cluster``; takes about half a minute and 1 GB.
Features are what mining clusters: 0.4 CLIP and 0.6 DINOv2, as unit vectors, of neighbours whose cosines lie between 0.8
and 0.95. ``batch`` is one array of sets, ``gathered`` the same sets picked from a shuffled table. Both sides run on one
thread; targets are those of issue 2.
"""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import SpectralClustering
from threadpoolctl import threadpool_limits

from pairwright.tasks.mining.cluster import CandidateSets, spectral_labels, spectral_labels_gathered

TARGETS = {4: 100, 8: 100, 16: 50, 32: 25, 64: 12}
N_ROWS = 48_000
WIDTHS = (768, 1024)
WEIGHTS = (0.4, 0.6)
SKLEARN_SETS = 250
LEAST_S = 1.0


def make_rows(rng: np.random.Generator) -> NDArray[np.float32]:
    """Make neighbours of one image after another, each of its own distance, 64 at a time."""
    parts: list[NDArray[np.float32]] = []
    for width, weight in zip(WIDTHS, WEIGHTS, strict=True):
        anchors = rng.standard_normal((N_ROWS // 64, 1, width), dtype=np.float32)
        noise = rng.standard_normal((N_ROWS // 64, 64, width), dtype=np.float32)
        rows = anchors + noise * rng.uniform(0.23, 0.5, (N_ROWS // 64, 64, 1)).astype(np.float32)
        rows *= weight / np.linalg.norm(rows, axis=-1, keepdims=True)
        parts.append(rows.reshape(N_ROWS, width))
    return np.concatenate(parts, axis=1)


def per_second(run: Callable[[], object], sets: int, least_s: float = LEAST_S) -> float:
    """Return sets per CPU-second over as many calls as fill ``least_s``."""
    start, calls = time.process_time(), 0
    while time.process_time() - start < least_s:
        run()
        calls += 1
    return sets * calls / (time.process_time() - start)


def shuffled(rows: NDArray[np.float32], n: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], CandidateSets]:
    """Return the rows in another order, and the same sets of ``n`` by their places in it."""
    order = rng.permutation(len(rows))
    return rows[order], CandidateSets(np.argsort(order), np.arange(0, len(rows) + 1, n))


def measure(rows: NDArray[np.float32], n: int, rng: np.random.Generator) -> str:
    """Return one line of the table."""
    sets = rows.reshape(-1, n, rows.shape[1])
    labels = spectral_labels(sets)
    batch = per_second(lambda: spectral_labels(sets), len(sets))
    table, candidates = shuffled(rows, n, rng)
    gathered = per_second(lambda: spectral_labels_gathered(table, candidates), len(sets))
    sample = rng.permutation(len(sets))[:SKLEARN_SETS]
    model = SpectralClustering(3, affinity="rbf", gamma=0.1, random_state=0)
    start = time.process_time()
    wanted = [model.fit(sets[i]).labels_ for i in sample]
    sklearn = len(sample) / (time.process_time() - start)
    pairs = zip(labels[sample], wanted, strict=True)
    same = np.mean([np.array_equal(a[:, None] == a, b[:, None] == b) for a, b in pairs])
    figures = f"{batch:>12,.0f}{gathered:>12,.0f}{sklearn:>12,.0f}{batch / sklearn:>9.0f}x{TARGETS[n]:>9}x"
    return f"{n:>4}{figures}{same:>12.2%}"


def main() -> None:
    """Print sets per CPU-second, their ratio to scikit-learn's and the share of equal partitions."""
    rng = np.random.default_rng(0)
    start = time.process_time()
    spectral_labels(rng.standard_normal((1, 8, 16), dtype=np.float32))
    print(f"first call: {time.process_time() - start:.1f} CPU-seconds (compiled, or read from the cache)\n")
    print("   n       batch    gathered     sklearn     ratio    target  same sets")
    rows = make_rows(rng)
    with threadpool_limits(1):
        for n in TARGETS:
            print(measure(rows, n, rng), flush=True)


if __name__ == "__main__":
    main()
