"""The mean of -log p: over tokens, or over examples."""

import pytest

from pairwright.schemas.training import SftConfig
from pairwright.tasks.training.losses import sft
from tests.fixtures.scores import gradient, numbers, score

TOKENS = [[4], [1], [0]]
EXAMPLES = [-6.0], [-3.0], [None]


def test_over_tokens():
    policy = score(*EXAMPLES, tokens=TOKENS, grad=True)
    loss = sft(policy, None, SftConfig())
    assert loss.value.item() == pytest.approx((6 + 3) / 5)
    assert numbers(loss.metrics) == pytest.approx({"nll": 9 / 5, "logp/chosen": -4.5})
    assert gradient(loss, policy) == [[-1 / 5], [-1 / 5], [0]]


def test_over_examples():
    policy = score(*EXAMPLES, tokens=TOKENS, grad=True)
    loss = sft(policy, None, SftConfig(average_over="examples"))
    assert loss.value.item() == pytest.approx((6 / 4 + 3 / 1) / 2)
    assert numbers(loss.metrics) == pytest.approx({"nll": 9 / 5, "logp/chosen": -4.5})
    assert gradient(loss, policy) == [[-1 / 8], [-1 / 2], [0]]


def test_rejected_answers_and_a_reference_change_nothing():
    policy = score([-6.0, -1.0, -2.0], grad=True)
    loss = sft(policy, score([-1.0, -1.0, -1.0]), SftConfig())
    assert loss.value.item() == 6
    assert gradient(loss, policy) == [[-1, 0, 0]]


def test_what_is_absent_does_not_count_whatever_a_model_gave_it():
    policy = score([-6.0], [-9.0], tokens=[[4], [0]], grad=True)
    loss = sft(policy, None, SftConfig())
    assert loss.value.item() == 1.5
    assert gradient(loss, policy) == [[-0.25], [0]]
