"""The pool: equal texts are one, a row never gets what is excluded, and every other set of texts is
equally likely."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.plain_text import plain_text
from pairwright.tasks.training.retriever.candidate_pool import NONE, make_pool
from tests.fixtures.graphs import PROPERTY
from tests.fixtures.retrieving import entry, random_entries, renamed


def test_the_pool_holds_the_training_split_s_texts_once():
    rows = [entry(0, "B."), entry(1, "b"), entry(3, "c")]
    rows[2:2] = [entry(2, "a", in_pool=False)]
    rows += [entry(4, "B", in_pool=False)]
    pool = make_pool(rows)
    assert pool.texts == ("B.", "c")
    assert pool.positives.tolist() == [[0], [0], [NONE], [1], [0]]


@PROPERTY
@given(st.integers(0, 10**9), st.sampled_from((1, 3, 8, 100)), st.integers(0, 5))
def test_nothing_that_is_excluded_is_ever_drawn(seed, size, step):
    """Against a check by the words themselves, row by row."""
    rows = random_entries(seed)
    drawn = make_pool(rows).draw(np.arange(len(rows)), size, seed=seed % 97, step=step)
    pool = make_pool(rows)
    texts = {plain_text(row.chosen) for row in rows if row.in_pool}
    same = {plain_text(row.chosen) for row in rows if row.in_pool and row.no_change}
    same |= {plain_text(row.chosen) for row in rows if row.no_change} & texts
    assert drawn.shape == (len(rows), size)
    for row, ids in zip(rows, drawn.tolist(), strict=True):
        got = [plain_text(pool.texts[number]) for number in ids if number != NONE]
        mine = [other for other in rows if other.pair == row.pair]
        barred = {plain_text(other.chosen) for other in mine}
        if any(other.no_change for other in mine):
            barred |= same
        assert len(set(got)) == len(got)
        assert not barred & set(got)
        assert len(got) == min(size, len(texts - barred))
        assert NONE not in ids[: len(got)]


def test_draws_depend_on_row_seed_and_step_alone():
    rows = [entry(n) for n in range(40)]
    pool, other = make_pool(rows), make_pool(renamed(rows))
    everything = np.arange(40)
    drawn = pool.draw(everything, 12, seed=3, step=5)
    few = np.array([7, 31, 2])
    np.testing.assert_array_equal(pool.draw(few, 12, seed=3, step=5), drawn[few])
    for each, seed, step in ((pool, 4, 5), (pool, 3, 6), (other, 3, 5)):
        assert (each.draw(everything, 12, seed=seed, step=step) != drawn).any(1).all()


@pytest.mark.parametrize(
    "rows", [[], [entry(0)], [entry(0, in_pool=False), entry(1, in_pool=False)]]
)
def test_where_there_is_nothing_nothing_is_drawn(rows):
    pool = make_pool(rows)
    drawn = pool.draw(np.arange(len(rows)), 4, seed=0, step=0)
    assert drawn.shape == (len(rows), 4)
    assert (drawn == NONE).all()
