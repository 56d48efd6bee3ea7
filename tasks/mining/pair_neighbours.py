"""Pair images that look alike but differ visibly (paper 001, Appendix D.1, steps 3 to 8).

Reads ``NeighbourRow``, one per anchor, and the matrices of all images' vectors; writes ``PairRow``.
CPU only.

Per anchor, in this order: leave out near-identical images (ours, off by default); apply the set
filter to each space's raw neighbours, without the anchor, then the image filter; the candidates are
those left in every space, and much nearer than unrelated images (ours, off by default); cluster
them, without the anchor; of each cluster the candidate most similar to the anchor becomes a pair,
or the first few of them (ours). An anchor without a pair leaves one ``Dropped`` with the counts. A
pair found from both of its images has one key; the reader keeps one of the two rows.

Memory: the features of all candidates of a shard, in float32.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import MiningConfig
from pairwright.schemas.rows import Dropped, EmbeddingRow, NeighbourRow, PairRow, make_key
from pairwright.tasks.mining.choose_bounds import choose_bounds
from pairwright.tasks.mining.cluster import spectral_labels
from pairwright.tasks.models import perceptual_hash
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.store.vectors import Vectors

UNRELATED = 5
"""Number of neighbours after the group that give the mean distance of unrelated images."""
Bounds = Mapping[str, MiningConfig]
"""Settings by space: they differ in the bounds that are chosen by the album."""
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Candidates:
    """Candidates of one anchor, sorted by key."""

    row: NeighbourRow
    keys: tuple[str, ...]
    similarities: NDArray[np.float64]
    """(candidates, embedders) cosines with the anchor."""


@dataclass(frozen=True, slots=True)
class Space:
    """Neighbours of one anchor in the space of one embedder."""

    name: str
    cosines: dict[str, float]
    """Cosine with the anchor, by the neighbour's key."""

    @property
    def best(self) -> float:
        """Return the highest cosine."""
        return max(self.cosines.values())

    @property
    def worst(self) -> float:
        """Return the lowest cosine."""
        return min(self.cosines.values())


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule that drops an anchor for its neighbours in one space."""

    applies: Callable[[Space, MiningConfig], bool]
    reason: str
    """Format of ``space`` and ``config``, as ``detail``."""
    detail: str


def _has_no_neighbours(space: Space, _config: MiningConfig) -> bool:
    return not space.cosines


def _is_best_too_far(space: Space, config: MiningConfig) -> bool:
    return space.best < config.min_best_similarity


def _is_worst_too_far(space: Space, config: MiningConfig) -> bool:
    return config.check_worst == "before" and space.worst < config.min_worst_similarity


def _is_worst_in_band_too_far(band: Space, config: MiningConfig) -> bool:
    if config.check_worst != "after" or not band.cosines:
        return False
    return band.worst < config.min_worst_similarity


TOO_FAR = (
    "one of its neighbours too far in {space.name} "
    "(mining.min_worst_similarity={config.min_worst_similarity:g}, "
    "mining.check_worst={config.check_worst})"
)
SET_RULES = (
    Rule(_has_no_neighbours, "no neighbours", "{space.name}"),
    Rule(
        _is_best_too_far,
        "nothing similar enough in {space.name} "
        "(mining.min_best_similarity={config.min_best_similarity:g})",
        "best {space.best:.4f}",
    ),
    Rule(_is_worst_too_far, TOO_FAR, "worst {space.worst:.4f}"),
)
"""Set filter of all neighbours in a space; the first rule that applies drops the anchor."""
BAND_RULES = (Rule(_is_worst_in_band_too_far, TOO_FAR, "worst {space.worst:.4f}"),)
"""The same of the neighbours that pass the image filter."""


def pair_neighbours(
    rows: Sequence[NeighbourRow],
    config: MiningConfig,
    *,
    vectors: Mapping[str, Vectors],
) -> Iterator[PairRow | Dropped]:
    """Yield the pairs of each anchor, or one ``Dropped`` with the reason why there is none."""
    bounds = {name: choose_bounds(space, config) for name, space in vectors.items()}
    results = [_filter_neighbours(_without_removed(row, vectors), bounds, vectors) for row in rows]
    sets = [result for result in results if isinstance(result, Candidates)]
    labels = iter(_cluster(sets, config, vectors))
    for result in results:
        if isinstance(result, Dropped):
            yield result
        else:
            yield from _pairs(result, next(labels), config=config, vectors=vectors)


def _without_removed(row: NeighbourRow, vectors: Mapping[str, Vectors]) -> NeighbourRow:
    """Return an anchor's neighbours that have vectors: an image removed on request has none."""
    embedded = vectors[row.embedders[0]]
    neighbours: list[tuple[str, ...]] = []
    similarities: list[tuple[float, ...]] = []
    for keys, values in zip(row.neighbours, row.similarities, strict=True):
        is_kept = embedded.hold(keys)
        neighbours.append(tuple(compress(keys, is_kept)))
        similarities.append(tuple(compress(values, is_kept)))
    return replace(row, neighbours=tuple(neighbours), similarities=tuple(similarities))


