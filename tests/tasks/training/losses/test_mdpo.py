"""mDPO: two DPO losses and the anchor, added."""

import pytest
import torch

from pairwright.schemas.training import MdpoConfig
from pairwright.tasks.training.losses.objectives import mdpo
from tests.fixtures.scores import gradient, numbers, score, sigmoid, surprise

POLICY = [-2.0, -7.0, -5.0]
REFERENCE = [-3.0, -6.0, -4.5]
# Rewards at beta 0.3: chosen 0.3, image -0.3, text -0.15.


def test_three_terms():
    policy = score(POLICY, grad=True)
    loss = mdpo(policy, score(REFERENCE), MdpoConfig(beta=0.3, delta=0.1))
    assert loss.value.item() == pytest.approx(surprise(0.45) + surprise(0.6) + surprise(0.3 - 0.1), abs=1e-12)
    text, image, anchor = 0.3 * sigmoid(-0.45), 0.3 * sigmoid(-0.6), 0.3 * sigmoid(-0.2)
    assert gradient(loss, policy)[0] == pytest.approx([-text - image - anchor, image, text], abs=1e-12)
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
        }
    )


def test_as_the_authors_have_it():
    # Their trainer: three logsigmoids of beta times log-ratios, with an anchor of 0.
    generator = torch.Generator().manual_seed(0)
    policy, reference = (torch.randn(4, 3, dtype=torch.float64, generator=generator) * 5 for _ in range(2))
    ratios = policy - reference
    terms = [ratios[:, 0] - ratios[:, 2], ratios[:, 0] - ratios[:, 1], ratios[:, 0]]
    wanted = -sum(torch.log(torch.sigmoid(0.1 * term)) for term in terms)
    loss = mdpo(score(*policy.tolist()), score(*reference.tolist()), MdpoConfig())
    torch.testing.assert_close(loss.value, wanted.mean())
