"""RAM from pixels to names, with tiny checkpoints in the published format; its network by hand."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import SwinConfig, SwinModel

from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import RamConfig
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.models.ram import (
    SWIN,
    RamTagger,
    build_swin,
    find_ram,
    load_ram,
    pin_ram,
    read_tags,
    transform_of,
)
from tests.fixtures import ram_checkpoints as tiny
from tests.fixtures.ram_checkpoints import SIDE, TAGS, decode, write_ram

SIZES = [(60, 90), (90, 60), (1, 1), (20, 8000), (SIDE, SIDE), (37, 41)]


def load(path):
    return load_ram(Path(path), field="x", tags=len(TAGS))


def test_tags_are_those_above_their_thresholds_by_falling_probability(tmp_path):
    thresholds = [0.2 + 0.05 * place for place in range(len(TAGS))]
    checkpoint = write_ram(tmp_path, thresholds=tuple(thresholds))
    tagger = RamTagger(config=checkpoint.config)
    rng = np.random.default_rng(3)
    images = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in SIZES]
    images.append(np.full((50, 40, 3), 119, dtype=np.uint8))
    squares = [tagger.prepare(DecodedImage(pixels)) for pixels in images]
    numbers = transform_of(SIDE).numbers(torch.from_numpy(np.stack(squares)))
    with torch.inference_mode():
        patches = load(tagger.config.checkpoint).swin.forward_features(numbers).flatten(1, 2)
    chances = [decode(checkpoint.weights, image) for image in patches.double().numpy()]
    assert 0 < (np.array(chances) > thresholds).mean() < 1
    for row, tags in zip(chances, tagger.tag(squares), strict=True):
        above = [place for place in np.argsort(-row) if row[place] > thresholds[place]]
        assert [tag.name for tag in tags] == [TAGS[place] for place in above]
        assert [tag.score for tag in tags] == pytest.approx(row[above], abs=1e-4)
        assert {tag.tagger for tag in tags} <= {"ram"}


def write_lists(folder, tags, thresholds):
    paths = folder / "tags.txt", folder / "thresholds.txt"
    for path, text in zip(paths, (tags, thresholds), strict=True):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return paths


def test_a_list_of_another_length_is_refused(tmp_path):
    config = write_ram(tmp_path).config
    write_lists(tmp_path, "\n".join(TAGS[:-1]), "\n".join(["0.5"] * (len(TAGS) - 1)))
    with pytest.raises(ModelError, match=r"tagging\.ram\.checkpoint: .*11 tags .* 10"):
        RamTagger(config=config).tag([np.zeros((SIDE, SIDE, 3), dtype=np.uint8)])


def test_names_come_with_their_thresholds(tmp_path):
    lists = write_lists(tmp_path, "dog\nteddy bear \ncafé\n", "0.5\n0.65\n1.0\n")
    names, thresholds = read_tags(*lists)
    assert names == ("dog", "teddy bear", "café")
    assert thresholds.tolist() == pytest.approx([0.5, 0.65, 1.0])


@pytest.mark.parametrize(
    ("tags", "thresholds", "reason"),
    [
        ("dog\ncat", "0.5\n0.5\n0.5", "thresholds.txt .* 3 thresholds, .*tags.txt .* 2 tags"),
        ("dog", "high", "thresholds.txt .*'high'"),
        ("dog\ncat", "0.5\n1.5", "thresholds.txt .*0 to 1"),
        ("dog", "nan", "thresholds.txt .*0 to 1"),
        (b"\xff\xfe\x00", "0.5", "tags.txt"),
    ],
)
def test_broken_lists_are_refused(tmp_path, tags, thresholds, reason):
    with pytest.raises(ModelError, match=reason):
        read_tags(*write_lists(tmp_path, tags, thresholds))


def test_pinning_names_the_files_by_their_bytes(tmp_path, monkeypatch):
    config = write_ram(tmp_path / "a").config
    monkeypatch.chdir(tmp_path)
    relative = RamConfig(checkpoint="a/ram.pth", tags="a/tags.txt", thresholds="a/thresholds.txt")
    pinned = pin_ram(relative, download=False)
    assert pinned == config.model_copy(update={"revision": pinned.revision})
    assert pinned.revision.startswith("xxh3:")
    files = find_ram(pinned, download=False).values()
    assert [str(file) for file in files] == [config.checkpoint, config.tags, config.thresholds]


RENAMED = (
    (r"patch_embed\.proj\.", "embeddings.patch_embeddings.projection."),
    (r"patch_embed\.norm\.", "embeddings.norm."),
    (r"norm1\.", "layernorm_before."),
    (r"norm2\.", "layernorm_after."),
    (r"attn\.proj\.", "attention.o_proj."),
    (r"attn\.(relative_position_bias)", r"attention.\1.\1"),
    (r"^norm\.", "layernorm."),
    (r"^layers\.", "encoder.layers."),
)
"""Names of timm's Swin, and those of transformers'."""


def as_transformers(weights):
    """Return the model of transformers with the same weights: three matrices where there is one."""
    config = SwinConfig(
        image_size=SIDE,
        patch_size=tiny.PATCH,
        embed_dim=tiny.EMBED,
        depths=list(tiny.DEPTHS),
        mlp_ratio=4.0,
        num_heads=list(tiny.SWIN_HEADS),
        window_size=tiny.WINDOW,
        drop_path_rate=0.0,
    )
    renamed = {}
    for key, value in weights.items():
        name = key.removeprefix(SWIN)
        for old, new in RENAMED:
            name = re.sub(old, new, name)
        thirds = (
            dict(zip("qkv", value.chunk(3), strict=True)) if "attn.qkv." in name else {"": value}
        )
        for part, tensor in thirds.items():
            renamed[name.replace("attn.qkv.", f"attention.{part}_proj.")] = tensor
    model = SwinModel(config, add_pooling_layer=False)
    missing, unknown = model.load_state_dict(renamed, strict=False)
    assert not unknown
    assert not [name for name in missing if "relative_position_index" not in name]
    return model.eval()


def test_it_sees_what_transformers_swin_sees(tmp_path):
    checkpoint = write_ram(tmp_path)
    swin = {
        name: torch.tensor(value).float()
        for name, value in checkpoint.weights.items()
        if name.startswith(SWIN)
    }
    images = torch.randn(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        states = load(checkpoint.config.checkpoint).swin.forward_features(images).flatten(1, 2)
        expected = as_transformers(swin)(images).last_hidden_state
    assert states.shape == (2, tiny.WINDOW**2, tiny.VISION)
    torch.testing.assert_close(states, expected, rtol=0, atol=2e-5)


def test_the_published_sizes_are_swin_large():
    shapes = {"visual_encoder.patch_embed.proj.weight": (192, 3, 4, 4)}
    for stage, depth in enumerate((2, 2, 18, 2)):
        for block in range(depth):
            name = f"visual_encoder.layers.{stage}.blocks.{block}."
            shapes[f"{name}attn.relative_position_bias_table"] = (23 * 23, 6 << stage)
            shapes[f"{name}mlp.fc1.weight"] = (4 * 192 << stage, 192 << stage)
    with torch.device("meta"):
        swin = build_swin(shapes)
    assert (swin.patch_embed.img_size, swin.num_features) == ((384, 384), 1536)
    assert [len(layer.blocks) for layer in swin.layers] == [2, 2, 18, 2]
    assert [layer.blocks[0].attn.num_heads for layer in swin.layers] == [6, 12, 24, 48]


def test_the_old_name_of_the_head_is_read(tmp_path):
    path = write_ram(tmp_path).config.checkpoint
    expected = load(path).decoder
    tensors = torch.load(path, weights_only=True)["model"]
    renamed = {name.replace("tagging_head.", "vision_multi."): t for name, t in tensors.items()}
    torch.save({"model": renamed}, tmp_path / "older.pth")
    decoder = load(tmp_path / "older.pth").decoder
    assert decoder.keys() == expected.keys()
    assert all(torch.equal(decoder[name], expected[name]) for name in expected)


def test_half_precision_in_safetensors_is_computed_in_float32(tmp_path):
    tensors = torch.load(write_ram(tmp_path).config.checkpoint, weights_only=True)["model"]
    halves = {name: t.half() if t.is_floating_point() else t for name, t in tensors.items()}
    save_file(halves, tmp_path / "ram.safetensors")
    weights = load(tmp_path / "ram.safetensors")
    assert weights.decoder["fc.weight"].dtype == torch.float32
    assert torch.equal(weights.decoder["fc.weight"], tensors["fc.weight"].half().float())
    assert next(weights.swin.parameters()).dtype == torch.float32


QUERY = "tagging_head.encoder.layer.1.crossattention.self.query.weight"
OUTPUT = "tagging_head.encoder.layer.4.output.dense.bias"


@pytest.mark.parametrize(
    ("name", "tensor", "reason"),
    [
        (f"{SWIN}norm.weight", None, r"\bnorm.weight"),
        (f"{SWIN}patch_embed.proj.weight", None, "visual_encoder.patch_embed.proj.weight"),
        (f"{SWIN}layers.1.blocks.1.lora.weight", torch.zeros(8), "layers.1.blocks.1.lora"),
        (f"{SWIN}layers.0.downsample.reduction.weight", torch.zeros(16, 33), r"\[16, 33\]"),
        (f"{SWIN}layers.7.norm.weight", torch.zeros(8), "layers.N"),
        (QUERY, None, QUERY),
        ("label_embed", None, "label_embed"),
        ("image_proj.weight", torch.zeros(tiny.WIDTH, tiny.VISION + 1), "17"),
        (OUTPUT, torch.zeros(1), "layer.2"),
        ("reweight_scale", torch.zeros(()), r"RAM\+\+"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, name, tensor, reason):
    config = write_ram(tmp_path, changes={name: tensor}).config
    prefix = re.escape(f"tagging.ram.checkpoint: {config.checkpoint}")
    with pytest.raises(ModelError, match=f"(?s)^{prefix}.*{reason}"):
        pin_ram(config, download=False)
