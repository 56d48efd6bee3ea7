"""RAM's network against another library's Swin, a plain NumPy decoder, and numbers worked out by hand; its files."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import SwinConfig, SwinModel

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.ram_network import SWIN, build_swin, load_ram, tag_logits
from tests.fixtures.ram_checkpoints import (
    DEPTHS,
    EMBED,
    HIDDEN,
    PATCH,
    SIDE,
    SWIN_HEADS,
    TAGS,
    VISION,
    WIDTH,
    WINDOW,
    Weights,
    decode,
    make_weights,
    write_ram,
)  # fmt: skip

QUERY = "tagging_head.encoder.layer.1.crossattention.self.query.weight"
PUBLISHED = {
    "visual_encoder.patch_embed.proj.weight": (192, 3, 4, 4),
    **{
        f"visual_encoder.layers.{stage}.blocks.{block}.{name}": shape
        for stage, depth in enumerate((2, 2, 18, 2))
        for block in range(depth)
        for name, shape in (
            ("attn.relative_position_bias_table", (23 * 23, 6 << stage)),
            ("mlp.fc1.weight", (4 * 192 << stage, 192 << stage)),
        )
    },
}
"""What RAM's own Swin-L says of itself."""


def as_transformers(weights: dict[str, torch.Tensor]) -> SwinModel:
    """Return the model of transformers with the same weights: other names, and three matrices where there is one."""
    config = SwinConfig(
        image_size=SIDE, patch_size=PATCH, embed_dim=EMBED, depths=list(DEPTHS), num_heads=list(SWIN_HEADS),
        window_size=WINDOW, mlp_ratio=4.0, drop_path_rate=0.0,
    )  # fmt: skip
    renamed: dict[str, torch.Tensor] = {}
    for key, value in weights.items():
        name = key.removeprefix(SWIN)
        for old, new in (
            ("patch_embed.proj.", "embeddings.patch_embeddings.projection."),
            ("patch_embed.norm.", "embeddings.norm."),
            ("norm1.", "layernorm_before."),
            ("norm2.", "layernorm_after."),
            ("attn.proj.", "attention.o_proj."),
            ("attn.relative_position_bias_table", "attention.relative_position_bias.relative_position_bias_table"),
        ):
            name = name.replace(old, new)
        name = re.sub(r"^layers\.", "encoder.layers.", re.sub(r"^norm\.", "layernorm.", name))
        if "attn.qkv." in name:
            for part, third in zip("qkv", value.chunk(3), strict=True):
                renamed[name.replace("attn.qkv.", f"attention.{part}_proj.")] = third
        else:
            renamed[name] = value
    model = SwinModel(config, add_pooling_layer=False)
    missing, strange = model.load_state_dict(renamed, strict=False)
    assert not strange
    assert not [name for name in missing if "relative_position_index" not in name]
    return model.eval()


def test_it_sees_what_transformers_swin_sees(tmp_path: Path) -> None:
    made = write_ram(tmp_path)
    loaded = load_ram(Path(made.config.checkpoint), field="x", plus=False, tags=len(TAGS))
    weights = {name: torch.tensor(value).float() for name, value in made.weights.items() if name.startswith(SWIN)}
    images = torch.randn(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        found = loaded.swin.forward_features(images).flatten(1, 2)
        wanted = as_transformers(weights)(images).last_hidden_state
    assert (loaded.side, found.shape) == (SIDE, (2, WINDOW**2, VISION))
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-5)


def test_the_published_sizes_are_swin_large() -> None:
    with torch.device("meta"):
        swin = build_swin(PUBLISHED)
        # An image of three windows across in its first stage, which no rule of thumb gives.
        other = build_swin({**PUBLISHED, f"{SWIN}layers.0.blocks.1.attn_mask": (9, 144, 144)})
    assert (swin.patch_embed.img_size, swin.num_features, [len(one.blocks) for one in swin.layers]) == (
        (384, 384), 1536, [2, 2, 18, 2],
    )  # fmt: skip
    assert [one.blocks[0].attn.num_heads for one in swin.layers] == [6, 12, 24, 48]
    assert other.patch_embed.img_size == (144, 144)


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


