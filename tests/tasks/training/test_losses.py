"""SFT, DPO, mDPO, AdaViP (Eqs. 10 to 13) and ADPO, against values written out by hand.

That the retriever's gradient (REINFORCE) is, on average, the true one is checked over all draws.
"""

from itertools import product
from math import exp, inf, log, nan

import pytest
import torch

from pairwright.schemas.training import (
    AdavipConfig,
    AdpoConfig,
    DpoConfig,
    MdpoConfig,
    SymmpoConfig,
)
from pairwright.tasks.training.losses import (
    Scored,
    adavip,
    adpo,
    dpo,
    mdpo,
    negative_rewards,
    retriever_loss,
    sft,
    symmpo,
)
from tests.fixtures.scores import gradient, numbers, score, sigmoid, surprise, zeros_like

F64 = torch.float64
BETA = 0.3
# Rewards 0.3 (-2 + 3) of the chosen text, 0.3 (-7 + 6) with the rejected images, 0.3 (-5 + 4.5) of
# the rejected text.
CHOSEN, IMAGE, TEXT = 0.3, -0.3, -0.15
LOGGED = {
    "reward/chosen": CHOSEN, "reward/rejected": TEXT, "margin": 0.45, "accuracy": 1,
    "logp/chosen": -2, "logp/rejected": -5,
}  # fmt: skip
LOGGED_OF_IMAGES = {"reward/image": IMAGE, "margin/image": 0.6, "accuracy/image": 1}


def policy_of(*, image=-7.0):
    return score([-2.0, image, -5.0], grad=True)


def reference_of(*, image=-6.0):
    return score([-3.0, image, -4.5])


def exactly(value):
    return pytest.approx(value, abs=1e-12)


def test_sft_over_tokens():
    policy = score([-6.0], [-3.0], [None], tokens=[[4], [1], [0]], grad=True)
    loss = sft(policy)
    assert loss.value.item() == pytest.approx((6 + 3) / 5)
    assert numbers(loss.metrics) == pytest.approx({"nll": 9 / 5, "logp/chosen": -4.5})
    assert gradient(loss, policy) == [[-1 / 5], [-1 / 5], [0]]


def test_dpo_is_the_surprise_of_the_margin():
    policy = policy_of(image=None)
    loss = dpo(policy, reference_of(image=None), DpoConfig(beta=BETA))
    assert loss.value.item() == exactly(surprise(0.45))
    # d/dx of -log sigmoid(beta (x - y)) = -beta sigmoid(-margin)
    slope = BETA * sigmoid(-0.45)
    assert gradient(loss, policy)[0] == exactly([-slope, 0, slope])
    assert numbers(loss.metrics) == pytest.approx(LOGGED)


def test_of_several_negatives_the_chosen_text_is_first():
    policy = score([1.0, None, 0.5, -0.3, 0.2], grad=True)
    loss = dpo(policy, zeros_like(policy), DpoConfig(beta=1.0, max_negatives=3))
    total = exp(1.0) + exp(0.5) + exp(-0.3) + exp(0.2)
    assert loss.value.item() == exactly(-log(exp(1.0) / total))
    # S-DPO, Eq. 11: -log sigmoid(-log sum exp(differences))
    differences = exp(0.5 - 1) + exp(-0.3 - 1) + exp(0.2 - 1)
    assert loss.value.item() == exactly(surprise(-log(differences)))
    shares = [exp(reward) / total for reward in (1.0, 0.5, -0.3, 0.2)]
    assert gradient(loss, policy)[0] == exactly([shares[0] - 1, 0, *shares[1:]])


@pytest.mark.parametrize(
    ("loss_type", "value", "slope"),
    [
        # The log-ratios differ by 1.5: (1.5 - 1 / 0.6)^2, and its slope
        ("ipo", (1.5 - 1 / 0.6) ** 2, 2 * (1.5 - 1 / 0.6)),
        ("hinge", 1 - 0.45, -BETA),
        ("sigmoid", surprise(0.45), -BETA * sigmoid(-0.45)),
    ],
)
def test_other_losses_of_a_margin(loss_type, value, slope):
    """IPO, Eq. 17, and SLiC's hinge, which is 0 for a margin above 1."""
    policy = policy_of(image=None)
    config = DpoConfig(beta=BETA, loss_type=loss_type)
    loss = dpo(policy, reference_of(image=None), config)
    assert loss.value.item() == exactly(value)
    assert gradient(loss, policy)[0] == exactly([slope, 0, -slope])
    assert numbers(loss.metrics) == pytest.approx(LOGGED)


