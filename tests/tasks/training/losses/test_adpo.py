"""ADPO: the policy's loss, the retriever's rewards, and that REINFORCE's gradient is, on average, the true one."""

import math
from itertools import product

import pytest
import torch

from pairwright.schemas.training import AdpoConfig
from pairwright.tasks.training.losses import adpo, negative_rewards, retriever_loss
from tests.fixtures.scores import gradient, numbers, score, sigmoid, surprise

F64 = torch.float64
CONFIG = AdpoConfig(beta=0.3)
POLICY = [-2.0, None, -5.0, -1.0]
REFERENCE = [-3.0, None, -4.5, -2.5]
# Margins: 0.3 (1 + 0.5) and 0.3 (1 - 1.5).
MARGINS = 0.45, -0.15


def test_equation_5_over_the_sampled_negatives():
    policy = score(POLICY, grad=True)
    loss = adpo(policy, score(REFERENCE), CONFIG)
    assert loss.value.item() == pytest.approx((surprise(MARGINS[0]) + surprise(MARGINS[1])) / 2, abs=1e-12)
    first, second = (0.3 * sigmoid(-margin) / 2 for margin in MARGINS)
    assert gradient(loss, policy)[0] == pytest.approx([-first - second, 0, first, second], abs=1e-12)
    assert numbers(loss.metrics) == pytest.approx(
        {
            "reward/chosen": 0.3,
            "reward/rejected": (-0.15 + 0.45) / 2,
            "margin": 0.15,
            "accuracy": 0,
            "logp/chosen": -2,
            "logp/rejected": -3,
        }
    )


def test_examples_weigh_the_same_however_many_negatives_they_have():
    policy = score(POLICY, [-2.0, None, -5.0, None], [-2.0, -9.0, None, None], grad=True)
    reference = score(REFERENCE, [-3.0, None, -4.5, None], [-3.0, -2.0, None, None])
    loss = adpo(policy, reference, CONFIG)
    two, one = (surprise(MARGINS[0]) + surprise(MARGINS[1])) / 2, surprise(MARGINS[0])
    assert loss.value.item() == pytest.approx((two + one) / 2, abs=1e-12)
    # A rejected image alone is nothing to ADPO.
    assert gradient(loss, policy)[2] == [0, 0, 0, 0]
    assert not any(name.endswith("/image") for name in loss.metrics)


def test_the_retrievers_reward_is_the_policys_loss():
    policy = score(POLICY, [-2.0, None, -5.0, None], [None, None, -1.0, -1.0], grad=True)
    reference = score(REFERENCE, [-3.0, None, -4.5, None], [None, None, -1.0, -1.0])
    rewards = negative_rewards(policy, reference, CONFIG)
    assert not rewards.requires_grad
    first, second = surprise(MARGINS[0]), surprise(MARGINS[1])
    wanted = [[first, second], [first, math.nan], [math.nan, math.nan]]
    for got, row in zip(rewards.tolist(), wanted, strict=True):
        assert got == pytest.approx(row, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("samples", [1, 2, 3])
@pytest.mark.parametrize("baseline", [0.0, 0.7])
def test_on_average_the_retriever_ascends_the_expected_reward(samples, baseline):
    # All draws of so many of four candidates, each as often as the retriever makes it.
    logits = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=F64, requires_grad=True)
    rewards = torch.tensor([0.2, 1.5, 0.9, 3.0], dtype=F64)
    log_q = logits.log_softmax(0)
    mean = torch.zeros_like(logits)
    for draw in product(range(4), repeat=samples):
        chosen = list(draw)
        loss = retriever_loss(log_q[None, chosen], rewards[None, chosen], baseline)
        (got,) = torch.autograd.grad(loss, logits, retain_graph=True)
        mean += log_q[chosen].sum().exp().detach() * got
    (exact,) = torch.autograd.grad(-(log_q.exp() * rewards).sum(), logits)
    torch.testing.assert_close(mean, exact, rtol=0, atol=1e-14)


def test_one_sample_is_held_against_the_running_mean():
    log_q = torch.tensor([[-1.0], [-2.0]], dtype=F64)
    loss = retriever_loss(log_q, torch.tensor([[3.0], [0.5]], dtype=F64), 2.0)
    assert loss.item() == pytest.approx(-((3 - 2) * -1 + (0.5 - 2) * -2) / 2)


def test_several_samples_are_held_against_each_other():
    log_q = torch.tensor([[-1.0, -2.0, -3.0]], dtype=F64)
    loss = retriever_loss(log_q, torch.tensor([[3.0, 0.5, 1.0]], dtype=F64), 100.0)
    advantages = 3 - (0.5 + 1) / 2, 0.5 - (3 + 1) / 2, 1 - (3 + 0.5) / 2
    assert loss.item() == pytest.approx(-(advantages[0] * -1 + advantages[1] * -2 + advantages[2] * -3) / 3)


def test_what_was_not_drawn_is_left_out():
    log_q = torch.tensor([[-1.0, -9.0], [-2.0, -3.0], [-math.inf, math.nan]], dtype=F64, requires_grad=True)
    rewards = torch.tensor([[3.0, math.nan], [1.0, 4.0], [math.nan, math.nan]], dtype=F64)
    loss = retriever_loss(log_q, rewards, 2.0)
    alone, pair = (3 - 2) * 1, ((1 - 4) * 2 + (4 - 1) * 3) / 2
    assert loss.item() == pytest.approx((alone + pair) / 2)
    (got,) = torch.autograd.grad(loss, log_q)
    assert got.tolist() == [[-0.5, 0.0], [0.75, -0.75], [0.0, 0.0]]


def test_where_nothing_was_drawn_the_loss_is_0_with_zero_gradients():
    log_q = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    loss = retriever_loss(log_q, torch.full((1, 2), math.nan), 0.0)
    assert loss.item() == 0
    assert torch.autograd.grad(loss, log_q)[0].tolist() == [[0.0, 0.0]]


def test_rewards_get_no_gradient():
    log_q, rewards = torch.tensor([[-1.0]], requires_grad=True), torch.tensor([[2.0]], requires_grad=True)
    got = torch.autograd.grad(retriever_loss(log_q, rewards, 1.0), [log_q, rewards], allow_unused=True)
    assert got[0].tolist() == [[-1.0]]
    assert got[1] is None
