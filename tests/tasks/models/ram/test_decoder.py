"""The decoder against a plain NumPy one, and against numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch

from pairwright.tasks.models.ram.decoder import count_layers, tag_logits, weigh_descriptions
from tests.fixtures.ram_checkpoints import DESCRIPTIONS, TAGS, VISION, WIDTH, Weights, decode, make_weights, weigh


def tensors_of(weights: Weights) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value) for name, value in weights.items() if not name.startswith("visual_encoder.")}


@pytest.mark.parametrize("plus", [False, True], ids=["RAM", "RAM++"])
def test_probabilities_are_those_of_the_formulas(plus: bool) -> None:
    weights = make_weights(plus=plus, seed=2)
    patches = np.random.default_rng(5).normal(0, 1, (3, 16, VISION))
    images = np.concatenate([patches.mean(axis=1, keepdims=True), patches], axis=1)
    found = tag_logits(tensors_of(weights), torch.tensor(images), len(TAGS)).sigmoid().numpy()
    wanted = np.array([decode(weights, image) for image in patches])
    assert found.shape == (3, len(TAGS))
    assert wanted.std(axis=0).min() > 0.001  # images differ, so that mixing them up would show
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


def test_a_layer_by_hand() -> None:
    """Four heads of one number each, one tag that asks (1, 0, 0, 0), two image vectors (1, 0, 0, 0) and (3, 0, 0, 0).

    With weights of one and without biases the first head weighs the values 1 and 3 by exp(1 * 1) and exp(1 * 3): it
    finds (e + 3 e**3) / (e + e**3) = 2.761594. The other heads find 0. What follows is a residual, two normalisations,
    and an inner layer that is turned off.
    """
    one, none = torch.eye(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    layer = "tagging_head.encoder.layer.0."
    names = [f"crossattention.self.{part}" for part in ("query", "key", "value")] + ["crossattention.output.dense"]
    weights = {f"{layer}{name}.weight": one for name in names} | {f"{layer}{name}.bias": none for name in names}
    for name in ("intermediate.dense", "output.dense"):
        weights |= {f"{layer}{name}.weight": torch.zeros(4, 4, dtype=torch.float64), f"{layer}{name}.bias": none}
    for name in ("crossattention.output.LayerNorm", "output.LayerNorm"):
        weights |= {f"{layer}{name}.weight": torch.ones(4, dtype=torch.float64), f"{layer}{name}.bias": none}
    for name in ("image_proj", "wordvec_proj"):
        weights |= {f"{name}.weight": one, f"{name}.bias": none}
    weights["label_embed"] = torch.tensor([[1.0, -5.0, 0.0, 0.0]], dtype=torch.float64)  # -5: cut by the ReLU
    weights |= {"fc.weight": torch.tensor([[2.0, 0, 0, 0]], dtype=torch.float64), "fc.bias": none[:1] + 0.5}
    image = torch.zeros(1, 2, 4, dtype=torch.float64)
    image[0, :, 0] = torch.tensor([1.0, 3.0])

    found = (math.e + 3 * math.e**3) / (math.e + math.e**3)
    assert found == pytest.approx(2.761594, abs=1e-6)
    # (1 + found, 0, 0, 0) normalised: mean a/4, variance 3a²/16, so that the first is (3/4) / (sqrt(3)/4) = sqrt(3)
    assert tag_logits(weights, image, 1).item() == pytest.approx(2 * math.sqrt(3) + 0.5, abs=1e-9)
    assert count_layers(weights) == 1


def test_attention_looks_at_the_image() -> None:
    weights = tensors_of(make_weights(plus=False, seed=2))
    images = torch.randn(2, 17, VISION, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits = tag_logits(weights, images, len(TAGS))
    assert (logits[0] - logits[1]).abs().max() > 0.1
    turned = images[:, torch.randperm(17, generator=torch.Generator().manual_seed(1))]
    torch.testing.assert_close(tag_logits(weights, turned, len(TAGS)), logits)  # RAM attends to a set of vectors


def test_descriptions_are_weighed_by_their_fit() -> None:
    weights = make_weights(plus=True, seed=2)
    images = np.random.default_rng(7).normal(0, 2, (3, WIDTH))
    found = weigh_descriptions(tensors_of(weights), torch.tensor(images), len(TAGS)).numpy()
    wanted = np.array([[weigh(weights, image, tag) for tag in range(len(TAGS))] for image in images])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


def test_the_length_of_an_image_vector_does_not_weigh() -> None:
    weights = tensors_of(make_weights(plus=True, seed=2))
    image = torch.randn(1, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one, ten = (weigh_descriptions(weights, image * size, len(TAGS)) for size in (1, 10))
    torch.testing.assert_close(one, ten)


def test_without_a_scale_descriptions_count_alike() -> None:
    weights = tensors_of(make_weights(plus=True, seed=2)) | {"reweight_scale": torch.tensor(-40.0)}
    found = weigh_descriptions(weights, torch.randn(2, WIDTH, dtype=torch.float64), len(TAGS))
    mean = weights["label_embed"].view(len(TAGS), DESCRIPTIONS, WIDTH).mean(dim=1)
    torch.testing.assert_close(found, mean.expand(2, -1, -1))