def test_a_hinge_is_0_behind_its_margin_and_a_mean_of_negatives():
    policy = score([1.0, None, -3.0, 0.5], grad=True)
    loss = dpo(policy, zeros_like(policy), DpoConfig(beta=1.0, max_negatives=2, loss_type="hinge"))
    assert loss.value.item() == exactly((0 + 0.5) / 2)
    assert gradient(loss, policy)[0] == exactly([-0.5, 0, 0, 0.5])


def test_log_ratios_per_token():
    """Of 4 and 2 tokens: 0.3 * 1 / 4 and 0.3 * -0.5 / 2."""
    policy = score([-2.0, None, -5.0], tokens=[[4, 0, 2]], grad=True)
    reference = score([-3.0, None, -4.5], tokens=[[4, 0, 2]])
    loss = dpo(policy, reference, DpoConfig(beta=BETA, length_normalised=True))
    margin = BETA / 4 + BETA * 0.5 / 2
    assert loss.value.item() == exactly(surprise(margin))
    slope = BETA * sigmoid(-margin)
    assert gradient(loss, policy)[0] == exactly([-slope / 4, 0, slope / 2])


def test_the_whole_order_counts_with_plackett_luce():
    """Of four answers the first row's order has three choices; the second row lacks one."""
    policy = score([1.0, None, 0.5, -0.3, 0.2], [1.0, None, 0.5, None, None], grad=True)
    config = DpoConfig(beta=1.0, max_negatives=3, ranking="plackett_luce")
    loss = dpo(policy, zeros_like(policy), config)
    rewards = [exp(reward) for reward in (1.0, 0.5, -0.3, 0.2)]
    chance = rewards[0] / sum(rewards)
    chance *= rewards[1] / sum(rewards[1:])
    chance *= rewards[2] / sum(rewards[2:])
    pair = rewards[0] / (rewards[0] + rewards[1])
    assert loss.value.item() == exactly((-log(chance) - log(pair)) / 2)
    assert all(abs(sum(row)) < 1e-12 for row in gradient(loss, policy))


def test_the_order_of_two_is_dpo():
    policy = policy_of(image=None)
    configs = [DpoConfig(beta=BETA, ranking=ranking) for ranking in ("first", "plackett_luce")]
    values = [dpo(policy, reference_of(image=None), config).value.item() for config in configs]
    assert values == exactly([surprise(0.45)] * 2)
    with pytest.raises(ValueError, match="ranking: plackett_luce has no hinge"):
        DpoConfig(ranking="plackett_luce", loss_type="hinge")


def test_mdpo_without_its_anchor_is_the_sum_of_two_dpos():
    policy = policy_of()
    loss = mdpo(policy, reference_of(), MdpoConfig(beta=BETA, anchor=False))
    assert loss.value.item() == exactly(surprise(0.45) + surprise(0.6))
    text, image = (BETA * sigmoid(-margin) for margin in (0.45, 0.6))
    assert gradient(loss, policy)[0] == exactly([-text - image, image, text])


def test_mdpo_has_three_terms():
    policy = policy_of()
    loss = mdpo(policy, reference_of(), MdpoConfig(beta=BETA))
    assert loss.value.item() == exactly(surprise(0.45) + surprise(0.6) + surprise(0.3))
    text, image, anchor = (BETA * sigmoid(-margin) for margin in (0.45, 0.6, 0.3))
    assert gradient(loss, policy)[0] == exactly([-text - image - anchor, image, text])
    assert numbers(loss.metrics) == pytest.approx(LOGGED | LOGGED_OF_IMAGES)


def test_equations_10_to_13_of_adavip():
    policy = policy_of()
    loss = adavip(policy, reference_of(), AdavipConfig(beta=BETA))
    rest = exp(TEXT - CHOSEN) + exp(IMAGE - CHOSEN)
    assert loss.value.item() == exactly(surprise(-log(rest)))
    # Eq. 10: the chance of the preferred sample among the three
    chance = exp(CHOSEN) / (exp(CHOSEN) + exp(TEXT) + exp(IMAGE))
    assert loss.value.item() == exactly(-log(chance))
    increase = BETA * sigmoid(log(rest))
    text, image = sigmoid(TEXT - IMAGE), sigmoid(IMAGE - TEXT)
    assert gradient(loss, policy)[0] == exactly([-increase, increase * image, increase * text])
    weights = {"weight/text": text, "weight/image": image}
    assert numbers(loss.metrics) == pytest.approx(LOGGED | LOGGED_OF_IMAGES | weights)


