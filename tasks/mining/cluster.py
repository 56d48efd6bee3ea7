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
    sizes = [len(rows) for rows in sets]
    labels = [np.zeros(size, np.int32) for size in sizes]
    draws = _draw_numbers(
        max(sizes, default=0),
        n_clusters=n_clusters,
        seed=seed,
    )
    for batch in _batch_by_size(sizes):
        labelled = _label_batch(
            vectors,
            sets,
            batch,
            k=n_clusters,
            gamma=gamma,
            draws=draws,
        )
        for number, set_labels in labelled:
            labels[number][:] = set_labels
    return labels


def _batch_by_size(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Yield the numbers of sets whose distances fit into memory; sets of one size are together."""
    numbers = [number for number, size in enumerate(sizes) if size]
    numbers.sort(key=lambda number: sizes[number])
    largest = max(sizes, default=0)
    step = max(1, ENTRIES // max(1, largest**2))
    for start in range(0, len(numbers), step):
        yield numbers[start : start + step]


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
    generator = np.random.RandomState(seed)
    return generator.random_sample(count)


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
    products = block @ block.T
    gram = products.astype(np.float64)
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
    is_identical = squared == 0
    firsts = is_identical.argmax(axis=1)
    distinct, numbers = np.unique(firsts, return_inverse=True)
    return squared[np.ix_(distinct, distinct)], numbers


def _measure_exactly(
    squared: Floats,
    vectors: Singles,
    rows: Integers,
    rough: Flags,
) -> None:
    """Replace the ``rough`` distances, given below the diagonal, by those in float64."""
    left, right = np.nonzero(rough)
    step = 8 * len(rows)  # a few at a time: differences have the width of features
    for start in range(0, len(left), step):
        block = slice(start, start + step)
        first = left[block]
        second = right[block]
        exact = vectors[rows[first]].astype(np.float64)
        differences = exact - vectors[rows[second]]
        squared[first, second] = np.einsum("ij,ij->i", differences, differences)
    squared[right, left] = squared[left, right]
    np.fill_diagonal(squared, 0)


def _label(
    distances: Sequence[Floats],
    *,
    k: int,
    gamma: float,
    draws: Floats,
) -> list[Integers]:
    """Return the labels of the rows of each set of distinct rows."""
    sizes = [len(squared) for squared in distances]
    labels = [np.minimum(np.arange(size), k - 1) for size in sizes]
    if k == 1:
        return labels
    for group in _group_by_size(np.array(sizes), k):
        squared = np.stack([distances[number] for number in group])
        points = _embed(squared, k=k, gamma=gamma)
        labels_of_sets = _k_means(points, draws)
        for number, set_labels in zip(group, labels_of_sets, strict=True):
            labels[number] = set_labels
    return labels


def _group_by_size(sizes: Integers, k: int) -> Iterator[Integers]:
    """Yield the numbers of at most ``GROUP`` sets of one size, above ``k``."""
    clustered = sizes[sizes > k]
    for size in np.unique(clustered).tolist():
        same_size = np.flatnonzero(sizes == size)
        for start in range(0, len(same_size), GROUP):
            yield same_size[start : start + GROUP]


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
    scale = roots[:, :, None] * roots[:, None]
    values, vectors = np.linalg.eigh(affinity / scale)
    leading = slice(None, -k - 1, -1)
    axes = vectors[:, :, leading].transpose(0, 2, 1)
    points = axes / roots[:, None]
    # The solver's error is the same for all points, and division by roots of degrees that span many
    # orders magnifies it: such a point is set to the weighted mean of the others, which is exact.
    is_uneven = roots.min(axis=1) < UNEVEN * roots.max(axis=1)
    for number in np.flatnonzero(is_uneven):
        _correct(points[number], values[number, leading], affinity[number], roots[number])
    return points


def _correct(points: Floats, values: Floats, affinity: Floats, roots: Floats) -> None:
    """Set a set's points ``(k, n)`` to the weighted means of the others, axis by axis."""
    for axis, value in enumerate(values):
        if value >= MIN_VALUE:
            means = affinity @ points[axis]
            points[axis] = means / roots**2 / value


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

    def restart_runs(
        self,
        left: Flags,
        *,
        centres: Floats,
        labels: NDArray[np.int8],
        limits: Floats,
    ) -> "_Runs":
        """Return the runs ``left`` at new centres; ``limits``: shifts below which sets stop."""
        moves = centres - self.centres
        shifts = (moves**2).sum(axis=(1, 2))
        owner = self.owner[left]
        return _Runs(
            owner=owner,
            number=self.number[left],
            centres=centres[left],
            before=labels[left],
            is_last=shifts[left] <= limits[owner],
        )


@dataclass(frozen=True, slots=True)
class _Results:
    """Results of ended runs; arrays are changed in place."""

    variance: Floats
    """``(sets,)``: sums of the squares of a set's centred points."""
    sums: Floats
    """``(sets, runs)``: squared distances to the centres."""
    labels: NDArray[np.int8]
    """``(sets, runs, n)``"""

    @classmethod
    def allocate(cls, variance: Floats, n: int) -> "_Results":
        """Return the results of sets of ``n`` points before any run ends."""
        shape = (len(variance), N_INIT)
        return cls(
            variance=variance,
            sums=np.full(shape, np.inf),
            labels=np.zeros((*shape, n), np.int8),
        )

    def add_ended(
        self,
        runs: _Runs,
        ended: Flags,
        *,
        scores: Floats,
        labels: NDArray[np.int8],
    ) -> None:
        """Record the runs that ended."""
        owner = runs.owner[ended]
        number = runs.number[ended]
        self.sums[owner, number] = self.variance[owner] + scores[ended].sum(axis=1)
        self.labels[owner, number] = labels[ended]

    def best_labels(self) -> Integers:
        """Return ``(sets, n)`` labels of each set's best run.

        Of runs with the same partition the first counts, whatever the last digits of its sum.
        """
        lowest = self.sums.min(axis=1, keepdims=True)
        is_best = self.sums <= lowest + TIE * self.variance[:, None]
        first_best = is_best.argmax(axis=1)
        sets = np.arange(len(self.sums))
        return self.labels[sets, first_best].astype(np.int64)


def _k_means(points: Floats, draws: Floats) -> Integers:
    """Return ``(sets, n)`` labels of points ``(sets, k, n)`` in ``k`` clusters: the best run's."""
    points = points - points.mean(axis=2, keepdims=True)
    variance = (points**2).sum(axis=(1, 2))
    return _run_k_means(points, variance, draws).best_labels()


def _run_k_means(
    points: Floats,
    variance: Floats,
    draws: Floats,
) -> _Results:
    """Return the results of all runs of each set; points, ``(sets, k, n)``, are centred."""
    results = _Results.allocate(variance, points.shape[2])
    limits = TOLERANCE * variance / points[0].size
    ones = np.ones_like(points[:, :1])
    with_ones = np.concatenate([points, ones], axis=1)
    runs = _start_runs(points, draws)
    for iteration in range(MAX_ITERATIONS + 1):
        nearest, scores = _assign(points[runs.owner], runs.centres)
        centres = _move_centres(with_ones[runs.owner], nearest, scores)
        is_stable = (nearest == runs.before).all(axis=1)
        ended = runs.is_last | is_stable | (iteration == MAX_ITERATIONS)
        results.add_ended(runs, ended, scores=scores, labels=nearest)
        if ended.all():
            break
        runs = runs.restart_runs(
            ~ended,
            centres=centres,
            labels=nearest,
            limits=limits,
        )
    return results


def _start_runs(points: Floats, draws: Floats) -> _Runs:
    """Return all runs of all sets, with their initial centres."""
    n_sets, k, n = points.shape
    seeds = _seed(points, draws).reshape(-1, k)
    runs = np.arange(n_sets * N_INIT)
    owner, number = np.divmod(runs, N_INIT)
    rows = points.transpose(0, 2, 1)
    return _Runs(
        owner=owner,
        number=number,
        centres=rows[owner[:, None], seeds],
        before=np.full((len(owner), n), -1, np.int8),
        is_last=np.zeros(len(owner), bool),
    )


def _move_centres(
    points: Floats,
    nearest: NDArray[np.int8],
    scores: Floats,
) -> Floats:
    """Return the means of each run's clusters; ``points``, ``(runs, k + 1, n)``, end in ones."""
    k = points.shape[1] - 1
    is_member = nearest[:, None] == np.arange(k)[:, None]
    members = is_member.astype(np.float64)
    sums = members @ points.transpose(0, 2, 1)
    sizes = sums[:, :, k]  # a view: filling an empty cluster changes it
    for run in _runs_with_empty(sizes):
        norms = (points[run, :k] ** 2).sum(axis=0)
        filled = _fill_empty(members[run], scores[run] + norms)
        sums[run] = filled @ points[run].T
    counts = np.maximum(sums[:, :, k:], 1)
    centres = sums[:, :, :k] / counts
    for run in _runs_with_empty(sizes):
        largest = sizes[run].argmax()
        is_empty = sizes[run] == 0
        centres[run, is_empty] = centres[run, largest]
    return centres


def _runs_with_empty(sizes: Floats) -> Integers:
    """Return the runs with an empty cluster; ``sizes``: ``(runs, k)``."""
    has_empty = (sizes == 0).any(axis=1)
    return np.flatnonzero(has_empty)


def _seed(points: Floats, draws: Floats) -> Integers:
    """Return ``(sets, runs, k)`` initial centres, chosen by greedy k-means++."""
    n_sets, k, n = points.shape
    uniforms = _uniforms_of_runs(draws[n:], n_sets, k)
    squared = _squared_distances(points)
    drawn = (uniforms[:, :, 0] * n).astype(np.int64)
    first = np.minimum(drawn, n - 1)
    sets = np.arange(n_sets)[:, None]
    nearest = squared[sets, first]
    chosen = [first]
    trials = _trials(k)
    for start in range(1, uniforms.shape[2], trials):
        centres, nearest = _add_centre(nearest, squared, uniforms[:, :, start : start + trials])
        chosen.append(centres)
    return np.stack(chosen, axis=2)


def _squared_distances(points: Floats) -> Floats:
    """Return ``(sets, n, n)`` squared distances of points ``(sets, k, n)``."""
    left = points[:, :, :, None]
    right = points[:, :, None]
    return ((left - right) ** 2).sum(axis=1)


def _uniforms_of_runs(stream: Floats, n_sets: int, k: int) -> Floats:
    """Return ``(sets, runs, draws)`` numbers of a stream, the same for all sets."""
    per_run = _draws_per_run(k)
    by_run = stream[: N_INIT * per_run].reshape(N_INIT, per_run)
    return np.broadcast_to(by_run, (n_sets, N_INIT, per_run))


def _add_centre(
    nearest: Floats,
    squared: Floats,
    uniforms: Floats,
) -> tuple[Integers, Floats]:
    """Return the next centre of each run, and each point's distance to its nearest centre.

    ``nearest``, ``(sets, runs, n)``, are the distances so far; ``uniforms``, ``(sets, runs,
    trials)``, draw the candidates.
    """
    thresholds = uniforms * nearest.sum(axis=2, keepdims=True)
    cumulative = nearest.cumsum(axis=2)
    is_below = cumulative[:, :, None] < thresholds[..., None]
    candidates = np.minimum(is_below.sum(axis=3), squared.shape[1] - 1)
    sets = np.arange(len(squared))[:, None, None]
    left = np.minimum(nearest[:, :, None], squared[sets, candidates])
    potentials = left.sum(axis=3)
    lowest = potentials.min(axis=2, keepdims=True)
    is_best = potentials <= lowest * (1 + TIE)
    best = is_best.argmax(axis=2)
    centres = np.take_along_axis(candidates, best[..., None], axis=2)
    distances = np.take_along_axis(left, best[..., None, None], axis=2)
    return centres[..., 0], distances[:, :, 0]


def _assign(points: Floats, centres: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Return each point's nearest centre, the first of equals, and a score.

    The score is the squared distance minus the point's norm.
    """
    norms = (centres**2).sum(axis=2)
    scores = norms[:, :, None] - 2 * (centres @ points)
    lowest = scores[:, 0]
    nearest = np.zeros(lowest.shape, np.int8)
    for centre in range(1, centres.shape[1]):
        other = scores[:, centre]
        closer = other < lowest
        nearest = np.where(closer, np.int8(centre), nearest)
        lowest = np.minimum(lowest, other)
    return nearest, lowest


def _fill_empty(members: Floats, squares: Floats) -> Floats:
    """Move the point furthest from its centre into each empty cluster; its distance is never 0."""
    sizes = members.sum(axis=1)
    for cluster in np.flatnonzero(sizes == 0):
        far = squares.argmax()
        if squares[far] > 0:
            members[:, far] = 0
            members[cluster, far] = 1
            squares[far] = 0
    return members
