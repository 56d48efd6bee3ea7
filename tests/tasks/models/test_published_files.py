"""The loaders on files with the names and shapes of what is published, and no numbers."""

import json
import logging
from pathlib import Path

import pytest
import torch

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models import grounding_dino, image_encoder, open_clip_embedder, ram, sam
from pairwright.tasks.serving.gpu_memory import read_model
from tests.fixtures import newer_sizes
from tests.fixtures.big_lama import BigLama
from tests.fixtures.published_files import (
    TAGS,
    describe,
    nothing_drawn,
    put_clip,
    put_dinov2,
    put_grounding_dino,
    put_ram,
    put_sam,
    size_of,
    tensors_of,
    write_shards,
)

LARGE = ("clip-vit-l-14", "dinov2-large", "grounding-dino-base", "sam-vit-h")
SMALL = ("clip-vit-b-32", "dinov2-small", "grounding-dino-tiny", "sam-vit-b")


@pytest.fixture(autouse=True)
def forgotten(hub_cache):
    yield
    for load in (image_encoder.load_dinov2, grounding_dino._load, grounding_dino._processor):
        load.cache_clear()


def load_clip(config):
    with nothing_drawn():
        return open_clip_embedder.create_model(config)


LOADERS = {
    "clip": (put_clip, load_clip),
    "dinov2": (put_dinov2, lambda config: image_encoder.load_dinov2(config, 0)[0]),
    "grounding": (
        put_grounding_dino,
        lambda config: grounding_dino._load(config.model, config.revision),
    ),
    "sam": (put_sam, lambda config: sam.load_sam(Path(config.checkpoint), field="here")),
}


def run_loader(folder, name, **how):
    """Return what the loader of a file makes of it; ``without`` leaves a tensor out."""
    put, load = LOADERS[name.partition("-")[0]]
    return load(put(folder, name, **how))


@pytest.mark.parametrize("name", [*LARGE, *SMALL])
def test_a_published_file_is_loaded_whole_and_nothing_of_it_is_spare(name, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        assert run_loader(tmp_path, name) is not None
    assert "no place" not in caplog.text


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("clip-vit-b-32", "visual.transformer.resblocks.11.ln_2.bias"),
        ("dinov2-small", "encoder.layer.11.layer_scale2.lambda1"),
        ("grounding-dino-tiny", "model.text_backbone.encoder.layer.11.output.dense.bias"),
        ("sam-vit-b", "prompt_encoder.not_a_point_embed.weight"),
    ],
)
def test_a_file_that_lacks_a_tensor_is_refused(name, key, tmp_path):
    with pytest.raises(ModelError, match=key.rpartition(".")[2]):
        run_loader(tmp_path, name, without=key)


@pytest.mark.slow
def test_the_tagger_takes_what_names_tags_and_leaves_what_writes(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        path = Path(put_ram(tmp_path).checkpoint)
        weights = ram.load_ram(path, field="here", tags=TAGS)
    assert "no place" not in caplog.text
    assert weights.swin.patch_embed.img_size == (384, 384)
    assert len(weights.decoder["label_embed"]) == TAGS
    writing = ("tag_encoder", "text_decoder")
    assert not [name for name in weights.decoder if name.startswith(writing)]
    tensors = [*weights.swin.parameters(), *weights.decoder.values()]
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    assert size == describe("encoders")["tags"]["bytes"]
    assert sum(name.startswith(ram.LAYER) for name in weights.decoder) == 2 * (8 + 2 + 2 + 2 + 2)


TODAY = {
    "embeddings": ((newer_sizes.make_siglip2, "ViT"), (newer_sizes.make_dinov3, "DINOv3 ")),
    "boxes": ((newer_sizes.make_mm_grounding_dino, "MM Grounding DINO "),),
    "masks": ((newer_sizes.make_sam2, "SAM 2.1 "),),
}
"""Makers of the models of a stage, with the beginnings of their names in the description."""


@pytest.mark.parametrize("profile", ["gpu-24", "gpu-80"])
@pytest.mark.parametrize("stage", TODAY)
def test_models_of_today_have_the_described_sizes(profile, stage):
    described = describe("encoders-today")["profiles"][profile][stage]["models"]
    for (make, start), (name, size) in zip(TODAY[stage], described.items(), strict=True):
        argument = name if start == "ViT" else name.removeprefix(start)
        assert newer_sizes.count_bytes(make, argument) == size


@pytest.mark.parametrize("name", ["qwen3-vl-4b", "qwen3-vl-8b"])
def test_qwen3_vl_has_the_described_size(name):
    described = describe(name)
    size = newer_sizes.count_bytes(newer_sizes.make_qwen3_vl, described["config"], width=2)
    assert size == described["total_size"]


@pytest.mark.parametrize("name", ["qwen2-vl-7b", "mixtral-8x7b"])
def test_tensors_add_up_to_the_published_size_by_index(name, tmp_path):
    described = describe(name)
    tensors = tensors_of(described)
    assert size_of(tensors) == described["total_size"]
    write_shards(tmp_path, tensors, 5)
    (tmp_path / "config.json").write_text(json.dumps(described["config"]))
    assert read_model(tmp_path) == (described["config"], described["total_size"])


def test_big_lama_of_the_tests_has_the_published_names_and_shapes():
    with torch.device("meta"):
        state = BigLama().state_dict()
    tensors = tensors_of(describe("big-lama"))
    shapes = {name: shape for name, (_, shape) in tensors.items()}
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == shapes
    with_code = describe("encoders")["removals"]["bytes"]
    assert size_of(tensors) == pytest.approx(with_code, rel=5e-3)


@pytest.mark.parametrize(
    ("stage", "names"), [("embeddings", LARGE[:2]), ("boxes", LARGE[2:3]), ("masks", LARGE[3:])]
)
def test_the_memory_page_counts_the_tensors_of_these_files(stage, names):
    """But for a norm that Grounding DINO makes anew."""
    floats = [tensors_of({"float32": describe(name)["float32"]}) for name in names]
    counted = describe("encoders")[stage]["bytes"]
    assert counted == pytest.approx(sum(map(size_of, floats)), rel=1e-4)
