"""Search a large matrix of unit vectors through an inverted index; scores are exact, and so is what is promised.

The images of the lowest keys, which are hashes and so a fair sample, are the centres of the cells; every image belongs
to the cell of its nearest centre. The answer to a query is: the nearest images of the cells of its nearest centres, as
many as ``probes``. Nothing is trained, and every "nearest" here is exact (``search.top_k``), so the answer is a
function of the images alone: the same on any machine, and the same whether an index was extended or made anew. Against
k-means' centres, this takes two to four times as many probes for the same recall, and no seed, training or drift.

An index lies in a folder: ``order.npy`` (the rows, cell by cell), ``ends.npy``, ``codes.npy`` (their vectors in that
order, as the scan multiplies them: 2 bytes per number in bfloat16, else 4), mapped into memory by all workers. All
queries that probe a cell are multiplied with it at once, so that its vectors are read once per shard.

The memo beside it remembers each image's centre by their keys. An index over more images starts from it: only centres
that are new, and images that are new or have lost their centre, are compared.
"""

import json
import math
import uuid
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from pairwright.tasks.models.search import rank, settle, top_k
from pairwright.tasks.models.search_scan import MOST_QUERIES, Best, Codes, Kernel, Products, list_kernel
from pairwright.tasks.store.files import naming

ROWS_AT_ONCE = 8192
SHAPE_ROWS = 64
SAMPLE = 256
"""Images whose neighbours are searched exactly, to measure recall."""


@dataclass(frozen=True)
class Lists:
    """Hold the cells of a matrix: cell ``c`` has the rows ``order[ends[c] : ends[c + 1]]``; its centre is row ``c``."""

    order: NDArray[np.int64]
    ends: NDArray[np.int64]
    codes: Codes

    @property
    def cells(self) -> int:
        """Return how many there are."""
        return len(self.ends) - 1


def cells_of(count: int) -> int:
    """Return into how many cells so many images are divided: the power of two nearest to four times their root."""
    return min(count, 1 << round(math.log2(4 * math.sqrt(count))))