ADPO = AdpoConfig(beta=BETA)
SAMPLED, SAMPLED_REFERENCE = [-2.0, None, -5.0, -1.0], [-3.0, None, -4.5, -2.5]
# Margins: 0.3 (1 + 0.5) and 0.3 (1 - 1.5).
MARGINS = 0.45, -0.15


SYMMETRIC = SymmpoConfig(beta=BETA, symmetric_weight=0.7, consistency_weight=0.02)


def test_symmpo_has_the_terms_of_both_orders():
    """Columns: chosen y, y of the other order, rejected, the other order's s, s of that order."""
    policy = score([-2.0, -7.0, -5.0, -4.0, -1.0], grad=True)
    reference = score([-3.0, -6.0, -4.5, -4.0, -3.0])
    loss = symmpo(policy, reference, SYMMETRIC)
    own, other = 0.3 - 0.0, 0.6 - -0.3
    symmetric = 0.7 * (surprise(own) + surprise(other)) + 0.02 * ((own - other) / BETA) ** 2
    anchors = surprise(0.3) + surprise(0.6)
    assert loss.value.item() == exactly(surprise(0.45) + symmetric + anchors)
    without = SYMMETRIC.model_copy(update={"anchor": False})
    assert symmpo(policy, reference, without).value.item() == exactly(surprise(0.45) + symmetric)
    assert loss.metrics["margin/exchanged"].item() == exactly(0.9)
    assert loss.metrics["margin"].item() == exactly((0.45 + 0.3) / 2)


def test_symmpo_without_a_text_of_the_other_order_is_dpo():
    policy = score([-2.0, None, -5.0], grad=True)
    loss = symmpo(policy, score([-3.0, None, -4.5]), SYMMETRIC)
    assert loss.value.item() == exactly(surprise(0.45))
    assert numbers(loss.metrics) == pytest.approx(LOGGED)


def test_symmpos_gradient_by_enumeration_of_all_texts():
    """A model of two orders and five texts: of each answer, c times (is it) - (its probability)."""
    texts = 5
    logits = torch.randn(2, texts, dtype=F64, generator=torch.Generator().manual_seed(0))
    logits.requires_grad_()
    prior = torch.randn(2, texts, dtype=F64, generator=torch.Generator().manual_seed(1))
    y, rejected, s = 0, 1, 2
    answers = [(0, y), (1, y), (0, rejected), (0, s), (1, s)]  # by column: order and text
    policy = [logits.log_softmax(1)[cell] for cell in answers]
    reference = [prior.log_softmax(1)[cell] for cell in answers]
    tokens = torch.ones(1, len(answers), dtype=torch.long)
    loss = symmpo(
        Scored(logps=torch.stack(policy)[None], tokens=tokens),
        Scored(logps=torch.stack(reference)[None], tokens=tokens),
        SYMMETRIC,
    )
    (slope,) = torch.autograd.grad(loss.value, logits)
    rewards = [BETA * (a - b).item() for a, b in zip(policy, reference, strict=True)]
    chosen, other_order, false, swapped, exchanged = rewards
    own, other = chosen - swapped, exchanged - other_order
    gap = 2 * 0.02 * (own - other) / BETA**2  # per unit of reward
    to_own, to_other = 0.7 * -sigmoid(-own) + gap, 0.7 * -sigmoid(-other) - gap
    to_false = -sigmoid(-(chosen - false))
    per_answer = [
        to_own + to_false - sigmoid(-chosen), -to_other, -to_false, -to_own,
        to_other - sigmoid(-exchanged),
    ]  # fmt: skip
    expected = [[0.0] * texts for _ in range(2)]
    for (order, text), share in zip(answers, per_answer, strict=True):
        chances = logits[order].softmax(0).tolist()
        for other_text in range(texts):
            is_it = other_text == text
            expected[order][other_text] += BETA * share * (is_it - chances[other_text])
    assert slope.tolist() == [exactly(row) for row in expected]


