"""DINOv2 by transformers' real loaders: vectors are those of its own pipeline, image by image."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import BitImageProcessor, Dinov2Model

from pairwright.schemas.config import Dinov2Config
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.embedders import make_dinov2
from pairwright.tasks.models.image_encoder import pin_dinov2
from tests.fixtures.checkpoints import DINOV2_ARCHITECTURE, write_hub_cache
from tests.fixtures.hostile_checkpoints import damage_file
from tests.tasks.models.samples import assert_vectors, cosines, embed, moved, photographs

IMAGES = list(photographs().values())


def config_of(folder):
    return Dinov2Config(model=str(folder))


def pin(config):
    return pin_dinov2(config, download=False)


def test_vectors_are_those_of_transformers(dinov2_folder):
    embedder = make_dinov2(pin(config_of(dinov2_folder)))
    model = Dinov2Model.from_pretrained(dinov2_folder)
    processor = BitImageProcessor.from_pretrained(dinov2_folder)
    with torch.inference_mode():
        inputs = [processor(Image.fromarray(image), return_tensors="pt") for image in IMAGES]
        states = [model(**fields).last_hidden_state[:, 0].numpy() for fields in inputs]
    vectors = embed(embedder, IMAGES)
    assert vectors.shape == (len(IMAGES), DINOV2_ARCHITECTURE["hidden_size"])
    assert_vectors(vectors, np.concatenate(states))
    shifted = embed(embedder, moved(IMAGES))
    assert np.median(cosines(vectors, shifted)) < 0.999, "a wrong crop would show"


def test_a_pickle_is_read_where_there_is_nothing_better(dinov2_folder, tmp_path):
    for name in ("config.json", "preprocessor_config.json"):
        shutil.copy(dinov2_folder / name, tmp_path)
    weights = Dinov2Model.from_pretrained(dinov2_folder).state_dict()
    torch.save(weights, tmp_path / "pytorch_model.bin")
    folders = (dinov2_folder, tmp_path)
    vectors = [embed(make_dinov2(config_of(folder)), IMAGES[:3]) for folder in folders]
    np.testing.assert_array_equal(*vectors)


def test_a_name_is_read_from_the_hubs_cache(hub_cache, dinov2_folder):
    snapshot = write_hub_cache(hub_cache, "someone/dinov2-tiny", dinov2_folder)
    config = pin(Dinov2Config(model="someone/dinov2-tiny"))
    assert config.revision == snapshot.name
    embedder, local = make_dinov2(config), make_dinov2(config_of(dinov2_folder))
    assert embedder.version == f"someone/dinov2-tiny {snapshot.name}"
    np.testing.assert_array_equal(embed(embedder, IMAGES[:3]), embed(local, IMAGES[:3]))


def test_a_local_model_is_known_by_its_bytes_wherever_it_lies(dinov2_folder, tmp_path):
    copy = shutil.copytree(dinov2_folder, tmp_path / "copy")
    config = pin(config_of(dinov2_folder))
    version = make_dinov2(config).version
    assert version.startswith("DINOv2 xxh3:")
    assert make_dinov2(pin(config_of(copy))).version == version
    (copy / "preprocessor_config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"embedding\.dinov2\.revision"):
        pin(config.model_copy(update={"model": str(copy)}))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config.json", '{"model_type": "bert"}', "bert.* dinov2.* dinov2_with_registers"),
        ("config.json", "{", "embedding.dinov2: .*JSONDecodeError"),
        ("config.json", None, ""),
        ("preprocessor_config.json", "{", "embedding.dinov2: .*JSONDecodeError"),
        ("preprocessor_config.json", '{"do_center_crop": false}', "KeyError"),
        ("preprocessor_config.json", None, ""),
        ("model.safetensors", "not weights", "embedding.dinov2: "),
        ("model.safetensors", None, ""),
    ],
)
def test_a_damaged_or_incomplete_folder_is_one_message(
    dinov2_folder, tmp_path, name, content, reason
):
    shutil.copytree(dinov2_folder, tmp_path, dirs_exist_ok=True)
    damage_file(tmp_path / name, content)
    reason = reason or str(tmp_path)
    with pytest.raises(ModelError, match=reason):
        _ = make_dinov2(config_of(tmp_path)).prepare
    with pytest.raises(ModelError, match=reason):  # before a build, too
        pin(config_of(tmp_path))
