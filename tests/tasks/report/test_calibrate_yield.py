import numpy as np
import pytest

from pairwright.schemas.config import MiningConfig
from pairwright.tasks.report.calibrate_candidates import Candidates, read_images, stream_candidates
from pairwright.tasks.report.calibrate_yield import Grid, count_yields
from pairwright.tasks.report.tables import Tables
from tests.tasks.report.handmade_neighbours import EMBEDDERS, MINING, build_neighbours, make_five, make_neighbours

GRID = Grid(np.array([0.25, 0.5, 0.75]), np.array([0.9, 1.0]))


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    images = make_five()
    with build_neighbours(tmp_path_factory.mktemp("five") / "dataset", images, make_neighbours(images)) as build:
        yield Tables(build)


def count(tables, config=MINING):
    batches = stream_candidates(tables, EMBEDDERS, read_images(tables))
    return count_yields(batches, EMBEDDERS, GRID, config=config, searched=3)


def test_counts_are_those_counted_by_hand(tables):
    found = count(tables)
    assert found.anchors == 5
    p, q = found.per_embedder
    assert p.anchors.tolist() == [[5, 5], [4, 4], [2, 3]]
    assert p.candidates.tolist() == [[9, 11], [6, 8], [2, 4]]
    assert q.anchors.tolist() == [[5, 5], [3, 3], [2, 2]]
    assert q.candidates.tolist() == [[12, 12], [6, 6], [2, 2]]
    # Of A to C: A-B is 0.9375 by p, A-C 0.75 and 0.8125, B-C 0.5 and 0.5625; D and E are refused.
    assert found.refused == 2
    assert found.together.anchors.tolist() == [[3, 3], [3, 3], [2, 2]]
    assert found.together.candidates.tolist() == [[4, 6], [4, 6], [2, 2]]


def test_without_the_set_filter_two_more_images_keep_candidates(tables):
    # D-E is 0.4375 by p and 0.3125 by q, from both of its ends.
    found = count(tables, MINING.model_copy(update={"min_best_similarity": 0.0}))
    assert found.refused == 0
    assert found.together.anchors[0].tolist() == [5, 5]
    assert found.together.candidates[0].tolist() == [6, 8]


def test_the_second_set_test_counts_where_it_comes_before_the_band(tables):
    # The lowest of every list is below 0.65; A's by p is 0.625.
    assert count(tables, MINING.model_copy(update={"check_worst": "before", "min_worst_similarity": 0.65})).refused == 5
    # q's lowest: A 0.375, B 0.1875, C 0.4375; p's: A 0.625, B 0.3125, C 0.125.
    found = count(tables, MINING.model_copy(update={"check_worst": "before", "min_worst_similarity": 0.375}))
    assert found.refused == 4
    assert found.together.candidates[0].tolist() == [1, 2]


def test_lists_that_end_inside_the_band_are_counted(tables):
    # p's list of A ends at 0.625.
    assert count(tables).cut == (1, 0)


def test_counts_equal_those_of_plain_loops():
    rng = np.random.default_rng(3)
    embedders, rows, images = ("a", "b", "c"), 40, 30
    entries = [
        (row, space, int(other), float(np.float32(rng.uniform(0.3, 1))))
        for row in range(rows)
        for space in range(3)
        for other in rng.permutation(images)[: rng.integers(0, 20)]
    ]
    grid = Grid(np.linspace(0.3, 0.9, 7), np.array([0.5, 0.7, 0.95, 1.0]))
    config = MiningConfig(min_best_similarity=0.9, min_similarity=0.5, max_similarity=0.95)
    found = count_yields(_halves(entries, rows), embedders, grid, config=config, searched=64)
    spaces = [
        [{o: s for r, e, o, s in entries if (r, e) == (row, number)} for number in range(3)] for row in range(rows)
    ]
    for i, low in enumerate(grid.lows):
        for j, high in enumerate(grid.highs):
            bands = [[{o for o, s in space.items() if low <= s <= high} for space in row] for row in spaces]
            for number in range(3):
                kept = [len(row[number]) for row in bands]
                assert found.per_embedder[number].candidates[i, j] == sum(kept)
                assert found.per_embedder[number].anchors[i, j] == sum(map(bool, kept))
            passed = [all(space and max(space.values()) >= 0.9 for space in row) for row in spaces]
            joint = [len(set.intersection(*row)) for row, ok in zip(bands, passed, strict=True) if ok]
            assert found.together.candidates[i, j] == sum(joint)
            assert found.together.anchors[i, j] == sum(map(bool, joint))
    assert found.together.candidates.max() > 10


def _halves(entries, rows):
    for start in (0, rows // 2):
        own = [entry for entry in entries if start <= entry[0] < start + rows // 2]
        row, space, other, similarity = (np.array(column) for column in zip(*own, strict=True))
        yield Candidates(
            rows=rows // 2, row=row - start, space=space, anchor=row, other=other, similarity=similarity.astype(float)
        )
