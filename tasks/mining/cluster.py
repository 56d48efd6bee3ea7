"""Cluster many small sets of rows at once, each as ``sklearn.cluster.SpectralClustering`` would.

Reads float32 features, writes int32 labels; NumPy on one CPU thread. The partition of a set is that
of ``SpectralClustering(n_clusters, affinity="rbf", gamma=gamma, random_state=seed)``, tested with
scikit-learn 1.9.1. Label numbers usually agree, but only the partition is guaranteed. About two
sets in ten thousand differ: those for which scikit-learn itself changes its answer when features
move by one part in 1e14, since candidates of k-means++ tie or rounding decides an eigenvector. With
more clusters than structure these can be a few percent.

Where scikit-learn raises or leaves the result to chance, rules apply. Identical rows share a label:
each distinct row is clustered once, in order of first appearance. With no more distinct rows than
clusters, each is its own cluster, numbered in that order. A set's labels depend only on the set,
its order and the settings.

scikit-learn takes 4 to 7 ms per set, mostly Python calls. Here sets of one size share one call of
LAPACK, and all ten k-means runs of some hundred sets advance together.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

N_INIT = 10  # runs of k-means in SpectralClustering; the next two are KMeans'
MAX_ITERATIONS, TOLERANCE = 300, 1e-4
ROUGH = 1e-3  # share of the norms below which a distance in float32 has lost four digits or more
UNEVEN = (
    1e-6  # ratio of the roots of degrees below which at most ten digits of an embedding are left
)
MIN_VALUE = 0.01  # smallest eigenvalue for which that is corrected: dividing by less loses as much
# two distant points that are each other's nearest give the same sum: rounding must not decide
TIE = 1e-12
ENTRIES = 1 << 22  # distances held at a time
GROUP = (
    128  # sets that share runs of k-means: many for NumPy's calls, few for the processor's caches
)

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Labels = NDArray[np.int32]


def spectral_labels(
    vectors: Singles,
    sets: Sequence[Integers],
    *,
    n_clusters: int = 3,
    gamma: float = 0.1,
    seed: int = 0,
) -> list[Labels]:
    """Return a label per row of each set; sets are row numbers of the features ``vectors`` ``(N, d)``.

    Raises:
        ValueError: features of a set are NaN, infinite or too large for their squares in float32.
    """
    labels = [np.zeros(len(rows), np.int32) for rows in sets]
    by_size = sorted(
        (number for number, rows in enumerate(sets) if len(rows)),
        key=lambda number: len(sets[number]),
    )
    largest = max(map(len, sets), default=0)
    # scikit-learn's draws for the largest set; smaller sets use the same stream from its start. One
    # number per row
    # starts its solver; then each run of k-means++ takes one for the first centre and some for each
    # of the others.
    per_run = 1 + (n_clusters - 1) * _trials(n_clusters)
    draws = np.random.RandomState(seed).random_sample(largest + N_INIT * per_run)
    step = max(1, ENTRIES // max(1, largest**2))
    for start in range(0, len(by_size), step):
        numbers = by_size[start : start + step]
        with np.errstate(invalid="ignore", over="ignore"):  # reported below, with the set
            distances, firsts = zip(
                *(_measure(vectors, sets[number], number) for number in numbers), strict=True
            )
        found = _label(distances, k=n_clusters, gamma=gamma, draws=draws)
        for number, first, own in zip(numbers, firsts, found, strict=True):
            labels[number][:] = own[first]
    return labels


def _measure(vectors: Singles, rows: Integers, number: int) -> tuple[Floats, Integers]:
    """Return the squared distances of a set's distinct rows, and the index of each row among these.

    Rows are centred on the first, so that float32 rounds differences between neighbours, not their
    norms; distances that are still small beside the norms are recomputed in float64, where only
    identical rows have 0.
    """
    block = vectors[rows]
    block -= block[0].copy()
    gram = (block @ block.T).astype(np.float64)
    norms = gram.diagonal()
    if not np.isfinite(norms.sum()):
        raise ValueError(
            f"set {number}: features are NaN, infinite or too large for their squares in float32"
        )
    both = norms[:, None] + norms
    squared = both - 2 * gram
    rough = squared <= ROUGH * both
    if np.count_nonzero(rough) == len(rows):
        return squared, np.arange(len(rows))
    one, other = np.nonzero(np.tril(rough, -1))
    for start in range(
        0, len(one), 8 * len(rows)
    ):  # a few at a time: differences have the width of features
        some = slice(start, start + 8 * len(rows))
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
    for size in np.unique(sizes[sizes > k]).tolist() if k > 1 else ():
        together = np.flatnonzero(sizes == size)
        for start in range(0, len(together), GROUP):
            some = together[start : start + GROUP]
            points = _embed(np.stack([distances[number] for number in some]), k=k, gamma=gamma)
            for number, own in zip(some, _k_means(points, draws), strict=True):
                labels[number] = own
    return labels


def _embed(squared: Floats, *, k: int, gamma: float) -> Floats:
    """Return ``(sets, k, n)``: the leading eigenvectors of the normalised affinities over the roots of the degrees.

    The first is usually constant and has no effect; it is kept for rows so far from all others that
    their affinities are 0. Signs are left as they are, since k-means does not change under
    reflection.
    """
    affinity = np.exp(-gamma * np.maximum(squared, 0))
    diagonal = np.arange(affinity.shape[1])
    affinity[:, diagonal, diagonal] = 0
    degrees = affinity.sum(axis=1)
    roots = np.sqrt(np.where(degrees > 0, degrees, 1))  # as in SciPy
    values, vectors = np.linalg.eigh(affinity / (roots[:, :, None] * roots[:, None]))
    points = vectors[:, :, : -k - 1 : -1].transpose(0, 2, 1) / roots[:, None]
    # The solver's error is the same for all points, and division by roots of degrees that span many
    # orders magnifies
    # it: such a point is set to the weighted mean of the others, its exact place.
    for number in np.flatnonzero(roots.min(axis=1) < UNEVEN * roots.max(axis=1)):
        for axis, value in enumerate(values[number, : -k - 1 : -1]):
            if value >= MIN_VALUE:
                points[number, axis] = (
                    affinity[number] @ points[number, axis] / roots[number] ** 2 / value
                )
    return points


def _k_means(points: Floats, draws: Floats) -> Integers:
    """Return ``(sets, n)`` labels of points ``(sets, k, n)`` in ``k`` clusters, from the best of ten runs."""
    n_sets, k, n = points.shape
    points = points - points.mean(axis=2, keepdims=True)
    spread = (points**2).sum(axis=(1, 2))
    material = np.concatenate([points, np.ones((n_sets, 1, n))], axis=1)
    best = np.full((n_sets, N_INIT), np.inf)
    labels = np.zeros((n_sets, N_INIT, n), np.int8)

    seeds = _seed(points, draws).reshape(-1, k)
    owner, run = np.divmod(np.arange(n_sets * N_INIT), N_INIT)
    centres = points.transpose(0, 2, 1)[owner[:, None], seeds]
    before, last = np.full((len(owner), n), -1, np.int8), np.zeros(len(owner), bool)
    for iteration in range(MAX_ITERATIONS + 1):
        nearest, scores = _assign(points[owner], centres)
        members = (nearest[:, None] == np.arange(k)[:, None]).astype(np.float64)
        sums = members @ material[owner].transpose(0, 2, 1)
        for number in np.flatnonzero((sums[:, :, k] == 0).any(axis=1)):
            squares = scores[number] + (points[owner[number]] ** 2).sum(axis=0)
            sums[number] = _fill_empty(members[number], squares) @ material[owner[number]].T
        moved = sums[:, :, :k] / np.maximum(sums[:, :, k:], 1)
        for number in np.flatnonzero((sums[:, :, k] == 0).any(axis=1)):
            moved[number, sums[number, :, k] == 0] = moved[number, sums[number, :, k].argmax()]
        ended = last | (nearest == before).all(axis=1) | (iteration == MAX_ITERATIONS)
        at = (owner[ended], run[ended])
        best[at] = spread[at[0]] + scores[ended].sum(axis=1)
        labels[at] = nearest[ended]
        left = np.flatnonzero(~ended)
        if not len(left):
            break
        last = ((moved - centres) ** 2).sum(axis=(1, 2))[left] <= (TOLERANCE * spread / (n * k))[
            owner[left]
        ]
        owner, run, centres, before = owner[left], run[left], moved[left], nearest[left]
    # Of runs with the same partition the first counts, whatever the last digits of its sum.
    lowest = best.min(axis=1, keepdims=True)
    return labels[
        np.arange(n_sets), (best <= lowest + TIE * spread[:, None]).argmax(axis=1)
    ].astype(np.int64)


def _trials(k: int) -> int:
    """Return the number of candidates that greedy k-means++ draws per centre, as in scikit-learn."""
    return 2 + int(math.log(k))


def _seed(points: Floats, draws: Floats) -> Integers:
    """Return ``(sets, runs, k)`` initial centres, chosen by greedy k-means++."""
    n_sets, k, n = points.shape
    trials = _trials(k)
    per_run = 1 + (k - 1) * trials
    own = np.broadcast_to(
        draws[n : n + N_INIT * per_run].reshape(N_INIT, per_run), (n_sets, N_INIT, per_run)
    )
    squared = ((points[:, :, :, None] - points[:, :, None]) ** 2).sum(axis=1)
    every = np.arange(n_sets)[:, None]
    chosen = [np.minimum((own[:, :, 0] * n).astype(np.int64), n - 1)]
    nearest = squared[every, chosen[0]]
    for start in range(1, per_run, trials):
        thresholds = own[:, :, start : start + trials] * nearest.sum(axis=2, keepdims=True)
        reached = nearest.cumsum(axis=2)[:, :, None] < thresholds[..., None]
        candidates = np.minimum(reached.sum(axis=3), n - 1)
        left = np.minimum(nearest[:, :, None], squared[every[..., None], candidates])
        potentials = left.sum(axis=3)
        best = (potentials <= potentials.min(axis=2, keepdims=True) * (1 + TIE)).argmax(axis=2)
        chosen.append(np.take_along_axis(candidates, best[..., None], axis=2)[..., 0])
        nearest = np.take_along_axis(left, best[..., None, None], axis=2)[:, :, 0]
    return np.stack(chosen, axis=2)


def _assign(points: Floats, centres: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Return each point's nearest centre, the first of equals, and the squared distance minus the point's norm."""
    scores = (centres**2).sum(axis=2)[:, :, None] - 2 * (centres @ points)
    lowest, nearest = scores[:, 0], np.zeros(scores[:, 0].shape, np.int8)
    for centre in range(1, centres.shape[1]):
        closer = scores[:, centre] < lowest
        nearest = np.where(closer, np.int8(centre), nearest)
        lowest = np.minimum(lowest, scores[:, centre])
    return nearest, lowest


def _fill_empty(members: Floats, squares: Floats) -> Floats:
    """Move the point furthest from its centre into each empty cluster; its distance is never 0."""
    for cluster in np.flatnonzero(members.sum(axis=1) == 0):
        far = squares.argmax()
        if squares[far] > 0:
            members[:, far], squares[far] = 0, 0
            members[cluster, far] = 1
    return members
