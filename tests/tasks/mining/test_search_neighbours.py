"""Anchors in, raw neighbour lists out."""

import numpy as np
import pyarrow as pa
import pytest

from pairwright.schemas.config import SearchConfig
from pairwright.schemas.rows import CUT_OFF, make_key
from pairwright.tasks.mining.search_neighbours import search_neighbours
from pairwright.tasks.store.vectors import Vectors
from tests.fixtures.builds import build_here
from tests.fixtures.pictures import write_pictures
from tests.fixtures.spaces import anchors_of, hash_of, image_keys, space_of

KEYS = image_keys(6)
ANGLES = np.deg2rad([0, 10, 30, 60, 100, 175])
FAN = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)


def search(values, keys=KEYS, anchors=None, **settings):
    """Search in one space of vectors, or in several by name."""
    raw = values if isinstance(values, dict) else {"angle": values}
    spaces = {
        name: each if isinstance(each, Vectors) else space_of(each, keys)
        for name, each in raw.items()
    }
    rows = anchors_of(keys if anchors is None else anchors)
    return list(search_neighbours(rows, SearchConfig(**settings), vectors=spaces))


def test_neighbours_come_by_falling_similarity_and_leave_out_the_anchor() -> None:
    (row,) = search({"angle": FAN, "turned": FAN[::-1]}, anchors=KEYS[1:2], k=3)
    assert row.embedders == ("angle", "turned")
    assert row.neighbours == ((KEYS[0], KEYS[2], KEYS[3]), (KEYS[2], KEYS[3], KEYS[0]))
    expected = np.cos(np.deg2rad([[10, 20, 50], [40, 70, 75]]))
    np.testing.assert_allclose(row.similarities, expected, atol=1e-3)
    assert (row.subject, row.source_key) == (KEYS[1], make_key("a", KEYS[1]))


def test_images_of_given_pairs_are_left_out() -> None:
    given = pa.table({"first": [KEYS[0]], "second": [KEYS[2]]})
    spaces = {"angle": space_of(FAN, KEYS)}
    found = search_neighbours(anchors_of(KEYS[:2]), SearchConfig(k=4), vectors=spaces, given=given)
    paired, row = found
    assert paired.reason == "image of a pair that a source brought"
    assert row.neighbours == ((KEYS[3], KEYS[4], KEYS[5]),)


def test_copies_do_not_hide_other_images() -> None:
    """Five copies at 0 degrees would fill the list of the image at 10 degrees."""
    keys = image_keys(8)
    angles = np.deg2rad([0, 10, 0, 0, 0, 0, 40, 60])
    fan = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    hashes = [hash_of(9), hash_of(8), *[hash_of(9)] * 5, hash_of(30)]
    spaces = {"angle": fan, "perceptual-hash": hashes}
    rows = search(spaces, keys, k=3)
    assert [getattr(row, "neighbours", row.reason) for row in rows[1:4]] == [
        ((keys[0], keys[6], keys[7]),),
        *["copy of another image (search.min_copy_similarity)"] * 2,
    ]
    assert rows[6].neighbours == ((keys[7], keys[1], keys[0]),), "of the same hash, but no copy"
    with_copies = search(spaces, keys, k=3, min_copy_similarity=1)
    assert [row.reason for row in with_copies] == [row.reason for row in rows]


def test_workers_share_the_vectors_without_copies(tmp_path) -> None:
    space = space_of(FAN, KEYS)
    on_disk = Vectors(space.keys, space.matrix, space.norms, index=tmp_path / "angle.index")
    kept = np.array([True, False, True, True, False, True])
    for _ in range(2):
        selected = on_disk.select(kept)
        assert selected.keys.tolist() == space.keys[kept].tolist()
        np.testing.assert_array_equal(selected.matrix, space.matrix[kept])
    assert len(list((tmp_path / "angle.index").iterdir())) == 1
    assert on_disk.select(kept | True) is on_disk


