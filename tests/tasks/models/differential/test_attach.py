import json
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from pairwright.schemas.differential import NAME
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.differential.attach import (
    SIZES,
    WEIGHTS,
    attach,
    find_tower,
    load_differential,
    save_differential,
)
from tests.fixtures.families_of_models import write_llava_onevision, write_qwen2_5_vl, write_qwen2_vl, write_smolvlm

WRITERS = {"qwen2-vl": write_qwen2_vl, "qwen2.5-vl": write_qwen2_5_vl, "llava-onevision": write_llava_onevision}


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
    text = processor.apply_chat_template([{"role": "user", "content": turn}], add_generation_prompt=True)
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
    """What the module is given are the tower's own hidden states, pair by pair, as it gives them itself."""
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
    find_tower(model).after.register_forward_pre_hook(lambda _after, args: found.append(args[0].flatten(0, -2)))
    model(**inputs(folder, COLOURS, sizes))
    for colours, own in ((COLOURS[:2], sizes[:2]), (COLOURS[2:], sizes[2:])):
        model(**inputs(folder, colours, own))
    together, *apart = found
    torch.testing.assert_close(together, torch.cat(apart))


def test_it_trains_with_its_base(folder):
    model, given = load(folder), inputs(folder, COLOURS)
    module = attach(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):  # the first step reaches the map that began at zero; the second what is before it
        optimiser.zero_grad()
        model(**given, labels=given["input_ids"]).loss.backward()
        optimiser.step()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in module.parameters())
    assert all(weight.grad is not None for block in find_tower(model).blocks for weight in block.parameters())


@torch.no_grad()
def test_it_is_saved_and_loaded_beside_its_base(folder, tmp_path):
    model, given = load(folder), inputs(folder, COLOURS)
    attach(model, softmax=True, shared_weights=False).out.weight.normal_()
    save_differential(model, tmp_path)
    again = load(folder)
    assert load_differential(again, tmp_path)
    assert torch.equal(again(**given).logits, model(**given).logits)
    assert not load_differential(load(folder), tmp_path / "elsewhere")


def test_what_does_not_fit_is_refused(folder, tmp_path):
    model = load(folder)
    with pytest.raises(ModelError, match="layer 2"):
        attach(model, layers=(1,))
    module = attach(model)
    with pytest.raises(ModelError, match="already"):
        attach(model)
    save_differential(model, tmp_path)
    sizes, bare = json.loads((tmp_path / SIZES).read_text()), load(folder)
    for changes, said in (
        ({"width": 64}, "64"),
        ({"heads": 0}, str(module.sizes.width)),
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
    assert (tmp_path / WEIGHTS).exists()


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
