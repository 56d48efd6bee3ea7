"""AdaViP's loss is Eq. 11 of the paper, its gradient Eq. 12, the weights logged Eq. 13."""

import math

import pytest

from pairwright.schemas.training import AdavipConfig
from pairwright.tasks.training.losses.objectives import adavip
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
