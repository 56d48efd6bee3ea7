"""Rewards are beta log-ratios of the answers there are; the cost of a ranking is Plackett-Luce's, at any margin."""

import math

import pytest
import torch

from pairwright.tasks.training.losses import log_preferences, loss_of, rank_losses, rewards_of
from tests.fixtures.scores import numbers, score, zeros_like

F64 = torch.float64


def columns(rewards):
    return torch.cat([rewards.chosen[:, None], rewards.image[:, None], rewards.texts], 1)


def every(values):
    return torch.ones(values.shape, dtype=torch.bool)


def test_a_reward_is_beta_times_the_log_ratio():
    policy, reference = score([-2.0, -7.0, -5.0, -6.0]), score([-3.0, -4.0, -4.5, -6.5])
    rewards = rewards_of(policy, reference, beta=0.5, texts=None)
    # 0.5 (-2 + 3), 0.5 (-7 + 4), 0.5 (-5 + 4.5), 0.5 (-6 + 6.5)
    assert columns(rewards).tolist() == [[0.5, -1.5, -0.25, 0.25]]
    assert rewards.logps.tolist() == [[-2.0, -7.0, -5.0, -6.0]]


def test_per_token_it_is_divided_by_each_answers_length():
    tokens = [[4, 1, 5, 0]]
    policy, reference = score([-2.0, -7.0, -5.0, None], tokens=tokens), score([-3.0, -4.0, -4.0, None], tokens=tokens)
    rewards = rewards_of(policy, reference, beta=2.0, texts=None, per_token=True)
    # 2 (1 / 4), 2 (-3 / 1), 2 (-1 / 5); what is absent has no length to divide by
    assert columns(rewards).tolist() == [[0.5, -6.0, -0.4, 0.0]]


def test_only_so_many_texts_are_taken_and_one_is_always_there_to_be_absent():
    policy = score([-2.0, -7.0, -5.0, -6.0])
    assert rewards_of(policy, zeros_like(policy), beta=1.0).texts.tolist() == [[-5.0]]
    narrow = score([-2.0])
    rewards = rewards_of(narrow, zeros_like(narrow), beta=1.0)
    assert columns(rewards).tolist() == [[-2.0, 0.0, 0.0]]
    assert not rewards.has_image.any()
    assert not rewards.has_texts.any()


def test_what_is_absent_is_0_whatever_a_model_gave_it():
    policy = score([-2.0, math.nan, math.inf], tokens=[[1, 0, 0]], grad=True)
    rewards = rewards_of(policy, score([-1.0, math.nan, None], tokens=[[1, 0, 0]]), beta=1.0)
    assert columns(rewards).tolist() == [[-1.0, 0.0, 0.0]]
    assert rewards.logps.tolist() == [[-2.0, 0.0, 0.0]]
    (gradient,) = torch.autograd.grad(columns(rewards).sum(), policy.logps)
    assert gradient.tolist() == [[1.0, 0.0, 0.0]]


def test_the_reference_gets_no_gradient():
    policy, reference = score([-2.0, None, -3.0], grad=True), score([-1.0, None, -3.5], grad=True)
    rewards = rewards_of(policy, reference, beta=1.0)
    got = torch.autograd.grad(rewards.chosen.sum(), [policy.logps, reference.logps], allow_unused=True)
    assert got[0].tolist() == [[1.0, 0.0, 0.0]]
    assert got[1] is None
    assert not rewards.logps.requires_grad


def test_a_missing_or_another_reference_is_refused():
    policy = score([-2.0, None, -3.0])
    with pytest.raises(ValueError, match="reference"):
        rewards_of(policy, None, beta=1.0)
    with pytest.raises(ValueError, match=r"\(1, 3\) and \(1, 1\)"):
        rewards_of(policy, score([-2.0]), beta=1.0)


