"""The pool: equal texts are one, a row never gets what is excluded, and every other set of texts is
equally likely."""

from dataclasses import replace

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


def test_a_rows_own_rejected_texts_are_always_candidates_and_of_no_other_row():
    """Not one that its pair has as a chosen text, nor "no change" for an unchanged pair."""
    rows = [entry(number) for number in range(6)]
    rows[0] = replace(rows[0], rejected=("a wrong text", "text 3", "TEXT 0!"))
    rows[1] = replace(rows[1], no_change=True, rejected=("no change at all", "another wrong text"))
    pool = make_pool(rows)
    for step in range(20):
        drawn = pool.draw(np.arange(6), 3, seed=0, step=step)
        texts = [{pool.texts[number] for number in row} for row in drawn.tolist()]
        assert {"a wrong text", "text 3"} < texts[0]
        assert "another wrong text" in texts[1]
        others = set().union(*texts[2:])
        assert others <= {row.chosen for row in rows}
    places, numbers = np.arange(6), np.arange(len(pool.texts))
    excluded = pool.excluded(places, np.broadcast_to(numbers, (6, len(numbers))))
    wrong = pool.texts.index("a wrong text")
    assert excluded[:, wrong].tolist() == [False, *[True] * 5]
    assert excluded[1, pool.texts.index("no change at all")]
