"""Keypoints in, pairs out: by points of known geometry, and on scikit-image's stereo pair."""

from dataclasses import replace

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
MISSING = "keypoints of the anchor or of a neighbour are missing"


@pytest.fixture(scope="module")
def views():
    """Return random points, as two cameras see them, with the same descriptors in both."""
    draw = np.random.default_rng(0)
    space = np.c_[draw.uniform(-1, 1, (60, 2)), draw.uniform(3, 6, 60)]
    turned = space @ cv2.Rodrigues(np.array([0.02, 0.1, -0.03]))[0].T + [0.4, 0.1, 0.05]
    descriptors = draw.random((60, 128)).astype(np.float32)
    descriptors /= np.linalg.norm(descriptors, axis=1, keepdims=True)
    images = [
        (seen[:, :2] / seen[:, 2:] * 500 + 320).astype(np.float32) for seen in (space, turned)
    ]
    return Keypoints(images[0], descriptors), Keypoints(images[1], descriptors)


def test_points_seen_by_two_cameras_match_in_any_order(views) -> None:
    first, second = views
    assert count_matches(first, second) == 60
    order = np.random.default_rng(1).permutation(60)
    mixed = Keypoints(second.positions[order], second.descriptors[order])
    assert count_matches(first, mixed) == 60


def test_points_against_the_geometry_do_not_count(views) -> None:
    first, second = views
    places = second.positions.copy()
    places[:20] = np.random.default_rng(2).uniform(0, 640, (20, 2))
    assert 40 <= count_matches(first, replace(second, positions=places)) <= 43
    scattered = np.random.default_rng(3).uniform(0, 640, (60, 2)).astype(np.float32)
    assert count_matches(first, replace(second, positions=scattered)) < 15


def test_ambiguous_descriptors_do_not_match(views) -> None:
    alike = np.broadcast_to(views[0].descriptors[:1], views[0].descriptors.shape)
    assert count_matches(*(replace(view, descriptors=alike) for view in views)) == 0


@pytest.fixture(scope="module")
def photographs():
    """Return keypoints by name: two views of a motorcycle, a cat, a rocket, a plain wall."""
    left, right, _ = data.stereo_motorcycle()
    wall = np.full((200, 300, 3), 90, np.uint8)
    pictures = {"left": left, "right": right, "cat": data.chelsea(), "rocket": data.rocket()}
    pictures["wall"] = wall
    images = [photograph(pixels) for pixels in pictures.values()]
    rows = list(find_keypoints(images, KeypointsConfig()))
    assert all(isinstance(row, KeypointsRow) for row in rows)
    return dict(zip(pictures, rows, strict=True))


def copies(row, name, count):
    """Return the same keypoints of other images."""
    return {f"{name} {n}": replace(row, subject=make_key(name, n)) for n in range(count)}


def match(rows, anchors, missing=(), **settings):
    """Match anchors, by their names, with their neighbours and these neighbours' similarities."""
    neighbours = [
        NeighbourRow(
            key=f"row of {name}",
            source_key=rows[name].subject,
            subject=rows[name].subject,
            embedders=("gradients",),
            neighbours=(tuple(rows[other].subject for other in near),),
            similarities=(tuple(near.values()),),
        )
        for name, near in anchors.items()
    ]
    config = MatchingConfig(**settings).model_copy(update={"max_similarity": 0.99})
    keypoints = {row.subject: row for name, row in rows.items() if name not in missing}
    return list(match_keypoints(neighbours, config, keypoints=keypoints))


def test_two_views_pair_and_other_photographs_do_not(photographs) -> None:
    near = {"cat": 0.9, "rocket": 0.8, "wall": 0.7}
    left, right = photographs["left"].subject, photographs["right"].subject
    anchors = {"left": near | {"right": 0.6}, "right": near | {"left": 0.6}, "wall": {"cat": 0.9}}
    pair, same, none = match(photographs, anchors)
    assert isinstance(pair, PairRow)
    assert [pair.first, pair.second] == sorted((left, right))
    assert (pair.origin, pair.embedders) == ("matched", ("keypoints",))
    assert (pair.anchor, pair.source_key) == (left, "row of left")
    assert pair.key == pair.subject == make_key("pair", pair.first, pair.second)
    assert 0.2 < pair.similarity == pair.similarities[0] <= 1
    assert same == replace(pair, anchor=right, source_key="row of right")
    assert none == Dropped(source_key="row of wall", reason=REASON, detail="0 at the most")


def test_near_identical_images_and_far_neighbours_are_not_matched(photographs) -> None:
    (same,) = match(photographs, {"left": {"right": 0.995}})
    assert same == Dropped(source_key="row of left", reason=REASON, detail="0 at the most")
    cats = copies(photographs["cat"], "cat", 15)
    near = {"cat": 0.9} | dict.fromkeys(cats, 0.8) | {"right": 0.6}
    (seventeenth,) = match(photographs | cats, {"left": near})
    assert isinstance(seventeenth, Dropped)


def test_an_anchor_fails_while_keypoints_are_missing(photographs) -> None:
    anchors = {"left": {"right": 0.6, "cat": 0.5}, "right": {"left": 0.6}}
    left, right = match(photographs, anchors, missing=["cat"])
    detail = f"images: 1; the first: {photographs['cat'].subject}"
    assert left == Failed(source_key="row of left", reason=MISSING, detail=detail)
    assert isinstance(right, PairRow)
    (alone,) = match(photographs, {"right": {"left": 0.6}}, missing=["left"])
    assert isinstance(alone, Failed)


def test_an_anchor_keeps_its_best_matches(photographs) -> None:
    rights = copies(photographs["right"], "right", 4)
    near = dict.fromkeys((*rights, "left"), 0.6)
    pairs = match(photographs | rights, {"right": near}, max_pairs=4)
    assert [type(row) for row in pairs] == [PairRow] * 4
    assert len({row.similarity for row in pairs}) == 1, "copies, before the other view"
    images = {key for row in pairs for key in (row.first, row.second)}
    assert photographs["left"].subject not in images


@pytest.mark.parametrize("threads", [1, 4])
def test_keypoints_do_not_depend_on_threads(photographs, threads) -> None:
    before = cv2.getNumThreads()
    cv2.setNumThreads(threads)
    try:
        rows = list(find_keypoints([photograph(data.chelsea())], KeypointsConfig()))
    finally:
        cv2.setNumThreads(before)
    assert rows == [photographs["cat"]]
    assert len(rows[0].descriptors) // 128 <= 502, "equally strong ones are kept"


STAGES = {"keypoints", "matched_pairs"}


@pytest.mark.parametrize(
    ("source", "settings", "stages"),
    [
        ("folder:/", [], STAGES),
        ("scenes:", [], set()),
        ("folder:/", ["matching.enabled=false"], set()),
        ("folder:/", ["pairing=nouns"], set()),
    ],
)
def test_photographs_are_matched_and_rendered_scenes_are_not(source, settings, stages) -> None:
    pipeline = Pipeline(load_profile("scenes", [f"source='{source}'", *settings]))
    assert {stage.name for stage in pipeline.running} & STAGES == stages
