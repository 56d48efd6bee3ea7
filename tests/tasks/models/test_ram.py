"""RAM from pixels to names, with tiny checkpoints in the published format; its network by hand."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
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
from tests.fixtures.ram_checkpoints import SIDE, TAGS, Checkpoint, decode, write_ram

SIZES = [(60, 90), (90, 60), (1, 1), (20, 8000), (SIDE, SIDE), (37, 41)]
"""Landscape, portrait, one pixel, a panorama, the model's own, odd."""


def images(sizes: list[tuple[int, int]] = SIZES) -> list[NDArray[np.uint8]]:
    rng = np.random.default_rng(3)
    noise = [rng.integers(0, 256, (height, width, 3), dtype=np.uint8) for height, width in sizes]
    return [*noise, np.full((50, 40, 3), 119, dtype=np.uint8)]


def wanted_of(
    made: Checkpoint, tagger: RamTagger, squares: list[NDArray[np.uint8]]
) -> NDArray[np.float64]:
    """Return the probabilities by the reference decoder, from what the image encoder gives."""
    swin = load_ram(Path(tagger.config.checkpoint), field="x", tags=len(TAGS)).swin
    numbers = transform_of(SIDE).numbers
    with torch.inference_mode():
        patches = (
            swin.forward_features(numbers(torch.from_numpy(np.stack(squares))))
            .flatten(1, 2)
            .double()
            .numpy()
        )
    return np.array([decode(made.weights, image) for image in patches])


def test_tags_are_those_above_their_thresholds_by_falling_probability(tmp_path: Path) -> None:
    thresholds = tuple(0.2 + 0.05 * place for place in range(len(TAGS)))
    made = write_ram(tmp_path, thresholds=thresholds)
    tagger = RamTagger(config=made.config)
    squares = [tagger.prepare(DecodedImage(pixels)) for pixels in images()]
    chances = wanted_of(made, tagger, squares)
    assert 0 < (chances > thresholds).mean() < 1
    for row, tags in zip(chances, tagger.tag(squares), strict=True):
        above = sorted(
            (place for place in range(len(TAGS)) if row[place] > thresholds[place]),
            key=lambda n: -row[n],
        )
        assert [tag.name for tag in tags] == [TAGS[place] for place in above]
        assert [tag.score for tag in tags] == pytest.approx(
            [row[place] for place in above], abs=1e-4
        )
        assert {tag.tagger for tag in tags} <= {"ram"}


def test_a_list_of_another_length_is_refused(tmp_path: Path) -> None:
    config = write_ram(tmp_path).config
    Path(config.tags).write_text("\n".join(TAGS[:-1]))
    Path(config.thresholds).write_text("\n".join(["0.5"] * (len(TAGS) - 1)))
    with pytest.raises(ModelError, match=r"tagging\.ram\.checkpoint: .*11 tags .* 10"):
        RamTagger(config=config).tag([np.zeros((SIDE, SIDE, 3), dtype=np.uint8)])


def lists(folder: Path, tags: str, thresholds: str) -> tuple[Path, Path]:
    (folder / "tags.txt").write_text(tags, encoding="utf-8")
    (folder / "thresholds.txt").write_text(thresholds)
    return folder / "tags.txt", folder / "thresholds.txt"


def test_names_come_with_their_thresholds(tmp_path: Path) -> None:
    names, thresholds = read_tags(*lists(tmp_path, "dog\nteddy bear \ncafé\n", "0.5\n0.65\n1.0\n"))
    assert names == ("dog", "teddy bear", "café")
    assert thresholds.tolist() == pytest.approx([0.5, 0.65, 1.0])


