"""SFT, DPO, mDPO, AdaViP (Eqs. 11 to 13) and ADPO, against values written out by hand.

That the retriever's gradient (REINFORCE) is, on average, the true one is checked over all draws.
"""

import math
from itertools import product

import pytest
import torch

from pairwright.schemas.training import AdavipConfig, AdpoConfig, DpoConfig, MdpoConfig
from pairwright.tasks.training.losses import (
    adavip,
    adpo,
    dpo,
    mdpo,
    negative_rewards,
    retriever_loss,
    sft,
)
from tests.fixtures.scores import gradient, numbers, score, sigmoid, surprise, zeros_like

F64 = torch.float64
TOKENS = [[4], [1], [0]]
EXAMPLES = [-6.0], [-3.0], [None]


def test_sft_over_tokens():
    policy = score(*EXAMPLES, tokens=TOKENS, grad=True)
    loss = sft(policy)
    assert loss.value.item() == pytest.approx((6 + 3) / 5)
    assert numbers(loss.metrics) == pytest.approx({"nll": 9 / 5, "logp/chosen": -4.5})
    assert gradient(loss, policy) == [[-1 / 5], [-1 / 5], [0]]


POLICY = [-2.0, None, -5.0]
REFERENCE = [-3.0, None, -4.5]
MARGIN = 0.3 * ((-2 + 3) - (-5 + 4.5))


def test_dpo_is_the_surprise_of_the_margin():
    policy = score(POLICY, grad=True)
    loss = dpo(policy, score(REFERENCE), DpoConfig(beta=0.3))
    assert loss.value.item() == pytest.approx(surprise(MARGIN), abs=1e-12)
    # d/dx of -log sigmoid(beta (x - y)) = -beta sigmoid(-margin)
    slope = 0.3 * sigmoid(-MARGIN)
    assert gradient(loss, policy)[0] == pytest.approx([-slope, 0, slope], abs=1e-12)
    assert numbers(loss.metrics) == pytest.approx(
        {
            "reward/chosen": 0.3,
            "reward/rejected": -0.15,
            "margin": 0.45,
            "accuracy": 1,
            "logp/chosen": -2,
            "logp/rejected": -5,
        }
    )


def test_of_several_negatives_the_chosen_text_is_first():
    policy = score([1.0, None, 0.5, -0.3, 0.2], grad=True)
    loss = dpo(policy, zeros_like(policy), DpoConfig(beta=1.0, max_negatives=3))
    total = math.exp(1.0) + math.exp(0.5) + math.exp(-0.3) + math.exp(0.2)
    assert loss.value.item() == pytest.approx(-math.log(math.exp(1.0) / total), abs=1e-12)
    # S-DPO, Eq. 11: -log sigmoid(-log sum exp(differences))
    differences = math.exp(0.5 - 1) + math.exp(-0.3 - 1) + math.exp(0.2 - 1)
    assert loss.value.item() == pytest.approx(surprise(-math.log(differences)), abs=1e-12)
    shares = [math.exp(reward) / total for reward in (1.0, 0.5, -0.3, 0.2)]
    assert gradient(loss, policy)[0] == pytest.approx([shares[0] - 1, 0, *shares[1:]], abs=1e-12)


BOTH, BOTH_REFERENCE = [-2.0, -7.0, -5.0], [-3.0, -6.0, -4.5]
# At beta 0.3.
LOGGED = {
    "reward/chosen": 0.3,
    "reward/rejected": -0.15,
    "reward/image": -0.3,
    "margin": 0.45,
    "margin/image": 0.6,
    "accuracy": 1,
    "accuracy/image": 1,
    "logp/chosen": -2,
    "logp/rejected": -5,
}


def test_mdpo_has_three_terms():
    policy = score(BOTH, grad=True)
    loss = mdpo(policy, score(BOTH_REFERENCE), MdpoConfig(beta=0.3))
    assert loss.value.item() == pytest.approx(
        surprise(0.45) + surprise(0.6) + surprise(0.3), abs=1e-12
    )
    text, image, anchor = 0.3 * sigmoid(-0.45), 0.3 * sigmoid(-0.6), 0.3 * sigmoid(-0.3)
    assert gradient(loss, policy)[0] == pytest.approx(
        [-text - image - anchor, image, text], abs=1e-12
    )
    assert numbers(loss.metrics) == pytest.approx(LOGGED)


