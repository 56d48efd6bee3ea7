"""q and samples of it, against NumPy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pairwright.tasks.training.retriever.sample import masked_log_softmax, sample
from tests.fixtures.graphs import PROPERTY


def plain_softmax(logits, present):
    """Return q row by row, of what is there."""
    q = np.zeros(logits.shape)
    for row in range(len(logits)):
        there = np.flatnonzero(present[row])
        if len(there):
            raised = np.exp(logits[row, there] - logits[row, there].max())
            q[row, there] = raised / raised.sum()
    return q


def random_case(seed, rows=5, columns=9):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, columns)) * rng.choice([0.1, 3, 50])
    present = rng.random((rows, columns)) < rng.choice([0.0, 0.3, 1.0], size=(rows, 1))
    return logits, present, rng.random((rows, 4))


@PROPERTY
@given(st.integers(0, 10**9))
def test_q_entropy_and_numbers_are_numpys(seed):
    logits, present, shares = random_case(seed)
    q = plain_softmax(logits, present)
    drawn = sample(torch.tensor(logits), torch.tensor(present), shares)
    having = present.any(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(q > 0, q * np.log(q), 0).sum(1)
    np.testing.assert_allclose(drawn.entropy.numpy(), entropy, atol=1e-5)
    np.testing.assert_allclose(drawn.effective.numpy(), np.exp(entropy), rtol=1e-4)
    np.testing.assert_array_equal(drawn.available.numpy(), present.sum(1))
    for row in np.flatnonzero(having):
        assert present[row, drawn.columns[row]].all()
        np.testing.assert_allclose(drawn.log_q[row].numpy(), np.log(q[row, drawn.columns[row]]), atol=1e-5)
        ends = np.cumsum(q[row])
        for share, column in zip(shares[row], drawn.columns[row], strict=True):
            before = ends[column - 1] if column else 0.0
            assert before - 1e-9 <= share * ends[-1] <= ends[column] + 1e-9
    assert (drawn.log_q[~torch.tensor(having)] == 0).all()


def test_draws_are_as_frequent_as_q_says():
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]])
    present = torch.tensor([[True, False, True, True]])
    shares = np.random.default_rng(0).random((1, 100_000))
    counts = np.bincount(sample(logits, present, shares).columns[0], minlength=4) / 100_000
    np.testing.assert_allclose(counts, plain_softmax(logits.numpy(), present.numpy())[0], atol=0.006)


@pytest.mark.parametrize("share", [0.0, 0.5, 1 - 2.0**-52])
def test_the_ends_of_the_distribution_fall_on_what_is_there(share):
    logits = torch.tensor([[5.0, 1.0, -80.0, 3.0, 9.0]])
    present = torch.tensor([[False, True, True, True, False]])
    drawn = sample(logits, present, np.array([[share]]))
    assert drawn.columns[0, 0] in (1, 3)


def test_gradients_reach_what_is_there_and_nothing_else():
    logits = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.1, 0.2]], requires_grad=True)
    present = torch.tensor([[True, False, True], [False, False, False]])
    drawn = sample(logits, present, np.array([[0.99], [0.5]]))
    drawn.log_q.sum().backward()
    q = plain_softmax(logits.detach().numpy(), present.numpy())
    np.testing.assert_array_equal(drawn.columns, [[2], [0]])
    np.testing.assert_allclose(logits.grad.numpy(), [[-q[0, 0], 0, 1 - q[0, 2]], [0, 0, 0]], atol=1e-6)


def test_shares_of_the_entropy():
    logits = torch.zeros(4, 3)
    present = torch.tensor([[True] * 3, [True, False, False], [False] * 3, [True, True, False]])
    logits[3, 0] = 60.0
    drawn = sample(logits, present, np.zeros((4, 1)))
    np.testing.assert_allclose(drawn.entropy_share.numpy(), [1, 1, 1, 0], atol=1e-6)


def test_what_is_not_there_has_no_chance_whatever_its_logit():
    logits = torch.tensor([[1e30, 0.0, 0.0], [float("inf"), 1.0, 1.0]])
    present = torch.tensor([[False, True, True]] * 2)
    found = masked_log_softmax(logits, present).exp()
    np.testing.assert_allclose(found.numpy(), [[0, 0.5, 0.5]] * 2, atol=1e-6)
