"""Pair images that look alike but differ in something visible (paper 001, Appendix D.1, steps 3 to 8).

Reads ``NeighbourRow``, one per anchor, and the matrices of all images' vectors; writes ``PairRow``.
CPU only.

Per anchor, in this order: leave out near-identical images (ours, off by default); apply the set
filter to each space's raw neighbours, without the anchor, then the image filter; the candidates are
those left in every space, and far nearer than strangers (ours, off by default); cluster them,
without the anchor; of each cluster the candidate most similar to the anchor becomes a pair, or the
first few of them (ours). An anchor without a pair leaves one ``Dropped`` with the counts. A pair
found from both of its images has one key; the reader keeps one of the two rows.

Memory: the features of all candidates of a shard, in float32.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import MiningConfig
from pairwright.schemas.rows import Dropped, EmbeddingRow, NeighbourRow, PairRow, make_key
from pairwright.tasks.mining.cluster import spectral_labels
from pairwright.tasks.models import perceptual_hash
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.store.vectors import Vectors

STRANGERS = 5
"""Number of neighbours that give the mean distance of strangers."""


@dataclass(frozen=True)
class Candidates:
    """Candidates of one anchor, sorted by key."""

    row: NeighbourRow
    keys: tuple[str, ...]
    similarities: NDArray[np.float64]
    """(candidates, embedders) cosines with the anchor."""


def pair_neighbours(
    rows: Sequence[NeighbourRow], config: MiningConfig, *, vectors: Mapping[str, Vectors]
) -> Iterator[PairRow | Dropped]:
    """Yield the pairs of each anchor, or one ``Dropped`` with the reason why there is none."""
    kept = [_candidates(row, config, vectors) for row in rows]
    labels = iter(
        _cluster([found for found in kept if isinstance(found, Candidates)], config, vectors)
    )
    for found in kept:
        if isinstance(found, Dropped):
            yield found
        else:
            yield from _pairs(found, next(labels), config=config, vectors=vectors)


def _candidates(
    found: NeighbourRow, config: MiningConfig, vectors: Mapping[str, Vectors]
) -> Candidates | Dropped:
    """Apply the filters of steps 3 to 5."""

    def dropped(reason: str, detail: str) -> Dropped:
        return Dropped(source_key=found.key, reason=reason, detail=detail)

    def too_far(name: str, worst: float) -> Dropped:
        setting = f"mining.min_worst_similarity={config.min_worst_similarity:g}, mining.check_worst={config.check_worst}"
        return dropped(f"one of its neighbours too far in {name} ({setting})", f"worst {worst:.4f}")

    copies = _find_copies(found, config, vectors)
    spaces = [
        {key: value for key, value in zip(keys, values, strict=True) if key not in copies}
        for keys, values in zip(found.neighbours, found.similarities, strict=True)
    ]
    if copies and not any(spaces):
        reason = (
            f"only near-identical neighbours (mining.min_hash_distance={config.min_hash_distance})"
        )
        return dropped(reason, f"{len(set().union(*found.neighbours))} of them")
    for name, space in zip(found.embedders, spaces, strict=True):  # the set filter
        if not space:
            return dropped("no neighbours", name)
        if max(space.values()) < config.min_best_similarity:
            bound = f"(mining.min_best_similarity={config.min_best_similarity:g})"
            return dropped(
                f"nothing similar enough in {name} {bound}", f"best {max(space.values()):.4f}"
            )
        if config.check_worst == "before" and min(space.values()) < config.min_worst_similarity:
            return too_far(name, min(space.values()))
    low, high = config.min_similarity, config.max_similarity
    bands = [
        {key: value for key, value in space.items() if low <= value <= high} for space in spaces
    ]
    for name, band in zip(found.embedders, bands, strict=True):
        if (
            config.check_worst == "after"
            and band
            and min(band.values()) < config.min_worst_similarity
        ):
            return too_far(name, min(band.values()))
    keys = tuple(sorted(set.intersection(*(set(band) for band in bands))))
    if not keys:
        parts: list[str] = []
        for name, space in zip(found.embedders, spaces, strict=True):
            far, near = (
                sum(value < low for value in space.values()),
                sum(value > high for value in space.values()),
            )
            span = f"of {min(space.values()):.4f} to {max(space.values()):.4f}"
            parts.append(f"{name}: {len(space)} neighbours {span}, {far} too far, {near} too near")
        bounds = f"(mining.min_similarity={low:g}, mining.max_similarity={high:g})"
        return dropped(f"no neighbour as similar as a pair may be {bounds}", "; ".join(parts))
    similarities = np.array([[band[key] for band in bands] for key in keys])
    strangers = [
        sorted(space.values(), reverse=True)[config.group : config.group + STRANGERS]
        for space in spaces
    ]
    if config.max_ratio == 1 or not all(strangers):
        return Candidates(found, keys, similarities)
    weights = np.square(config.weights) / np.square(config.weights).sum()
    far = 1 - np.array([np.mean(space) for space in strangers]) @ weights
    ratios = (1 - similarities @ weights) / max(far, np.finfo(np.float64).tiny)
    near = np.sort(np.argsort(ratios, kind="stable")[: config.group - 1])
    near = near[ratios[near] <= config.max_ratio]
    if not near.size:
        reason = f"no candidate nearer than strangers (mining.max_ratio={config.max_ratio:g})"
        return dropped(reason, f"{ratios.min():.2f} of their distance at the least")
    return Candidates(found, tuple(keys[place] for place in near), similarities[near])


def _find_copies(
    row: NeighbourRow, config: MiningConfig, vectors: Mapping[str, Vectors]
) -> set[str]:
    """Return the neighbours that are copies of the anchor."""
    keys = sorted(set().union(*row.neighbours))
    if not config.min_hash_distance or not keys:
        return set()
    space = vectors[perceptual_hash.NAME]
    own, *_ = space.matrix[space.rows_of([row.subject])]
    differing = perceptual_hash.count_differing_bits(space.matrix[space.rows_of(keys)], own)
    return {
        key
        for key, bits in zip(keys, differing.tolist(), strict=True)
        if bits < config.min_hash_distance
    }


def _cluster(
    sets: Sequence[Candidates], config: MiningConfig, vectors: Mapping[str, Vectors]
) -> list[NDArray[np.int32]]:
    """Return a label per candidate of each set; in sets smaller than K, each is its own cluster."""
    images = sorted({key for found in sets for key in found.keys})
    if not images:
        return []
    columns: list[NDArray[np.float32]] = []  # the weighted vectors of all spaces side by side
    for name, weight in zip(sets[0].row.embedders, config.weights, strict=True):
        space = vectors[name]
        rows = space.rows_of(images)
        scale = weight * (np.ones(len(rows)) if config.normalised else space.norms[rows])
        columns.append(space.matrix[rows].astype(np.float32) * scale[:, None].astype(np.float32))
    place = {key: number for number, key in enumerate(images)}
    chosen = [np.array([place[key] for key in found.keys]) for found in sets]
    features = np.concatenate(columns, axis=1)
    return spectral_labels(
        features, chosen, n_clusters=config.clusters, gamma=config.gamma, seed=config.seed
    )


def _pairs(
    found: Candidates,
    labels: NDArray[np.int32],
    *,
    config: MiningConfig,
    vectors: Mapping[str, Vectors],
) -> Iterator[PairRow]:
    """Yield each cluster's candidates most similar to the anchor, at most ``max_per_cluster``; ties by lower key."""
    similarity = _concatenated(found, config, vectors)
    for cluster in np.unique(labels).tolist():
        inside = np.flatnonzero(labels == cluster)
        order = np.argsort(-similarity[inside], kind="stable")[: config.max_per_cluster]
        for place in inside[order].tolist():
            first, second = sorted((found.row.subject, found.keys[place]))
            key = make_key("pair", first, second)
            yield PairRow(
                key=key,
                source_key=found.row.key,
                subject=key,
                first=first,
                second=second,
                origin="mined",
                anchor=found.row.subject,
                cluster=cluster,
                embedders=found.row.embedders,
                similarities=tuple(found.similarities[place].tolist()),
                similarity=float(np.float32(similarity[place])),
            )


