"""Keypoints in, pairs out: against points of known geometry, and on scikit-image's stereo pair."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from skimage import data

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.schemas.config import KeypointsConfig, MatchingConfig
from pairwright.schemas.rows import Dropped, Failed, KeypointsRow, NeighbourRow, PairRow, make_key
from pairwright.tasks.mining.find_keypoints import find_keypoints
from pairwright.tasks.mining.match_keypoints import Keypoints, count_matches, match_keypoints
from tests.fixtures.pictures import photograph

REASON = "no neighbour with enough matching keypoints (matching.min_matches=15)"


def two_views(count: int = 60) -> tuple[Keypoints, Keypoints]:
    """Project random points in space with two cameras; each has the same descriptor in both
    images."""
    draw = np.random.default_rng(0)
    space = np.c_[draw.uniform(-1, 1, (count, 2)), draw.uniform(3, 6, count)]
    turned = space @ cv2.Rodrigues(np.array([0.02, 0.1, -0.03]))[0].T + [0.4, 0.1, 0.05]
    descriptors = draw.random((count, 128)).astype(np.float32)
    descriptors /= np.linalg.norm(descriptors, axis=1, keepdims=True)
    views = [(seen[:, :2] / seen[:, 2:] * 500 + 320).astype(np.float32) for seen in (space, turned)]
    return Keypoints(views[0], descriptors), Keypoints(views[1], descriptors)


def test_points_seen_by_two_cameras_match_in_any_order() -> None:
    one, other = two_views()
    assert count_matches(one, other) == 60
    order = np.random.default_rng(1).permutation(60)
    assert count_matches(one, Keypoints(other.positions[order], other.descriptors[order])) == 60


def test_points_against_the_geometry_do_not_count() -> None:
    one, other = two_views()
    places = other.positions.copy()
    places[:20] = np.random.default_rng(2).uniform(0, 640, (20, 2))
    assert 40 <= count_matches(one, Keypoints(places, other.descriptors)) <= 43
    scattered = np.random.default_rng(3).uniform(0, 640, (60, 2)).astype(np.float32)
    assert count_matches(one, Keypoints(scattered, other.descriptors)) < 15


def test_ambiguous_descriptors_do_not_match() -> None:
    one, other = two_views()
    alike = np.broadcast_to(one.descriptors[:1], one.descriptors.shape)
    assert count_matches(replace(one, descriptors=alike), replace(other, descriptors=alike)) == 0


@pytest.fixture(scope="module")
def photographs() -> dict[str, KeypointsRow]:
    """Return the keypoints of two views of a motorcycle, of a cat, a rocket, and a wall without
    texture, by name."""
    left, right, _ = data.stereo_motorcycle()
    wall = np.full((200, 300, 3), 90, np.uint8)
    pictures = {
        "left": left,
        "right": right,
        "cat": data.chelsea(),
        "rocket": data.rocket(),
        "wall": wall,
    }
    rows = [photograph(pixels) for pixels in pictures.values()]
    found = list(find_keypoints(rows, KeypointsConfig()))
    assert all(isinstance(row, KeypointsRow) for row in found)
    return dict(zip(pictures, found, strict=True))


def anchor(rows: dict[str, KeypointsRow], name: str, near: dict[str, float]) -> NeighbourRow:
    """Return an anchor's neighbours in one space, by their names, with their similarities."""
    keys = tuple(rows[other].subject for other in near)
    subject = rows[name].subject
    return NeighbourRow(
        key=f"row of {name}",
        source_key=subject,
        subject=subject,
        embedders=("gradients",),
        neighbours=(keys,),
        similarities=(tuple(near.values()),),
    )


def match(
    rows: dict[str, KeypointsRow], *anchors: NeighbourRow, **settings: float
) -> list[PairRow | Dropped | Failed]:
    config = MatchingConfig.model_validate(settings).model_copy(update={"max_similarity": 0.99})
    return list(
        match_keypoints(anchors, config, keypoints={row.subject: row for row in rows.values()})
    )


