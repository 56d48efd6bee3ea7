"""Preselect neighbours by products of lower precision, with a proven bound of their error.

A scan multiplies blocks of rows with all queries at once and keeps, per query, the rows of the highest products. Three
ways to multiply, each with the most that its products can be off:

* bfloat16 with torch, where the processor multiplies it natively (AVX-512 BF16, AMX): two to four times float32.
* float32 with NumPy on other processors, as fast as Faiss' flat index; of large scans only those products that can be
  among the highest, once that is known of enough of them (``search_directions``): then 1.5 times as fast.
* float32 with Faiss, on a GPU where Faiss has one.

Kept products are 16-bit steps, ordered like the numbers, so that one 64-bit number holds query, product and row, and
sorting such numbers, which NumPy does with vectors, ranks all queries together.
"""

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.models.check_packages import require_faiss
from pairwright.tasks.models.search_directions import Directions, Singles

BLOCK_BYTES = 8 << 20
"""Bytes of a block's rows; with its products it stays in a processor's caches."""
MOST_QUERIES = 2048
"""Queries that are scanned together."""
WORTH_TORCH = 2e10
"""Multiplications under which a scan is over before torch is loaded."""
WORTH_DIRECTIONS = 2e10
"""Multiplications under which finding directions would take longer than they save."""
FEW = 8
"""Of so many products one may be of interest for these to be computed one by one; more are faster all at once."""
TRIED_AFTER = 2
"""Blocks after which bounds are tried: after 4, 8, 16, ... of them, until they leave few products to be computed."""
CACHED_ROWS = 64
FIRST_ROWS = 2048
FULL_SCALE = 30_000
"""Steps of a product of 1 in float32; a rounded unit vector may be a little longer than 1."""

Halves = NDArray[np.float16]
Steps = NDArray[np.int16]
Codes = NDArray[Any]
Products = NDArray[Any]


class Kernel(Protocol):
    """Multiply rows with queries in some precision."""

    few_shapes: ClassVar[bool]
    """Whether a first product of each shape takes long."""

    def reach(self, wanted: int) -> int:
        """Return how many rows are preselected so that the wanted ones are nearly always among them."""
        ...

    def encode(self, rows: Halves) -> Codes:
        """Return rows in the form that is multiplied; it may be stored."""
        ...

    def products(self, rows: Codes, queries: Codes) -> Products:
        """Return ``(rows, queries)`` products."""
        ...

    def above(self, products: Products, floors: Steps) -> NDArray[np.bool_]:
        """Return which products have a higher step than their query's floor."""
        ...

    def steps(self, products: Products) -> Steps:
        """Return the steps of products."""
        ...

    def values(self, steps: Steps) -> NDArray[np.float32]:
        """Return the numbers that steps stand for."""
        ...

    def error(self, width: int) -> float:
        """Return how far a value can be from the product of two rows of length 1, of so many numbers each."""
        ...


