import json
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from pairwright.schemas.errors import ModelError
from pairwright.schemas.training import NAME
from pairwright.tasks.models import differential
from pairwright.tasks.models.differential import (
    SIZES,
    DifferentialPerception,
    DifferentialSizes,
    attach,
    find_tower,
    load_differential,
)
from tests.fixtures.families_of_models import (
    write_llava_onevision,
    write_qwen2_5_vl,
    write_qwen2_vl,
    write_smolvlm,
)

SMALL = {"width": 8, "heads": 2}
WRITERS = {
    "qwen2-vl": write_qwen2_vl,
    "qwen2.5-vl": write_qwen2_5_vl,
    "llava-onevision": write_llava_onevision,
}
COLOURS = ["red", "blue", "green", "green"]
WIDE, HIGH = (112, 84), (56, 140)


@pytest.fixture(scope="module", params=list(WRITERS))
def folder(request, tmp_path_factory):
    return WRITERS[request.param](tmp_path_factory.mktemp("models") / request.param)


def load(folder) -> Any:
    return AutoModelForImageTextToText.from_pretrained(folder).eval()


def inputs_of(folder, colours=tuple(COLOURS), sizes=(WIDE,) * 4) -> Any:
    """Return the model's inputs for prompts about two images each."""
    processor: Any = AutoProcessor.from_pretrained(folder)
    images = [Image.new("RGB", size, colour) for colour, size in zip(colours, sizes, strict=False)]
    turn = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "What changed?"}]
    messages = [{"role": "user", "content": turn}]
    text = processor.apply_chat_template(messages, add_generation_prompt=True)
    pairs = [images[place : place + 2] for place in range(0, len(images), 2)]
    texts = [text] * len(pairs)
    return processor(text=texts, images=pairs, return_tensors="pt", padding=True)


@torch.no_grad()
def test_untrained_it_equals_its_base(folder):
    model, inputs = load(folder), inputs_of(folder)
    before = model(**inputs).logits
    module = attach(model)
    assert torch.equal(model(**inputs).logits, before)
    module.out.weight.normal_()
    assert not torch.allclose(model(**inputs).logits, before, atol=1e-3)


@torch.no_grad()
def test_it_sees_the_features_of_its_layers_and_pairs_images_in_order(folder):
    """What the module sees are the tower's own hidden states, pair by pair."""
    model, inputs = load(folder), inputs_of(folder)
    module = attach(model, layers=(1, 2))
    seen, outputs = [], []
    module.register_forward_pre_hook(lambda _module, args: seen.append(args[0]))
    last = find_tower(model).blocks[-1]
    last.register_forward_hook(lambda _block, _args, output: outputs.append(output))
    model(**inputs)
    firsts, seconds = (
        torch.cat([call[-1][side].flatten(0, 1) for call in seen]) for side in (0, 1)
    )
    output = outputs[0][0] if isinstance(outputs[0], tuple) else outputs[0]
    images = output.flatten(0, -2).chunk(4)
    torch.testing.assert_close(firsts, torch.cat([images[0], images[2]]))
    torch.testing.assert_close(seconds, torch.cat([images[1], images[3]]))
    assert len(seen[0]) == 2


@torch.no_grad()
def test_pairs_of_different_sizes_do_not_see_each_other(folder):
    model, states = load(folder), []
    attach(model).out.weight.normal_()
    after = find_tower(model).after
    after.register_forward_pre_hook(lambda _, args: states.append(args[0].flatten(0, -2)))
    model(**inputs_of(folder, sizes=(WIDE, WIDE, HIGH, HIGH)))
    model(**inputs_of(folder, COLOURS[:2], (WIDE, WIDE)))
    model(**inputs_of(folder, COLOURS[2:], (HIGH, HIGH)))
    together, *apart = states
    torch.testing.assert_close(together, torch.cat(apart))


def test_what_does_not_fit_is_refused(folder, tmp_path):
    model, bare, path = load(folder), load(folder), tmp_path / SIZES
    with pytest.raises(ModelError, match="last, 2"):
        attach(model, layers=(1,))
    attach(model)
    differential.save_differential(model, tmp_path)
    assert (tmp_path / differential.WEIGHTS).exists()
    sizes = json.loads(path.read_text())
    for changes, reason in (
        ({"width": 64}, "64"),
        ({"heads": 0}, "heads"),
        ({"depth": 3}, "scales.0.layers.inner.2"),
        ({"depth": 1}, "scales.0.layers.inner.1"),
    ):
        path.write_text(json.dumps(sizes | changes))
        with pytest.raises(ModelError, match=reason):
            load_differential(bare, tmp_path)
    path.write_text("[]")
    with pytest.raises(ModelError, match=SIZES):
        load_differential(bare, tmp_path)
    assert not hasattr(bare, NAME)


