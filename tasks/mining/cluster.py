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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

N_INIT = 10
"""Runs of k-means in SpectralClustering; the next two are KMeans'."""
MAX_ITERATIONS = 300
TOLERANCE = 1e-4
ROUGH = 1e-3
"""Share of the norms below which a distance in float32 has lost four digits or more."""
UNEVEN = 1e-6
"""Ratio of the roots of degrees below which at most ten digits of an embedding are left."""
MIN_VALUE = 0.01
"""Smallest eigenvalue for which that is corrected: dividing by less loses as much."""
TIE = 1e-12
"""Two distant points that are each other's nearest give the same sum: rounding must not decide."""
ENTRIES = 1 << 22
"""Distances in memory at a time."""
GROUP = 128
"""Sets that share runs of k-means: many for NumPy's calls, few for the processor's caches."""

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Labels = NDArray[np.int32]
Flags = NDArray[np.bool_]


def spectral_labels(
    vectors: Singles,
    sets: Sequence[Integers],
    *,
    n_clusters: int = 3,
    gamma: float = 0.1,
    seed: int = 0,
) -> list[Labels]:
    """Return a label per row of each set; sets are row numbers of ``vectors`` ``(N, d)``.

    Raises:
        ValueError: features of a set are NaN, infinite or too large for their squares in float32.
    """
    labels = [np.zeros(len(rows), np.int32) for rows in sets]
    by_size = [number for number, rows in enumerate(sets) if len(rows)]
    by_size.sort(key=lambda number: len(sets[number]))
    largest = max(map(len, sets), default=0)
    draws = _draw_numbers(largest, n_clusters=n_clusters, seed=seed)
    step = max(1, ENTRIES // max(1, largest**2))
    for start in range(0, len(by_size), step):
        batch = by_size[start : start + step]
        for number, set_labels in _label_batch(
            vectors,
            sets,
            batch,
            k=n_clusters,
            gamma=gamma,
            draws=draws,
        ):
            labels[number][:] = set_labels
    return labels


def _label_batch(
    vectors: Singles,
    sets: Sequence[Integers],
    batch: Sequence[int],
    *,
    k: int,
    gamma: float,
    draws: Floats,
) -> Iterator[tuple[int, Integers]]:
    """Yield the number of each set of the batch, and the labels of its rows."""
    with np.errstate(invalid="ignore", over="ignore"):  # reported by an error, with the set
        measured = [_measure(vectors, sets[number], number) for number in batch]
    distances = [squared for squared, _ in measured]
    labels = _label(distances, k=k, gamma=gamma, draws=draws)
    for number, (_, distinct), set_labels in zip(batch, measured, labels, strict=True):
        yield number, set_labels[distinct]


def _draw_numbers(largest: int, *, n_clusters: int, seed: int) -> Floats:
    """Return scikit-learn's draws for the largest set; smaller sets use the start of the stream.

    One number per row starts its solver; then each run of k-means++ takes one for the first centre
    and some for each of the others.
    """
    count = largest + N_INIT * _draws_per_run(n_clusters)
    return np.random.RandomState(seed).random_sample(count)


def _draws_per_run(k: int) -> int:
    return 1 + (k - 1) * _trials(k)


def _trials(k: int) -> int:
    """Return the candidates that greedy k-means++ draws per centre, as in scikit-learn."""
    return 2 + int(math.log(k))


def _measure(vectors: Singles, rows: Integers, number: int) -> tuple[Floats, Integers]:
    """Return the squared distances of a set's distinct rows, and each row's index among these.

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
    sums = norms[:, None] + norms
    squared = sums - 2 * gram
    rough = squared <= ROUGH * sums
    if np.count_nonzero(rough) == len(rows):
        return squared, np.arange(len(rows))
    _measure_exactly(squared, vectors, rows, np.tril(rough, -1))
    firsts = (squared == 0).argmax(axis=1)
    distinct, numbers = np.unique(firsts, return_inverse=True)
    return squared[np.ix_(distinct, distinct)], numbers


def _measure_exactly(squared: Floats, vectors: Singles, rows: Integers, rough: Flags) -> None:
    """Replace the ``rough`` distances, given below the diagonal, by those in float64."""
    left, right = np.nonzero(rough)
    step = 8 * len(rows)  # a few at a time: differences have the width of features
    for start in range(0, len(left), step):
        block = slice(start, start + step)
        differences = vectors[rows[left[block]]].astype(np.float64) - vectors[rows[right[block]]]
        squared[left[block], right[block]] = np.einsum("ij,ij->i", differences, differences)
    squared[right, left] = squared[left, right]
    np.fill_diagonal(squared, 0)


def _label(distances: Sequence[Floats], *, k: int, gamma: float, draws: Floats) -> list[Integers]:
    """Return the labels of the rows of each set of distinct rows."""
    labels = [np.minimum(np.arange(len(squared)), k - 1) for squared in distances]
    if k == 1:
        return labels
    sizes = np.array([len(squared) for squared in distances])
    for size in np.unique(sizes[sizes > k]).tolist():
        same_size = np.flatnonzero(sizes == size)
        for start in range(0, len(same_size), GROUP):
            group = same_size[start : start + GROUP]
            points = _embed(np.stack([distances[number] for number in group]), k=k, gamma=gamma)
            for number, set_labels in zip(group, _k_means(points, draws), strict=True):
                labels[number] = set_labels
    return labels


def _embed(squared: Floats, *, k: int, gamma: float) -> Floats:
    """Return ``(sets, k, n)``: leading eigenvectors of the normalised affinities, over the roots.

    The roots are those of the degrees. The first eigenvector is usually constant and has no effect;
    it is kept for rows so far from all others that their affinities are 0. Signs are left as they
    are, since k-means does not change under reflection.
    """
    affinity = np.exp(-gamma * np.maximum(squared, 0))
    diagonal = np.arange(affinity.shape[1])
    affinity[:, diagonal, diagonal] = 0
    degrees = affinity.sum(axis=1)
    roots = np.sqrt(np.where(degrees > 0, degrees, 1))  # as in SciPy
    values, vectors = np.linalg.eigh(affinity / (roots[:, :, None] * roots[:, None]))
    points = vectors[:, :, : -k - 1 : -1].transpose(0, 2, 1) / roots[:, None]
    # The solver's error is the same for all points, and division by roots of degrees that span many
    # orders magnifies it: such a point is set to the weighted mean of the others, which is exact.
    for number in np.flatnonzero(roots.min(axis=1) < UNEVEN * roots.max(axis=1)):
        for axis, value in enumerate(values[number, : -k - 1 : -1]):
            if value >= MIN_VALUE:
                means = affinity[number] @ points[number, axis]
                points[number, axis] = means / roots[number] ** 2 / value
    return points


@dataclass(slots=True)
class _Runs:
    """Runs of k-means that have not ended; the first dimension of each array is the run."""

    owner: Integers
    """Set of the run."""
    number: Integers
    """Number of the run among its set's."""
    centres: Floats
    """``(runs, k, k)``: centre, axis."""
    before: NDArray[np.int8]
    """``(runs, n)``: labels of the last iteration."""
    is_last: Flags
    """Whether the centres have stopped moving, so that one assignment is left."""

    def resume(
        self,
        left: Flags,
        *,
        centres: Floats,
        labels: NDArray[np.int8],
        limits: Floats,
    ) -> "_Runs":
        """Return the runs ``left`` at new centres; ``limits``: shifts below which sets stop."""
        shifts = ((centres - self.centres) ** 2).sum(axis=(1, 2))
        return _Runs(
            owner=self.owner[left],
            number=self.number[left],
            centres=centres[left],
            before=labels[left],
            is_last=shifts[left] <= limits[self.owner[left]],
        )


def _k_means(points: Floats, draws: Floats) -> Integers:
    """Return ``(sets, n)`` labels of points ``(sets, k, n)`` in ``k`` clusters: the best run's."""
    points = points - points.mean(axis=2, keepdims=True)
    variance = (points**2).sum(axis=(1, 2))
    limits = TOLERANCE * variance / points[0].size
    with_ones = np.concatenate([points, np.ones_like(points[:, :1])], axis=1)
    best = np.full((len(points), N_INIT), np.inf)
    labels = np.zeros((len(points), N_INIT, points.shape[2]), np.int8)

    runs = _start_runs(points, draws)
    for iteration in range(MAX_ITERATIONS + 1):
        nearest, scores = _assign(points[runs.owner], runs.centres)
        centres = _move_centres(with_ones[runs.owner], nearest, scores)
        ended = runs.is_last | (nearest == runs.before).all(axis=1) | (iteration == MAX_ITERATIONS)
        results = (runs.owner[ended], runs.number[ended])
        best[results] = variance[results[0]] + scores[ended].sum(axis=1)
        labels[results] = nearest[ended]
        if ended.all():
            break
        runs = runs.resume(~ended, centres=centres, labels=nearest, limits=limits)
    # Of runs with the same partition the first counts, whatever the last digits of its sum.
    is_best = best <= best.min(axis=1, keepdims=True) + TIE * variance[:, None]
    return labels[np.arange(len(points)), is_best.argmax(axis=1)].astype(np.int64)


def _start_runs(points: Floats, draws: Floats) -> _Runs:
    """Return all runs of all sets, with their initial centres."""
    n_sets, k, n = points.shape
    seeds = _seed(points, draws).reshape(-1, k)
    owner, number = np.divmod(np.arange(n_sets * N_INIT), N_INIT)
    return _Runs(
        owner=owner,
        number=number,
        centres=points.transpose(0, 2, 1)[owner[:, None], seeds],
        before=np.full((len(owner), n), -1, np.int8),
        is_last=np.zeros(len(owner), bool),
    )


def _move_centres(points: Floats, nearest: NDArray[np.int8], scores: Floats) -> Floats:
    """Return the means of each run's clusters; ``points``, ``(runs, k + 1, n)``, end in ones."""
    k = points.shape[1] - 1
    members = (nearest[:, None] == np.arange(k)[:, None]).astype(np.float64)
    sums = members @ points.transpose(0, 2, 1)
    sizes = sums[:, :, k]  # a view: filling an empty cluster changes it
    for run in np.flatnonzero((sizes == 0).any(axis=1)):
        squares = scores[run] + (points[run, :k] ** 2).sum(axis=0)
        sums[run] = _fill_empty(members[run], squares) @ points[run].T
    centres = sums[:, :, :k] / np.maximum(sums[:, :, k:], 1)
    for run in np.flatnonzero((sizes == 0).any(axis=1)):
        largest = sizes[run].argmax()
        centres[run, sizes[run] == 0] = centres[run, largest]
    return centres


def _seed(points: Floats, draws: Floats) -> Integers:
    """Return ``(sets, runs, k)`` initial centres, chosen by greedy k-means++."""
    n_sets, k, n = points.shape
    per_run = _draws_per_run(k)
    stream = draws[n : n + N_INIT * per_run].reshape(N_INIT, per_run)
    uniforms = np.broadcast_to(stream, (n_sets, N_INIT, per_run))
    squared = ((points[:, :, :, None] - points[:, :, None]) ** 2).sum(axis=1)
    first = np.minimum((uniforms[:, :, 0] * n).astype(np.int64), n - 1)
    nearest = squared[np.arange(n_sets)[:, None], first]
    chosen = [first]
    trials = _trials(k)
    for start in range(1, per_run, trials):
        centres, nearest = _add_centre(nearest, squared, uniforms[:, :, start : start + trials])
        chosen.append(centres)
    return np.stack(chosen, axis=2)


def _add_centre(nearest: Floats, squared: Floats, uniforms: Floats) -> tuple[Integers, Floats]:
    """Return the next centre of each run, and each point's distance to its nearest centre.

    ``nearest``, ``(sets, runs, n)``, are the distances so far; ``uniforms``, ``(sets, runs,
    trials)``, draw the candidates.
    """
    thresholds = uniforms * nearest.sum(axis=2, keepdims=True)
    reached = nearest.cumsum(axis=2)[:, :, None] < thresholds[..., None]
    candidates = np.minimum(reached.sum(axis=3), squared.shape[1] - 1)
    sets = np.arange(len(squared))[:, None, None]
    left = np.minimum(nearest[:, :, None], squared[sets, candidates])
    potentials = left.sum(axis=3)
    best = (potentials <= potentials.min(axis=2, keepdims=True) * (1 + TIE)).argmax(axis=2)
    centres = np.take_along_axis(candidates, best[..., None], axis=2)[..., 0]
    return centres, np.take_along_axis(left, best[..., None, None], axis=2)[:, :, 0]


def _assign(points: Floats, centres: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Return each point's nearest centre, the first of equals, and a score.

    The score is the squared distance minus the point's norm.
    """
    scores = (centres**2).sum(axis=2)[:, :, None] - 2 * (centres @ points)
    lowest = scores[:, 0]
    nearest = np.zeros(lowest.shape, np.int8)
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
            members[:, far] = 0
            members[cluster, far] = 1
            squares[far] = 0
    return members
