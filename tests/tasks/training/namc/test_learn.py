"""A batch that goes through the model in parts gives the gradients of the whole, alignment over all rows included."""

from dataclasses import replace

import pytest
import torch

from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.namc import Described, Namc, NamcSizes, NoiseIdentifier
from pairwright.tasks.models.namc_words import learnt_words
from pairwright.tasks.training.namc.captioner import Captioner
from pairwright.tasks.training.namc.learn import Learner
from tests.fixtures.checkpoints import READING_CLIP, make_clip

ROWS, SIDE, PLACES, FEATURES, LENGTH, TOKENS = 7, 64, 16, 12, 77, 11
SAME = torch.tensor([[0, 1], [2, 3], [4, 5], [0, 6], [7, 8], [9, 1], [10, 5]])
"""Rows 0 and 3 begin with the same text, as do the ends of 0 and 5, of 2 and 6; they are never in one part of three."""


@pytest.fixture
def captioner() -> Captioner:
    words = learnt_words(["a red ball and a dog"] * 9, size=60)
    torch.manual_seed(3)
    sizes = NamcSizes(width=16, heads=2, places=PLACES, features=FEATURES, codes=5, vocabulary=words.size, dropout=0.0)
    return Captioner(Namc(sizes, NoiseIdentifier(make_clip(READING_CLIP), width=16)), words)


def batch(size: int) -> Described:
    """Return rows whose texts have between two and six words, and whose descriptions have as many."""
    draw = torch.Generator().manual_seed(5)
    counts = torch.randint(2, 7, (ROWS, 2, 1), generator=draw)
    place = torch.arange(LENGTH)
    real = (place > 0) & (place <= counts)
    tokens = torch.randint(1, 49_000, (ROWS, 2, LENGTH), generator=draw)
    end = place == counts + 1
    tokens = torch.where(end, 49_407, torch.where(place == 0, 49_406, torch.where(real, tokens, 0)))
    written = torch.randint(5, size, (ROWS, TOKENS), generator=draw)
    numbers = torch.where(torch.arange(TOKENS) % 3 == 1, 1, -1).expand(ROWS, -1)
    return Described(
        pixels=torch.randn(ROWS, 2, 3, SIDE, SIDE, generator=draw),
        features=torch.randn(ROWS, 2, PLACES, FEATURES, generator=draw),
        codes=torch.randint(0, 5, (ROWS, 2, PLACES), generator=draw),
        tokens=tokens,
        words=torch.where(real, place - 1, -1),
        written=written,
        numbers=numbers,
    )


def learn(captioner: Captioner, size: int, **settings: object) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    namc = {"image_mask_ratio": 0.5, "text_mask_ratio": 0.5, **settings}
    optimiser = {"per_device_train_batch_size": size, "precision": "fp32"}
    config = TrainConfig.model_validate({"objective": "namc", "namc": namc, "optimiser": optimiser})
    captioner.model.zero_grad()
    learner = Learner(captioner, config, steps=1)
    losses, shares = learner.backward(batch(captioner.words.size), SAME, list(range(2 * ROWS)))
    weights = captioner.model.named_parameters()
    return losses | shares, {name: weight.grad.clone() for name, weight in weights if weight.grad is not None}


@pytest.mark.parametrize("settings", [{}, {"reconstruction_enabled": False, "learn_masked": True}])
def test_parts_give_the_gradients_of_the_whole(captioner: Captioner, settings: dict[str, object]) -> None:
    whole, slopes = learn(captioner, ROWS, **settings)
    parts, others = learn(captioner, 3, **settings)
    assert parts == pytest.approx(whole, rel=1e-5)
    assert 0 < whole["masked/places"] < 1
    assert others.keys() == slopes.keys()
    least = 1e-3 * max(slope.norm().item() for slope in slopes.values())
    for name, slope in slopes.items():
        assert differs(others[name], slope, least) < 1e-4, name


def test_parts_without_masks(captioner: Captioner) -> None:
    clean = replace(captioner, model=captioner.model)
    clean.model.noise = None
    whole, slopes = learn(clean, ROWS)
    parts, others = learn(clean, 2)
    assert list(whole) == ["description"]
    assert parts == pytest.approx(whole, rel=1e-5)
    least = 1e-3 * max(slope.norm().item() for slope in slopes.values())
    for name, slope in slopes.items():
        assert differs(others[name], slope, least) < 1e-4, name


def differs(found: torch.Tensor, wanted: torch.Tensor, least: float) -> float:
    """Return how long the difference is beside what is wanted, or beside ``least``: some slopes are 0 but for noise."""
    return (found - wanted).norm().item() / max(wanted.norm().item(), least)
