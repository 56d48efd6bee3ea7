"""Measure the search against Faiss' exact float32 index: seconds per query, recall, memory at a million vectors.

Run with ``make bench BENCH=search``, or ``python -m tests.bench.bench_search``; takes four to eleven minutes, 5 GB of
memory and 5 GB below the temporary folder. Each side runs in processes of its own, on one thread, and both take turns;
Faiss' index is built beforehand, and its BLAS is measured as it comes and, where the processor has AVX-512, told to use
it (its OpenBLAS does not know newer processors): the better one counts.

The vectors are made to be like those of photographs, not independent noise: subjects, scenes of them and photographs
of scenes, in directions of falling weight (1 / sqrt(i), as in the spectra of encoders) around a common mean, and one
image of twenty nearly a copy. The band is 0.78 to 0.95, as in the paper.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

COUNT, QUERIES, K = 100_000, 2_000, 64  # a shard has 2,000 images
WIDTHS = (768, 1024)
MILLION = 1_000_000
BAND = (0.78, 0.95)
TURNS, REPEATS = 2, 3
ENCODED = 20_000


def write_vectors(path: Path, count: int, width: int) -> None:
    """Write unit vectors as float16, some at a time."""
    rng = np.random.default_rng(0)
    weights = np.arange(1, width + 1, dtype=np.float32) ** -0.5
    weights /= np.linalg.norm(weights)

    def draw(rows: int) -> NDArray[np.float32]:
        return rng.standard_normal((rows, width), dtype=np.float32) * weights

    subjects, mean = draw(count // 500), 0.6 * draw(1)
    of_scene = rng.integers(0, len(subjects), count // 12)
    scenes = (0.9 * subjects[of_scene] + 0.75 * draw(len(of_scene))).astype(np.float16)
    matrix = np.lib.format.open_memmap(path, "w+", dtype=np.float16, shape=(count, width))
    for start in range(0, count, ENCODED):
        rows = min(ENCODED, count - start)
        made = mean + scenes[rng.integers(0, len(scenes), rows)] + rng.uniform(0.15, 0.8, (rows, 1)) * draw(rows)
        copies = rng.permutation(rows)[: rows // 20]
        made[copies] = made[rng.integers(0, rows, len(copies))] + 0.06 * draw(len(copies))
        matrix[start : start + rows] = made / np.linalg.norm(made, axis=1, keepdims=True)


def rows_of(count: int) -> NDArray[np.int64]:
    """Return which vectors are the queries."""
    return np.sort(np.random.default_rng(1).permutation(count)[:QUERIES])


def run_faiss(matrix: NDArray[np.float16], rows: NDArray[np.int64]) -> dict[str, Any]:
    """Search Faiss' flat index, everything in float32 beforehand."""
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(matrix.shape[1])
    for start in range(0, len(matrix), ENCODED):
        index.add(np.asarray(matrix[start : start + ENCODED], dtype=np.float32))
    queries = np.asarray(matrix[rows], dtype=np.float32)
    seconds, (products, near) = timed(lambda: index.search(queries, K + 1))
    found = [
        [other for other in one if other != row][:K] for one, row in zip(near.tolist(), rows.tolist(), strict=True)
    ]
    sure = (products[:, 1:] >= BAND[0]) & (products[:, 1:] <= BAND[1])
    return {"seconds": seconds, "near": found, "in_band": float(sure.sum() / len(rows))}


def run_exact(matrix: NDArray[np.float16], rows: NDArray[np.int64]) -> dict[str, Any]:
    """Search as a build does; the vectors are mapped from disk."""
    from pairwright.tasks.models.search import top_k

    top_k(matrix[:1000], np.arange(10), k=K)  # what is compiled and loaded once
    top_k(matrix[:COUNT], rows_of(min(len(matrix), COUNT))[:200], k=K)
    seconds, (near, products) = timed(lambda: top_k(matrix, rows, k=K))
    return {"seconds": seconds, "near": near.tolist(), "products": products.tolist()}


def run_index(matrix: NDArray[np.float16], rows: NDArray[np.int64], *, folder: Path) -> dict[str, Any]:
    """Search the index as a build does; what it takes to make it is told beside."""
    from pairwright.tasks.models.search_lists import find_lists, probes_of, search_lists

    keys = np.array([b"%032x" % row for row in range(len(matrix))], dtype="S32")
    start = time.perf_counter()
    lists = find_lists(matrix, keys, folder=folder, memo=None)
    made, probes = time.perf_counter() - start, probes_of(lists.cells, 0)
    seconds, (near, _) = timed(lambda: search_lists(matrix, rows, lists=lists, k=K, probes=probes))
    return {"seconds": seconds, "near": near.tolist(), "made": made, "cells": lists.cells, "probes": probes}