class BfloatKernel:
    """Multiply bfloat16 numbers, sum in float32, round to bfloat16."""

    few_shapes: ClassVar[bool] = True
    """Torch compiles each one (3 ms)."""

    def reach(self, wanted: int) -> int:
        """Preselect widely: in a hundredth of similarity are many rows."""
        return 2 * wanted + 32

    def encode(self, rows: Halves) -> Codes:
        """Return the upper halves of the float32 numbers, rounded: each is off by 2^-8 of it at the most."""
        import torch

        codes = np.empty(rows.shape, dtype=np.int16)
        # By way of float32 and a cache's worth at a time: five times as fast as torch's own conversion.
        halves = np.empty((min(len(rows), CACHED_ROWS), rows.shape[1]), dtype=np.float16)
        singles = torch.empty(halves.shape, dtype=torch.float32)
        for start in range(0, len(rows), CACHED_ROWS):
            count = min(CACHED_ROWS, len(rows) - start)
            halves[:count] = rows[start : start + count]
            singles[:count].copy_(torch.from_numpy(halves[:count]))
            torch.from_numpy(codes[start : start + count]).view(torch.bfloat16).copy_(singles[:count])
        return codes

    def products(self, rows: Codes, queries: Codes) -> Products:
        """Multiply; return the numbers' own bits."""
        import torch

        left, right = (torch.from_numpy(np.require(codes, requirements="W")) for codes in (rows, queries))
        product = left.view(torch.bfloat16) @ right.view(torch.bfloat16).T
        return product.view(torch.int16).numpy()

    def above(self, products: Products, floors: Steps) -> NDArray[np.bool_]:
        """Compare bits; above a positive floor there are positive products only, whose bits are steps."""
        return (products if floors.min() >= 0 else self.steps(products)) > floors

    def steps(self, products: Products) -> Steps:
        """Turn over the bits of negative numbers, all but the sign's: then they are in order with positive ones'."""
        turned = products >> 15
        turned &= 0x7FFF
        turned ^= products
        return turned

    def values(self, steps: Steps) -> NDArray[np.float32]:
        """Turn the bits back; a product of more than 1 is 1, rounded up."""
        return np.minimum((self.steps(steps).view(np.uint16).astype(np.uint32) << 16).view(np.float32), 1)

    def error(self, width: int) -> float:
        """Add up: either factor is off by 2^-8, the sum by float32's roundings, and the result, below 1, by 2^-9."""
        return 1.01 * (2.0**-8 + 2.0**-8 + 2.0**-9) + rounding(width)


class FloatKernel:
    """Multiply float32 numbers; what is kept is rounded to a fixed step."""

    few_shapes: ClassVar[bool] = False

    def reach(self, wanted: int) -> int:
        """Preselect no more: two rows as near to each other as the error are rare."""
        return wanted

    def encode(self, rows: Halves) -> Codes:
        """Return float32 numbers, which are the same ones."""
        from pairwright.tasks.models.search_exactly import widen  # heavy: needs numba

        return widen(rows)

    def products(self, rows: Codes, queries: Codes) -> Products:
        """Multiply."""
        return rows @ queries.T

    def above(self, products: Products, floors: Steps) -> NDArray[np.bool_]:
        """Compare with what is rounded to the next step; that is off by a thousandth of a step at the most."""
        return products > (floors.astype(np.float32) + np.float32(0.5)) / np.float32(FULL_SCALE)

    def steps(self, products: Products) -> Steps:
        """Round."""
        return np.rint(products * np.float32(FULL_SCALE)).astype(np.int16)

    def values(self, steps: Steps) -> NDArray[np.float32]:
        """Scale back."""
        return steps.astype(np.float32) / np.float32(FULL_SCALE)

    def error(self, width: int) -> float:
        """Add up float32's roundings and half a step."""
        return 0.51 / FULL_SCALE + rounding(width)


def rounding(width: int) -> float:
    """Return how far a float32 inner product of two rows of length 1 can be off, in any order of summation."""
    return 1.01 * width * float(np.finfo(np.float32).eps)


def list_kernel() -> Kernel:
    """Return this processor's fastest kernel."""
    return BfloatKernel() if has_bfloat() else FloatKernel()


@cache
def has_bfloat() -> bool:
    """Say whether torch is installed and this processor multiplies bfloat16 itself; emulated, it is no gain."""
    if find_spec("torch") is None:
        return False
    import torch

    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(getattr(torch.cpu, name, bool)()) for name in names)


