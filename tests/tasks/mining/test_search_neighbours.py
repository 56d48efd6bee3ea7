"""Anchors in, raw neighbour lists out."""

import logging

import numpy as np
import pytest

from pairwright.schemas.arrow import to_table
from pairwright.schemas.config import SearchConfig
from pairwright.schemas.rows import CUT_OFF, LOW_RECALL, Dropped, EmbeddingRow, NeighbourRow, make_key
from pairwright.tasks.mining import search_neighbours as search_module
from pairwright.tasks.mining.search_neighbours import search_neighbours
from pairwright.tasks.models.search_index import top_k
from pairwright.tasks.store.index import Before
from pairwright.tasks.store.vectors import Vectors

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


def test_without_vectors_or_others_there_are_no_neighbours():
    (row,) = search_neighbours(anchors(KEYS[:1]), SearchConfig(), vectors={"angle": space(FAN[:1], KEYS[:1])})
    assert row.neighbours == ((),)
    found = list(search_neighbours(anchors(KEYS[:2]), SearchConfig(), vectors={}))
    assert [(type(row), row.reason) for row in found] == [(Dropped, "no vector")] * 2


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


def crowd(seed=0, count=120, width=16):
    """Return vectors in groups with exact duplicates, and their keys."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(12, width))[rng.integers(0, 12, count)] + 0.5 * rng.normal(size=(count, width))
    values[rng.integers(0, count, 20)] = values[7]
    return sorted(make_key("crowd", number) for number in range(count)), values


def part_of(chosen, names=("near", "far")):
    """Return the spaces of some images of the crowd; the second space ranks them otherwise."""
    keys, values = crowd()
    kept = [keys[place] for place in chosen]
    return {name: space(values[chosen][:, : 16 - 9 * number], kept) for number, name in enumerate(names)}


def search(spaces, config, before=None):
    images = [key.decode() for key in next(iter(spaces.values())).keys]
    more = {} if before is None else {"before": before}
    return list(search_neighbours(anchors(images), config, vectors=spaces, **more))


def remembered(rows):
    """Return what a build hands on to the next one."""
    rows = [row for row in rows if isinstance(row, NeighbourRow)]
    images = np.array(sorted(row.subject.encode() for row in rows), dtype="S32")
    return Before(images, {row.subject: row for row in rows})


EVERY = np.arange(120)
OLD = EVERY[EVERY % 5 != 0]


@pytest.mark.parametrize("k", [1, 8, 95, 119, 200])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (OLD, EVERY),
        (EVERY, OLD),
        (EVERY[:90], EVERY[30:]),
        (EVERY[:3], EVERY),
        (EVERY, EVERY),
        (EVERY[:60], EVERY[60:]),
    ],
    ids=["came", "went", "both", "nearly all new", "same", "others"],
)
def test_an_earlier_build_changes_nothing(k, old, new):
    config = SearchConfig(k=k)
    before = remembered(search(part_of(old), config))
    assert search(part_of(new), config, before) == search(part_of(new), config)


def test_an_image_that_gave_no_row_may_still_be_a_neighbour():
    """The last old image has no vector in the second space: dropped as an anchor, but found in the first."""
    config, spaces = SearchConfig(k=6), part_of(OLD)
    short = part_of(OLD[:-1])["far"]
    before = remembered(search({"near": spaces["near"], "far": short}, config))
    assert OLD.size - 1 == len(before.images)
    assert search(part_of(EVERY), config, before) == search(part_of(EVERY), config)


@pytest.fixture
def calls(monkeypatch):
    """Note how many rows are compared with how many others."""
    made = []

    def counted(matrix, rows, **options):
        made.append((len(rows), len(options.get("among", matrix))))
        return top_k(matrix, rows, **options)

    monkeypatch.setattr(search_module, "top_k", counted)
    return made


def test_old_neighbours_are_compared_with_new_images_only(calls):
    before = remembered(search(part_of(OLD), SearchConfig(k=8)))
    calls.clear()
    search(part_of(EVERY), SearchConfig(k=8), before)
    assert calls == [(96, 24), (24, 120)] * 2  # old against new, new against all; in either space


def test_what_went_is_searched_again_only_where_it_was_near(calls):
    rows = search(part_of(EVERY, ("near",)), SearchConfig(k=3))
    calls.clear()
    gone = crowd()[0][5]
    touched = sum(gone in row.neighbours[0] for row in rows if row.subject != gone)
    search(part_of(EVERY[EVERY != 5], ("near",)), SearchConfig(k=3), remembered(rows))
    assert 0 < touched < 60
    assert calls == [(119 - touched, 0), (touched, 119)]


def test_rows_of_an_index_are_not_taken_for_exact_ones():
    few = SearchConfig(k=8, max_exact_images=100, probes=1)
    rows = search(part_of(EVERY), few)
    assert {row.cells for row in rows} == {(32, 32)}
    exact = SearchConfig(k=8)
    assert search(part_of(OLD), exact, remembered(rows)) == search(part_of(OLD), exact)


def test_an_index_is_searched_above_the_limit():
    config = SearchConfig(k=8, max_exact_images=119, probes=2, min_similarity=0.6)
    rows, exact = (search(part_of(EVERY), config.model_copy(update={"max_exact_images": n})) for n in (119, 120))
    assert {row.cells for row in rows} == {(32, 32)}
    assert all(0.3 < recall < 1 for row in rows for recall in row.recalls)
    assert {(row.cells, row.recalls) for row in exact} == {((0, 0), (1.0, 1.0))}


def test_low_recall_is_said_with_its_number_and_remedy(caplog):
    with caplog.at_level(logging.INFO):
        rows = search(part_of(EVERY, ("near",)), SearchConfig(k=8, max_exact_images=0, probes=1, min_similarity=0.3))
    (recall,) = {row.recalls[0] for row in rows}
    assert recall < 0.99
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert f"a recall of {recall:.4f}, below 0.99. Raise search.probes (now 1 of 32 cells)" in warning.getMessage()
    assert all(LOW_RECALL in row.reason for row in rows)
    table = to_table(rows, NeighbourRow)
    assert set(table.column("status").to_pylist()) == {"ok"}
    caplog.clear()
    with caplog.at_level(logging.INFO):
        full = search(part_of(EVERY, ("near",)), SearchConfig(k=8, max_exact_images=0, probes=32, min_similarity=0.3))
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert {row.recalls for row in full} == {(1.0,)}


def test_a_list_that_ends_in_the_band_is_cut_off():
    spaces = {"angle": space(FAN)}  # neighbours of the second: 10, 20, 50, 90, 165 degrees
    for k, band, cut in [(2, 0.9, True), (2, 0.95, False), (3, 0.6, True), (5, 0.0, False), (9, 0.0, False)]:
        (row,) = search_neighbours(anchors(KEYS[1:2]), SearchConfig(k=k, min_similarity=band), vectors=spaces)
        assert (row.cut_off, row.reason) == (cut, CUT_OFF if cut else "")
    rows = list(search_neighbours(anchors(KEYS), SearchConfig(k=1, min_similarity=0.9), vectors=spaces))
    # Nearest at 10, 10, 20, 30, 40 and 75 degrees; the cosine of 30 is 0.866.
    assert sum(row.cut_off for row in rows) == 3
    assert {(row.cells, row.recalls) for row in rows} == {((0,), (1.0,))}
