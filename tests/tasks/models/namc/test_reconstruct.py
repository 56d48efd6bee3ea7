import pytest
import torch

from pairwright.tasks.models.namc.reconstruct import MaskedImageEncoder
from pairwright.tasks.models.namc.sizes import NamcSizes

SIZES = NamcSizes(width=16, heads=2, places=4, features=6, codes=5, vocabulary=11, length=9, dropout=0.0)


@pytest.fixture(scope="module")
def encoder():
    torch.manual_seed(0)
    return MaskedImageEncoder(SIZES).eval()


def features(seed: int) -> torch.Tensor:
    return torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(seed))


MASKED = torch.tensor([[True, False, False, False], [False, False, False, True]])
READ = torch.tensor([[True, True, False], [True, False, False]])


def test_what_a_masked_place_held_is_not_seen(encoder):
    text = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(9))
    other = torch.where(MASKED[..., None], features(1) + 3, features(1))
    found = encoder.reconstruct(features(1), MASKED, text, READ)
    assert found.shape == (2, 4, 5)
    torch.testing.assert_close(encoder.reconstruct(other, MASKED, text, READ), found)
    padded = torch.where(READ[..., None], text, text + 7)
    torch.testing.assert_close(encoder.reconstruct(features(1), MASKED, padded, READ), found)
    assert not torch.allclose(encoder.reconstruct(features(1), MASKED, text + 1, READ), found)


def test_masked_places_are_looked_at_in_reconstruction_only(encoder):
    """The learned vector and its place reach other places when an image is reconstructed, not in the comparison."""
    text = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(9))
    before = encoder.reconstruct(features(1), MASKED, text, READ)
    compared = encoder.interact((features(1), features(2)), (MASKED, None))
    kept = encoder.masked_place.detach().clone()
    with torch.no_grad():
        encoder.masked_place.add_(3)
        again = encoder.reconstruct(features(1), MASKED, text, READ)
        compared_again = encoder.interact((features(1), features(2)), (MASKED, None))
        encoder.masked_place.copy_(kept)
    assert not torch.allclose(before[~MASKED], again[~MASKED])
    torch.testing.assert_close(compared[~MASKED], compared_again[~MASKED])


def test_a_comparison_knows_which_image_comes_first(encoder):
    """The streams change places with the images: the halves that are joined are swapped."""
    one, other = features(1), features(2)
    forward, backward = encoder.interact((one, other), (None, None)), encoder.interact((other, one), (None, None))
    assert not torch.allclose(forward, backward)
    weight = encoder.join.weight.detach().clone()
    with torch.no_grad():
        encoder.join.weight.copy_(weight.roll(16, dims=1))
        torch.testing.assert_close(encoder.interact((other, one), (None, None)), forward)
        encoder.join.weight.copy_(weight)


def test_no_mask_is_an_empty_mask(encoder):
    empty = torch.zeros_like(MASKED)
    torch.testing.assert_close(
        encoder.interact((features(1), features(2)), (empty, empty)),
        encoder.interact((features(1), features(2)), (None, None)),
    )


def test_an_image_that_is_all_masked_gives_numbers(encoder):
    every = torch.ones_like(MASKED)
    assert encoder.interact((features(1), features(2)), (every, every)).isfinite().all()
