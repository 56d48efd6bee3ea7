import math

import pytest
import torch

from pairwright.tasks.training.losses.namc import IGNORED, align, describe, reconstruct


def test_alignment_of_what_is_all_alike():
    """64 equal images: p is uniform, so log(1/64) - (log(1 + e) + 63 log(e)) / 64 = 13.97 each way."""
    images, texts = torch.ones(64, 4), torch.ones(64, 4)
    each = -math.log(64) - (math.log1p(1e-8) + 63 * math.log(1e-8)) / 64
    assert float(align(images, texts, torch.arange(64))) == pytest.approx(2 * each, rel=1e-5)
    assert each == pytest.approx(13.97, abs=0.01)


def test_alignment_of_what_fits():
    images = torch.eye(3)
    found = align(5 * images, 2 * images, torch.arange(3))
    assert float(found) == pytest.approx(0, abs=1e-6)  # cosines 1 and 0 at 0.02: p is one-hot
    assert float(align(images, images.roll(1, 0), torch.arange(3))) == pytest.approx(2 * math.log(1e8), rel=1e-4)


def test_alike_texts_are_no_false_negatives():
    """Rows 0 and 1 have the same text and the same vectors: p is 1/2 for both, and so is q."""
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert float(align(vectors, vectors, torch.tensor([7, 7, 9]))) == pytest.approx(0, abs=1e-6)
    assert float(align(vectors, vectors, torch.tensor([7, 8, 9]))) > 1


def test_alignment_is_not_rounded():
    """Within autocast the loss is that of without it, for vectors in bfloat16 too."""
    draw = torch.Generator().manual_seed(0)
    images, texts = (torch.randn(16, 32, generator=draw).bfloat16() for _ in range(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = align(images, texts, torch.arange(16))
    assert found.dtype == torch.float32
    assert torch.equal(found, align(images, texts, torch.arange(16)))


def test_reconstruction_counts_masked_places_only():
    logits = torch.zeros(1, 3, 4, requires_grad=True)
    codes, masked = torch.tensor([[1, 2, 3]]), torch.tensor([[True, False, True]])
    loss = reconstruct(logits, codes, masked)
    assert loss.item() == pytest.approx(math.log(4))
    (slope,) = torch.autograd.grad(loss, logits)
    assert slope[0, 1].abs().sum() == 0
    assert slope[0, 0, 1].item() == pytest.approx((0.25 - 1) / 2)  # of two places
    assert reconstruct(logits, codes, torch.zeros_like(masked)).item() == 0


def test_description_ignores_what_is_not_to_be_learnt():
    logits = torch.zeros(1, 3, 4)
    logits[0, 1, 2] = 1.0
    labels = torch.tensor([[0, 2, IGNORED]])
    expected = (math.log(4) + math.log(3 + math.e) - 1) / 2
    assert float(describe(logits, labels)) == pytest.approx(expected)
    assert float(describe(logits, torch.full((1, 3), IGNORED))) == 0