def probes_of(cells: int, asked: int) -> int:
    """Return how many cells are searched per query: as many as asked; 0: one of 16, and 16 at the least."""
    return min(cells, asked or max(16, cells // 16))


def search_lists(
    matrix: NDArray[np.float16], rows: NDArray[np.int64], *, lists: Lists, k: int, probes: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return for each row the ``k`` nearest others in the cells of its nearest centres, and their inner products.

    Where there are fewer, the rest is -1 and -inf.
    """
    kernel, centres = list_kernel(), np.arange(lists.cells)
    probed = top_k(matrix, rows, k=probes, among=centres, itself=True)[0]
    places = {row: place for place, row in enumerate(rows.tolist())}

    def look(owed: NDArray[np.int64], reach: int) -> tuple[NDArray[np.int64], NDArray[np.float32], float]:
        parts: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
        for start in range(0, len(owed), MOST_QUERIES):
            some = owed[start : start + MOST_QUERIES]
            cells = probed[[places[row] for row in some.tolist()]]
            parts.append(_scan_lists(kernel, lists, kernel.encode(matrix[some]), cells=cells, reach=reach))
        found, scores = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return found, scores, kernel.error(matrix.shape[1])

    near, products = settle(matrix, rows, k=k, most=len(matrix), itself=False, look=look)
    return near, products.astype(np.float32)


def _scan_lists(
    kernel: Kernel, lists: Lists, queries: Codes, *, cells: NDArray[np.int64], reach: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Scan each query's first cells, which show what products are of interest, and then the others."""
    best = Best(kernel, len(queries), kernel.reach(reach))
    for some in (cells[:, :4], cells[:, 4:]):
        flat = some.reshape(-1)
        order = np.argsort(flat, kind="stable")
        asking, starts = np.unique(flat[order], return_index=True)
        for cell, group in zip(asking.tolist(), np.split(order // max(some.shape[1], 1), starts[1:]), strict=False):
            start, stop = int(lists.ends[cell]), int(lists.ends[cell + 1])
            best.add(_products(kernel, lists, queries, group, start, stop), lists.order[start:stop], group)
    return best.result()


def _products(
    kernel: Kernel, lists: Lists, queries: Codes, group: NDArray[np.int64], start: int, stop: int
) -> Products:
    """Multiply a cell with the queries that probe it, in one of few shapes where the kernel needs that."""
    if not kernel.few_shapes:
        return kernel.products(lists.codes[start:stop], queries[group])
    height = -(-(stop - start) // SHAPE_ROWS) * SHAPE_ROWS
    first = max(0, min(start, len(lists.order) - height))
    width = max(8, 1 << (len(group) - 1).bit_length())
    padded = np.concatenate([group, np.repeat(group[:1], width - len(group))])
    product = kernel.products(lists.codes[first : first + height], queries[padded])
    return np.ascontiguousarray(product[start - first : stop - first, : len(group)])


def find_recall(
    folder: Path, matrix: NDArray[np.float16], lists: Lists, *, k: int, probes: int, band: float
) -> tuple[int, int, bool]:
    """Return what ``measure_recall`` says of the index in a folder, and whether this process was the one to measure."""
    file = folder / f"recall-{probes}-{k}-{band}.json"
    with FileLock(folder.with_suffix(".lock")):
        if file.exists():
            hits, total = json.loads(file.read_text())
            return hits, total, False
        hits, total = measure_recall(matrix, lists, k=k, probes=probes, band=band)
        with naming(str(file), "written"):
            file.write_text(json.dumps([hits, total]))
    return hits, total, True


def measure_recall(matrix: NDArray[np.float16], lists: Lists, *, k: int, probes: int, band: float) -> tuple[int, int]:
    """Return how many of the exact neighbours of a sample the index finds, and how many there are.

    Neighbours are the ``k`` nearest of a similarity of ``band`` or more. The sample is the images of the highest keys.
    """
    rows = np.arange(max(lists.cells, len(matrix) - SAMPLE), len(matrix))
    near, products = top_k(matrix, rows, k=k)
    found, _ = search_lists(matrix, rows, lists=lists, k=k, probes=probes)
    wanted = [set(one[scores >= band].tolist()) for one, scores in zip(near, products, strict=True)]
    hits = sum(len(some & set(one)) for some, one in zip(wanted, found.tolist(), strict=True))
    return hits, sum(map(len, wanted))


def nearest_centres(
    matrix: NDArray[np.float16], *, cells: int, known: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return each row's nearest centre; the centres are the first ``cells`` rows.

    ``known`` gives the centre of rows in an earlier index, -1 where there was none. One that is a centre no more does
    not count; one that nobody had is compared like a new one.
    """
    kept = np.full(len(matrix), -1) if known is None else np.where(known < cells, known, -1)
    centres = np.arange(cells)
    new = np.setdiff1d(centres, kept)
    nearest = np.empty(len(matrix), dtype=np.int64)
    for start in range(0, len(matrix), ROWS_AT_ONCE):
        rows = np.arange(start, min(start + ROWS_AT_ONCE, len(matrix)))
        old, others = rows[kept[rows] >= 0], rows[kept[rows] < 0]
        nearest[others] = top_k(matrix, others, k=1, among=centres, itself=True)[0][:, 0]
        better = top_k(matrix, old, k=1, among=new, itself=True)[0]
        nearest[old] = rank(matrix, old, np.concatenate([kept[old, None], better], axis=1), k=1)[0][:, 0]
    return nearest


def make_lists(matrix: NDArray[np.float16], nearest: NDArray[np.int64], *, cells: int, folder: Path) -> None:
    """Write an index; what has the folder's name is whole."""
    order = np.argsort(nearest, kind="stable")
    new = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
    with naming(str(folder), "written"):
        new.mkdir(parents=True)
        np.save(new / "order.npy", order)
        np.save(new / "ends.npy", np.searchsorted(nearest[order], np.arange(cells + 1)))
        _write_codes(new / "codes.npy", matrix, order)
        new.rename(folder)


def _write_codes(path: Path, matrix: NDArray[np.float16], order: NDArray[np.int64]) -> None:
    """Write the vectors cell by cell; plainly, for a full disk kills whoever writes to a map."""
    kernel = list_kernel()
    kind = kernel.encode(matrix[:1]).dtype
    with path.open("wb") as file:
        about = {"descr": kind.str, "fortran_order": False, "shape": matrix.shape}
        np.lib.format.write_array_header_1_0(file, about)
        for start in range(0, len(order), ROWS_AT_ONCE):
            kernel.encode(matrix[order[start : start + ROWS_AT_ONCE]]).tofile(file)


def open_lists(folder: Path) -> Lists:
    """Map an index into memory."""
    # As plain arrays, of which a part is taken in a fifth of the time.
    mapped = (np.load(folder / f"{name}.npy", mmap_mode="c") for name in ("order", "ends", "codes"))
    return Lists(*map(np.asarray, mapped))


def read_memo(path: Path, keys: NDArray[np.bytes_]) -> NDArray[np.int64] | None:
    """Return the row of each image's centre in an earlier index, -1 where it had none or that is gone."""
    try:
        with path.open("rb") as file, np.load(file) as memo:
            before, centres, nearest = memo["keys"], memo["centres"], memo["nearest"]
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
    row_of_centre = _rows_of(keys, centres)
    places = _rows_of(before, keys)
    return np.where(places >= 0, row_of_centre[nearest[places]], -1)


def write_memo(path: Path, keys: NDArray[np.bytes_], nearest: NDArray[np.int64], *, cells: int) -> None:
    """Remember each image's centre by their keys."""
    new = path.with_name(f"{path.name}.{uuid.uuid4().hex}.npz")
    with naming(str(path), "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(new, keys=keys, centres=keys[:cells], nearest=nearest.astype(np.int32))
        new.replace(path)


def _rows_of(keys: NDArray[np.bytes_], wanted: NDArray[np.bytes_]) -> NDArray[np.int64]:
    """Return where keys are among rising ones, or -1."""
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, places, -1)


def find_lists(matrix: NDArray[np.float16], keys: NDArray[np.bytes_], *, folder: Path, memo: Path | None) -> Lists:
    """Open the index in the folder; the first who comes makes it, and all others wait."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            cells = cells_of(len(matrix))
            nearest = nearest_centres(matrix, cells=cells, known=read_memo(memo, keys) if memo else None)
            make_lists(matrix, nearest, cells=cells, folder=folder)
            if memo:
                write_memo(memo, keys, nearest, cells=cells)
    return open_lists(folder)