def _concatenated(
    found: Candidates, config: MiningConfig, vectors: Mapping[str, Vectors]
) -> NDArray[np.float64]:
    """Return the cosine of each candidate's concatenated feature with the anchor's.

    It follows from the cosines of the spaces, since their weighted vectors are concatenated:
    ``sum w^2 |a| |b| cos / sqrt(sum w^2 |a|^2  sum w^2 |b|^2)``.
    """
    weights = np.array(config.weights, dtype=np.float64) ** 2
    if config.normalised:
        # Not a matrix product: its rounding may depend on the row's position.
        return (found.similarities * weights).sum(axis=1) / weights.sum()
    spaces = [vectors[name] for name in found.row.embedders]
    anchor = np.array(
        [space.norms[space.rows_of([found.row.subject])[0]] for space in spaces], dtype=np.float64
    )
    others = np.array(
        [space.norms[space.rows_of(found.keys)] for space in spaces], dtype=np.float64
    ).T
    length = np.sqrt((weights * anchor**2).sum() * (weights * others**2).sum(axis=1))
    return (weights * anchor * others * found.similarities).sum(axis=1) / np.maximum(
        length, np.finfo(np.float64).tiny
    )


STAGE = Stage(
    name="similar_pairs",
    version=3,
    group="mining",
    reads={"neighbours": NeighbourRow},
    writes=PairRow,
    function=pair_neighbours,
    config=lambda profile: profile.complete(
        profile.mining.fill(group=profile.scenes.photographs)
    ),
    tie="anchor",
    uses=(Uses(table="embeddings", row=EmbeddingRow, kind="vectors", name="vectors"),),
    rows_per_shard=1000,
)
