"""Cluster many small sets of rows at once, each as ``sklearn.cluster.SpectralClustering`` would.

Reads float32 features, writes int32 labels; NumPy on one CPU thread. The partition of a set is that of
``SpectralClustering(n_clusters, affinity="rbf", gamma=gamma, random_state=seed)``, tested with scikit-learn 1.9.1.
Label numbers agree as a rule, but only the partition is meant. Some two sets in ten thousand differ, and there
scikit-learn itself changes its answer when features move by one part in 1e14: candidates of k-means++ tie, or rounding
decides an eigenvector. That can be some percent with more clusters than structure.

Where scikit-learn raises or leaves it to chance, rules hold. Identical rows share a label: each distinct row is
clustered once, in order of first appearance. With no more distinct rows than clusters, each is its own cluster,
numbered in that order. A set's labels depend on nothing but the set, its order and the settings.

scikit-learn takes 4 to 7 ms per set, most of it calls of Python. Here sets of one size share one call of LAPACK, and
all ten runs of k-means of some hundred sets advance together; of runs that meet in one partition the first goes on.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

N_INIT = 10  # runs of k-means in SpectralClustering; the next two are KMeans'
MAX_ITERATIONS, TOLERANCE = 300, 1e-4
ROUGH = 1e-3  # share of the norms below which a distance in float32 has lost four digits, or all
UNEVEN = 1e-6  # ratio of the roots of degrees under which ten digits of an embedding or fewer are left
MIN_VALUE = 0.01  # eigenvalue down to which that is mended: dividing by less loses as much
TIE = 1e-12  # two far points that are each other's nearest leave the same sum: rounding must not choose between them
ENTRIES = 1 << 22  # distances held at a time
GROUP = 128  # sets in which k-means runs together: many for NumPy's calls, few for the processor's caches
LANES = 8  # sets of different sizes are padded to multiples of this for k-means

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Labels = NDArray[np.int32]


def spectral_labels(
    vectors: Singles, sets: Sequence[Integers], *, n_clusters: int = 3, gamma: float = 0.1, seed: int = 0
) -> list[Labels]:
    """Return a label per row of each set, which are row numbers of the features ``vectors`` ``(N, d)``.

    Raises:
        ValueError: features of a set are NaN, infinite or too large for their squares in float32.
    """
    labels = [np.zeros(len(rows), np.int32) for rows in sets]
    by_size = sorted((number for number, rows in enumerate(sets) if len(rows)), key=lambda number: len(sets[number]))
    largest = max(map(len, sets), default=0)
    # What scikit-learn draws for the largest set; smaller sets use the same stream from its beginning. One number per
    # row starts its solver; then each run of k-means++ takes one for the first centre and some for each of the others.
    per_run = 1 + (n_clusters - 1) * _trials(n_clusters)
    draws = np.random.RandomState(seed).random_sample(largest + N_INIT * per_run)
    step = max(1, ENTRIES // max(1, largest**2))
    for start in range(0, len(by_size), step):
        numbers = by_size[start : start + step]
        with np.errstate(invalid="ignore", over="ignore"):  # said below, with the set
            distances, firsts = zip(*(_measure(vectors, sets[number], number) for number in numbers), strict=True)
        found = _label(distances, k=n_clusters, gamma=gamma, draws=draws)
        for number, first, own in zip(numbers, firsts, found, strict=True):
            labels[number][:] = own[first]
    return labels


def _measure(vectors: Singles, rows: Integers, number: int) -> tuple[Floats, Integers]:
    """Return the squared distances of a set's distinct rows, and which of these each row is.

    Rows are centred on the first, so that float32 rounds the differences between neighbours, not their norms; distances
    that are small beside the norms all the same are taken again in float64, where only identical rows are at 0.
    """
    block = vectors[rows]
    block -= block[0].copy()
    gram = (block @ block.T).astype(np.float64)
    norms = gram.diagonal()
    if not np.isfinite(norms.sum()):
        raise ValueError(f"set {number}: features are NaN, infinite or too large for their squares in float32")
    both = norms[:, None] + norms
    squared = both - 2 * gram
    rough = squared <= ROUGH * both
    if np.count_nonzero(rough) == len(rows):
        return squared, np.arange(len(rows))
    one, other = np.nonzero(np.tril(rough, -1))
    for start in range(0, len(one), LANES * len(rows)):
        some = slice(start, start + LANES * len(rows))
        differences = vectors[rows[one[some]]].astype(np.float64) - vectors[rows[other[some]]]
        squared[one[some], other[some]] = np.einsum("ij,ij->i", differences, differences)
    squared[other, one] = squared[one, other]
    np.fill_diagonal(squared, 0)
    firsts = (squared == 0).argmax(axis=1)
    kept, numbers = np.unique(firsts, return_inverse=True)
    return squared[np.ix_(kept, kept)], numbers


def _label(distances: Sequence[Floats], *, k: int, gamma: float, draws: Floats) -> list[Integers]:
    """Return the labels of the rows of each set of distinct rows."""
    labels = [np.minimum(np.arange(len(squared)), k - 1) for squared in distances]
    sizes = np.array([len(squared) for squared in distances])
    widths = -(-sizes // LANES) * LANES
    for width in np.unique(widths[sizes > k]) if k > 1 else ():
        together = np.flatnonzero((widths == width) & (sizes > k))
        points = np.zeros((len(together), k, width))
        for size in np.unique(sizes[together]):
            chosen = np.flatnonzero(sizes[together] == size)
            points[chosen, :, :size] = _embed(np.stack([distances[n] for n in together[chosen]]), k=k, gamma=gamma)
        for start in range(0, len(together), GROUP):
            some = together[start : start + GROUP]
            best = _k_means(points[start : start + GROUP], sizes[some], draws)
            for number, own in zip(some, best, strict=True):
                labels[number] = own[: sizes[number]]
    return labels


def _embed(squared: Floats, *, k: int, gamma: float) -> Floats:
    """Return ``(sets, k, n)``: the leading eigenvectors of the normalised affinities over the roots of the degrees.

    The first is constant, as a rule, and changes nothing; it is kept for rows that are so far from all others that
    their affinities are 0. Signs are left alone: k-means does not change under reflection.
    """
    affinity = np.exp(-gamma * np.maximum(squared, 0))
    diagonal = np.arange(affinity.shape[1])
    affinity[:, diagonal, diagonal] = 0
    degrees = affinity.sum(axis=1)
    roots = np.sqrt(np.where(degrees > 0, degrees, 1))  # as SciPy does
    values, vectors = np.linalg.eigh(affinity / (roots[:, :, None] * roots[:, None]))
    points = vectors[:, :, : -k - 1 : -1].transpose(0, 2, 1) / roots[:, None]
    # The solver's error is the same for all points, and division by the roots of degrees that span many orders would
    # magnify it: there a point is put where it is but for rounding, at the weighted mean of the others.
    for number in np.flatnonzero(roots.min(axis=1) < UNEVEN * roots.max(axis=1)):
        for axis, value in enumerate(values[number, : -k - 1 : -1]):
            if value >= MIN_VALUE:
                points[number, axis] = affinity[number] @ points[number, axis] / roots[number] ** 2 / value
    return points


def _k_means(points: Floats, sizes: Integers, draws: Floats) -> Integers:
    """Return ``(sets, width)`` labels of points ``(sets, k, width)`` in ``k`` clusters: the best of ten runs.

    Beyond its size, a set's points are 0 and its labels without meaning.
    """
    n_sets, k, width = points.shape
    inside = np.arange(width) < sizes[:, None]
    points = (points - points.sum(axis=2, keepdims=True) / sizes[:, None, None]) * inside[:, None]
    spread = (points**2).sum(axis=(1, 2))
    keys = np.random.default_rng(0).integers(1 << 40, size=width).astype(np.float64)  # their sums are exact
    material = np.concatenate([points, np.stack([inside, inside * keys], axis=1)], axis=1)
    best = np.full((n_sets, N_INIT), np.inf)
    ends = np.zeros((n_sets, N_INIT), np.uint64)
    labels = np.zeros((n_sets, N_INIT, width), np.int8)

    seeds = _seed(points, sizes, inside, draws).reshape(-1, k)
    owner, run = np.divmod(np.arange(n_sets * N_INIT), N_INIT)
    centres = points.transpose(0, 2, 1)[owner[:, None], seeds]
    before, last = np.zeros(len(owner), np.uint64), np.zeros(len(owner), bool)
    for iteration in range(MAX_ITERATIONS + 1):
        nearest, scores = _assign(points[owner], centres)
        members = (nearest[:, None] == np.arange(k)[:, None]).astype(np.float64)
        sums = members @ material[owner].transpose(0, 2, 1)
        # Equal for two runs of a set only if they are at one partition: wrong once in 2 ** 40.
        signature = _mix(sums[:, :, k + 1].astype(np.int64)).sum(axis=1, dtype=np.uint64)
        full = (sums[:, :, k] > 0).all(axis=1)
        for number in np.flatnonzero(~full):
            own = owner[number]
            squares = (scores[number] + (points[own] ** 2).sum(axis=0)) * inside[own]
            sums[number] = _fill_empty(members[number] * inside[own], squares) @ material[own].T
        moved = sums[:, :, :k] / np.maximum(sums[:, :, k : k + 1], 1)
        for number in np.flatnonzero((sums[:, :, k] == 0).any(axis=1)):
            moved[number, sums[number, :, k] == 0] = moved[number, sums[number, :, k].argmax()]
        ended = last | (signature == before) | (iteration == MAX_ITERATIONS)
        at = (owner[ended], run[ended])
        best[at] = spread[at[0]] + (scores[ended] * inside[at[0]]).sum(axis=1)
        ends[at], labels[at] = signature[ended], nearest[ended]
        # Runs of a set that are at one partition go on alike, so that the first of them is enough.
        _, firsts = np.unique(np.where(full, signature ^ _mix(owner), np.arange(len(owner))), return_index=True)
        kept = np.sort(firsts)
        kept = kept[~ended[kept]]
        if not len(kept):
            break
        last = ((moved - centres) ** 2).sum(axis=(1, 2))[kept] <= (TOLERANCE * spread / (sizes * k))[owner[kept]]
        owner, run, centres, before = owner[kept], run[kept], moved[kept], signature[kept]
    every = np.arange(n_sets)
    found = ends[every, best.argmin(axis=1)]
    return labels[every, (ends == found[:, None]).argmax(axis=1)].astype(np.int64)


def _trials(k: int) -> int:
    """Return how many candidates greedy k-means++ draws for a centre, as scikit-learn does."""
    return 2 + int(math.log(k))


def _seed(points: Floats, sizes: Integers, inside: NDArray[np.bool_], draws: Floats) -> Integers:
    """Return ``(sets, runs, k)`` points that are first centres, chosen by greedy k-means++."""
    n_sets, k, _ = points.shape
    trials = _trials(k)
    per_run = 1 + (k - 1) * trials
    own = draws[sizes[:, None] + np.arange(N_INIT * per_run)].reshape(n_sets, N_INIT, per_run)
    squared = ((points[:, :, :, None] - points[:, :, None]) ** 2).sum(axis=1) * inside[:, None]
    every = np.arange(n_sets)[:, None]
    chosen = [np.minimum((own[:, :, 0] * sizes[:, None]).astype(np.int64), sizes[:, None] - 1)]
    nearest = squared[every, chosen[0]]
    for start in range(1, per_run, trials):
        thresholds = own[:, :, start : start + trials] * nearest.sum(axis=2, keepdims=True)
        reached = nearest.cumsum(axis=2)[:, :, None] < thresholds[..., None]
        candidates = np.minimum(reached.sum(axis=3), sizes[:, None, None] - 1)
        left = np.minimum(nearest[:, :, None], squared[every[..., None], candidates])
        potentials = left.sum(axis=3)
        best = (potentials <= potentials.min(axis=2, keepdims=True) * (1 + TIE)).argmax(axis=2)
        chosen.append(np.take_along_axis(candidates, best[..., None], axis=2)[..., 0])
        nearest = np.take_along_axis(left, best[..., None, None], axis=2)[:, :, 0]
    return np.stack(chosen, axis=2)


def _assign(points: Floats, centres: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Return each point's nearest centre, the first of equals, and the squared distance less the point's norm."""
    scores = (centres**2).sum(axis=2)[:, :, None] - 2 * (centres @ points)
    lowest, nearest = scores[:, 0], np.zeros(scores[:, 0].shape, np.int8)
    for centre in range(1, centres.shape[1]):
        closer = scores[:, centre] < lowest
        nearest = np.where(closer, np.int8(centre), nearest)
        lowest = np.minimum(lowest, scores[:, centre])
    return nearest, lowest


def _mix(numbers: Integers) -> NDArray[np.uint64]:
    """Spread the bits of numbers, as splitmix64 does."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _fill_empty(members: Floats, squares: Floats) -> Floats:
    """Move into each empty cluster the point that is furthest from its own centre; none is at a distance of 0."""
    for cluster in np.flatnonzero(members.sum(axis=1) == 0):
        far = squares.argmax()
        if squares[far] > 0:
            members[:, far], squares[far] = 0, 0
            members[cluster, far] = 1
    return members