def test_equation_11():
    policy = score(BOTH)
    loss = adavip(policy, score(BOTH_REFERENCE), AdavipConfig(beta=0.3))
    rest = math.exp(-0.15 - 0.3) + math.exp(-0.3 - 0.3)
    assert loss.value.item() == pytest.approx(surprise(-math.log(rest)), abs=1e-12)
    # Eq. 10: the chance of the preferred sample among the three
    chance = math.exp(0.3) / (math.exp(0.3) + math.exp(-0.15) + math.exp(-0.3))
    assert loss.value.item() == pytest.approx(-math.log(chance), abs=1e-12)


def test_equations_12_and_13():
    policy = score(BOTH, grad=True)
    loss = adavip(policy, score(BOTH_REFERENCE), AdavipConfig(beta=0.3))
    rest = math.exp(-0.15 - 0.3) + math.exp(-0.3 - 0.3)
    increase = 0.3 * sigmoid(math.log(rest))
    text, image = sigmoid(-0.15 + 0.3), sigmoid(-0.3 + 0.15)
    assert gradient(loss, policy)[0] == pytest.approx(
        [-increase, increase * image, increase * text], abs=1e-12
    )
    assert numbers(loss.metrics) == pytest.approx(
        LOGGED | {"weight/text": text, "weight/image": image}
    )


ADPO = AdpoConfig(beta=0.3)
SAMPLED = [-2.0, None, -5.0, -1.0]
SAMPLED_REFERENCE = [-3.0, None, -4.5, -2.5]
# Margins: 0.3 (1 + 0.5) and 0.3 (1 - 1.5).
MARGINS = 0.45, -0.15


def test_equation_5_over_the_sampled_negatives():
    policy = score(SAMPLED, grad=True)
    loss = adpo(policy, score(SAMPLED_REFERENCE), ADPO)
    assert loss.value.item() == pytest.approx(
        (surprise(MARGINS[0]) + surprise(MARGINS[1])) / 2, abs=1e-12
    )
    first, second = (0.3 * sigmoid(-margin) / 2 for margin in MARGINS)
    assert gradient(loss, policy)[0] == pytest.approx(
        [-first - second, 0, first, second], abs=1e-12
    )
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
    policy = score(SAMPLED, [-2.0, None, -5.0, None], [-2.0, -9.0, None, None], grad=True)
    reference = score(SAMPLED_REFERENCE, [-3.0, None, -4.5, None], [-3.0, -2.0, None, None])
    loss = adpo(policy, reference, ADPO)
    two, one = (surprise(MARGINS[0]) + surprise(MARGINS[1])) / 2, surprise(MARGINS[0])
    assert loss.value.item() == pytest.approx((two + one) / 2, abs=1e-12)
    # A rejected image alone is nothing to ADPO.
    assert gradient(loss, policy)[2] == [0, 0, 0, 0]
    assert not any(name.endswith("/image") for name in loss.metrics)


def test_the_retrievers_reward_is_the_policys_loss():
    policy = score(SAMPLED, [-2.0, None, -5.0, None], [None, None, -1.0, -1.0], grad=True)
    reference = score(SAMPLED_REFERENCE, [-3.0, None, -4.5, None], [None, None, -1.0, -1.0])
    rewards = negative_rewards(policy, reference, ADPO)
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


def test_what_was_not_drawn_is_left_out():
    log_q = torch.tensor(
        [[-1.0, -9.0], [-2.0, -3.0], [-math.inf, math.nan]], dtype=F64, requires_grad=True
    )
    rewards = torch.tensor([[3.0, math.nan], [1.0, 4.0], [math.nan, math.nan]], dtype=F64)
    loss = retriever_loss(log_q, rewards, 2.0)
    alone, pair = (3 - 2) * 1, ((1 - 4) * 2 + (4 - 1) * 3) / 2
    assert loss.item() == pytest.approx((alone + pair) / 2)
    (got,) = torch.autograd.grad(loss, log_q)
    assert got.tolist() == [[-0.5, 0.0], [0.75, -0.75], [0.0, 0.0]]
