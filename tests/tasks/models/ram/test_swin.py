"""The image encoder against another library's Swin transformer, and checkpoints that are none."""

import re

import pytest
import torch
from transformers import SwinConfig, SwinModel

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.ram.swin import SWIN, fill_swin, read_swin_shape
from tests.fixtures.ram_checkpoints import (
    DEPTHS,
    EMBED,
    PATCH,
    SIDE,
    SWIN_HEADS,
    WINDOW,
    computed_tensors,
    make_weights,
)

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


def tiny() -> dict[str, torch.Tensor]:
    weights = make_weights(plus=False, seed=2)
    return {name: torch.tensor(value).float() for name, value in weights.items() if name.startswith(SWIN)}


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


def test_it_sees_what_transformers_swin_sees() -> None:
    weights = tiny()
    model, shape = fill_swin(weights | computed_tensors())
    images = torch.randn(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        found = model.forward_features(images).flatten(1, 2)
        wanted = as_transformers(weights)(images).last_hidden_state
    assert found.shape == (2, WINDOW**2, shape.width)
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-5)


def test_sizes_are_those_of_the_tensors() -> None:
    shape = read_swin_shape({name: tuple(tensor.shape) for name, tensor in tiny().items()})
    assert (shape.side, shape.patch, shape.embed_dim) == (SIDE, PATCH, EMBED)
    assert (shape.depths, shape.heads, shape.window, shape.mlp_ratio) == (DEPTHS, SWIN_HEADS, WINDOW, 4.0)


def test_the_published_sizes_are_swin_large() -> None:
    shape = read_swin_shape(PUBLISHED)
    assert (shape.side, shape.patch, shape.embed_dim, shape.width) == (384, 4, 192, 1536)
    assert (shape.depths, shape.heads, shape.window, shape.mlp_ratio) == ((2, 2, 18, 2), (6, 12, 24, 48), 12, 4.0)


def test_masks_say_the_size_of_images() -> None:
    """An image of three windows across in its first stage, which no rule of thumb gives."""
    assert read_swin_shape({**PUBLISHED, f"{SWIN}layers.0.blocks.1.attn_mask": (9, 144, 144)}).side == 144


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({f"{SWIN}norm.weight": None}, r"\bnorm.weight$"),
        ({f"{SWIN}patch_embed.proj.weight": None}, "visual_encoder.patch_embed.proj.weight"),
        ({f"{SWIN}patch_embed.proj.weight": torch.zeros(8)}, "Swin"),
        ({f"{SWIN}layers.1.blocks.1.lora.weight": torch.zeros(8)}, "layers.1.blocks.1.lora"),
        (
            {f"{SWIN}layers.0.downsample.reduction.weight": torch.zeros(16, 33)},
            r"\(16, 33\).* \(16, 32",
        ),
        ({f"{SWIN}layers.7.norm.weight": torch.zeros(8)}, "layers.N"),
        (
            {f"{SWIN}layers.0.blocks.0.attn.relative_position_bias_table": torch.zeros(50, 2)},
            "50 rows",
        ),
        ({f"{SWIN}layers.0.blocks.0.attn.relative_position_bias_table": torch.zeros(49, 0)}, "Swin"),
    ],
)
def test_others_are_refused(change: dict[str, torch.Tensor | None], message: str) -> None:
    weights = {name: value for name, value in {**tiny(), **change}.items() if value is not None}
    with pytest.raises(ModelError, match=message):
        fill_swin(weights)


@pytest.mark.parametrize(
    "change",
    [
        {f"{SWIN}layers.0.blocks.0.attn.relative_position_bias_table": (4095**2, 1)},  # windows of 2,048 patches
        {f"{SWIN}layers.0.blocks.1.attn_mask": (10**12, 144, 144)},
        {f"{SWIN}patch_embed.proj.weight": (192, 3, 4096, 4096)},
        {f"{SWIN}layers.{stage}.blocks.0.attn.relative_position_bias_table": (529, 6) for stage in range(4, 40)},
    ],
)
def test_absurd_sizes_are_refused_before_anything_is_made(change: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(ModelError, match="absurd"):
        read_swin_shape({**PUBLISHED, **change})
