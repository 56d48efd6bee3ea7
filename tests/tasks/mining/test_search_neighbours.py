"""Anchors in, raw neighbour lists out."""

import numpy as np

from pairwright.schemas.config import SearchConfig
from pairwright.schemas.rows import CUT_OFF, Row, make_key
from pairwright.tasks.mining.search_neighbours import search_neighbours
from pairwright.tasks.store.vectors import Vectors
from tests.fixtures.builds import build_here
from tests.fixtures.pictures import write_pictures

KEYS = sorted(make_key("image", number) for number in range(6))


def space(values, keys=KEYS):
    values = np.asarray(values, dtype=np.float64)
    lengths = np.linalg.norm(values, axis=1)
    unit = (values / lengths[:, None]).astype(np.float16)
    return Vectors(
        np.array([key.encode() for key in keys], dtype="S32"), unit, lengths.astype(np.float32)
    )


def anchors(keys):
    return [Row(key=make_key("a", key), source_key="", subject=key) for key in keys]


ANGLES = np.deg2rad([0, 10, 30, 60, 100, 175])
FAN = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)


def test_neighbours_come_by_falling_similarity_and_leave_out_the_anchor():
    spaces = {"angle": space(FAN), "turned": space(FAN[::-1])}
    (row,) = search_neighbours(anchors(KEYS[1:2]), SearchConfig(k=3), vectors=spaces)
    assert row.embedders == ("angle", "turned")
    assert row.neighbours == ((KEYS[0], KEYS[2], KEYS[3]), (KEYS[2], KEYS[3], KEYS[0]))
    np.testing.assert_allclose(row.similarities[0], np.cos(np.deg2rad([10, 20, 50])), atol=1e-3)
    np.testing.assert_allclose(row.similarities[1], np.cos(np.deg2rad([40, 70, 75])), atol=1e-3)
    assert (row.subject, row.source_key) == (KEYS[1], make_key("a", KEYS[1]))


def test_similarities_are_cosines_despite_rounded_norms():
    # 0.6 and 0.8 are 0.60009765625 and 0.7998046875 as float16: of length 0.99990; 1 and 1/64 are
    # longer than 1.
    made = space([[0.6, 0.8], [0.6, 0.8], [1, 1 / 64], [1, 1 / 64]], KEYS[:4])
    long = Vectors(made.keys, np.where(made.matrix > 0.99, np.float16(1), made.matrix), made.norms)
    rows = list(
        search_neighbours(anchors([KEYS[0], KEYS[2]]), SearchConfig(k=1), vectors={"x": long})
    )
    assert [row.neighbours[0] for row in rows] == [(KEYS[1],), (KEYS[3],)]
    assert rows[0].similarities[0][0] == np.float32(0.60009765625**2 + 0.7998046875**2)
    assert rows[1].similarities[0][0] == 1


def test_without_others_there_are_no_neighbours():
    (row,) = search_neighbours(
        anchors(KEYS[:1]), SearchConfig(), vectors={"angle": space(FAN[:1], KEYS[:1])}
    )
    assert row.neighbours == ((),)
    spaces = {"angle": space(FAN)}
    whole = list(search_neighbours(anchors(KEYS), SearchConfig(k=4), vectors=spaces))
    single = [
        row
        for key in KEYS
        for row in search_neighbours(anchors([key]), SearchConfig(k=4), vectors=spaces)
    ]
    assert whole == single


def test_the_key_is_that_of_the_candidates():
    def found(values):
        (row,) = search_neighbours(
            anchors(KEYS[:1]), SearchConfig(k=2), vectors={"angle": space(values)}
        )
        return row

    moved, far = FAN.copy(), FAN.copy()
    moved[1], far[5] = FAN[2], FAN[4]
    same, other = (
        found(far),
        found(moved),
    )  # the latter with the same neighbours, one of them further away
    assert found(FAN).key == same.key != other.key
    assert same.neighbours == other.neighbours
    assert found(np.roll(FAN, 1, axis=0)).key not in (same.key, other.key)


def crowd(seed=0, count=120, width=16):
    """Return vectors in groups with exact duplicates, and their keys."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(12, width))[rng.integers(0, 12, count)] + 0.5 * rng.normal(
        size=(count, width)
    )
    values[rng.integers(0, count, 20)] = values[7]
    return sorted(make_key("crowd", number) for number in range(count)), values


def part_of(chosen, names=("near", "far")):
    """Return the spaces of some images of the crowd; the second space ranks them otherwise."""
    keys, values = crowd()
    kept = [keys[place] for place in chosen]
    return {
        name: space(values[chosen][:, : 16 - 9 * number], kept) for number, name in enumerate(names)
    }


def search(spaces, config):
    images = [key.decode() for key in next(iter(spaces.values())).keys]
    return list(search_neighbours(anchors(images), config, vectors=spaces))


EVERY = np.arange(120)


def test_an_index_is_searched_above_the_limit():
    config = SearchConfig(k=8, max_exact_images=119, probes=2, min_similarity=0.6)
    rows, exact = (
        search(part_of(EVERY), config.model_copy(update={"max_exact_images": n}))
        for n in (119, 120)
    )
    assert {row.cells for row in rows} == {(32, 32)}
    assert all(0.3 < recall < 1 for row in rows for recall in row.recalls)
    assert {(row.cells, row.recalls) for row in exact} == {((0, 0), (1.0, 1.0))}


def test_a_list_that_ends_in_the_band_is_cut_off():
    spaces = {"angle": space(FAN)}  # neighbours of the second: 10, 20, 50, 90, 165 degrees
    for k, band, cut in [
        (2, 0.9, True),
        (2, 0.95, False),
        (3, 0.6, True),
        (5, 0.0, False),
        (9, 0.0, False),
    ]:
        (row,) = search_neighbours(
            anchors(KEYS[1:2]), SearchConfig(k=k, min_similarity=band), vectors=spaces
        )
        assert (row.cut_off, row.reason) == (cut, CUT_OFF if cut else "")
    rows = list(
        search_neighbours(anchors(KEYS), SearchConfig(k=1, min_similarity=0.9), vectors=spaces)
    )
    # Nearest at 10, 10, 20, 30, 40 and 75 degrees; the cosine of 30 is 0.866.
    assert sum(row.cut_off for row in rows) == 3
    assert {(row.cells, row.recalls) for row in rows} == {((0,), (1.0,))}


def test_recall_and_cut_off_lists_are_in_status(tmp_path):
    pictures = write_pictures(tmp_path / "pictures", [f"{number:02d}" for number in range(40)])
    words = [
        "run.workers=1",
        "search.k=5",
        "run.rows_per_shard_of={neighbours: 7}",
        "search.min_similarity=0.05",
    ]
    found = []
    for own in (["search.max_exact_images=25", "search.probes=1"], []):
        report = build_here(tmp_path / "out", pictures, settings=[*words, *own], until="neighbours")
        assert report.is_complete
        found.append(report.counts[-1])
    low, exact = found
    assert (low.ok, sum(low.reasons.values())) == (40, 40)
    assert any(
        "recall in the band below 0.99: raise search.probes" in reason for reason in low.reasons
    )
    assert set(exact.reasons) == {"the k neighbours end inside the band: raise search.k"}