@pytest.mark.parametrize(
    ("tags", "thresholds", "message"),
    [
        ("dog\ncat", "0.5\n0.5\n0.5", "thresholds.txt .* 3 thresholds, .*tags.txt .* 2 tags"),
        ("dog", "high", "thresholds.txt .*'high'"),
        ("dog\ncat", "0.5\n1.5", "thresholds.txt .*0 to 1"),
        ("dog", "nan", "thresholds.txt .*0 to 1"),
    ],
)
def test_broken_lists_are_refused(tmp_path: Path, tags: str, thresholds: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_tags(*lists(tmp_path, tags, thresholds))
    (tmp_path / "tags.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelError, match=r"tags\.txt"):
        read_tags(tmp_path / "tags.txt", tmp_path / "thresholds.txt")


def test_pinning_names_the_files_by_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = write_ram(tmp_path / "a").config
    monkeypatch.chdir(tmp_path)
    near = RamConfig(checkpoint="a/ram.pth", tags="a/tags.txt", thresholds="a/thresholds.txt")
    pinned = pin_ram(near, download=False)
    assert pinned == made.model_copy(update={"revision": pinned.revision})
    assert pinned.revision.startswith("xxh3:")
    found = find_ram(pinned, download=False)
    assert list(found.values()) == [Path(p) for p in (made.checkpoint, made.tags, made.thresholds)]


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
    """Return the model of transformers with the same weights: other names, and three matrices where
    there is one."""
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
    renamed: dict[str, torch.Tensor] = {}
    for key, value in weights.items():
        name = key.removeprefix(SWIN)
        for old, new in (
            ("patch_embed.proj.", "embeddings.patch_embeddings.projection."),
            ("patch_embed.norm.", "embeddings.norm."),
            ("norm1.", "layernorm_before."),
            ("norm2.", "layernorm_after."),
            ("attn.proj.", "attention.o_proj."),
            (
                "attn.relative_position_bias_table",
                "attention.relative_position_bias.relative_position_bias_table",
            ),
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
    loaded = load_ram(Path(made.config.checkpoint), field="x", tags=len(TAGS))
    weights = {
        name: torch.tensor(value).float()
        for name, value in made.weights.items()
        if name.startswith(SWIN)
    }
    images = torch.randn(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        found = loaded.swin.forward_features(images).flatten(1, 2)
        wanted = as_transformers(weights)(images).last_hidden_state
    assert found.shape == (2, tiny.WINDOW**2, tiny.VISION)
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-5)


def test_the_published_sizes_are_swin_large() -> None:
    with torch.device("meta"):
        swin = build_swin(PUBLISHED)
    assert (
        swin.patch_embed.img_size,
        swin.num_features,
        [len(one.blocks) for one in swin.layers],
    ) == (
        (384, 384),
        1536,
        [2, 2, 18, 2],
    )
    assert [one.blocks[0].attn.num_heads for one in swin.layers] == [6, 12, 24, 48]


def test_reads_old_head_name_half_precision_and_safetensors(tmp_path: Path) -> None:
    path = Path(write_ram(tmp_path).config.checkpoint)
    tensors = torch.load(path, weights_only=True)["model"]
    wanted = load_ram(path, field="x", tags=len(TAGS)).decoder
    renamed = {
        name.replace("tagging_head.", "vision_multi."): value for name, value in tensors.items()
    }
    torch.save({"model": renamed}, tmp_path / "older.pth")
    found = load_ram(tmp_path / "older.pth", field="x", tags=len(TAGS)).decoder
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    kept = {
        name: value.half() if value.is_floating_point() else value
        for name, value in tensors.items()
    }
    save_file(kept, tmp_path / "ram.safetensors")
    loaded = load_ram(tmp_path / "ram.safetensors", field="x", tags=len(TAGS))
    assert loaded.decoder["fc.weight"].dtype == torch.float32
    assert torch.equal(loaded.decoder["fc.weight"], tensors["fc.weight"].half().float())
    assert next(loaded.swin.parameters()).dtype == torch.float32


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
        ({"image_proj.weight": torch.zeros(tiny.WIDTH, tiny.VISION + 1)}, "17"),
        ({"tagging_head.encoder.layer.4.output.dense.bias": torch.zeros(1)}, "layer.2"),
        ({"reweight_scale": torch.zeros(())}, r"RAM\+\+"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, change: dict[str, torch.Tensor | None], message: str
) -> None:
    config = write_ram(tmp_path, changes=change).config
    with pytest.raises(ModelError, match=f"(?s){message}") as caught:
        pin_ram(config, download=False)
    assert str(caught.value).startswith(f"tagging.ram.checkpoint: {config.checkpoint}")
