"""Anchors in, raw neighbour lists out."""

import numpy as np

from schemas.config import SearchConfig
from schemas.rows import Dropped, EmbeddingRow, make_key
from tasks.mining.search_neighbours import search_neighbours
from tasks.store.vectors import Vectors

KEYS = sorted(make_key("image", number) for number in range(6))


def space(values, keys=KEYS):
    values = np.asarray(values, dtype=np.float64)
    lengths = np.linalg.norm(values, axis=1)
    unit = (values / lengths[:, None]).astype(np.float16)
    return Vectors(np.array([key.encode() for key in keys], dtype="S32"), unit, lengths.astype(np.float32))


def anchors(keys):
    return [
        EmbeddingRow(key=make_key("a", key), source_key="", subject=key, embedder="x", vector=(), norm=1.0)
        for key in keys
    ]


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


def test_similarities_are_cosines_also_where_rounding_lengthened_the_vectors():
    # 0.6 and 0.8 are 0.60009765625 and 0.7998046875 as float16: of length 0.99990; 1 and 1/64 are longer than 1.
    made = space([[0.6, 0.8], [0.6, 0.8], [1, 1 / 64], [1, 1 / 64]], KEYS[:4])
    long = Vectors(made.keys, np.where(made.matrix > 0.99, np.float16(1), made.matrix), made.norms)
    rows = list(search_neighbours(anchors([KEYS[0], KEYS[2]]), SearchConfig(k=1), vectors={"x": long}))
    assert [row.neighbours[0] for row in rows] == [(KEYS[1],), (KEYS[3],)]
    assert rows[0].similarities[0][0] == np.float32(0.60009765625**2 + 0.7998046875**2)
    assert rows[1].similarities[0][0] == 1


def test_rows_do_not_depend_on_the_shard():
    spaces = {"angle": space(FAN)}
    whole = list(search_neighbours(anchors(KEYS), SearchConfig(k=4), vectors=spaces))
    single = [row for key in KEYS for row in search_neighbours(anchors([key]), SearchConfig(k=4), vectors=spaces)]
    assert whole == single


def test_key_changes_with_the_candidates():
    few = list(search_neighbours(anchors(KEYS[:1]), SearchConfig(k=2), vectors={"angle": space(FAN)}))
    moved = FAN.copy()
    moved[1] = moved[2]
    other = list(search_neighbours(anchors(KEYS[:1]), SearchConfig(k=2), vectors={"angle": space(moved)}))
    far = FAN.copy()
    far[5] = far[4]
    same = list(search_neighbours(anchors(KEYS[:1]), SearchConfig(k=2), vectors={"angle": space(far)}))
    assert few[0].key == same[0].key != other[0].key


def test_an_image_without_a_vector_is_dropped():
    spaces = {"angle": space(FAN), "short": space(FAN[:5], KEYS[:5])}
    first, last = search_neighbours(anchors([KEYS[0], KEYS[5]]), SearchConfig(k=2), vectors=spaces)
    assert first.subject == KEYS[0]
    assert last == Dropped(source_key=make_key("a", KEYS[5]), reason="no vector", detail="short")


def test_a_single_image_has_no_neighbours():
    (row,) = search_neighbours(anchors(KEYS[:1]), SearchConfig(), vectors={"angle": space(FAN[:1], KEYS[:1])})
    assert row.neighbours == ((),)