def test_the_older_name_of_the_head_half_precision_and_safetensors_are_read(tmp_path: Path) -> None:
    path = Path(write_ram(tmp_path).config.checkpoint)
    tensors = torch.load(path, weights_only=True)["model"]
    wanted = load_ram(path, field="x", plus=False, tags=len(TAGS)).decoder
    renamed = {name.replace("tagging_head.", "vision_multi."): value for name, value in tensors.items()}
    torch.save({"model": renamed}, tmp_path / "older.pth")
    found = load_ram(tmp_path / "older.pth", field="x", plus=False, tags=len(TAGS)).decoder
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    kept = {name: value.half() if value.is_floating_point() else value for name, value in tensors.items()}
    save_file(kept, tmp_path / "ram.safetensors")
    loaded = load_ram(tmp_path / "ram.safetensors", field="x", plus=False, tags=len(TAGS))
    assert loaded.decoder["fc.weight"].dtype == torch.float32
    assert torch.equal(loaded.decoder["fc.weight"], tensors["fc.weight"].half().float())
    assert next(loaded.swin.parameters()).dtype == torch.float32


def test_parts_that_write_captions_are_left(tmp_path: Path) -> None:
    spare = {"tagging_head.embeddings.word_embeddings.weight": torch.zeros(7, HIDDEN), "temp": torch.zeros(1)}
    path = Path(write_ram(tmp_path, changes=spare).config.checkpoint)
    loaded = load_ram(path, field="x", plus=False, tags=len(TAGS))
    assert not [name for name in loaded.decoder if name.startswith(("tag_encoder", "text_decoder", "temp"))]
    assert "tagging_head.embeddings.word_embeddings.weight" not in loaded.decoder


@pytest.mark.parametrize(("plus", "found", "wanted"), [(False, "RAM\\+\\+", "ram-plus"), (True, "RAM", "ram")])
def test_a_checkpoint_of_the_other_model_is_told(tmp_path: Path, plus: bool, found: str, wanted: str) -> None:
    path = write_ram(tmp_path, plus=not plus).config.checkpoint
    message = rf"x: {path}: .*{found}: .*tagging\.taggers to {wanted}\b"
    with pytest.raises(ModelError, match=message):
        load_ram(Path(path), field="x", plus=plus, tags=len(TAGS))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({f"{SWIN}norm.weight": None}, r"\bnorm.weight"),
        ({f"{SWIN}patch_embed.proj.weight": None}, "visual_encoder.patch_embed.proj.weight"),
        ({f"{SWIN}layers.1.blocks.1.lora.weight": torch.zeros(8)}, "layers.1.blocks.1.lora"),
        ({f"{SWIN}layers.0.downsample.reduction.weight": torch.zeros(16, 33)}, r"\[16, 33\]"),
        ({f"{SWIN}layers.7.norm.weight": torch.zeros(8)}, "layers.N"),
        ({QUERY: None}, "tagging_head.encoder.layer.1.crossattention.self.query.weight"),
        ({"label_embed": None}, "label_embed"),
        ({"image_proj.weight": torch.zeros(WIDTH, VISION + 1)}, "17"),
        ({"tagging_head.encoder.layer.4.output.dense.bias": torch.zeros(1)}, "layer.2"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, change: dict[str, torch.Tensor | None], message: str) -> None:
    path = write_ram(tmp_path, changes=change).config.checkpoint
    with pytest.raises(ModelError, match=f"(?s){message}") as caught:
        load_ram(Path(path), field="tagging.ram.checkpoint", plus=False, tags=len(TAGS))
    assert str(caught.value).startswith(f"tagging.ram.checkpoint: {path}")
