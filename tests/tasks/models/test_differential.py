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

SMALL = DifferentialSizes(width=8, heads=2, layers=(1, 2))
WRITERS = {
    "qwen2-vl": write_qwen2_vl,
    "qwen2.5-vl": write_qwen2_5_vl,
    "llava-onevision": write_llava_onevision,
}


@pytest.fixture(scope="module", params=list(WRITERS))
def folder(request, tmp_path_factory):
    return WRITERS[request.param](tmp_path_factory.mktemp("models") / request.param)


def load(folder) -> Any:
    return AutoModelForImageTextToText.from_pretrained(folder).eval()


def inputs(folder, colours: list[str], sizes: list[tuple[int, int]] | None = None) -> Any:
    """Return the model's inputs for prompts about two images each."""
    processor: Any = AutoProcessor.from_pretrained(folder)
    sizes = sizes or [(112, 84)] * len(colours)
    images = [Image.new("RGB", size, colour) for colour, size in zip(colours, sizes, strict=True)]
    turn = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "What changed?"}]
    text = processor.apply_chat_template(
        [{"role": "user", "content": turn}], add_generation_prompt=True
    )
    pairs = [images[place : place + 2] for place in range(0, len(images), 2)]
    return processor(text=[text] * len(pairs), images=pairs, return_tensors="pt", padding=True)


COLOURS = ["red", "blue", "green", "green"]


@torch.no_grad()
def test_untrained_it_equals_its_base(folder):
    model, given = load(folder), inputs(folder, COLOURS)
    before = model(**given).logits
    module = attach(model)
    assert torch.equal(model(**given).logits, before)
    module.out.weight.normal_()
    assert not torch.allclose(model(**given).logits, before, atol=1e-3)


@torch.no_grad()
def test_it_sees_the_features_of_its_layers_and_pairs_images_in_order(folder):
    """What the module is given are the tower's own hidden states, pair by pair, as it gives them
    itself."""
    model, given = load(folder), inputs(folder, COLOURS)
    module = attach(model, layers=(1, 2))
    shown: list[Any] = []
    module.register_forward_pre_hook(lambda _module, args: shown.append(args[0]))
    model(**given)
    firsts = torch.cat([call[-1][0].flatten(0, 1) for call in shown])
    seconds = torch.cat([call[-1][1].flatten(0, 1) for call in shown])
    outs: list[Any] = []
    find_tower(model).blocks[-1].register_forward_hook(lambda _block, _args, out: outs.append(out))
    model(**given)
    out = outs[0][0] if isinstance(outs[0], tuple) else outs[0]
    whole = out.flatten(0, -2)
    parts = whole.chunk(4)
    torch.testing.assert_close(firsts, torch.cat([parts[0], parts[2]]))
    torch.testing.assert_close(seconds, torch.cat([parts[1], parts[3]]))
    assert len(shown[0]) == 2


@torch.no_grad()
def test_pairs_of_different_sizes_do_not_see_each_other(folder):
    model, sizes = load(folder), [(112, 84), (112, 84), (56, 140), (56, 140)]
    attach(model).out.weight.normal_()
    found: list[Any] = []
    find_tower(model).after.register_forward_pre_hook(
        lambda _after, args: found.append(args[0].flatten(0, -2))
    )
    model(**inputs(folder, COLOURS, sizes))
    for colours, own in ((COLOURS[:2], sizes[:2]), (COLOURS[2:], sizes[2:])):
        model(**inputs(folder, colours, own))
    together, *apart = found
    torch.testing.assert_close(together, torch.cat(apart))


def test_what_does_not_fit_is_refused(folder, tmp_path):
    model = load(folder)
    with pytest.raises(ModelError, match="last, 2"):
        attach(model, layers=(1,))
    attach(model)
    differential.save_differential(model, tmp_path)
    sizes, bare = json.loads((tmp_path / SIZES).read_text()), load(folder)
    for changes, said in (
        ({"width": 64}, "64"),
        ({"heads": 0}, "heads"),
        ({"depth": 3}, "scales.0.layers.inner.2"),
        ({"depth": 1}, "scales.0.layers.inner.1"),
    ):
        (tmp_path / SIZES).write_text(json.dumps(sizes | changes))
        with pytest.raises(ModelError, match=said):
            load_differential(bare, tmp_path)
    (tmp_path / SIZES).write_text("[]")
    with pytest.raises(ModelError, match=SIZES):
        load_differential(bare, tmp_path)
    assert not hasattr(bare, NAME)
    assert (tmp_path / differential.WEIGHTS).exists()