def _filter_neighbours(
    row: NeighbourRow,
    bounds: Bounds,
    vectors: Mapping[str, Vectors],
) -> Candidates | Dropped:
    """Apply the filters of steps 3 to 5, in order; ``bounds``: the settings of each space."""
    config = bounds[row.embedders[0]]
    copies = _find_copies(row, config, vectors)
    spaces = _spaces_without(row, copies)
    if copies and not any(space.cosines for space in spaces):
        count = len(set().union(*row.neighbours))
        bound = f"mining.min_hash_distance={config.min_hash_distance}"
        return _drop(row, f"only near-identical neighbours ({bound})", f"{count} of them")
    dropped = _apply_rules(SET_RULES, row, spaces, bounds)
    if dropped:
        return dropped
    bands = [_select_band(space, bounds[space.name]) for space in spaces]
    dropped = _apply_rules(BAND_RULES, row, bands, bounds)
    if dropped:
        return dropped
    candidates = _intersect(row, bands)
    if not candidates.keys:
        detail = "; ".join(_describe_space(space, bounds[space.name]) for space in spaces)
        reason = f"no neighbour as similar as a pair may be ({_describe_band(config)})"
        return _drop(row, reason, detail)
    return _filter_by_ratio(candidates, spaces, config)


def _describe_band(config: MiningConfig) -> str:
    """Return the settings that say how similar a pair may be."""
    if config.quantile:
        return f"mining.quantile={config.quantile:g}"
    low = config.min_similarity
    high = config.max_similarity
    return f"mining.min_similarity={low:g}, mining.max_similarity={high:g}"


def _intersect(row: NeighbourRow, bands: Sequence[Space]) -> Candidates:
    """Return the neighbours that are in the band of every space."""
    spaces = [band.cosines for band in bands]
    shared = set.intersection(*map(set, spaces))
    keys = tuple(sorted(shared))
    similarities = [[cosines[key] for cosines in spaces] for key in keys]
    return Candidates(row, keys, np.array(similarities))


def _drop(row: NeighbourRow, reason: str, detail: str) -> Dropped:
    return Dropped(source_key=row.key, reason=reason, detail=detail)


def _spaces_without(row: NeighbourRow, copies: set[str]) -> list[Space]:
    """Return the anchor's neighbours in each space, without copies."""
    spaces: list[Space] = []
    columns = zip(
        row.embedders,
        row.neighbours,
        row.similarities,
        strict=True,
    )
    for name, keys, values in columns:
        neighbours = zip(keys, values, strict=True)
        cosines = {key: value for key, value in neighbours if key not in copies}
        spaces.append(Space(name, cosines))
    return spaces


