"""Random numbers by counting: the same for the same purpose, whatever else was drawn; uniform; different otherwise."""

import numpy as np

from pairwright.tasks.training.retriever.counters import draw_bits, draw_shares, marks_of

MARKS = marks_of(f"row {number}" for number in range(200))


def bits(marks=MARKS, count=40, *, seed=1, step=2, use="candidates"):
    return draw_bits(marks, count, seed=seed, step=step, use=use)


def test_a_row_gets_the_same_numbers_in_any_batch_and_any_number_of_them():
    everything = bits()
    some = [150, 3, 70]
    np.testing.assert_array_equal(bits(MARKS[some]), everything[some])
    np.testing.assert_array_equal(bits(count=7), everything[:, :7])


def test_numbers_differ_by_row_seed_step_and_use():
    sets = [bits(), bits(seed=2), bits(step=3), bits(use="negatives")]
    assert len(set(np.concatenate(sets).ravel().tolist())) == 4 * 200 * 40


def test_shares_are_uniform_below_one():
    shares = draw_shares(MARKS, 500, seed=0, step=0, use="negatives")
    assert shares.min() >= 0
    assert shares.max() < 1
    counts = np.histogram(shares, bins=20, range=(0, 1))[0]
    expected = shares.size / 20
    assert ((counts - expected) ** 2 / expected).sum() < 43.8  # chi-squared, 19 degrees of freedom: one in a thousand


def test_any_key_has_a_mark_and_no_rows_have_none():
    assert len(set(marks_of(["", "no hex", "x" * 5000, "é"]).tolist())) == 4
    assert draw_bits(marks_of([]), 3, seed=0, step=0, use="candidates").shape == (0, 3)
    assert draw_shares(marks_of([]), 3, seed=0, step=0, use="candidates").shape == (0, 3)