def test_two_views_pair_and_other_photographs_do_not(photographs: dict[str, KeypointsRow]) -> None:
    near = {"cat": 0.9, "rocket": 0.8, "wall": 0.7}
    both = [
        anchor(photographs, "left", near | {"right": 0.6}),
        anchor(photographs, "right", near | {"left": 0.6}),
        anchor(photographs, "wall", {"cat": 0.9}),
    ]
    one, other, none = match(photographs, *both)
    assert isinstance(one, PairRow)
    assert (one.first, one.second) == tuple(
        sorted((photographs["left"].subject, photographs["right"].subject))
    )
    assert (one.origin, one.embedders, one.source_key) == ("matched", ("keypoints",), "row of left")
    assert one.key == one.subject == make_key("pair", one.first, one.second)
    assert 0.2 < one.similarity == one.similarities[0] <= 1
    assert other == replace(one, anchor=photographs["right"].subject, source_key="row of right")
    assert none == Dropped(source_key="row of wall", reason=REASON, detail="0 at the most")


def test_near_identical_images_and_far_neighbours_are_not_matched(
    photographs: dict[str, KeypointsRow],
) -> None:
    (same,) = match(photographs, anchor(photographs, "left", {"right": 0.995}))
    assert same == Dropped(source_key="row of left", reason=REASON, detail="0 at the most")
    far = {"cat": 0.9} | {f"cat {n}": 0.8 for n in range(15)} | {"right": 0.6}
    rows = photographs | {
        f"cat {n}": replace(photographs["cat"], subject=make_key("cat", n)) for n in range(15)
    }
    (beyond,) = match(rows, anchor(rows, "left", far))
    assert isinstance(beyond, Dropped), "the 17th neighbour"


def test_an_anchor_fails_while_keypoints_are_missing(photographs: dict[str, KeypointsRow]) -> None:
    anchors = [
        anchor(photographs, "left", {"right": 0.6, "cat": 0.5}),
        anchor(photographs, "right", {"left": 0.6}),
    ]
    missing = photographs["cat"].subject
    left, right = match({name: row for name, row in photographs.items() if name != "cat"}, *anchors)
    reason = "keypoints of the anchor or of a neighbour are missing"
    assert left == Failed(
        source_key="row of left", reason=reason, detail=f"images: 1; the first: {missing}"
    )
    assert isinstance(right, PairRow)
    (alone,) = match({"right": photographs["right"]}, anchors[1])
    assert isinstance(alone, Failed)


def test_an_anchor_keeps_its_best_matches(photographs: dict[str, KeypointsRow]) -> None:
    rows = photographs | {
        f"right {n}": replace(photographs["right"], subject=make_key("right", n)) for n in range(4)
    }
    near = dict.fromkeys(("right 0", "right 1", "right 2", "right 3", "left"), 0.6)
    pairs = match(rows, anchor(rows, "right", near), max_pairs=4)
    assert len(pairs) == 4
    assert len({row.similarity for row in pairs[:4] if isinstance(row, PairRow)}) == 1, (
        "copies, before the other view"
    )
    assert photographs["left"].subject not in {
        key for row in pairs if isinstance(row, PairRow) for key in (row.first, row.second)
    }


def test_keypoints_do_not_depend_on_threads(photographs: dict[str, KeypointsRow]) -> None:
    row = photograph(data.chelsea())
    threads = cv2.getNumThreads()
    try:
        for number in (1, 4):
            cv2.setNumThreads(number)
            assert list(find_keypoints([row], KeypointsConfig())) == [photographs["cat"]]
    finally:
        cv2.setNumThreads(threads)
    assert len(photographs["cat"].descriptors) // 128 <= 502  # equally strong ones are kept


def test_photographs_are_matched_and_rendered_scenes_are_not(
    tmp_path: Path,
) -> None:
    def on(source: str, *changes: str) -> set[str]:
        return {
            stage.name
            for stage in Pipeline(load_profile("scenes", [f"source='{source}'", *changes])).running
        }

    stages = {"keypoints", "matched_pairs"}
    assert stages <= on(f"folder:{tmp_path}")
    for other in (
        ("scenes:",),
        (f"folder:{tmp_path}", "matching.enabled=false"),
        (f"folder:{tmp_path}", "pairing=nouns"),
    ):
        assert not stages & on(*other), other
