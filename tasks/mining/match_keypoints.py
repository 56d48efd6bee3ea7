"""Pair photographs whose keypoints match: other views of the same objects, without any weights (ours).

Reads ``NeighbourRow``, one per anchor; its first neighbours in each space are the candidates.
Keypoints of two images match if each is the other's nearest, nearer by Lowe's ratio than the next
(RootSIFT: Arandjelović and Zisserman, 2012), and if they agree with one fundamental matrix (MAGSAC:
Barath et al., 2019). On stereo and sequence samples of scikit-image and OpenCV, other images have
at most 7 such matches. CPU only.

Memory: the keypoints of a shard's anchors and their candidates.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import MatchingConfig
from pairwright.schemas.rows import Dropped, Failed, KeypointsRow, NeighbourRow, PairRow, make_key
from pairwright.tasks.store.stage import Stage, Uses

MEASURE = "keypoints"
"""Entry in a pair's ``embedders``: its similarity is the matches as a share of the image with fewer
keypoints."""
MAX_RATIO = 0.8
"""Maximum distance of a keypoint to its match, as a share of that to the next."""
MAX_ERROR = 1.5
"""Maximum distance of a match to its epipolar line, in pixels of the scaled image."""
MISSING = "keypoints of the anchor or of a neighbour are missing"
LEAST = 8
"""Minimum number of matches to fit a fundamental matrix."""


@dataclass(frozen=True)
class Keypoints:
    """Keypoints of one image."""

    places: NDArray[np.float32]
    """``(n, 2)``, pixels."""
    descriptors: NDArray[np.float32]
    """``(n, 128)``, unit vectors."""


def match_keypoints(
    rows: Sequence[NeighbourRow], config: MatchingConfig, *, keypoints: Mapping[str, KeypointsRow]
) -> Iterator[PairRow | Dropped | Failed]:
    """Yield each anchor's pairs, or one ``Dropped`` with the most matches found; ``keypoints`` by image.

    An anchor is ``Failed`` while keypoints of it or of a candidate are missing, as after a failed
    shard.
    """
    features = {image: unpack(row) for image, row in keypoints.items()}
    for row in rows:
        others = _candidates(row, config)
        if missing := {row.subject, *others} - features.keys():
            detail = f"images: {len(missing)}; the first: {min(missing)}"
            yield Failed(source_key=row.key, reason=MISSING, detail=detail)
            continue
        counts: dict[tuple[str, str], int] = {}
        for other in others:
            first, second = sorted((row.subject, other))
            counts[first, second] = count_matches(features[first], features[second])
        enough = [
            pair
            for pair in sorted(counts, key=lambda pair: (-counts[pair], pair))
            if counts[pair] >= config.min_matches
        ]
        for first, second in enough[: config.max_pairs]:
            key = make_key("pair", first, second)
            fewer = min(len(features[image].places) for image in (first, second))
            share = float(np.float32(counts[first, second] / fewer))
            yield PairRow(
                key=key,
                source_key=row.key,
                subject=key,
                first=first,
                second=second,
                origin="matched",
                anchor=row.subject,
                cluster=-1,
                embedders=(MEASURE,),
                similarities=(share,),
                similarity=share,
            )
        if not enough:
            reason = f"no neighbour with enough matching keypoints (matching.min_matches={config.min_matches})"
            yield Dropped(
                source_key=row.key,
                reason=reason,
                detail=f"{max(counts.values(), default=0)} at the most",
            )


def _candidates(row: NeighbourRow, config: MatchingConfig) -> list[str]:
    """Return the anchor's first neighbours in each space, sorted, without near-identical ones."""
    same = {
        key
        for keys, values in zip(row.neighbours, row.similarities, strict=True)
        for key, value in zip(keys, values, strict=True)
        if value > config.max_similarity
    }
    return sorted({*row.nearest} - same - {row.subject})


def unpack(row: KeypointsRow) -> Keypoints:
    """Return an image's keypoints with RootSIFT descriptors."""
    raw = np.frombuffer(row.descriptors, np.uint8).reshape(-1, 128).astype(np.float32)
    unit = np.sqrt(raw / np.maximum(raw.sum(axis=1, keepdims=True), 1))
    return Keypoints(np.frombuffer(row.places, "<f4").reshape(-1, 2), unit)


def count_matches(one: Keypoints, other: Keypoints) -> int:
    """Return the number of matching keypoints that agree with one fundamental matrix."""
    import cv2

    if min(len(one.places), len(other.places)) < LEAST:
        return 0
    cosines = one.descriptors @ other.descriptors.T
    there, is_clear = _nearest(cosines)
    back, is_clear_back = _nearest(cosines.T)
    kept = np.flatnonzero(is_clear & is_clear_back[there] & (back[there] == np.arange(len(there))))
    if len(kept) < LEAST:
        return 0
    try:
        _, agreeing = cv2.findFundamentalMat(
            one.places[kept], other.places[there[kept]], cv2.USAC_MAGSAC, MAX_ERROR, 0.999, 2000
        )
    except cv2.error:  # no matrix fits, as of points on one line
        return 0
    return int(np.count_nonzero(agreeing))  # None, if it found no matrix, counts 0


def _nearest(cosines: NDArray[np.float32]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return each row's nearest column, and whether it is nearer than the next by the ratio."""
    next_best, best = np.partition(cosines, -2, axis=1)[:, -2:].T
    near, far = np.maximum(2 - 2 * best, 0), np.maximum(2 - 2 * next_best, 0)  # squared distances
    return cosines.argmax(axis=1), near < MAX_RATIO**2 * far


STAGE = Stage(
    name="matched_pairs",
    group="mining",
    reads={"neighbours": NeighbourRow},
    writes=PairRow,
    function=match_keypoints,
    config=lambda profile: profile.matching.fill(
        max_similarity=profile.mining.max_similarity
    ),
    enabled=attrgetter("enabled"),
    tie="anchor",
    uses=(Uses(table="keypoints", row=KeypointsRow, on="nearest"),),
    rows_per_shard=100,
)