def test_between_images_a_partition_function_stays():
    """Of the best policy, pi = ref exp(r / beta) / Z, by enumeration of all texts.

    Margins of texts under the same images are those of the true rewards, those of images are not.
    """
    rewards = torch.tensor([[1.0, -0.5, 0.2], [-0.3, 0.4, 0.9]], dtype=F64)
    prior = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]], dtype=F64)
    weights = prior * (rewards / BETA).exp()
    best = (weights / weights.sum(1, keepdim=True)).log()
    answers = [(0, 0), (1, 0), (0, 1), (0, 2), (1, 2)]
    policy = score([best[cell].item() for cell in answers])
    reference = score([prior.log()[cell].item() for cell in answers])
    metrics = numbers(symmpo(policy, reference, SYMMETRIC).metrics)
    assert metrics["margin/exchanged"] == exactly(0.9 - -0.3)
    assert metrics["margin"] == exactly((1.5 + 0.8) / 2)
    partition = BETA * (weights.sum(1)[0] / weights.sum(1)[1]).log().item()
    assert metrics["margin/image"] == exactly(1.0 - -0.3 - partition)
    assert abs(partition) > 0.1


def test_equation_5_over_the_sampled_negatives():
    policy = score(SAMPLED, grad=True)
    loss = adpo(policy, score(SAMPLED_REFERENCE), ADPO)
    assert loss.value.item() == exactly((surprise(MARGINS[0]) + surprise(MARGINS[1])) / 2)
    first, second = (BETA * sigmoid(-margin) / 2 for margin in MARGINS)
    assert gradient(loss, policy)[0] == exactly([-first - second, 0, first, second])
    logged = {"reward/rejected": (-0.15 + 0.45) / 2, "margin": 0.15, "accuracy": 0}
    assert numbers(loss.metrics) == pytest.approx(LOGGED | logged | {"logp/rejected": -3})


def test_examples_weigh_the_same_however_many_negatives_they_have():
    policy = score(SAMPLED, [-2.0, None, -5.0, None], [-2.0, -9.0, None, None], grad=True)
    reference = score(SAMPLED_REFERENCE, [-3.0, None, -4.5, None], [-3.0, -2.0, None, None])
    loss = adpo(policy, reference, ADPO)
    two, single = (surprise(MARGINS[0]) + surprise(MARGINS[1])) / 2, surprise(MARGINS[0])
    assert loss.value.item() == exactly((two + single) / 2)
    # A rejected image alone is nothing to ADPO.
    assert gradient(loss, policy)[2] == [0, 0, 0, 0]
    assert not any(name.endswith("/image") for name in loss.metrics)


def test_the_retrievers_reward_is_the_policys_loss():
    policy = score(SAMPLED, [-2.0, None, -5.0, None], [None, None, -1.0, -1.0], grad=True)
    reference = score(SAMPLED_REFERENCE, [-3.0, None, -4.5, None], [None, None, -1.0, -1.0])
    rewards = negative_rewards(policy, reference, ADPO)
    assert not rewards.requires_grad
    first, second = surprise(MARGINS[0]), surprise(MARGINS[1])
    expected = torch.tensor([[first, second], [first, nan], [nan, nan]], dtype=F64)
    torch.testing.assert_close(rewards, expected, rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("samples", [1, 2, 3])
@pytest.mark.parametrize("baseline", [0.0, 0.7])
def test_on_average_the_retriever_ascends_the_expected_reward(samples, baseline):
    """Over all draws of so many of four candidates, each as often as the retriever makes it."""
    logits = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=F64, requires_grad=True)
    rewards = torch.tensor([0.2, 1.5, 0.9, 3.0], dtype=F64)
    log_q = logits.log_softmax(0)
    mean = torch.zeros_like(logits)
    for draw in product(range(4), repeat=samples):
        chosen = list(draw)
        loss = retriever_loss(log_q[None, chosen], rewards[None, chosen], baseline)
        (slope,) = torch.autograd.grad(loss, logits, retain_graph=True)
        mean += log_q[chosen].sum().exp().detach() * slope
    (exact,) = torch.autograd.grad(-(log_q.exp() * rewards).sum(), logits)
    torch.testing.assert_close(mean, exact, rtol=0, atol=1e-14)


def test_what_was_not_drawn_is_left_out():
    drawn = [[-1.0, -9.0], [-2.0, -3.0], [-inf, nan]]
    log_q = torch.tensor(drawn, dtype=F64, requires_grad=True)
    rewards = torch.tensor([[3.0, nan], [1.0, 4.0], [nan, nan]], dtype=F64)
    loss = retriever_loss(log_q, rewards, 2.0)
    alone, pair = (3 - 2) * 1, ((1 - 4) * 2 + (4 - 1) * 3) / 2
    assert loss.item() == pytest.approx((alone + pair) / 2)
    (slope,) = torch.autograd.grad(loss, log_q)
    assert slope.tolist() == [[-0.5, 0.0], [0.75, -0.75], [0.0, 0.0]]
