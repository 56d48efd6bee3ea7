"""The loaders on files with the names and shapes of what is published, and no numbers."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models import dinov2_embedder, grounding_dino, open_clip_embedder, ram, sam
from pairwright.tasks.serving.gpu_memory import read_model
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
LOADED = {"embeddings": LARGE[:2], "boxes": LARGE[2:3], "masks": LARGE[3:4]}
"""Which files the stages of ``encoders.json`` load whole."""


@pytest.fixture(autouse=True)
def forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    yield
    for load in (dinov2_embedder.load, grounding_dino._load, grounding_dino._processor):
        load.cache_clear()


def load_clip(folder, name, without=""):
    config = put_clip(folder, name, without=without)
    with nothing_drawn():
        return open_clip_embedder.create_model(config)


def load_dinov2(folder, name, without=""):
    config = put_dinov2(folder, name, without=without)
    return dinov2_embedder.load(config, 0)[0]


def load_grounding(folder, name, without=""):
    config = put_grounding_dino(folder, name, without=without)
    return grounding_dino._load(config.model, config.revision)


def load_sam(folder, name, without=""):
    return sam.load_sam(Path(put_sam(folder, name, without=without).checkpoint), field="here")


LOADERS = {"clip": load_clip, "dinov2": load_dinov2, "grounding": load_grounding, "sam": load_sam}


def run_loader(folder: Path, name: str, **how: str) -> Any:
    """Return what the loader of a file makes of it; ``without`` leaves a tensor out."""
    return LOADERS[name.partition("-")[0]](folder, name, **how)


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
        config = put_ram(tmp_path)
        loaded = ram.load_ram(Path(config.checkpoint), field="here", tags=TAGS)
    assert "no place" not in caplog.text
    assert loaded.swin.patch_embed.img_size == (384, 384)
    assert len(loaded.decoder["label_embed"]) == TAGS
    assert not [name for name in loaded.decoder if name.startswith(("tag_encoder", "text_decoder"))]
    held = [*loaded.swin.parameters(), *loaded.decoder.values()]
    assert describe("encoders")["tags"]["bytes"] == sum(
        one.numel() * one.element_size() for one in held
    )
    assert sum(name.startswith(ram.LAYER) for name in loaded.decoder) == 2 * (8 + 2 + 2 + 2 + 2)


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
        made = BigLama().state_dict()
    tensors = tensors_of(describe("big-lama"))
    assert {name: tuple(one.shape) for name, one in made.items()} == {
        name: shape for name, (_, shape) in tensors.items()
    }
    assert size_of(tensors) == pytest.approx(
        describe("encoders")["removals"]["bytes"], rel=5e-3
    )  # the file's code


def test_the_memory_page_counts_the_tensors_of_these_files():
    counted = describe("encoders")
    for stage, names in LOADED.items():
        floats = sum(size_of(tensors_of({"float32": describe(name)["float32"]})) for name in names)
        assert counted[stage]["bytes"] == pytest.approx(
            floats, rel=1e-4
        )  # a norm that Grounding DINO makes anew
