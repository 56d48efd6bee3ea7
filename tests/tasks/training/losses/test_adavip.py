"""AdaViP's loss is Eq. 11 of the paper, its gradient Eq. 12, the weights logged Eq. 13."""

import math

import pytest

from pairwright.schemas.training import AdavipConfig, DpoConfig
from pairwright.tasks.training.losses.objectives import adavip, dpo
from tests.fixtures.scores import gradient, numbers, score, sigmoid, surprise

POLICY = [-2.0, -7.0, -5.0]
REFERENCE = [-3.0, -6.0, -4.5]
# Rewards at beta 0.3: r++ 0.3, r-+ (image) -0.3, r+- (text) -0.15.


def test_equation_11():
    policy = score(POLICY)
    loss = adavip(policy, score(REFERENCE), AdavipConfig(beta=0.3))
    rest = math.exp(-0.15 - 0.3) + math.exp(-0.3 - 0.3)
    assert loss.value.item() == pytest.approx(surprise(-math.log(rest)), abs=1e-12)
    # Eq. 10: the chance of the preferred sample among the three
    chance = math.exp(0.3) / (math.exp(0.3) + math.exp(-0.15) + math.exp(-0.3))
    assert loss.value.item() == pytest.approx(-math.log(chance), abs=1e-12)


def test_equations_12_and_13():
    policy = score(POLICY, grad=True)
    loss = adavip(policy, score(REFERENCE), AdavipConfig(beta=0.3))
    rest = math.exp(-0.15 - 0.3) + math.exp(-0.3 - 0.3)
    increase = 0.3 * sigmoid(math.log(rest))
    text, image = sigmoid(-0.15 + 0.3), sigmoid(-0.3 + 0.15)
    assert gradient(loss, policy)[0] == pytest.approx([-increase, increase * image, increase * text], abs=1e-12)
    assert numbers(loss.metrics) == pytest.approx(
        {
            "reward/chosen": 0.3,
            "reward/rejected": -0.15,
            "reward/image": -0.3,
            "margin": 0.45,
            "margin/image": 0.6,
            "accuracy": 1,
            "accuracy/image": 1,
            "logp/chosen": -2,
            "logp/rejected": -5,
            "weight/text": text,
            "weight/image": image,
        }
    )


def test_a_row_with_one_side_has_plain_dpo_on_it():
    rows = [[-2.0, None, -5.0], [-2.0, -7.0, None], [-2.0, None, None]]
    references = [[-3.0, None, -4.5], [-3.0, -6.0, None], [-3.0, None, None]]
    policy = score(*rows, grad=True)
    loss = adavip(policy, score(*references), AdavipConfig(beta=0.3))
    assert loss.per_example.tolist() == pytest.approx([surprise(0.45), surprise(0.6), 0], abs=1e-12)
    # The same as DPO makes of the batch, which has no row with both sides.
    assert loss.value.item() == dpo(policy, score(*references), DpoConfig(beta=0.3)).value.item()
    assert gradient(loss, policy)[2] == [0, 0, 0]
    assert not any(name.startswith("weight/") for name in loss.metrics)