def test_similarities_are_cosines_despite_rounded_norms() -> None:
    """0.6 and 0.8 are 0.60009765625 and 0.7998046875 as float16: of length 0.99990; 1 and 1/64 are
    longer than 1."""
    space = space_of([[0.6, 0.8], [0.6, 0.8], [1, 1 / 64], [1, 1 / 64]], KEYS[:4])
    matrix = np.where(space.matrix > 0.99, np.float16(1), space.matrix)
    long = Vectors(space.keys, matrix, space.norms)
    first, second = search({"x": long}, anchors=[KEYS[0], KEYS[2]], k=1)
    assert [first.neighbours[0], second.neighbours[0]] == [(KEYS[1],), (KEYS[3],)]
    assert first.similarities[0][0] == np.float32(0.60009765625**2 + 0.7998046875**2)
    assert second.similarities[0][0] == 1


def test_anchors_do_not_depend_on_each_other() -> None:
    alone = [row for key in KEYS for row in search(FAN, anchors=[key], k=4)]
    assert search(FAN, k=4) == alone
    (row,) = search(FAN[:1], KEYS[:1])
    assert row.neighbours == ((),)


def test_the_key_is_that_of_the_candidates() -> None:
    """An image that comes nearer changes it, if it is among the neighbours, even in its place."""

    def neighbours(values):
        (row,) = search(values, anchors=KEYS[:1], k=2)
        return row

    moved, far = FAN.copy(), FAN.copy()
    moved[1], far[5] = FAN[2], FAN[4]
    first, same, other = neighbours(FAN), neighbours(far), neighbours(moved)
    assert first.key == same.key != other.key
    assert same.neighbours == other.neighbours
    assert neighbours(np.roll(FAN, 1, axis=0)).key not in (same.key, other.key)


@pytest.fixture(scope="module")
def crowd():
    """Return spaces of vectors in groups, with duplicates; the second ranks them otherwise."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(12, 16))[rng.integers(0, 12, 120)]
    values = centres + 0.5 * rng.normal(size=(120, 16))
    values[rng.integers(0, 120, 20)] = values[7]
    return {"near": values, "far": values[:, :7]}


def test_an_index_is_searched_above_the_limit(crowd) -> None:
    settings = {"k": 8, "probes": 2, "min_similarity": 0.6}
    rows = search(crowd, image_keys(120), max_exact_images=119, **settings)
    assert {row.cells for row in rows} == {(32, 32)}
    assert all(0.3 < recall < 1 for row in rows for recall in row.recalls)
    exact = search(crowd, image_keys(120), max_exact_images=120, **settings)
    assert {(row.cells, row.recalls) for row in exact} == {((0, 0), (1.0, 1.0))}


@pytest.mark.parametrize(
    ("k", "band", "reason"),
    [(2, 0.9, CUT_OFF), (2, 0.95, ""), (3, 0.6, CUT_OFF), (5, 0.0, ""), (9, 0.0, "")],
)
def test_a_list_that_ends_in_the_band_is_cut_off(k, band, reason) -> None:
    """The second image's neighbours are at 10, 20, 50, 90 and 165 degrees."""
    (row,) = search(FAN, anchors=KEYS[1:2], k=k, min_similarity=band)
    assert (row.cut_off, row.reason) == (bool(reason), reason)


def test_lists_of_one_are_cut_off_where_the_nearest_is_in_the_band() -> None:
    """Nearest at 10, 10, 20, 30, 40 and 75 degrees; the cosine of 30 is 0.866."""
    rows = search(FAN, k=1, min_similarity=0.9)
    assert sum(row.cut_off for row in rows) == 3
    assert {(row.cells, row.recalls) for row in rows} == {((0,), (1.0,))}


def test_recall_and_cut_off_lists_are_in_status(tmp_path) -> None:
    pictures = write_pictures(tmp_path / "pictures", [f"{number:02d}" for number in range(40)])
    settings = [
        *("run.workers=1", "run.rows_per_shard_of={neighbours: 7}"),
        *("search.k=5", "search.min_similarity=0.05"),
    ]

    def count(*more):
        how = {"settings": [*settings, *more], "until": "neighbours"}
        report = build_here(tmp_path / "out", pictures, **how)
        assert report.is_complete
        return report.counts[-1]

    low = count("search.max_exact_images=25", "search.probes=1")
    assert (low.ok, sum(low.reasons.values())) == (40, 40)
    assert "recall in the band below 0.99: raise search.probes" in " ".join(low.reasons)
    assert set(count().reasons) == {"the k neighbours end inside the band: raise search.k"}
