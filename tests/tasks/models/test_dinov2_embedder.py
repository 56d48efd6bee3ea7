"""DINOv2 through transformers' real loaders: the vectors are those of its own pipeline, one image
at a time."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import BitImageProcessor, Dinov2Model

from pairwright.schemas.config import Dinov2Config
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.dinov2_embedder import pin_dinov2
from pairwright.tasks.models.embedders import make_dinov2
from tests.fixtures.checkpoints import DINOV2_ARCHITECTURE, write_dinov2_folder, write_hub_cache
from tests.tasks.models.samples import embed, photographs, unit

PHOTOGRAPHS = photographs()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_dinov2_folder(tmp_path_factory.mktemp("dinov2"))


def reference(folder, images):
    """Return what a user of transformers gets: its image processor, one image at a time,
    float32."""
    model, processor = (
        Dinov2Model.from_pretrained(folder),
        BitImageProcessor.from_pretrained(folder),
    )
    with torch.inference_mode():
        inputs = [processor(Image.fromarray(image), return_tensors="pt") for image in images]
        return np.concatenate([model(**given).last_hidden_state[:, 0].numpy() for given in inputs])


def test_vectors_are_those_of_transformers(folder):
    embedder = make_dinov2(pin_dinov2(Dinov2Config(model=str(folder)), download=False))
    images = list(PHOTOGRAPHS.values())
    got, wanted = embed(embedder, images), reference(folder, images)
    assert got.dtype == np.float32
    assert got.shape == (len(images), DINOV2_ARCHITECTURE["hidden_size"])
    assert (unit(got) * unit(wanted)).sum(axis=1).min() >= 0.9999
    np.testing.assert_allclose(
        np.linalg.norm(got, axis=1), np.linalg.norm(wanted, axis=1), rtol=0.02
    )
    # The check above can fail: these vectors tell photographs apart, and crops that are a few
    # pixels off.
    moved = embed(embedder, [image[:, image.shape[1] // 20 :] for image in images])
    assert np.median((unit(got) * unit(moved)).sum(axis=1)) < 0.999


def test_a_pickle_is_read_where_there_is_nothing_better(folder, tmp_path):
    for name in ("config.json", "preprocessor_config.json"):
        shutil.copy(folder / name, tmp_path)
    torch.save(Dinov2Model.from_pretrained(folder).state_dict(), tmp_path / "pytorch_model.bin")
    images = list(PHOTOGRAPHS.values())[:3]
    ours = [
        embed(make_dinov2(Dinov2Config(model=str(path))), images) for path in (folder, tmp_path)
    ]
    np.testing.assert_array_equal(*ours)


def test_a_name_is_read_from_the_hubs_cache(tmp_path, monkeypatch, folder):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    snapshot = write_hub_cache(tmp_path, "someone/dinov2-tiny", folder)
    config = pin_dinov2(Dinov2Config(model="someone/dinov2-tiny"), download=False)
    assert config.revision == snapshot.name
    assert make_dinov2(config).version == f"someone/dinov2-tiny {snapshot.name}"
    images = list(PHOTOGRAPHS.values())[:3]
    local = make_dinov2(Dinov2Config(model=str(folder)))
    np.testing.assert_array_equal(embed(make_dinov2(config), images), embed(local, images))


def test_a_local_model_is_known_by_its_bytes_wherever_it_lies(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    both = [
        pin_dinov2(Dinov2Config(model=str(path)), download=False)
        for path in (folder, tmp_path / "copy")
    ]
    (name,) = {make_dinov2(config).version for config in both}
    assert name.startswith("DINOv2 xxh3:")
    (tmp_path / "copy" / "preprocessor_config.json").write_text("{}")
    first = both[0]
    with pytest.raises(ModelError, match=r"embedding\.dinov2\.revision"):
        pin_dinov2(first.model_copy(update={"model": str(tmp_path / "copy")}), download=False)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("config.json", '{"model_type": "bert"}', "bert.* dinov2.* dinov2_with_registers"),
        ("config.json", "{", "embedding.dinov2: .*JSONDecodeError"),
        ("preprocessor_config.json", "{", "embedding.dinov2: .*JSONDecodeError"),
        ("preprocessor_config.json", '{"do_center_crop": false}', "KeyError"),
        ("model.safetensors", "not weights", "embedding.dinov2: "),
        *(
            (name, None, "")
            for name in ("config.json", "preprocessor_config.json", "model.safetensors")
        ),
    ],
)
def test_a_damaged_folder_and_one_that_lacks_a_file_are_one_message(
    folder, tmp_path, name, text, words
):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / name).write_text(text) if text else (tmp_path / name).unlink()
    with pytest.raises(ModelError, match=words if text else str(tmp_path)):
        _ = make_dinov2(Dinov2Config(model=str(tmp_path))).prepare
    with pytest.raises(ModelError, match=words if text else str(tmp_path)):  # before a build, too
        pin_dinov2(Dinov2Config(model=str(tmp_path)), download=False)
