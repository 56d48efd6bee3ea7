"""mDPO, two DPO losses and the anchor, and AdaViP, Eqs. 11 to 13 of the paper: a rejected text and rejected images."""

import math

import pytest
import torch

from pairwright.schemas.training import AdavipConfig, MdpoConfig
from pairwright.tasks.training.losses import adavip, mdpo
from tests.fixtures.scores import gradient, numbers, score, sigmoid, surprise

POLICY = [-2.0, -7.0, -5.0]
REFERENCE = [-3.0, -6.0, -4.5]
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
    policy = score(POLICY, grad=True)
    loss = mdpo(policy, score(REFERENCE), MdpoConfig(beta=0.3, delta=0.1))
    assert loss.value.item() == pytest.approx(surprise(0.45) + surprise(0.6) + surprise(0.3 - 0.1), abs=1e-12)
    text, image, anchor = 0.3 * sigmoid(-0.45), 0.3 * sigmoid(-0.6), 0.3 * sigmoid(-0.2)
    assert gradient(loss, policy)[0] == pytest.approx([-text - image - anchor, image, text], abs=1e-12)
    assert numbers(loss.metrics) == pytest.approx(LOGGED)


def test_mdpo_as_the_authors_have_it():
    # Their trainer: three logsigmoids of beta times log-ratios, with an anchor of 0.
    generator = torch.Generator().manual_seed(0)
    policy, reference = (torch.randn(4, 3, dtype=torch.float64, generator=generator) * 5 for _ in range(2))
    ratios = policy - reference
    terms = [ratios[:, 0] - ratios[:, 2], ratios[:, 0] - ratios[:, 1], ratios[:, 0]]
    wanted = -sum(torch.log(torch.sigmoid(0.1 * term)) for term in terms)
    loss = mdpo(score(*policy.tolist()), score(*reference.tolist()), MdpoConfig())
    torch.testing.assert_close(loss.value, wanted.mean())


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
    assert numbers(loss.metrics) == pytest.approx(LOGGED | {"weight/text": text, "weight/image": image})