def _apply_rules(
    rules: Sequence[Rule],
    row: NeighbourRow,
    spaces: Sequence[Space],
    bounds: Bounds,
) -> Dropped | None:
    """Return the anchor as dropped by the first rule that applies, space by space."""
    for space in spaces:
        config = bounds[space.name]
        for rule in rules:
            if rule.applies(space, config):
                reason = rule.reason.format(space=space, config=config)
                detail = rule.detail.format(space=space, config=config)
                return _drop(row, reason, detail)
    return None


def _select_band(space: Space, config: MiningConfig) -> Space:
    """Return the neighbours that pass the image filter."""
    low = config.min_similarity
    high = config.max_similarity
    neighbours = space.cosines.items()
    cosines = {key: value for key, value in neighbours if low <= value <= high}
    return Space(space.name, cosines)


def _describe_space(space: Space, config: MiningConfig) -> str:
    """Return how many neighbours in a space are outside the band, for a message."""
    values = space.cosines.values()
    far = sum(value < config.min_similarity for value in values)
    near = sum(value > config.max_similarity for value in values)
    span = f"of {space.worst:.4f} to {space.best:.4f}"
    return f"{space.name}: {len(values)} neighbours {span}, {far} too far, {near} too near"


def _filter_by_ratio(
    candidates: Candidates,
    spaces: Sequence[Space],
    config: MiningConfig,
) -> Candidates | Dropped:
    """Keep the nearest candidates that are much nearer than unrelated images."""
    if config.max_ratio == 1:
        return candidates
    unrelated = [_find_unrelated(space, config) for space in spaces]
    if not all(unrelated):
        return candidates
    ratios = _find_ratios(candidates, unrelated, config)
    nearest = np.sort(np.argsort(ratios, kind="stable")[: config.group - 1])
    nearest = nearest[ratios[nearest] <= config.max_ratio]
    if not nearest.size:
        reason = f"no candidate nearer than strangers (mining.max_ratio={config.max_ratio:g})"
        detail = f"{ratios.min():.2f} of their distance at the least"
        return _drop(candidates.row, reason, detail)
    keys = tuple(candidates.keys[position] for position in nearest.tolist())
    return Candidates(candidates.row, keys, candidates.similarities[nearest])


def _find_ratios(
    candidates: Candidates,
    unrelated: Sequence[Sequence[float]],
    config: MiningConfig,
) -> NDArray[np.float64]:
    """Return the candidates' distances, as shares of the mean distance of unrelated images."""
    squares = np.square(config.weights)
    weights = squares / squares.sum()
    means = [np.mean(cosines) for cosines in unrelated]
    distance = 1 - np.array(means) @ weights
    distances = 1 - candidates.similarities @ weights
    return distances / max(distance, TINY)


def _find_unrelated(space: Space, config: MiningConfig) -> list[float]:
    """Return the cosines of the first neighbours after the group."""
    falling = sorted(space.cosines.values(), reverse=True)
    return falling[config.group : config.group + UNRELATED]


def _find_copies(
    row: NeighbourRow,
    config: MiningConfig,
    vectors: Mapping[str, Vectors],
) -> set[str]:
    """Return the neighbours that are copies of the anchor."""
    keys = sorted(set().union(*row.neighbours))
    if not config.min_hash_distance or not keys:
        return set()
    space = vectors[perceptual_hash.NAME]
    anchor, *_ = space.matrix[space.rows_of([row.subject])]
    hashes = space.matrix[space.rows_of(keys)]
    differing = perceptual_hash.count_differing_bits(hashes, anchor).tolist()
    bits_of = zip(keys, differing, strict=True)
    return {key for key, bits in bits_of if bits < config.min_hash_distance}


