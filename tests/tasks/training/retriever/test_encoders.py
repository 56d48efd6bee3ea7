"""The heads: what they compute, that they start alike for a seed, and that they take no random
numbers from others."""

import numpy as np
import pytest
import torch

from pairwright.schemas.encoder_config import ClipConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.training import AdpoConfig
from pairwright.tasks.training.retriever.candidate_pool import NONE, make_pool
from pairwright.tasks.training.retriever.encoders import SPREAD, Clip4Idc, Clip4IdcEncoder, Heads
from pairwright.tasks.training.retriever.retriever import Retriever
from tests.fixtures.checkpoints import (
    CLIP_ARCHITECTURE,
    IMAGE_SIDE,
    READING_CLIP,
    make_clip,
    write_clip_folder,
)
from tests.fixtures.retrieving import IMAGE_SIZE, TEXT_SIZE, entry


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
    phrases = texts * TEXT_SIZE**0.5 @ weights["text.weight"].T + weights["text.bias"]
    lengths = np.linalg.norm(pairs, axis=1)[:, None] * np.linalg.norm(phrases, axis=1)
    cosines = pairs @ phrases.T / lengths
    with torch.no_grad():
        pairs = heads.encode_pairs(torch.tensor(images).float()).numpy()
        phrases = heads.texts(torch.tensor(texts).float()).numpy()
    np.testing.assert_allclose(pairs @ phrases.T, 1 - SPREAD * (1 - cosines), atol=1e-6)
    for vectors in (pairs, phrases):
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


COLOURS = ("red", "blue", "green", "orange", "grey")
ROWS = [entry(number, f"a {colour} ball") for number, colour in enumerate(COLOURS)]


def shown(position):
    rng = np.random.default_rng(position)
    return [rng.integers(0, 256, (50 + position, 90, 3), dtype=np.uint8) for _ in range(2)]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = write_clip_folder(tmp_path_factory.mktemp("clip"), architecture=READING_CLIP)
    return ClipConfig(checkpoint=str(folder))


@pytest.fixture
def encoder(config):
    return Clip4IdcEncoder(config, make_pool(ROWS).texts, shown, seed=0, device=torch.device("cpu"))


def with_tower(**vision):
    vision = {**CLIP_ARCHITECTURE["vision_cfg"], **vision}
    return {**CLIP_ARCHITECTURE, "vision_cfg": vision}


def attended(block, tokens):
    """Run one layer with its attention written out."""
    attention = block.attn
    heads, width = attention.num_heads, attention.embed_dim
    x = block.ln_1(tokens)
    query, key, value = torch.nn.functional.linear(
        x, attention.in_proj_weight, attention.in_proj_bias
    ).chunk(3, -1)

    def split(each):
        return each.view(*each.shape[:2], heads, width // heads).transpose(1, 2)

    weights = (split(query) @ split(key).transpose(-1, -2) / (width // heads) ** 0.5).softmax(-1)
    mixed = (weights @ split(value)).transpose(1, 2).reshape(tokens.shape)
    tokens = tokens + attention.out_proj(mixed)
    return tokens + block.mlp(block.ln_2(tokens))


def test_three_quarters_of_the_layers_see_one_image_and_the_rest_both():
    torch.manual_seed(0)
    clip = make_clip(with_tower(layers=4))
    network = Clip4Idc(clip, seed=0)
    assert network.alone == 3
    visual, pixels = clip.visual, torch.rand(2, 2, 3, IMAGE_SIDE, IMAGE_SIDE)
    with torch.no_grad():
        sides = []
        for side, position in ((0, network.first), (1, network.second)):
            patches = visual.conv1(pixels[:, side]).flatten(2).transpose(1, 2)
            tokens = torch.cat([visual.class_embedding.expand(2, 1, -1), patches], dim=1)
            tokens = visual.ln_pre(tokens + visual.positional_embedding)
            for block in visual.transformer.resblocks[:3]:
                tokens = attended(block, tokens)
            sides.append(tokens + position)
        both = network.middle(torch.cat(sides, dim=1) + network.joint_positions)
        both = visual.ln_post(attended(visual.transformer.resblocks[3], both))
        # 16 patches and a class token per image
        mean = (both[:, 0] @ visual.proj + both[:, 17] @ visual.proj) / 2
        expected = mean / mean.norm(dim=1, keepdim=True)
        torch.testing.assert_close(network.encode_pairs(pixels), expected, atol=1e-5, rtol=1e-4)


def test_images_and_texts_are_read_as_clip_reads_them(encoder):
    import open_clip

    tools = encoder._preprocess
    crops = np.stack([tools(shown(position)[side]) for position in (3, 1) for side in (0, -1)])
    pixels = tools.numbers(torch.from_numpy(crops)).unflatten(0, (2, 2))
    with torch.no_grad():
        assert torch.equal(
            encoder.encode_pairs(np.array([3, 1])), encoder.network.encode_pairs(pixels)
        )
        tokens = open_clip.tokenize(["a red ball", "a blue ball"])
        expected = encoder.network.clip.encode_text(tokens, normalize=True)
        ids = np.array([encoder._texts.index("a red ball"), encoder._texts.index("a blue ball")])
        torch.testing.assert_close(encoder.texts(ids), expected)


def test_the_retriever_shares_candidates_learns_and_reloads(encoder, config):
    settings = AdpoConfig(encoder="clip4idc", candidates=4, samples=2, retriever_learning_rate=1e-3)
    pool = make_pool(ROWS)
    retriever = Retriever(pool=pool, encoder=encoder, config=settings, seed=0)
    candidates = retriever._candidates(np.arange(3), 0)
    shared = set(candidates[0].tolist())
    assert NONE not in shared
    for position in range(3):
        own = pool.positives[position, 0]
        assert set(candidates[position].tolist()) - {NONE} == shared - {own}
    before = {name: weight.detach().clone() for name, weight in encoder.network.named_parameters()}
    proposal = retriever.propose([0, 1, 2])
    retriever.learn(proposal, torch.rand(3, 2, generator=torch.Generator().manual_seed(0)))
    after = dict(encoder.network.named_parameters())
    own = ("first", "second", "joint_positions", "clip.visual.proj", "clip.text_projection")
    assert not any(torch.equal(after[name], before[name]) for name in own)
    fresh = Clip4IdcEncoder(config, pool.texts, shown, seed=1, device=torch.device("cpu"))
    other = Retriever(pool=pool, encoder=fresh, config=settings, seed=0)
    other.load_state_dict(retriever.state_dict())
    first, second = retriever.propose([4, 2]), other.propose([4, 2])
    assert first.texts == second.texts
    assert torch.equal(first.log_q, second.log_q)


@pytest.mark.parametrize(
    ("vision", "what"),
    [
        ({"layers": [1, 1, 1, 1], "width": 8}, "ModifiedResNet"),
        ({"layers": 1}, "two layers"),
        ({"pool_type": "avg"}, "ViT"),
    ],
)
def test_other_image_towers_are_refused(vision, what):
    with pytest.raises(ModelError, match=what):
        Clip4Idc(make_clip(with_tower(**vision)), seed=0)