def timed(run: Any) -> tuple[float, Any]:
    """Return the least CPU seconds of some runs, which other processes do not change much, and the last result."""
    best, result = float("inf"), None
    for _ in range(REPEATS):
        start = time.process_time()
        result = run()
        best = min(best, time.process_time() - start)
    return best, result


def main_of_side(side: str, path: Path) -> None:
    """Measure one side, and print what it found and the peak of its own memory as JSON."""
    matrix = np.load(path, mmap_mode="r")
    rows = rows_of(len(matrix))
    sides = {"faiss": run_faiss, "exact": run_exact, "index": lambda m, r: run_index(m, r, folder=path.with_suffix(""))}
    result = sides[side](matrix, rows)
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    result["anonymous"] = int(fields["RssAnon"].split()[0]) * 1024
    result["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(result))


def measure(side: str, path: Path, *, avx512: bool = False) -> dict[str, Any]:
    """Run a side in a process of its own, with one thread."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, "1")}
    if avx512:
        environment["OPENBLAS_CORETYPE"] = "SkylakeX"
    command = [sys.executable, "-m", "tests.bench.bench_search", side, str(path)]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def recall(found: list[list[int]], exact: dict[str, Any]) -> float:
    """Return the share of the exact neighbours in the band that were found."""
    hits = total = 0
    for some, near, products in zip(found, exact["near"], exact["products"], strict=True):
        wanted = {other for other, value in zip(near, products, strict=True) if BAND[0] <= value <= BAND[1]}
        hits, total = hits + len(wanted & set(some)), total + len(wanted)
    return hits / total


def has_avx512() -> bool:
    """Say whether Faiss' BLAS can be told to use AVX-512."""
    try:
        return "avx512bw" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def compare(folder: Path, count: int, width: int) -> None:
    """Print all sides at one size."""
    path = folder / f"{count}-{width}.npy"
    write_vectors(path, count, width)
    names = [("exact", False), ("faiss", False), *([("faiss", True)] if has_avx512() else []), ("index", False)]
    turns = [[measure(side, path, avx512=avx512) for side, avx512 in names] for _ in range(TURNS)]
    best = [min(results, key=lambda result: result["seconds"]) for results in zip(*turns, strict=True)]
    exact, plain, tuned, index = best[0], best[1], best[-2], turns[0][-1] | {"seconds": best[-1]["seconds"]}
    flat = min(plain["seconds"], tuned["seconds"])
    print(f"{count:,} x {width}: {plain['in_band']:.1f} neighbours in the band per image; ms of one core per query")
    say("Faiss flat, as it comes", plain["seconds"], flat, recall(plain["near"], exact))
    if len(best) > 3:
        say("Faiss flat, BLAS told to use AVX-512", tuned["seconds"], flat, recall(tuned["near"], exact))
    say("exact search (target 1.5x)", exact["seconds"], flat, 1.0)
    name = f"index, {index['probes']} of {index['cells']} cells (made in {index['made']:.0f} s)"
    say(name, index["seconds"], flat, recall(index["near"], exact))
    path.unlink()


def say(what: str, seconds: float, flat: float, found: float) -> None:
    """Print one line."""
    print(
        f"  {what:<52}{1e3 * seconds / QUERIES:8.3f} ms {flat / seconds:6.2f}x  recall in band {found:.4f}", flush=True
    )


def measure_million(folder: Path) -> None:
    """Print time and memory of searching a million vectors."""
    path = folder / "million.npy"
    write_vectors(path, MILLION, 1024)
    print(f"{MILLION:,} x 1024, {QUERIES} queries (target 12 GB)")
    exact, index = measure("exact", path), measure("index", path)
    for name, result in (("exact search", exact), ("index", index)):
        own, peak = result["anonymous"] / 1e9, result["peak"] / 1e9
        text = f"  {name:<14}{1e3 * result['seconds'] / QUERIES:8.3f} ms per query, recall in band "
        memory = f"{own:.2f} GB of its own at the end, peak {peak:.2f} GB with mapped files"
        print(f"{text}{recall(result['near'], exact):.4f}; {memory}", flush=True)
    print(f"  the index: {index['cells']} cells, {index['probes']} probed, made in {index['made']:.0f} s")


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as folder:
        for width in WIDTHS:
            compare(Path(folder), COUNT, width)
        measure_million(Path(folder))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main_of_side(sys.argv[1], Path(sys.argv[2]))
    else:
        main()