def _cluster(
    sets: Sequence[Candidates],
    config: MiningConfig,
    vectors: Mapping[str, Vectors],
) -> list[NDArray[np.int32]]:
    """Return a label per candidate of each set; in sets smaller than K, each is its own cluster."""
    images: set[str] = set()
    for candidates in sets:
        images.update(candidates.keys)
    if not images:
        return []
    keys = sorted(images)
    row_of = {key: row for row, key in enumerate(keys)}
    rows = [np.array([row_of[key] for key in candidates.keys]) for candidates in sets]
    features = _weigh_vectors(keys, sets[0].row.embedders, config=config, vectors=vectors)
    return spectral_labels(
        features,
        rows,
        n_clusters=config.clusters,
        gamma=config.gamma,
        seed=config.seed,
    )


def _weigh_vectors(
    images: Sequence[str],
    embedders: Sequence[str],
    *,
    config: MiningConfig,
    vectors: Mapping[str, Vectors],
) -> NDArray[np.float32]:
    """Return the images' weighted vectors of all spaces, side by side."""
    columns: list[NDArray[np.float32]] = []
    for name, weight in zip(embedders, config.weights, strict=True):
        space = vectors[name]
        rows = space.rows_of(images)
        norms = np.ones(len(rows)) if config.normalised else space.norms[rows]
        scale = (weight * norms)[:, None].astype(np.float32)
        columns.append(space.matrix[rows].astype(np.float32) * scale)
    return np.concatenate(columns, axis=1)


def _pairs(
    candidates: Candidates,
    labels: NDArray[np.int32],
    *,
    config: MiningConfig,
    vectors: Mapping[str, Vectors],
) -> Iterator[PairRow]:
    """Yield the candidates of each cluster most similar to the anchor; ties by lower key."""
    row = candidates.row
    similarity = _concatenated(candidates, config, vectors)
    for cluster in np.unique(labels).tolist():
        members = np.flatnonzero(labels == cluster)
        order = np.argsort(-similarity[members], kind="stable")[: config.max_per_cluster]
        for position in members[order].tolist():
            first, second = sorted((row.subject, candidates.keys[position]))
            key = make_key("pair", first, second)
            yield PairRow(
                key=key,
                source_key=row.key,
                subject=key,
                first=first,
                second=second,
                origin="mined",
                anchor=row.subject,
                cluster=cluster,
                embedders=row.embedders,
                similarities=tuple(candidates.similarities[position].tolist()),
                similarity=float(np.float32(similarity[position])),
            )


def _concatenated(
    candidates: Candidates,
    config: MiningConfig,
    vectors: Mapping[str, Vectors],
) -> NDArray[np.float64]:
    """Return the cosine of each candidate's concatenated feature with the anchor's.

    It follows from the cosines of the spaces, since their weighted vectors are concatenated:
    ``sum w^2 |a| |b| cos / sqrt(sum w^2 |a|^2  sum w^2 |b|^2)``.
    """
    weights = np.array(config.weights, dtype=np.float64) ** 2
    cosines = candidates.similarities
    if config.normalised:
        # Not a matrix product: its rounding may depend on the row's position.
        return (cosines * weights).sum(axis=1) / weights.sum()
    spaces = [vectors[name] for name in candidates.row.embedders]
    subject = candidates.row.subject
    anchor_norms = [space.norms[space.rows_of([subject])[0]] for space in spaces]
    anchor = np.array(anchor_norms, dtype=np.float64)
    other_norms = [space.norms[space.rows_of(candidates.keys)] for space in spaces]
    others = np.array(other_norms, dtype=np.float64).T
    length = np.sqrt((weights * anchor**2).sum() * (weights * others**2).sum(axis=1))
    products = (weights * anchor * others * cosines).sum(axis=1)
    return products / np.maximum(length, TINY)


STAGE = Stage(
    name="similar_pairs",
    version=3,
    group="mining",
    reads={"neighbours": NeighbourRow},
    writes=PairRow,
    function=pair_neighbours,
    config=lambda profile: profile.complete(profile.mining.fill(group=profile.scenes.photographs)),
    uses=(Uses(table="embeddings", row=EmbeddingRow, kind="vectors", name="vectors"),),
    rows_per_shard=1000,
)
