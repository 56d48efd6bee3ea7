"""Foresee how long the search for neighbours takes, by trying it on random vectors of the same width.

What a search costs grows with the square of the number of images, so that no small build shows it. Above
``max_exact`` images, the cells that are probed are what is searched; making the index of them is not foreseen.
"""

import time
from functools import lru_cache

import numpy as np

from pairwright.schemas.config import SearchConfig
from pairwright.tasks.models import perceptual_hash
from pairwright.tasks.models.search import top_k
from pairwright.tasks.models.search_lists import cells_of, probes_of
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.part import Part, read_columns

TRIED, QUERIES = 16_384, 256


def widths_of(folder: Folder, table: str) -> tuple[int, ...]:
    """Return how many numbers the vectors of a table of embeddings have, per space that is searched; none: no part."""
    names = [name for name in folder.names(table) if name.endswith(".parquet")]
    if not names:
        return ()
    rows, _ = read_columns(Part(folder, f"{table}/{names[0]}"), ("embedder", "vector", "status"))
    ok = [row for row in rows.to_pylist() if row["status"] == "ok" and row["embedder"] != perceptual_hash.NAME]
    return tuple({row["embedder"]: len(row["vector"]) for row in ok}.values())


def seconds_per_image(count: int, width: int, config: SearchConfig) -> float:
    """Return the seconds of one worker that finding one image's neighbours among so many takes, in one space."""
    searched = count
    if count > config.max_exact_images:
        cells = cells_of(count)
        searched = cells + round(count * probes_of(cells, config.probes) / cells)
    return _seconds_per_row(width, config.k) * searched


@lru_cache
def _seconds_per_row(width: int, k: int) -> float:
    """Return the seconds per image and row that it is compared with; the quicker of two tries."""
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((TRIED, width), dtype=np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    halves, rows = matrix.astype(np.float16), np.arange(QUERIES)
    times: list[float] = []
    for _ in range(3):  # the first one also compiles
        start = time.perf_counter()
        top_k(halves, rows, k=k)
        times.append(time.perf_counter() - start)
    return min(times[1:]) / QUERIES / TRIED
