"""Pair photographs whose keypoints match: other views of the same objects, without weights (ours).

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

    positions: NDArray[np.float32]
    """``(n, 2)``, pixels."""
    descriptors: NDArray[np.float32]
    """``(n, 128)``, unit vectors."""


def match_keypoints(
    rows: Sequence[NeighbourRow],
    config: MatchingConfig,
    *,
    keypoints: Mapping[str, KeypointsRow],
) -> Iterator[PairRow | Dropped | Failed]:
    """Yield each anchor's pairs, or one ``Dropped`` with the most matches; ``keypoints`` by image.

    An anchor is ``Failed`` while keypoints of it or of a candidate are missing, as after a failed
    shard.
    """
    features = {image: unpack(row) for image, row in keypoints.items()}
    for row in rows:
        candidates = _candidates(row, config)
        missing = {row.subject, *candidates} - features.keys()
        if missing:
            detail = f"images: {len(missing)}; the first: {min(missing)}"
            yield Failed(source_key=row.key, reason=MISSING, detail=detail)
            continue
        counts = _count_by_pair(row.subject, candidates, features)
        by_count = sorted(counts, key=lambda pair: (-counts[pair], pair))
        enough = [pair for pair in by_count if counts[pair] >= config.min_matches]
        for pair in enough[: config.max_pairs]:
            fewer = min(len(features[image].positions) for image in pair)
            yield _pair(row, pair, share=counts[pair] / fewer)
        if not enough:
            bound = f"matching.min_matches={config.min_matches}"
            yield Dropped(
                source_key=row.key,
                reason=f"no neighbour with enough matching keypoints ({bound})",
                detail=f"{max(counts.values(), default=0)} at the most",
            )


def _count_by_pair(
    anchor: str,
    candidates: Sequence[str],
    features: Mapping[str, Keypoints],
) -> dict[tuple[str, str], int]:
    """Return the matches of an anchor with each candidate, by pair."""
    counts: dict[tuple[str, str], int] = {}
    for candidate in candidates:
        first, second = sorted((anchor, candidate))
        counts[first, second] = count_matches(features[first], features[second])
    return counts


def _candidates(row: NeighbourRow, config: MatchingConfig) -> list[str]:
    """Return the anchor's first neighbours in each space, sorted, without near-identical ones."""
    candidates = set(row.about_keys)
    for keys, values in zip(row.neighbours, row.similarities, strict=True):
        neighbours = zip(keys, values, strict=True)
        candidates -= {key for key, value in neighbours if value > config.max_similarity}
    return sorted(candidates - {row.subject})


def _pair(row: NeighbourRow, images: tuple[str, str], *, share: float) -> PairRow:
    """Return the pair of two images; ``share``: matches per keypoint of the poorer image."""
    first, second = images
    key = make_key("pair", first, second)
    similarity = float(np.float32(share))
    return PairRow(
        key=key,
        source_key=row.key,
        subject=key,
        first=first,
        second=second,
        origin="matched",
        anchor=row.subject,
        cluster=-1,
        embedders=(MEASURE,),
        similarities=(similarity,),
        similarity=similarity,
    )


def unpack(row: KeypointsRow) -> Keypoints:
    """Return an image's keypoints with RootSIFT descriptors."""
    raw = np.frombuffer(row.descriptors, np.uint8).reshape(-1, 128).astype(np.float32)
    descriptors = np.sqrt(raw / np.maximum(raw.sum(axis=1, keepdims=True), 1))
    positions = np.frombuffer(row.places, "<f4").reshape(-1, 2)
    return Keypoints(positions, descriptors)


def count_matches(left: Keypoints, right: Keypoints) -> int:
    """Return the number of matching keypoints that agree with one fundamental matrix."""
    import cv2

    if min(len(left.positions), len(right.positions)) < LEAST:
        return 0
    cosines = left.descriptors @ right.descriptors.T
    forward, is_clear = _nearest(cosines)
    backward, is_clear_backward = _nearest(cosines.T)
    is_mutual = backward[forward] == np.arange(len(forward))
    matches = np.flatnonzero(is_clear & is_clear_backward[forward] & is_mutual)
    if len(matches) < LEAST:
        return 0
    points = left.positions[matches]
    others = right.positions[forward[matches]]
    try:
        _, agreeing = cv2.findFundamentalMat(
            points,
            others,
            cv2.USAC_MAGSAC,
            MAX_ERROR,
            0.999,
            2000,
        )
    except cv2.error:  # no matrix fits, as of points on one line
        return 0
    return int(np.count_nonzero(agreeing))  # None, if it found no matrix, counts 0


def _nearest(cosines: NDArray[np.float32]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return each row's nearest column, and whether it is nearer than the next by the ratio."""
    next_best, best = np.partition(cosines, -2, axis=1)[:, -2:].T
    near = np.maximum(2 - 2 * best, 0)  # squared distances
    far = np.maximum(2 - 2 * next_best, 0)
    return cosines.argmax(axis=1), near < MAX_RATIO**2 * far


STAGE = Stage(
    name="matched_pairs",
    group="mining",
    reads={"neighbours": NeighbourRow},
    writes=PairRow,
    function=match_keypoints,
    config=lambda profile: profile.matching.fill(max_similarity=profile.mining.max_similarity),
    enabled=attrgetter("enabled"),
    uses=(Uses(table="keypoints", row=KeypointsRow, on="about"),),
    rows_per_shard=100,
)