def test_as_many_weights_as_the_paper_says():
    """Of width w: an attention has 4 w^2 + 4 w weights, a layer two of them, 8 w^2 + 5 w after
    them, and 6 w in norms; a scale two layers, one attention, 2 w^2 and 3 w^2 that join, and 4 w
    in norms."""
    w = 1152
    with torch.device("meta"):
        module = DifferentialPerception(
            DifferentialSizes(width=w, heads=16, layers=(17, 20, 23, 26))
        )
    counts = {
        name: sum(weight.numel() for weight in part.parameters())
        for name, part in module.named_children()
    }
    assert counts == {"scales": 41 * w**2 + 46 * w, "score": 4 * w**2 + 2 * w, "out": w**2}
    assert [round(count / 1e6, 1) for count in counts.values()] == [54.5, 5.3, 1.3]
    assert round(sum(counts.values()) / 1e6, 1) == 61.1


def test_images_of_other_sizes_are_no_pair(tmp_path):
    folder = write_qwen2_vl(tmp_path / "qwen")
    model = load(folder)
    attach(model)
    with pytest.raises(ModelError, match=r"images 3 and 4 .*6 x 8 .*6 x 16"):
        model(**inputs_of(folder, sizes=(WIDE, WIDE, WIDE, (224, 84))))


def test_other_families_are_refused(tmp_path):
    model = load(write_smolvlm(tmp_path / "smolvlm"))
    with pytest.raises(ModelError, match="qwen2_vl"):
        attach(model)


def features(seed):
    return torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def scale():
    torch.manual_seed(0)
    return differential.Scale(DifferentialSizes(**SMALL, layers=(1, 2))).eval()


def test_swapped_images_negate_the_difference(scale):
    first, second, difference = scale.blocks(features(1), features(2))
    swapped = scale.blocks(features(2), features(1))
    torch.testing.assert_close(swapped, (second, first, -difference))


def test_weighing_by_hand():
    """Width 1: lambda_1 = sigmoid(2 * 3 - 1 * 5), lambda_2 = sigmoid(2 * 5 - 1 * 3)."""
    scale = differential.Scale(DifferentialSizes(width=1, heads=1, layers=(1,)))
    with torch.no_grad():
        scale.weigh.weight.copy_(torch.tensor([[2.0, -1.0]]))
    first, second, difference = scale.blocks(torch.full((1, 1, 1), 3.0), torch.full((1, 1, 1), 5.0))
    expected = torch.tensor([1.0, 7.0]).sigmoid() * torch.tensor([3.0, 5.0])
    torch.testing.assert_close(torch.stack([first, second]).flatten(), expected)
    torch.testing.assert_close(difference, first - second)


def test_each_place_sees_the_other_image(scale):
    """What changed at one place of the second image reaches all of the first (Eqs. 4 to 6)."""
    other = features(2)
    other[:, 3] = features(3)[:, 3]
    before, after = (scale(features(1), image).first for image in (features(2), other))
    assert ((after - before).abs().amax(-1) > 1e-6).all()


@pytest.mark.parametrize(
    ("settings", "scales"),
    [
        ({}, 1),
        ({"shared_weights": False}, 2),
        ({"weight_per": "layer"}, 1),
        ({"softmax": True}, 1),
    ],
)
def test_untrained_it_changes_nothing_and_then_learns(settings, scales):
    torch.manual_seed(0)
    module = DifferentialPerception(DifferentialSizes(**SMALL, layers=(1, 2), **settings))
    pairs = [(features(1), features(2)), (features(3), features(4))]
    first, second = module(pairs)
    assert torch.equal(first, features(3))
    assert torch.equal(second, features(4))
    with torch.no_grad():
        module.out.weight.copy_(torch.eye(8))
    first, second = module(pairs)
    (first.square().mean() - second.mean()).backward()
    slopes = [weight.grad for weight in module.parameters()]
    assert all(slope is not None and slope.abs().sum() > 0 for slope in slopes)
    assert len(module.scales) == scales


@pytest.mark.parametrize(("softmax", "weight"), [(False, 0.5), (True, 0.25)])
@torch.no_grad()
def test_scores_weigh_the_scales(softmax, weight):
    """With scores of 1/2 (sigmoid) or 1/4 each (softmax of four) and an untouched sum."""
    sizes = DifferentialSizes(**SMALL, layers=(1, 2, 3, 4), softmax=softmax)
    module = DifferentialPerception(sizes)
    for score in module.score.parameters():
        score.zero_()
    module.out.weight.copy_(torch.eye(8))
    pairs = [(features(seed), features(seed + 10)) for seed in range(4)]
    expected = features(3) + weight * sum(module.scales[0](*pair).first for pair in pairs)
    torch.testing.assert_close(module(pairs)[0], expected)


@pytest.mark.parametrize(
    ("depth", "layers"), [(26, (17, 20, 23, 26)), (32, (20, 24, 28, 32)), (2, (1, 2))]
)
def test_layers_are_the_papers_where_it_names_them(depth, layers):
    assert differential.spread_layers(depth) == layers