class Best:
    """Keep the ``reach`` highest products of each query while blocks of them come."""

    def __init__(self, kernel: Kernel, count: int, reach: int) -> None:
        """Keep nothing yet, of ``count`` queries."""
        self._kernel, self._count, self._reach = kernel, count, reach
        self._floors = np.full(count, -32768, dtype=np.int16)
        self._kept = np.empty(0, dtype=np.uint64)
        self._pending: list[NDArray[np.uint64]] = []
        self._waiting = 0

    def begin(self, products: Products) -> None:
        """Take floors from a first block's products with all queries, so that little of it is to be ranked."""
        if len(products) > self._reach:
            place = len(products) - self._reach
            least = np.partition(np.ascontiguousarray(self._kernel.steps(products).T), place, axis=1)[:, place]
            self._floors = np.maximum(least, -32767) - np.int16(1)  # what is on a floor is left out

    def add(self, products: Products, rows: NDArray[np.int64], queries: NDArray[np.int64]) -> None:
        """Take in products of ``rows`` (first axis) with ``queries`` (second axis)."""
        hits = np.flatnonzero(self._kernel.above(products, self._floors[queries]))
        row = hits // len(queries)  # not divmod, which divides one by one
        self._take(products.reshape(-1)[hits], rows[row], queries[hits - row * len(queries)])

    def add_bounded(self, block: Singles, places: NDArray[np.int64], *, queries: Singles, bound: Directions) -> bool:
        """Take in a block's products with all queries if so few are of interest that they are computed one by one.

        Return whether that is so.
        """
        from pairwright.tasks.models.search_exactly import multiply_pairs  # heavy: needs numba

        bounds = bound.bounds(block)
        hits = np.flatnonzero(bounds > self._kernel.values(self._floors) - np.float32(bound.error))
        if len(hits) > bounds.size // FEW:
            return False
        row = hits // len(queries)
        query = hits - row * len(queries)
        products = multiply_pairs(block, queries, of_row=row, of_query=query)
        above = self._kernel.above(products, self._floors[query])
        self._take(products[above], places[row[above]], query[above])
        return True

    def _take(self, products: Products, rows: NDArray[np.int64], queries: NDArray[np.int64]) -> None:
        """Remember products, each of a row with a query."""
        packed = (32767 - self._kernel.steps(products)).view(np.uint16).astype(np.uint64)
        packed <<= np.uint64(32)
        packed |= queries.astype(np.uint64) << np.uint64(48)
        packed |= rows.astype(np.uint64)
        self._pending.append(packed)
        self._waiting += len(packed)
        if self._waiting > self._count * self._reach // 4:
            self._settle()

    def _settle(self) -> None:
        """Rank what came, and raise the floors below which a product is no longer of interest."""
        ranked = np.sort(np.concatenate([self._kept, *self._pending]))
        self._pending, self._waiting = [], 0
        starts = np.searchsorted(ranked, np.arange(self._count + 1, dtype=np.uint64) << np.uint64(48))
        rank = np.arange(len(ranked)) - np.repeat(starts[:-1], np.diff(starts))
        self._kept = ranked[rank < self._reach]
        full = np.flatnonzero(np.diff(starts) >= self._reach)
        self._floors[full] = _steps_of(ranked[starts[:-1][full] + self._reach - 1])

    def result(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return per query the rows and their products, falling; -1 and -inf where there are fewer."""
        self._settle()
        query = (self._kept >> np.uint64(48)).astype(np.int64)
        place = np.arange(len(query)) - np.searchsorted(query, query)
        found = np.full((self._count, self._reach), -1, dtype=np.int64)
        scores = np.full((self._count, self._reach), -np.inf, dtype=np.float32)
        found[query, place] = (self._kept & np.uint64(0xFFFFFFFF)).astype(np.int64)
        scores[query, place] = self._kernel.values(_steps_of(self._kept))
        return found, scores


def _steps_of(kept: NDArray[np.uint64]) -> Steps:
    return (32767 - ((kept >> np.uint64(32)) & np.uint64(0xFFFF)).astype(np.int64)).astype(np.int16)


def preselect(
    matrix: Halves, rows: NDArray[np.int64], *, among: NDArray[np.int64] | None, reach: int, block_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.float32], float]:
    """Return the ``reach`` or more rows of highest product, the products, falling, and how far they can be off.

    ``among`` are the rows that are searched; all of them if it is ``None``. There are at least ``reach``.
    """
    if _gpu() is not None:
        block_rows = max(1, block_bytes // (4 * matrix.shape[1]))
        # A factor may be rounded to TF32, whose step is 2^-10.
        error = rounding(matrix.shape[1]) + 2.02 * 2.0**-11
        return *_scan_on_gpu(matrix, rows, among=among, reach=reach, block_rows=block_rows), error
    count = len(matrix) if among is None else len(among)
    worth = float(count) * matrix.shape[1] * len(rows) > WORTH_TORCH
    kernel = BfloatKernel() if worth and has_bfloat() else FloatKernel()
    return _scan(kernel, matrix, rows, among=among, reach=min(count, kernel.reach(reach)), block_bytes=block_bytes)


def _blocks(
    matrix: Halves, among: NDArray[np.int64] | None, *, first: int, most: int
) -> Iterator[tuple[NDArray[np.int64], Halves]]:
    """Yield the rows to be searched, in blocks that double: the first ones show which products are of interest."""
    count = len(matrix) if among is None else len(among)
    start, size = 0, min(first, most)
    while start < count:
        stop = min(count, start + size)
        if among is None:
            yield np.arange(start, stop), matrix[start:stop]
        else:
            yield among[start:stop], matrix[among[start:stop]]
        start, size = stop, min(most, max(size, stop))


def _scan(
    kernel: Kernel,
    matrix: Halves,
    rows: NDArray[np.int64],
    *,
    among: NDArray[np.int64] | None,
    reach: int,
    block_bytes: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32], float]:
    count = len(matrix) if among is None else len(among)
    parts: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
    for start in range(0, len(rows), MOST_QUERIES):
        queries = kernel.encode(matrix[rows[start : start + MOST_QUERIES]])
        most = max(1, block_bytes // queries[0].nbytes)
        best, everyone = Best(kernel, len(queries), reach), np.arange(len(queries))
        bound, pays = _find_directions(kernel, queries, count), False
        for number, (places, halves) in enumerate(_blocks(matrix, among, first=FIRST_ROWS, most=most)):
            block = kernel.encode(halves)
            if bound is not None and (pays or (number > TRIED_AFTER and number.bit_count() == 1)):
                pays = best.add_bounded(block, places, queries=queries, bound=bound)
                if pays:
                    continue
            products = kernel.products(block, queries)
            if number == 0:
                best.begin(products)
            best.add(products, places, everyone)
        parts.append(best.result())
    found, scores = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return found, scores, kernel.error(matrix.shape[1])


def _find_directions(kernel: Kernel, queries: Codes, count: int) -> Directions | None:
    """Return what bounds float32 products with queries, where so many rows are worth it."""
    width = queries.shape[1]
    if not isinstance(kernel, FloatKernel) or len(queries) < width // 2 or count * queries.size < WORTH_DIRECTIONS:
        return None
    return Directions(queries, rounding(width))


@cache
def _gpu() -> Any:
    """Return Faiss's handle of a GPU, or ``None``; each process has its own."""
    require_faiss()
    import faiss

    if not hasattr(faiss, "StandardGpuResources") or faiss.get_num_gpus() == 0:
        return None
    return cast("Any", faiss).StandardGpuResources()


def _scan_on_gpu(
    matrix: Halves, rows: NDArray[np.int64], *, among: NDArray[np.int64] | None, reach: int, block_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    import faiss  # heavy: only workers load it

    queries = matrix[rows].astype(np.float32)
    best = np.full((len(rows), reach), -np.inf, dtype=np.float32)
    found = np.full((len(rows), reach), -1, dtype=np.int64)
    kind = faiss.METRIC_INNER_PRODUCT
    for places, halves in _blocks(matrix, among, first=block_rows, most=block_rows):
        block, wanted = np.ascontiguousarray(halves, dtype=np.float32), min(reach, len(places))
        scores, near = cast("Any", faiss).knn_gpu(_gpu(), queries, block, wanted, metric=kind)
        both = np.concatenate([best, scores], axis=1)
        order = np.argsort(-both, axis=1, kind="stable")[:, :reach]
        best = np.take_along_axis(both, order, axis=1)
        found = np.take_along_axis(np.concatenate([found, places[near]], axis=1), order, axis=1)
    return found, best
