import pytest
import torch

from pairwright.tasks.models.differential.perception import (
    DifferentialPerception,
    DifferentialSizes,
    Scale,
    spread_layers,
)

SIZES = DifferentialSizes(width=8, heads=2, layers=(1, 2))


def features(seed: int) -> torch.Tensor:
    return torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def scale():
    torch.manual_seed(0)
    return Scale(SIZES).eval()


def test_swapped_images_negate_the_difference(scale):
    first, second, difference = scale.blocks(features(1), features(2))
    swapped = scale.blocks(features(2), features(1))
    torch.testing.assert_close(swapped[2], -difference)
    torch.testing.assert_close((swapped[0], swapped[1]), (second, first))


def test_weighing_by_hand():
    """Width 1: lambda_1 = sigmoid(2 * 3 - 1 * 5), lambda_2 = sigmoid(2 * 5 - 1 * 3)."""
    scale = Scale(DifferentialSizes(width=1, heads=1, layers=(1,)))
    with torch.no_grad():
        scale.weigh.weight.copy_(torch.tensor([[2.0, -1.0]]))
    first, second, difference = scale.blocks(torch.full((1, 1, 1), 3.0), torch.full((1, 1, 1), 5.0))
    lambdas = torch.tensor([1.0, 7.0]).sigmoid()
    torch.testing.assert_close(torch.stack([first, second]).flatten(), lambdas * torch.tensor([3.0, 5.0]))
    torch.testing.assert_close(difference, first - second)


def test_equal_images_differ_in_nothing(scale):
    assert scale.blocks(features(1), features(1))[2].abs().max() == 0


def test_each_place_sees_the_other_image(scale):
    """What is changed at one place of the second image reaches all places of the first (Eqs. 4 to 6)."""
    before = scale(features(1), features(2)).first
    other = features(2)
    other[:, 3] = features(3)[:, 3]
    changed = (scale(features(1), other).first - before).abs().amax(-1)
    assert (changed > 1e-6).all()


@pytest.mark.parametrize("settings", [{}, {"shared_weights": False}, {"weight_per": "layer"}, {"softmax": True}])
def test_untrained_it_changes_nothing_and_then_learns(settings):
    torch.manual_seed(0)
    module = DifferentialPerception(DifferentialSizes(width=8, heads=2, layers=(1, 2), **settings))
    scales = [(features(1), features(2)), (features(3), features(4))]
    first, second = module(scales)
    assert torch.equal(first, features(3))
    assert torch.equal(second, features(4))
    with torch.no_grad():
        module.out.weight.copy_(torch.eye(8))
    first, second = module(scales)
    (first.square().mean() - second.mean()).backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in module.parameters())
    assert len(module.scales) == (1 if settings.get("shared_weights", True) else 2)


def test_scores_weigh_the_scales():
    """With scores of 1/2 (sigmoid) or 1/4 each (softmax of four) and an untouched sum, the outcome is known."""
    for competing, weight in ((False, 0.5), (True, 0.25)):
        module = DifferentialPerception(DifferentialSizes(width=8, heads=2, layers=(1, 2, 3, 4), softmax=competing))
        with torch.no_grad():
            for one in module.score.parameters():
                one.zero_()
            module.out.weight.copy_(torch.eye(8))
            scales = [(features(seed), features(seed + 10)) for seed in range(4)]
            expected = features(3) + weight * sum(module.scales[0](*pair).first for pair in scales)
            torch.testing.assert_close(module(scales)[0], expected)


def test_layers_are_the_papers_where_it_names_them():
    assert spread_layers(26) == (17, 20, 23, 26)
    assert spread_layers(32) == (20, 24, 28, 32)
    assert spread_layers(2) == (1, 2)
