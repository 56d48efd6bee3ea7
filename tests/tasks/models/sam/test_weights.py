"""SAM from the shapes of a checkpoint: the published sizes, tiny ones, and files that are neither."""

import re

import pytest
import torch
from segment_anything import sam_model_registry

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.sam.weights import NEEDED, build_sam, fill_sam, load_sam, read_shape
from tests.fixtures.hostile_checkpoints import write_broken, write_payloads
from tests.fixtures.sam_checkpoints import make_sam, write_sam

WEIGHTS = make_sam().state_dict()
PUBLISHED = {
    "vit_b": {"embed_dim": 768, "depth": 12, "heads": 12, "global_blocks": (2, 5, 8, 11)},
    "vit_l": {"embed_dim": 1024, "depth": 24, "heads": 16, "global_blocks": (5, 11, 17, 23)},
    "vit_h": {"embed_dim": 1280, "depth": 32, "heads": 16, "global_blocks": (7, 15, 23, 31)},
}
"""Of segment_anything/build_sam.py."""


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def shapes_of(weights):
    return {name: tuple(tensor.shape) for name, tensor in weights.items()}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes_are_the_registrys(name):
    with torch.device("meta"):
        state = sam_model_registry[name]().state_dict()
    shape = read_shape(shapes_of(state))
    assert {field: getattr(shape, field) for field in PUBLISHED[name]} == PUBLISHED[name]
    assert (shape.side, shape.patch, shape.window, shape.prompt_dim, shape.masks) == (1024, 16, 14, 256, 3)
    assert shapes_of(build_sam(shape).state_dict()) == shapes_of(state)


@pytest.mark.parametrize("ending", ["pth", "safetensors"])
def test_weights_are_those_of_the_file(tmp_path, ending):
    model = load_sam(write_sam(tmp_path / f"sam.{ending}", seed=4), field="here")
    found, wanted = model.state_dict(), make_sam(seed=4).state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert not model.training
    assert not any(weights.requires_grad for weights in model.parameters())


def test_the_model_gives_what_the_package_gives(tmp_path):
    ours, theirs = load_sam(write_sam(tmp_path / "sam.pth"), field="here"), make_sam()
    torch.manual_seed(1)
    images = torch.randn(1, 3, 128, 128)
    with torch.no_grad():
        torch.testing.assert_close(ours.image_encoder(images), theirs.image_encoder(images))
        torch.testing.assert_close(ours.prompt_encoder.get_dense_pe(), theirs.prompt_encoder.get_dense_pe())


def test_half_precision_becomes_float32(tmp_path):
    path = tmp_path / "half.pth"
    torch.save({name: tensor.half() for name, tensor in WEIGHTS.items()}, path)
    assert {tensor.dtype for tensor in load_sam(path, field="here").state_dict().values()} == {torch.float32}


@pytest.mark.parametrize("name", sorted({*NEEDED, *list(WEIGHTS)[::20]}))
def test_a_tensor_that_is_missing_or_of_another_shape_is_one_message(name):
    others = [torch.zeros(()), torch.zeros(0), WEIGHTS[name][..., :-1], WEIGHTS[name][None]]
    missing = {other: tensor for other, tensor in WEIGHTS.items() if other != name}
    for weights in (missing, *({**WEIGHTS, name: other} for other in others)):
        with pytest.raises(ModelError):
            fill_sam(weights)


def test_what_is_missing_and_what_is_too_much_are_named(tmp_path):
    path = tmp_path / "other.pth"
    torch.save({"model.weight": torch.zeros(2)}, path)
    message = f"here: {path}: .*image_encoder.pos_embed, .* 5 more"
    with pytest.raises(ModelError, match=message):
        load_sam(path, field="here")
    torch.save({**WEIGHTS, "mask_decoder.hf_token.weight": torch.zeros(1, 16)}, path)  # as SAM-HQ has
    with pytest.raises(ModelError, match=re.escape("mask_decoder.hf_token.weight")):
        load_sam(path, field="here")
    name = "mask_decoder.iou_token.weight"
    with pytest.raises(ModelError, match=re.escape(name) + r" .*\(1, 15\).* \(1, 16\)"):
        fill_sam({**WEIGHTS, name: torch.zeros(1, 15)})
    with pytest.raises(ModelError, match=name):
        fill_sam({**WEIGHTS, name: torch.zeros(1, 16, dtype=torch.int64)})


def test_sizes_that_would_fill_the_memory_are_refused():
    grid = torch.zeros(1).expand(1, 1 << 16, 1 << 16, 24)
    with pytest.raises(ModelError, match=r"524288 x 524288 .*4096"):
        fill_sam({**WEIGHTS, "image_encoder.pos_embed": grid})
    blocks = {f"image_encoder.blocks.{n}.attn.rel_pos_h": torch.zeros(31, 12) for n in (2, 10**9)}
    with pytest.raises(ModelError, match="blocks"):
        fill_sam({**WEIGHTS, **blocks})


def test_hostile_files_are_refused_and_not_run(tmp_path):
    marker = tmp_path / "ran"
    whole = write_sam(tmp_path / "sam.pth")
    payloads, broken = write_payloads(tmp_path / "payloads", marker), write_broken(tmp_path / "broken", whole)
    for path in (payloads["zip os.system"], payloads["legacy 0"], broken["noise"], broken["laughs"]):
        with pytest.raises(ModelError, match="here"):
            load_sam(path, field="here")
    assert not marker.exists()
