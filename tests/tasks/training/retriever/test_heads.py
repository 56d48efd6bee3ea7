"""The heads: what they compute, that they start alike for a seed, and that they take no random numbers from others."""

import numpy as np
import torch

from pairwright.tasks.training.retriever.heads import SPREAD, Heads, HeadsEncoder
from pairwright.tasks.training.retriever.pool import make_pool
from tests.fixtures.retrieving import IMAGE_SIZE, TEXT_SIZE, entry, random_features


def gelu(x):
    from scipy.special import erf

    return x * 0.5 * (1 + erf(x / 2**0.5))


def test_cosines_are_those_of_a_plain_computation():
    heads = Heads(IMAGE_SIZE, TEXT_SIZE, 8, seed=3)
    weights = {name: value.numpy().astype(np.float64) for name, value in heads.state_dict().items()}
    rng = np.random.default_rng(0)
    images, texts = rng.normal(size=(4, 2, IMAGE_SIZE)), rng.normal(size=(7, TEXT_SIZE))
    first, second = images[:, 0] * IMAGE_SIZE**0.5, images[:, 1] * IMAGE_SIZE**0.5
    joined = np.concatenate([first, second, second - first, first * second], axis=1)
    hidden = gelu(joined @ weights["pair.0.weight"].T + weights["pair.0.bias"])
    pairs = hidden @ weights["pair.2.weight"].T + weights["pair.2.bias"]
    words = texts * TEXT_SIZE**0.5 @ weights["text.weight"].T + weights["text.bias"]
    cosines = pairs @ words.T / np.linalg.norm(pairs, axis=1)[:, None] / np.linalg.norm(words, axis=1)
    with torch.no_grad():
        pairs, words = heads.pairs(torch.tensor(images).float()), heads.texts(torch.tensor(texts).float())
    np.testing.assert_allclose((pairs @ words.T).numpy(), 1 - SPREAD * (1 - cosines), atol=1e-6)
    np.testing.assert_allclose(pairs.norm(dim=1).numpy(), 1, atol=1e-6)
    np.testing.assert_allclose(words.norm(dim=1).numpy(), 1, atol=1e-6)


def test_new_heads_depend_on_the_seed_alone_and_disturb_no_one():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    one = Heads(4, 4, 8, seed=1)
    assert torch.equal(torch.rand(3), expected)
    two, other = Heads(4, 4, 8, seed=1), Heads(4, 4, 8, seed=2)
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, two.state_dict()[name])
        assert not torch.equal(weight, other.state_dict()[name])
        assert weight.abs().max() <= (16 if name.startswith("pair.0") else 8 if "pair" in name else 4) ** -0.5


def test_images_that_show_nothing_give_numbers():
    heads = Heads(IMAGE_SIZE, TEXT_SIZE, 8, seed=0)
    pairs, words = heads.pairs(torch.zeros(1, 2, IMAGE_SIZE)), heads.texts(torch.zeros(1, TEXT_SIZE))
    assert torch.isfinite(pairs).all()
    assert torch.isfinite(words).all()


def test_an_encoder_looks_its_rows_and_texts_up():
    rows = [entry(n) for n in range(6)]
    pool = make_pool(rows)
    features = random_features(rows, pool)
    encoder = HeadsEncoder(Heads(IMAGE_SIZE, TEXT_SIZE, 8, seed=0), features, torch.device("cpu"))
    places, ids = np.array([4, 1]), np.array([5, 0, 5])
    images = torch.tensor(features.images[0][[[8, 9], [2, 3]]].astype(np.float32))
    assert torch.equal(encoder.pairs(places), encoder.network.pairs(images))
    assert torch.equal(encoder.texts(ids), encoder.network.texts(torch.tensor(features.texts[ids].astype(np.float32))))
    assert encoder.about == {
        "encoder": "heads", "image_size": "6", "text_size": "5", "width": "8", "vectors": "random",
    }  # fmt: skip