def test_ranking_is_plackett_luce():
    rewards = torch.tensor([[0.7, -0.2, 0.4, 0.1]], dtype=F64)
    losses = rank_losses(rewards, every(rewards))[0].tolist()
    a, b, c, d = (math.exp(reward) for reward in rewards[0].tolist())
    # Each is drawn first of those that are left.
    wanted = [-math.log(a / (a + b + c + d)), -math.log(b / (b + c + d)), -math.log(c / (c + d)), 0.0]
    assert losses == pytest.approx(wanted, abs=1e-12)


def test_absent_answers_beat_nobody_and_cost_nothing():
    rewards = torch.tensor([[0.7, 50.0, 0.4, 0.1]], dtype=F64)
    present = torch.tensor([[True, False, True, True]])
    a, _, c, d = (math.exp(reward) for reward in rewards[0].tolist())
    wanted = [-math.log(a / (a + c + d)), 0.0, -math.log(c / (c + d)), 0.0]
    assert rank_losses(rewards, present)[0].tolist() == pytest.approx(wanted, abs=1e-12)
    nobody = rank_losses(rewards, torch.zeros(1, 4, dtype=torch.bool))
    assert nobody.tolist() == [[0.0, 0.0, 0.0, 0.0]]


def test_no_step_of_the_gradient_is_nan_where_nobody_is_left():
    rewards = torch.tensor([[0.7, -0.2], [0.1, 0.3]], dtype=F64, requires_grad=True)
    with torch.autograd.set_detect_anomaly(mode=True):
        (got,) = torch.autograd.grad(rank_losses(rewards, torch.zeros(2, 2, dtype=torch.bool)).sum(), rewards)
    assert not got.any()


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_large_margins_neither_overflow_nor_lose_the_gradient(dtype):
    rewards = torch.tensor([[-1e4, 1e4, 0.0], [1e4, -1e4, 0.0]], dtype=dtype, requires_grad=True)
    losses = rank_losses(rewards, every(rewards))
    assert losses[:, 0].tolist() == [2e4, 0.0]
    (got,) = torch.autograd.grad(losses[:, 0].sum(), rewards)
    assert got.tolist() == [[-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]


def test_the_loss_is_the_mean_over_those_that_count():
    per_example = torch.tensor([1.0, math.nan, 4.0], requires_grad=True)
    counts = torch.tensor([True, False, True])
    loss = loss_of(per_example, counts, {"seen": (per_example, counts), "unseen": (per_example, ~every(counts))})
    assert loss.value.item() == 2.5
    assert numbers(loss.metrics) == {"seen": 2.5}
    assert not loss.metrics["seen"].requires_grad
    (gradient,) = torch.autograd.grad(loss.value, per_example)
    assert gradient.tolist() == [0.5, 0.0, 0.5]


def test_a_loss_that_is_no_number_is_not_hidden():
    counts = torch.tensor([True, True])
    loss = loss_of(torch.tensor([1.0, math.nan]), counts, {"margin": (torch.tensor([1.0, math.nan]), counts)})
    assert loss.value.isnan()
    assert loss.metrics["margin"].isnan()


def test_what_is_logged():
    policy = score(
        [-1.0, -4.0, -2.0, -0.5], [-3.0, -2.0, None, None], [-1.0, None, -5.0, -2.0], [None, -1.0, -1.0, None]
    )
    rewards = rewards_of(policy, zeros_like(policy), beta=2.0, texts=None)
    counts = torch.tensor([True, True, True, False])
    got = numbers(loss_of(torch.zeros(4), counts, log_preferences(rewards)).metrics)
    assert got == pytest.approx(
        {
            "reward/chosen": 2 * (-1 - 3 - 1) / 3,
            # of the first and third example, the mean of their texts: -1.25 and -3.5
            "reward/rejected": 2 * (-1.25 - 3.5) / 2,
            "reward/image": 2 * (-4 - 2) / 2,
            "margin": 2 * ((-1 + 1.25) + (-1 + 3.5)) / 2,
            "margin/image": 2 * (3 - 1) / 2,
            # In the first, the second text has the larger reward.
            "accuracy": 0.5,
            "accuracy/image": 0.5,
            "logp/chosen": (-1 - 3 - 1) / 3,
            "logp/rejected": (-1.25 - 3.5) / 2,
        }
    )