def test_as_many_weights_as_it_is_said_to_have():
    sizes = DifferentialSizes(width=1152, heads=16, layers=(17, 20, 23, 26))
    with torch.device("meta"):
        module = differential.DifferentialPerception(sizes)
    counts = {
        name: sum(one.numel() for one in part.parameters())
        for name, part in module.named_children()
    }
    # By hand, of width w: an attention has 4 w^2 + 4 w weights, a layer two of them, 8 w^2 + 5 w
    # after them, and 6 w in
    # norms; a scale two layers, one attention, 2 w^2 and 3 w^2 that join, and 4 w in norms.
    w = 1152
    assert counts == {"scales": 41 * w**2 + 46 * w, "score": 4 * w**2 + 2 * w, "out": w**2}
    assert {name: round(count / 1e6, 1) for name, count in counts.items()} == {
        "scales": 54.5,
        "score": 5.3,
        "out": 1.3,
    }
    assert round(sum(counts.values()) / 1e6, 1) == 61.1


def test_images_of_other_sizes_are_no_pair(tmp_path):
    folder = write_qwen2_vl(tmp_path / "qwen")
    model = load(folder)
    attach(model)
    with pytest.raises(ModelError, match=r"images 3 and 4 .*6 x 8 .*6 x 16"):
        model(**inputs(folder, COLOURS, [(112, 84), (112, 84), (112, 84), (224, 84)]))


def test_other_families_are_refused(tmp_path):
    model = load(write_smolvlm(tmp_path / "smolvlm"))
    with pytest.raises(ModelError, match="qwen2_vl"):
        attach(model)


def features(seed: int) -> torch.Tensor:
    return torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def scale():
    torch.manual_seed(0)
    return differential.Scale(SMALL).eval()


def test_swapped_images_negate_the_difference(scale):
    first, second, difference = scale.blocks(features(1), features(2))
    swapped = scale.blocks(features(2), features(1))
    torch.testing.assert_close(swapped[2], -difference)
    torch.testing.assert_close((swapped[0], swapped[1]), (second, first))


def test_weighing_by_hand():
    """Width 1: lambda_1 = sigmoid(2 * 3 - 1 * 5), lambda_2 = sigmoid(2 * 5 - 1 * 3)."""
    scale = differential.Scale(DifferentialSizes(width=1, heads=1, layers=(1,)))
    with torch.no_grad():
        scale.weigh.weight.copy_(torch.tensor([[2.0, -1.0]]))
    first, second, difference = scale.blocks(torch.full((1, 1, 1), 3.0), torch.full((1, 1, 1), 5.0))
    lambdas = torch.tensor([1.0, 7.0]).sigmoid()
    torch.testing.assert_close(
        torch.stack([first, second]).flatten(), lambdas * torch.tensor([3.0, 5.0])
    )
    torch.testing.assert_close(difference, first - second)


def test_each_place_sees_the_other_image(scale):
    """What is changed at one place of the second image reaches all places of the first (Eqs. 4 to
    6)."""
    before = scale(features(1), features(2)).first
    other = features(2)
    other[:, 3] = features(3)[:, 3]
    changed = (scale(features(1), other).first - before).abs().amax(-1)
    assert (changed > 1e-6).all()


@pytest.mark.parametrize(
    "settings", [{}, {"shared_weights": False}, {"weight_per": "layer"}, {"softmax": True}]
)
def test_untrained_it_changes_nothing_and_then_learns(settings):
    torch.manual_seed(0)
    module = differential.DifferentialPerception(
        DifferentialSizes(width=8, heads=2, layers=(1, 2), **settings)
    )
    scales = [(features(1), features(2)), (features(3), features(4))]
    first, second = module(scales)
    assert torch.equal(first, features(3))
    assert torch.equal(second, features(4))
    with torch.no_grad():
        module.out.weight.copy_(torch.eye(8))
    first, second = module(scales)
    (first.square().mean() - second.mean()).backward()
    assert all(
        weight.grad is not None and weight.grad.abs().sum() > 0 for weight in module.parameters()
    )
    assert len(module.scales) == (1 if settings.get("shared_weights", True) else 2)


def test_scores_weigh_the_scales():
    """With scores of 1/2 (sigmoid) or 1/4 each (softmax of four) and an untouched sum, the outcome
    is known."""
    for competing, weight in ((False, 0.5), (True, 0.25)):
        sizes = DifferentialSizes(width=8, heads=2, layers=(1, 2, 3, 4), softmax=competing)
        module = differential.DifferentialPerception(sizes)
        with torch.no_grad():
            for one in module.score.parameters():
                one.zero_()
            module.out.weight.copy_(torch.eye(8))
            scales = [(features(seed), features(seed + 10)) for seed in range(4)]
            expected = features(3) + weight * sum(module.scales[0](*pair).first for pair in scales)
            torch.testing.assert_close(module(scales)[0], expected)


def test_layers_are_the_papers_where_it_names_them():
    assert differential.spread_layers(26) == (17, 20, 23, 26)
    assert differential.spread_layers(32) == (20, 24, 28, 32)
    assert differential.spread_layers(2) == (1, 2)
