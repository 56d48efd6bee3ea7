"""DPO and its kin, against values written out by hand."""

import math

import pytest
import torch
from pydantic import ValidationError

from pairwright.schemas.training import DpoConfig
from pairwright.tasks.training.losses import dpo
from tests.fixtures.scores import gradient, numbers, score, sigmoid, surprise, zeros_like

POLICY = [-2.0, None, -5.0]
REFERENCE = [-3.0, None, -4.5]
MARGIN = 0.3 * ((-2 + 3) - (-5 + 4.5))


def test_sigmoid():
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


def test_ipo_is_the_distance_to_half_over_beta():
    policy = score(POLICY, grad=True)
    loss = dpo(policy, score(REFERENCE), DpoConfig(beta=0.3, loss_type="ipo"))
    apart = 1.5 - 1 / (2 * 0.3)
    assert loss.value.item() == pytest.approx(apart**2, abs=1e-12)
    assert gradient(loss, policy)[0] == pytest.approx([2 * apart, 0, -2 * apart], abs=1e-12)


def test_length_normalised():
    tokens = [[4, 0, 10]]
    policy, reference = score(POLICY, tokens=tokens, grad=True), score(REFERENCE, tokens=tokens)
    margin = 0.3 * (1 / 4 - (-0.5) / 10)
    loss = dpo(policy, reference, DpoConfig(beta=0.3, length_normalised=True))
    assert loss.value.item() == pytest.approx(surprise(margin), abs=1e-12)
    assert loss.metrics["margin"].item() == pytest.approx(margin)
    assert loss.metrics["logp/chosen"].item() == -2
    slope = 0.3 * sigmoid(-margin)
    assert gradient(loss, policy)[0] == pytest.approx([-slope / 4, 0, slope / 10], abs=1e-12)
    square = dpo(policy, reference, DpoConfig(beta=0.3, loss_type="ipo", length_normalised=True))
    assert square.value.item() == pytest.approx((0.3 - 1 / 0.6) ** 2, abs=1e-12)


def test_smoothed_labels_are_an_expectation():
    policy, reference = score(POLICY, grad=True), score(REFERENCE)
    loss = dpo(policy, reference, DpoConfig(beta=0.3, label_smoothing=0.2))
    assert loss.value.item() == pytest.approx(0.8 * surprise(MARGIN) + 0.2 * surprise(-MARGIN), abs=1e-12)
    slope = 0.3 * (0.8 * sigmoid(-MARGIN) - 0.2 * sigmoid(MARGIN))
    assert gradient(loss, policy)[0] == pytest.approx([-slope, 0, slope], abs=1e-12)
    square = dpo(policy, reference, DpoConfig(beta=0.3, loss_type="ipo", label_smoothing=0.2))
    aim = 1 / 0.6
    assert square.value.item() == pytest.approx(0.8 * (1.5 - aim) ** 2 + 0.2 * (-1.5 - aim) ** 2, abs=1e-12)


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


def test_in_full_the_whole_order_is_wanted():
    policy = score([1.0, None, 0.5, -0.3, 0.2], grad=True)
    loss = dpo(policy, zeros_like(policy), DpoConfig(beta=1.0, max_negatives=3, ranking="full"))
    a, b, c, d = math.exp(1.0), math.exp(0.5), math.exp(-0.3), math.exp(0.2)
    chance = a / (a + b + c + d) * b / (b + c + d) * c / (c + d)
    assert loss.value.item() == pytest.approx(-math.log(chance), abs=1e-12)
    # Of the last, the shares in all three sums.
    assert gradient(loss, policy)[0][4] == pytest.approx(d / (a + b + c + d) + d / (b + c + d) + d / (c + d), abs=1e-12)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, lambda margin: surprise(margin)),
        ({"max_negatives": 2}, lambda margin: surprise(margin)),
        ({"max_negatives": 2, "ranking": "full"}, lambda margin: surprise(margin)),
        ({"loss_type": "ipo"}, lambda margin: (margin / 0.3 - 1 / 0.6) ** 2),
        ({"label_smoothing": 0.1}, lambda margin: 0.9 * surprise(margin) + 0.1 * surprise(-margin)),
    ],
)
def test_without_a_rejected_text_the_rejected_image_stands_in(changes, wanted):
    # The first has both: its image is not looked at. The third has neither: it does not count.
    policy = score([-2.0, -1.0, -5.0], [-2.0, -6.0, None], [-2.0, None, None], grad=True)
    reference = score([-3.0, -9.0, -4.5], [-3.0, -5.0, None], [-3.0, None, None])
    loss = dpo(policy, reference, DpoConfig(beta=0.3, **changes))
    both = [wanted(MARGIN), wanted(0.3 * (1 + 1))]
    assert loss.value.item() == pytest.approx(sum(both) / 2, abs=1e-12)
    got = gradient(loss, policy)
    assert got[0][1] == got[1][2] == 0
    assert got[1][1] != 0
    assert got[2] == [0, 0, 0]
    # Each metric is of those that have it.
    assert loss.metrics["margin"].item() == pytest.approx(MARGIN)
    assert loss.metrics["logp/chosen"].item() == -2


def test_several_negatives_go_with_the_plain_form_only():
    with pytest.raises(ValidationError, match="max_negatives"):
        DpoConfig(max_negatives=2, loss_type="ipo")


@pytest.mark.parametrize(
    "config",
    [
        DpoConfig(),
        DpoConfig(loss_type="ipo", length_normalised=True, label_smoothing=0.1),
        DpoConfig(length_normalised=True, label_smoothing=0.1),
        DpoConfig(max_negatives=3),
        DpoConfig(max_negatives=3, ranking="full", length_normalised=True),
    ],
)
def test_the_gradient_is_that_of_the_value(config):
    tokens = [[3, 2, 4, 1, 6], [2, 5, 0, 0, 0], [2, 0, 3, 0, 1]]
    rows = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3
    reference = score(*torch.zeros(3, 5).tolist(), tokens=tokens)

    def value(logps):
        policy = score(*rows.tolist(), tokens=tokens)
        return dpo(type(policy)(logps=logps, tokens=policy.tokens), reference, config).value

    assert torch.autograd.gradcheck(value, rows.requires_grad_())
