import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file
from transformers import ChameleonVQVAE, ChameleonVQVAEConfig

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.namc.vqgan import LIGHTNING, encode, nearest, read_vqgan


@pytest.fixture(scope="module")
def model():
    """Chameleon's tokenizer: the same encoder, written by others under the same names."""
    torch.manual_seed(0)
    sizes = ChameleonVQVAEConfig(
        embed_dim=16, num_embeddings=40, latent_channels=32, resolution=64, base_channels=32,
        channel_multiplier=[1, 2, 2], num_res_blocks=1, attn_resolutions=[32],
    )  # fmt: skip
    made = ChameleonVQVAE(sizes).eval()
    with torch.no_grad():
        for weight in made.parameters():
            weight.mul_(1.5)
        seen = made.quant_conv(made.encoder(torch.rand(4, 3, 64, 64) * 2 - 1)).permute(0, 2, 3, 1).flatten(0, 2)
        made.quantize.embedding.weight.copy_(seen[torch.randperm(len(seen))[:40]])  # so that all codes occur
    return made


def test_the_codes_are_those_of_another_implementation(model, tmp_path):
    torch.save({"state_dict": {**model.state_dict(), "loss.logvar": torch.zeros(1)}}, tmp_path / "vqgan.ckpt")
    weights = read_vqgan(tmp_path / "vqgan.ckpt", field="namc.vqgan")
    assert "loss.logvar" not in weights
    save_file(model.state_dict(), tmp_path / "vqgan.safetensors")
    assert read_vqgan(tmp_path / "vqgan.safetensors", field="namc.vqgan").keys() == weights.keys()
    pixels = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(1)) * 2 - 1
    pixels[1] *= 0.1
    pixels[2, :, :32] = 0.9
    codes = encode(weights, pixels)
    assert codes.shape == (3, 16, 16)
    assert codes.unique().numel() > 5
    with torch.no_grad():
        hidden = model.quant_conv(model.encoder(pixels))
        theirs = model.quantize(hidden)[2].reshape(3, 16, 16)
    assert (codes == theirs).float().mean() > 0.999  # a tie may be rounded the other way


def test_nearest_by_hand():
    found = torch.tensor([[0.9, 0.1], [0.2, 2.0]]).T[None, :, :, None]  # one image of two places
    assert nearest(found, torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]])).tolist() == [[[1], [2]]]


def test_another_checkpoint_is_refused(tmp_path):
    torch.save({"weight": torch.zeros(2)}, tmp_path / "other.ckpt")
    with pytest.raises(ModelError, match=r"namc\.vqgan: .*other\.ckpt"):
        read_vqgan(tmp_path / "other.ckpt", field="namc.vqgan")


class ModelCheckpoint:
    """Be what Lightning's checkpoints name, here under its module's name."""

    made = 0

    def __new__(cls):
        cls.made += 1
        return super().__new__(cls)


@pytest.fixture
def lightning(monkeypatch):
    """Let pickles name the class as if Lightning were there; whoever reads them does not have it."""
    module = ModuleType(LIGHTNING[0].rpartition(".")[0])
    monkeypatch.setattr(ModelCheckpoint, "__module__", module.__name__)
    module.ModelCheckpoint = ModelCheckpoint
    for name in ("pytorch_lightning", "pytorch_lightning.callbacks"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)


def test_what_a_training_leaves_beside_tensors_is_not_run(lightning, model, tmp_path):
    """Lightning's checkpoints have a class as a key, which stays a name; its objects and other names are refused."""
    state = {"state_dict": model.state_dict(), "callbacks": {ModelCheckpoint: {"best": torch.ones(1)}}}
    torch.save(state, tmp_path / "last.ckpt")
    assert "encoder.conv_in.weight" in read_vqgan(tmp_path / "last.ckpt", field="namc.vqgan")
    torch.save(state | {"callbacks": ModelCheckpoint()}, tmp_path / "made.ckpt")
    ModelCheckpoint.made = 0
    with pytest.raises(ModelError, match=r"made.ckpt"):
        read_vqgan(tmp_path / "made.ckpt", field="namc.vqgan")
    assert not ModelCheckpoint.made
    torch.save(state | {"callbacks": {Path: 1}}, tmp_path / "other.ckpt")
    with pytest.raises(ModelError, match=r"other\.ckpt .*Path"):
        read_vqgan(tmp_path / "other.ckpt", field="namc.vqgan")
