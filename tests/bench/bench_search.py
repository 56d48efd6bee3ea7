"""Measure the search against Faiss' exact float32 index: queries per CPU second, and recall.

Run with ``make bench BENCH=search``, or ``python -m tests.bench.bench_search [COUNT]``; takes about
two minutes and 1.5 GB of memory. All sides run on one thread; Faiss' index is built beforehand. The
targets are Faiss' own time for the exact search, and a recall of 0.99 in the band for the index.

The vectors are made to be like those of photographs, not independent noise: subjects, scenes of
them and photographs of scenes, in directions of falling weight (1 / sqrt(i), as in the spectra of
encoders) around a common mean, and one image of twenty nearly a copy. The band is 0.78 to 0.95, as
in the paper.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import faiss
import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.models.search_index import (
    count_devices,
    open_neighbour_index,
    probes_of,
    search_cells,
    top_k,
)
from tests.bench.turns import print_rates, take_turns

COUNT, WIDTH, QUERIES, K = 100_000, 1024, 2_000, 64  # a shard has 2,000 images
BAND = (0.78, 0.95)
REPEATS, ENCODED = 3, 20_000


def make_vectors(count: int) -> NDArray[np.float16]:
    """Return unit vectors, made some at a time."""
    rng = np.random.default_rng(0)
    weights: NDArray[np.float32] = np.arange(1, WIDTH + 1, dtype=np.float32) ** -0.5
    weights /= np.linalg.norm(weights)

    def draw(rows: int) -> NDArray[np.float32]:
        return rng.standard_normal((rows, WIDTH), dtype=np.float32) * weights

    subjects, mean = draw(count // 500), 0.6 * draw(1)
    of_scene = rng.integers(0, len(subjects), count // 12)
    scenes = (0.9 * subjects[of_scene] + 0.75 * draw(len(of_scene))).astype(np.float16)
    matrix = np.empty((count, WIDTH), dtype=np.float16)
    for start in range(0, count, ENCODED):
        rows = min(ENCODED, count - start)
        made = (
            mean
            + scenes[rng.integers(0, len(scenes), rows)]
            + rng.uniform(0.15, 0.8, (rows, 1)) * draw(rows)
        )
        copies = rng.permutation(rows)[: rows // 20]
        made[copies] = made[rng.integers(0, rows, len(copies))] + 0.06 * draw(len(copies))
        matrix[start : start + rows] = made / np.linalg.norm(made, axis=1, keepdims=True)
    return matrix


def main() -> None:
    """Print the sides."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    matrix = make_vectors(count)
    rows = np.sort(np.random.default_rng(1).permutation(count)[:QUERIES])
    near, products = top_k(matrix, rows, k=K)
    wanted = [
        set(one[(BAND[0] <= value) & (value <= BAND[1])])
        for one, value in zip(near, products, strict=True)
    ]
    total = sum(map(len, wanted))
    print(f"{count:,} x {WIDTH}: {total / QUERIES:.1f} neighbours in the band per image")

    flat = faiss.IndexFlatIP(WIDTH)
    for start in range(0, count, ENCODED):
        flat.add(matrix[start : start + ENCODED].astype(np.float32))
    queries = matrix[rows].astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        index = open_neighbour_index(matrix, Path(folder))
        made, probes = time.process_time() - start, probes_of(index.nlist, 0)
        cells = f"index, {probes} of {index.nlist} cells (made in {made:.0f} s)"
        sides: dict[str, Callable[[], NDArray[np.int64]]] = {
            "Faiss IndexFlatIP": lambda: flat.search(queries, K + 1)[1],
            "exact search, scored again in float64": lambda: top_k(matrix, rows, k=K)[0],
            cells: lambda: search_cells(matrix, rows, index=index, k=K, probes=probes)[0],
        }
        where = "one thread, ours on the GPU" if count_devices() else "one thread"
        print_rates(
            f"{QUERIES:,} queries on {where}", take_turns(sides, REPEATS), QUERIES, "queries"
        )
        for name, search in sides.items():
            hits = sum(len(own & set(some)) for own, some in zip(wanted, search(), strict=True))
            print(f"  {name:<48} recall in band {hits / total:.4f}", flush=True)


if __name__ == "__main__":
    main()
