"""Cluster many small sets of rows in one compiled loop: the numba half of ``cluster.py``.

Reads rows of one float32 matrix by index, writes one label per index. Needs numba; imported only when sets are clustered.

For each set: gather and centre its rows, Gram matrix in float32, then in float64 squared distances, RBF affinity,
normalised Laplacian, its ``k - 1`` eigenvectors after the constant one, and scikit-learn's k-means with its random
draws. What is done differently, and why the partition is the same:

* Rows are centred on the set's first row, so that float32 rounds differences between neighbours, not their norms.
* The first eigenvector is known (the roots of the degrees): it is reflected away and its constant column left out.
* The others come from Householder reduction, Sturm counts and inverse iteration: for three vectors of some dozen rows
  this beats LAPACK's driver, and unlike a pointer into LAPACK it can be cached on disk.
* Signs are not normalised: k-means does not change under reflection.
* A k-means run that reaches a partition that an earlier run passed through ends there: both would go on alike.

All compiled code stays in this one file, since numba's disk cache looks only at the file of the cached function.
Scratch arrays travel in one named tuple, since compiled functions take no keyword-only arguments.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import float32, njit
from numpy.typing import NDArray

N_INIT = 10  # SpectralClustering's; the next two are KMeans'
MAX_ITERATIONS = 300
TOLERANCE = 1e-4
TILE = 4  # rows by rows of one Gram tile: 16 sums and 8 rows fit the 32 vector registers
LANES = 8  # doubles in the widest vector register
WIDTH = 1792  # columns gathered at a time; fewer fit the cache better, but each tile then adds up its registers more often
EPSILON = 2.220446049250313e-16
TINY = 1e-300
ALMOST_SAME = 1e-5  # below this share of the squared norms a distance may be rounding alone, so the rows are compared

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_SAFE: dict[str, Any] = {"_nrt": False, "nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
compiled = njit(**_SAFE, **_INNER)
inlined = njit(**_SAFE, **_INNER, inline='always')
compiled_sum = njit(**{**_SAFE, "fastmath": {"contract", "reassoc", "nsz"}}, **_INNER)  # NaN and infinity still count


def _compiled_entry(function: Callable[..., Any]) -> Callable[..., Any]:
    try:
        return njit(**_SAFE, cache=True)(function)
    except RuntimeError:  # no folder to write the cache to: compile once per process
        return njit(**_SAFE)(function)


class Scratch(NamedTuple):
    """Working memory of one thread; ``n`` is the largest set, padded to whole vectors."""

    block: NDArray[np.float32]  # (n, WIDTH) centred rows
    pairs: Floats  # (n, n) Gram matrix, later squared distances of the embedded points
    matrix: Floats  # (n, n) normalised affinity, then its reflections
    rows: Floats  # (ROWS, n) see the row numbers below
    points: Floats  # (k, n) eigenvectors, then the embedding
    bounds: Floats  # (2, k) brackets of the eigenvalues
    lanes: Floats  # (3, k * LANES) shifts, pivots and counts
    centres: Floats  # (2, k, k) of k-means, current and next
    sizes: Floats  # (k,) of its clusters
    sums: Integers  # (k,) of the keys of its clusters' members
    keys: Integers  # (n,) one random number per position
    labels: Integers  # (n,) of one k-means run
    seen: Integers  # signatures of the partitions that the runs passed through
    members: Integers  # (n,) the distinct rows of the set
    same_as: Integers  # (n,) which of them a row equals


# Rows of Scratch.rows. LU_* are the factors of a tridiagonal matrix, *_POT what k-means++ works on.
ROOT, MIRROR, REFLECTOR, UPDATE, DIAGONAL, BESIDE, FACTOR = range(7)
LU_INVERSE, LU_ABOVE, LU_ABOVE2, LU_BELOW, LU_SWAP = range(7, 12)
NEAREST, TRIAL, CHOSEN, SCORE, LOWEST = range(5)
ROWS = 12
NORM = 4


def new_scratch(n_rows: int, width: int, k: int) -> Scratch:
    n = -(-n_rows // LANES) * LANES
    keys = np.empty(n, np.int64)
    for i in range(n):
        keys[i] = np.random.default_rng(i).integers(1<<62)
    return Scratch(
        np.zeros((n, width), np.float32),
        np.zeros((n, n)),
        np.zeros((n, n)),
        np.zeros((ROWS, n)),
        np.zeros((k, n)),
        np.zeros((2, k)),
        np.zeros((3, k * LANES)),
        np.zeros((2, k, k)),
        np.zeros(k),
        np.zeros(k, np.int64),
        keys,
        np.zeros(n, np.int64),
        np.zeros(N_INIT * (MAX_ITERATIONS + 1), np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
    )


@compiled
def _mix(x: int) -> int:
    """Spread the bits of a 64-bit number (the constants are splitmix64's)."""
    x *= -7046029254386353131
    x = (x ^ (x >> 30)) * -4658895280553007687
    x = (x ^ (x >> 27)) * -7723592293110705685
    return x ^ (x >> 31)


@compiled_sum
def _dot(a: Floats, b: Floats, n: int) -> float:
    total = 0.0
    for i in range(n):
        total += a[i] * b[i]
    return total


@compiled_sum
def _total(a: Floats, n: int) -> float:
    total = 0.0
    for i in range(n):
        total += a[i]
    return total


@inlined
def _gather_centred(vectors: NDArray[np.float32], members: Integers, start: int, block: NDArray[np.float32]) -> int:
    stop = min(start + block.shape[1], vectors.shape[1])
    first = vectors[members[0], start:stop]
    for i in range(members.shape[0]):
        row = vectors[members[i], start:stop]
        out = block[i]
        for c in range(row.shape[0]):
            out[c] = row[c] - first[c]
    return stop - start


@compiled_sum
def _add_tile(a: NDArray[np.float32], b: NDArray[np.float32], width: int, out: Floats) -> None:
    """Add the 16 inner products of four rows with four rows, each row read once."""
    a0, a1, a2, a3 = a[0], a[1], a[2], a[3]
    b0, b1, b2, b3 = b[0], b[1], b[2], b[3]
    s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = float32(0)
    s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = float32(0)
    for c in range(width):
        x0, x1, x2, x3, y0, y1, y2, y3 = a0[c], a1[c], a2[c], a3[c], b0[c], b1[c], b2[c], b3[c]
        s00, s01, s02, s03 = s00 + x0 * y0, s01 + x0 * y1, s02 + x0 * y2, s03 + x0 * y3
        s10, s11, s12, s13 = s10 + x1 * y0, s11 + x1 * y1, s12 + x1 * y2, s13 + x1 * y3
        s20, s21, s22, s23 = s20 + x2 * y0, s21 + x2 * y1, s22 + x2 * y2, s23 + x2 * y3
        s30, s31, s32, s33 = s30 + x3 * y0, s31 + x3 * y1, s32 + x3 * y2, s33 + x3 * y3
    sums = ((s00, s01, s02, s03), (s10, s11, s12, s13), (s20, s21, s22, s23), (s30, s31, s32, s33))
    for i in range(TILE):
        for j in range(TILE):
            out[i, j] += sums[i][j]


@inlined
def _fill_gram(vectors: NDArray[np.float32], members: Integers, s: Scratch) -> None:
    """Fill the lower half of ``s.pairs`` with the inner products of the centred rows."""
    n = members.shape[0]
    s.pairs[:] = 0.0
    for start in range(0, vectors.shape[1], s.block.shape[1]):
        width = _gather_centred(vectors, members, start, s.block)
        for i in range(0, n, TILE):
            for j in range(0, i + 1, TILE):
                out = s.pairs[i : i + TILE, j : j + TILE]
                _add_tile(s.block[i : i + TILE], s.block[j : j + TILE], width, out)


@inlined
def _measure(s: Scratch, n: int) -> tuple[bool, int]:
    """Turn ``s.pairs`` into squared distances; say whether all are finite and how many may be zero."""
    norms = s.rows[NORM]
    for i in range(n):
        norms[i] = s.pairs[i, i]
    close = 0
    for i in range(n):
        row, norm = s.pairs[i], norms[i]
        for j in range(i):
            both = norm + norms[j]
            row[j] = max(both - 2.0 * row[j], 0.0)
            close += row[j] <= ALMOST_SAME * both
    return math.isfinite(_total(norms, n)), close


@compiled
def _same_rows(vectors: NDArray[np.float32], a: int, b: int) -> bool:
    for c in range(vectors.shape[1]):
        if vectors[a, c] != vectors[b, c]:
            return False
    return True


@inlined
def _collapse(vectors: NDArray[np.float32], members: Integers, s: Scratch) -> int:
    """Keep the first of each group of identical rows in ``s.pairs``; return how many are left."""
    distinct = 0
    for i in range(members.shape[0]):
        s.same_as[i] = distinct
        for j in range(distinct):
            first = s.members[j]
            close = s.pairs[i, first] <= ALMOST_SAME * (s.rows[NORM, i] + s.rows[NORM, first])
            if close and _same_rows(vectors, members[i], members[first]):
                s.same_as[i] = j
                break
        if s.same_as[i] == distinct:
            s.members[distinct] = i
            for j in range(distinct):
                s.pairs[distinct, j] = s.pairs[i, s.members[j]]
            distinct += 1
    return distinct


@compiled
def _exp(x: float) -> float:
    """Return e to the power of ``x <= 0`` within two units of the last place, in a form that loops can vectorise."""
    x = max(x, -745.2)
    whole = np.floor(x * 1.4426950408889634 + 0.5)
    r = (x - whole * 6.93147180369123816490e-01) - whole * 1.90821492927058770002e-10
    p = 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = (p * r + 0.5) * r * r + r + 1.0
    power = np.int64(whole)
    half = power >> 1  # in two steps, since 2 ** -1074 has no exponent of its own
    return p * np.int64((half + 1023) << 52).view(np.float64) * np.int64((power - half + 1023) << 52).view(np.float64)


@inlined
def _fill_affinity(s: Scratch, n: int, gamma: float) -> None:
    """Fill ``s.matrix`` with the affinity, without its diagonal, over the roots of both degrees; keep the roots."""
    roots, inverse = s.rows[ROOT], s.rows[UPDATE]
    for i in range(n):
        out, row = s.matrix[i], s.pairs[i]
        for j in range(i):
            out[j] = _exp(-gamma * row[j])
        out[i] = 0.0
        roots[i] = 0.0
    for i in range(n):
        for j in range(i):
            s.matrix[j, i] = s.matrix[i, j]
    for i in range(n):
        row = s.matrix[i]
        for j in range(n):
            roots[j] += row[j]
    for i in range(n):
        roots[i] = math.sqrt(roots[i]) if roots[i] > 0.0 else 1.0  # a row without neighbours, as in SciPy
        inverse[i] = 1.0 / roots[i]
    for i in range(n):
        row, factor = s.matrix[i], inverse[i]
        for j in range(n):
            row[j] *= factor * inverse[j]


@inlined
def _update_twice(matrix: Floats, n: int, v: Floats, w: Floats) -> None:
    """Subtract ``v w' + w v'`` from the leading ``n`` rows; ``v`` and ``w`` are zero up to the next whole vector."""
    stop = -(-n // LANES) * LANES
    for i in range(n):
        row, a, b = matrix[i, :stop], v[i], w[i]
        for j in range(stop):
            row[j] -= a * w[j] + b * v[j]


@inlined
def _multiply(matrix: Floats, n: int, v: Floats, out: Floats) -> None:
    """Fill ``out`` with the leading ``n`` rows times ``v``, four rows (by symmetry, columns) at a time."""
    stop = -(-n // LANES) * LANES
    for j in range(stop):
        out[j] = 0.0
    for i in range(0, n - 3, 4):
        a, b, c, d = matrix[i, :stop], matrix[i + 1, :stop], matrix[i + 2, :stop], matrix[i + 3, :stop]
        va, vb, vc, vd = v[i], v[i + 1], v[i + 2], v[i + 3]
        for j in range(stop):
            out[j] += va * a[j] + vb * b[j] + vc * c[j] + vd * d[j]
    for i in range(n // 4 * 4, n):
        a, va = matrix[i, :stop], v[i]
        for j in range(stop):
            out[j] += va * a[j]


@compiled
def _reflect(matrix: Floats, n: int, factor: float, v: Floats, w: Floats) -> None:
    """Apply ``1 - factor v v'`` on both sides, given ``w = matrix v``."""
    for i in range(n):
        w[i] *= factor
    for i in range(n, -(-n // LANES) * LANES):
        w[i] = 0.0
    along = 0.5 * factor * _dot(v, w, n)
    for i in range(n):
        w[i] -= along * v[i]
    _update_twice(matrix, n, v, w)


@inlined
def _deflate(s: Scratch, n: int) -> None:
    """Reflect the known first eigenvector, the roots of the degrees, onto the last axis and so out of the way."""
    v, w, last = s.rows[MIRROR], s.rows[UPDATE], s.matrix[n - 1]
    scale = 1.0 / math.sqrt(_dot(s.rows[ROOT], s.rows[ROOT], n))
    v[:] = 0.0
    for i in range(n):
        v[i] = s.rows[ROOT, i] * scale
        w[i] = v[i] + last[i]  # its eigenvalue is 1
    v[n - 1] += 1.0
    _reflect(s.matrix, n, 1.0 / v[n - 1], v, w)


@inlined
def _tridiagonalise(s: Scratch, n: int) -> None:
    """Reduce the leading ``n`` rows from the last to the first; reflectors stay in the rows of ``s.matrix``."""
    v, w, diagonal, beside, factors = (
        s.rows[REFLECTOR],
        s.rows[UPDATE],
        s.rows[DIAGONAL],
        s.rows[BESIDE],
        s.rows[FACTOR],
    )
    for k in range(n - 1, 0, -1):
        row = s.matrix[k]
        diagonal[k] = row[k]
        rest = _dot(row, row, k - 1)
        ahead = row[k - 1]
        beside[k], factors[k] = ahead, 0.0
        if rest == 0.0:
            continue
        length = math.sqrt(ahead * ahead + rest)
        beside[k] = -length if ahead > 0.0 else length
        factors[k] = 1.0 / (length * (length + abs(ahead)))
        row[k - 1] = ahead - beside[k]
        v[:] = 0.0
        for j in range(k):
            v[j] = row[j]
        _multiply(s.matrix, k, v, w)
        _reflect(s.matrix, k, factors[k], v, w)
    diagonal[0] = s.matrix[0, 0]
    beside[0] = 0.0


@inlined
def _reach(s: Scratch, n: int) -> tuple[float, float]:
    """Return Gershgorin's bounds on the eigenvalues of the tridiagonal matrix."""
    low, high = s.rows[DIAGONAL, 0], s.rows[DIAGONAL, 0]
    for i in range(n):
        radius = abs(s.rows[BESIDE, i])
        if i + 1 < n:
            radius += abs(s.rows[BESIDE, i + 1])
        low = min(low, s.rows[DIAGONAL, i] - radius)
        high = max(high, s.rows[DIAGONAL, i] + radius)
    return low, high


@inlined
def _count_above(s: Scratch, n: int, lanes: int) -> None:
    """Count, for each shift, the eigenvalues above it (Sturm's sequence, all shifts at once)."""
    shifts, pivots, counts = s.lanes[0], s.lanes[1], s.lanes[2]
    for lane in range(lanes):
        pivots[lane] = s.rows[DIAGONAL, 0] - shifts[lane]
        counts[lane] = pivots[lane] > 0.0
    for i in range(1, n):
        centre, square = s.rows[DIAGONAL, i], s.rows[BESIDE, i] ** 2 + TINY  # never 0 / 0
        for lane in range(lanes):
            pivot = centre - shifts[lane] - square / pivots[lane]
            pivots[lane] = pivot
            counts[lane] += pivot > 0.0


@inlined
def _find_values(s: Scratch, n: int, count: int) -> float:
    """Close in on the ``count`` largest eigenvalues, each by ninths; return the scale of the matrix."""
    low, high = _reach(s, n)
    scale = max(abs(low), abs(high), TINY)
    lows, highs = s.bounds[0], s.bounds[1]
    lows[:], highs[:] = low - 2.0 * EPSILON * scale, high + 2.0 * EPSILON * scale
    while True:
        widest = 0.0
        for j in range(count):
            widest = max(widest, highs[j] - lows[j])
            for lane in range(LANES):
                s.lanes[0, j * LANES + lane] = lows[j] + (highs[j] - lows[j]) * (lane + 1) / (LANES + 1)
        if widest <= 8.0 * EPSILON * scale:
            return scale
        _count_above(s, n, count * LANES)
        for j in range(count):
            for lane in range(j * LANES, (j + 1) * LANES):
                if s.lanes[2, lane] <= j:
                    highs[j] = s.lanes[0, lane]
                    break
                lows[j] = s.lanes[0, lane]


@inlined
def _factorise(s: Scratch, n: int, value: float, tiny: float) -> None:
    """Factorise the tridiagonal matrix less ``value``, with row exchanges."""
    inverse, above, above2, below, swapped = (
        s.rows[LU_INVERSE],
        s.rows[LU_ABOVE],
        s.rows[LU_ABOVE2],
        s.rows[LU_BELOW],
        s.rows[LU_SWAP],
    )
    pivot, beside = s.rows[DIAGONAL, 0] - value, s.rows[BESIDE, 1]
    for i in range(n - 1):
        left, centre = s.rows[BESIDE, i + 1], s.rows[DIAGONAL, i + 1] - value
        right = s.rows[BESIDE, i + 2] if i + 2 < n else 0.0
        if abs(left) > abs(pivot):
            below[i], swapped[i] = pivot / left, 1.0
            inverse[i], above[i], above2[i] = 1.0 / left, centre, right
            pivot, beside = beside - below[i] * centre, -below[i] * right
        else:
            inverse[i] = 1.0 / (pivot if abs(pivot) > tiny else tiny)
            below[i], swapped[i] = left * inverse[i], 0.0
            above[i], above2[i] = beside, 0.0
            pivot, beside = centre - below[i] * beside, right
    inverse[n - 1] = 1.0 / (pivot if abs(pivot) > tiny else tiny)


@inlined
def _solve(s: Scratch, n: int, x: Floats) -> None:
    for i in range(n - 1):
        if s.rows[LU_SWAP, i] > 0.0:
            x[i], x[i + 1] = x[i + 1], x[i] - s.rows[LU_BELOW, i] * x[i + 1]
        else:
            x[i + 1] -= s.rows[LU_BELOW, i] * x[i]
    one, two, largest = 0.0, 0.0, 0.0
    for i in range(n - 1, -1, -1):
        here = (x[i] - s.rows[LU_ABOVE, i] * one - s.rows[LU_ABOVE2, i] * two) * s.rows[LU_INVERSE, i]
        one, two = here, one
        x[i] = here
        largest = max(largest, abs(here))
    for i in range(n):
        x[i] /= largest


@inlined
def _find_vector(s: Scratch, n: int, j: int, scale: float) -> None:
    """Fill ``s.points[j]`` by inverse iteration, at right angles to the vectors before it."""
    x = s.points[j]
    _factorise(s, n, 0.5 * (s.bounds[0, j] + s.bounds[1, j]), max(EPSILON * scale, TINY))
    for i in range(n):
        x[i] = s.keys[(i + 3 * j) % n] * 2.0**-64 + 0.6  # any start without symmetry
    for _ in range(3):
        _solve(s, n, x)
        for before in range(j):
            along = _dot(s.points[before], x, n)
            for i in range(n):
                x[i] -= along * s.points[before, i]
        length = math.sqrt(_dot(x, x, n))
        for i in range(n):
            x[i] /= length


@compiled
def _mirror(x: Floats, n: int, factor: float, v: Floats) -> None:
    along = factor * _dot(v, x, n)
    for i in range(n):
        x[i] -= along * v[i]


@inlined
def _embed(s: Scratch, n: int, count: int) -> None:
    """Fill ``s.points`` with scikit-learn's spectral embedding, centred, without its constant column."""
    _deflate(s, n)
    _tridiagonalise(s, n - 1)
    scale = _find_values(s, n - 1, count)
    for j in range(count):
        _find_vector(s, n - 1, j, scale)
    mirror = s.rows[MIRROR]
    for j in range(count):
        x = s.points[j]
        for k in range(2, n - 1):
            _mirror(x, k, s.rows[FACTOR, k], s.matrix[k])
        x[n - 1] = 0.0
        _mirror(x, n, 1.0 / mirror[n - 1], mirror)
        for i in range(n):
            x[i] /= s.rows[ROOT, i]
        mean = _total(x, n) / n
        for i in range(n):
            x[i] -= mean


@inlined
def _fill_distances(s: Scratch, n: int, dims: int) -> None:
    for i in range(n):
        row = s.pairs[i]
        for j in range(n):
            row[j] = 0.0
        for c in range(dims):
            points, x = s.points[c], s.points[c, i]
            for j in range(n):
                row[j] += (points[j] - x) ** 2


@compiled
def _nearer(s: Scratch, n: int, candidate: int) -> float:
    """Fill the TRIAL row with distances to the nearest of the centres and ``candidate``; return their sum."""
    nearest, trial, row = s.rows[NEAREST], s.rows[TRIAL], s.pairs[candidate]
    for i in range(n):
        trial[i] = min(nearest[i], row[i])
    return _total(trial, n)


@compiled
def _place(s: Scratch, k: int, centre: int, point: int) -> None:
    for c in range(k - 1):
        s.centres[0, centre, c] = s.points[c, point]


@inlined
def _draw(nearest: Floats, n: int, threshold: float) -> int:
    reached = 0.0
    for i in range(n - 1):
        reached += nearest[i]
        if reached >= threshold:
            return i
    return n - 1


@inlined
def _seed_centres(s: Scratch, n: int, k: int, draws: Floats) -> None:
    """Choose the first centres by greedy k-means++; ``draws`` are this run's uniform numbers."""
    trials = (draws.shape[0] - 1) // (k - 1)
    point = min(int(draws[0] * n), n - 1)
    _place(s, k, 0, point)
    for i in range(n):
        s.rows[NEAREST, i] = s.pairs[point, i]
    potential = _total(s.rows[NEAREST], n)
    for centre in range(1, k):
        lowest, best = np.inf, 0
        for t in range(trials):
            point = _draw(s.rows[NEAREST], n, draws[1 + (centre - 1) * trials + t] * potential)
            total = _nearer(s, n, point)
            if total < lowest:
                lowest, best = total, point
        _place(s, k, centre, best)
        potential = _nearer(s, n, best)
        for i in range(n):
            s.rows[NEAREST, i] = s.rows[TRIAL, i]


@compiled
def _assign(s: Scratch, n: int, k: int) -> None:
    """Label each point with its nearest centre, the first of equals."""
    score, lowest, labels = s.rows[SCORE], s.rows[LOWEST], s.labels
    for j in range(k):
        square = 0.0
        for c in range(k - 1):
            square += s.centres[0, j, c] ** 2
        for i in range(n):
            score[i] = square
        for c in range(k - 1):
            twice, points = -2.0 * s.centres[0, j, c], s.points[c]
            for i in range(n):
                score[i] += twice * points[i]
        for i in range(n):
            if j == 0 or score[i] < lowest[i]:
                lowest[i], labels[i] = score[i], j


@compiled
def _signature(s: Scratch, n: int, k: int) -> int:
    """Return a number that two partitions share, but for one chance in 2 ** 60, only if they are the same."""
    s.sums[:] = 0
    for i in range(n):
        s.sums[s.labels[i]] += s.keys[i]
    total = 0
    for j in range(k):
        total += _mix(s.sums[j])
    return total


@inlined
def _relocate(s: Scratch, n: int, k: int) -> None:
    """Give each empty cluster the point furthest from its own centre, as scikit-learn does."""
    for i in range(n):
        s.rows[SCORE, i] = 0.0
        for c in range(k - 1):
            s.rows[SCORE, i] += (s.points[c, i] - s.centres[0, s.labels[i], c]) ** 2
    if _total(s.rows[SCORE], n) == 0.0:
        return
    for j in range(k):
        if s.sizes[j] > 0.0:
            continue
        far = 0
        for i in range(n):
            if s.rows[SCORE, i] > s.rows[SCORE, far]:
                far = i
        s.rows[SCORE, far] = -1.0
        s.sizes[s.labels[far]] -= 1.0
        s.sizes[j] = 1.0
        for c in range(k - 1):
            s.centres[1, s.labels[far], c] -= s.points[c, far]
            s.centres[1, j, c] = s.points[c, far]


@inlined
def _smallest(x):
    y=x[0]
    for i in range(x.shape[0]):
        y=min(x[i],y)
    return y


@inlined
def _move(s: Scratch, n: int, k: int) -> float:
    """Move each centre to the mean of its points; return the sum of squared shifts."""
    s.centres[1] = 0.0
    s.sizes[:] = 0.0
    for i in range(n):
        j = s.labels[i]
        s.sizes[j] += 1.0
        for c in range(k - 1):
            s.centres[1, j, c] += s.points[c, i]
    if _smallest(s.sizes) == 0.0:
        _relocate(s, n, k)
    largest = 0
    for j in range(k):
        if s.sizes[j] > s.sizes[largest]:
            largest = j
    for j in range(k):
        if s.sizes[j] > 0.0:
            for c in range(k - 1):
                s.centres[1, j, c] /= s.sizes[j]
    shift = 0.0
    for j in range(k):
        if s.sizes[j] == 0.0:
            for c in range(k - 1):
                s.centres[1, j, c] = s.centres[1, largest, c]
        for c in range(k - 1):
            shift += (s.centres[1, j, c] - s.centres[0, j, c]) ** 2
            s.centres[0, j, c] = s.centres[1, j, c]
    return shift


@inlined
def _inertia(s: Scratch, n: int, dims: int) -> float:
    total = 0.0
    for i in range(n):
        for c in range(dims):
            total += (s.points[c, i] - s.centres[0, s.labels[i], c]) ** 2
    return total


@inlined
def _run(s: Scratch, n: int, k: int, tolerance: float, seen: int) -> tuple[int, int, bool]:
    """Run Lloyd's algorithm from ``s.centres``; return the partition's signature, the new count of signatures in
    ``s.seen``, and whether the run got anywhere new."""
    before, last = seen, 0
    for _ in range(MAX_ITERATIONS):
        _assign(s, n, k)
        signature = _signature(s, n, k)
        shift = _move(s, n, k)
        if seen > before and signature == last:
            return signature, seen, True
        if shift <= tolerance:
            break
        for i in range(before):
            if s.seen[i] == signature:
                return signature, seen, False
        s.seen[seen] = last = signature
        seen += 1
    _assign(s, n, k)
    return _signature(s, n, k), seen, True


@inlined
def _kmeans(s: Scratch, n: int, k: int, draws: Floats, best: Integers) -> None:
    """Write the labels of the best of ten runs over ``s.points`` into ``best``."""
    tolerance = 0.0
    for c in range(k - 1):
        tolerance += _dot(s.points[c], s.points[c], n) * TOLERANCE / (n * k)
    _fill_distances(s, n, k - 1)
    lowest, kept, seen = np.inf, 0, 0
    per_run = 1 + (k - 1) * (2 + int(math.log(k)))
    for run in range(N_INIT):
        _seed_centres(s, n, k, draws[run * per_run : (run + 1) * per_run])
        signature, seen, new = _run(s, n, k, tolerance, seen)
        if not new or (run > 0 and signature == kept):
            continue
        inertia = _inertia(s, n, k - 1)
        if inertia < lowest:
            lowest, kept = inertia, signature
            for i in range(n):
                best[i] = s.labels[i]


@inlined
def _cluster(vectors: NDArray[np.float32], members: Integers, s: Scratch, k: int, gamma: float, draws: Floats, out: NDArray[np.int32]) -> bool:
    n = members.shape[0]
    _fill_gram(vectors, members, s)
    finite, close = _measure(s, n)
    if not finite:
        return False
    distinct = n
    if close:
        distinct = _collapse(vectors, members, s)
    else:
        for i in range(n):
            s.same_as[i] = i
    for i in range(distinct):
        s.members[i] = i if distinct <= k else 0
    if distinct > k > 1:
        _fill_affinity(s, distinct, gamma)
        _embed(s, distinct, k - 1)
        _kmeans(s, distinct, k, draws[distinct:], s.members)
    for i in range(n):
        out[i] = s.members[s.same_as[i]]
    return True


@_compiled_entry
def cluster_sets(vectors: NDArray[np.float32], indices: Integers, offsets: Integers, k: int, gamma: float, draws: Floats, labels: NDArray[np.int32], s) -> int:
    for i in range(offsets.shape[0] - 1):
        start, stop = offsets[i], offsets[i + 1]
        if start < stop and not _cluster(vectors, indices[start:stop], s, k, gamma, draws, labels[start:stop]):
            return i
    return -1
