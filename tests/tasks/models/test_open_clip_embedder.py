"""CLIP through open_clip's real loaders: the vectors are those of its own pipeline, one image at a
time."""

import json
import pickle
import re
import warnings

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from pairwright.schemas.config import ClipConfig
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.embedders import make_clip
from pairwright.tasks.models.open_clip_embedder import KNOWN, PICKLE, SAFE, identify, pin_clip
from tests.fixtures.checkpoints import (
    CLIP_ARCHITECTURE,
    write_clip_file,
    write_clip_folder,
    write_hub_cache,
)
from tests.fixtures.hostile_checkpoints import Payload
from tests.tasks.models.samples import embed, photographs, unit

PHOTOGRAPHS = photographs()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_clip_folder(tmp_path_factory.mktemp("clip"))


def reference(name, images, **options):
    """Return what a user of open_clip gets: its transform, one image at a time, float32."""
    model, _, preprocess = open_clip.create_model_and_transforms(name, **options)
    model.eval()
    with torch.inference_mode():
        inputs = (preprocess(Image.fromarray(image))[None] for image in images)
        return np.concatenate([model.encode_image(given).numpy() for given in inputs])


def test_vectors_are_those_of_open_clip(folder):
    embedder = make_clip(pin_clip(ClipConfig(checkpoint=str(folder)), download=False))
    images = list(PHOTOGRAPHS.values())
    got, wanted = embed(embedder, images), reference(f"local-dir:{folder}", images)
    assert got.dtype == np.float32
    assert got.shape == (len(images), CLIP_ARCHITECTURE["embed_dim"])
    assert (unit(got) * unit(wanted)).sum(axis=1).min() >= 0.9999
    np.testing.assert_allclose(
        np.linalg.norm(got, axis=1), np.linalg.norm(wanted, axis=1), rtol=0.02
    )
    # The check above can fail: these vectors tell photographs apart, and crops that are a few
    # pixels off.
    cosines = unit(got) @ unit(got).T
    assert np.median(cosines[~np.eye(len(images), dtype=bool)]) < 0.9
    moved = embed(embedder, [image[:, image.shape[1] // 20 :] for image in images])
    assert np.median((unit(got) * unit(moved)).sum(axis=1)) < 0.999


@pytest.mark.parametrize("ending", [".pt", ".bin", ".safetensors"])
def test_a_file_with_a_description_of_the_model(tmp_path, folder, ending):
    described = write_clip_file(tmp_path / f"tiny-for{ending[1:]}{ending}")
    config = pin_clip(
        ClipConfig(model=str(described), checkpoint=str(described.with_suffix(ending))),
        download=False,
    )
    images = list(PHOTOGRAPHS.values())[:3]
    same = make_clip(pin_clip(ClipConfig(checkpoint=str(folder)), download=False))
    np.testing.assert_allclose(
        embed(make_clip(config), images), embed(same, images), rtol=1e-5, atol=1e-5
    )


@pytest.fixture
def tagged(tmp_path, monkeypatch, folder):
    """Return what makes a model known by a tag, with its weights in the Hub's cache, and where
    those are."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    snapshot = write_hub_cache(tmp_path, "timm/tiny.squeezed", folder)

    def make(name, *, described=False, **changes):
        path = tmp_path / f"{name}.json"
        path.write_text(
            json.dumps({**CLIP_ARCHITECTURE, **({"quick_gelu": True} if described else {})})
        )
        open_clip.add_model_config(path)
        tag = {
            **open_clip.get_pretrained_cfg("ViT-B-16-SigLIP", "webli"),
            "hf_hub": "timm/tiny.squeezed/",
            "url": "",
        }
        monkeypatch.setitem(
            open_clip.pretrained._PRETRAINED, name, {"squeezed": {**tag, **changes}}
        )
        return ClipConfig(model=name, pretrained="squeezed"), tag

    return make, snapshot


def test_a_tag_is_read_from_the_hubs_cache_with_its_own_transform(tagged):
    make, snapshot = tagged
    config, tag = make("tiny-tagged")
    config = pin_clip(config, download=False)
    assert config.revision == snapshot.name == "c" * 40
    assert identify(config) == f"tiny-tagged squeezed {'c' * 40}"
    images = list(PHOTOGRAPHS.values())[:4]
    as_tagged = {
        f"image_{name}": tag[name] for name in ("mean", "std", "interpolation", "resize_mode")
    }
    wanted = reference("tiny-tagged", images, pretrained=str(snapshot / SAFE), **as_tagged)
    got = embed(make_clip(config), images)
    assert (unit(got) * unit(wanted)).sum(axis=1).min() >= 0.9999
    plain = reference("tiny-tagged", images, pretrained=str(snapshot / SAFE))
    assert (unit(got) * unit(plain)).sum(axis=1).min() < 0.999


def test_weights_compute_with_the_activation_that_they_were_trained_with(tagged):
    make, snapshot = tagged
    images, options = list(PHOTOGRAPHS.values())[:4], {"pretrained": str(snapshot / SAFE)}
    config, tag = make("tiny-quick", quick_gelu=True)
    options |= {
        f"image_{name}": tag[name] for name in ("mean", "std", "interpolation", "resize_mode")
    }
    got = embed(make_clip(pin_clip(config, download=False)), images)
    quick, slow = (
        reference("tiny-quick", images, force_quick_gelu=quick, **options)
        for quick in (True, False)
    )
    assert (unit(got) * unit(quick)).sum(axis=1).min() >= 0.99999
    assert 5 * np.abs(got - quick).max() < np.abs(got - slow).max()
    config, _ = make("tiny-quickgelu", described=True)
    with pytest.raises(
        ModelError, match=r"embedding\.clip\.model: tiny-quickgelu: .* GELU.*: set it to tiny$"
    ):
        embed(make_clip(pin_clip(config, download=False)), images)


@pytest.mark.parametrize("known", KNOWN)
def test_the_known_places_are_those_of_open_clips_table(known):
    (repository, commit), (model, tag) = KNOWN[known], known.split()
    assert open_clip.get_pretrained_cfg(model, tag)["hf_hub"] == f"{repository}/"
    assert (open_clip.constants.HF_SAFE_WEIGHTS_NAME, open_clip.constants.HF_WEIGHTS_NAME) == (
        SAFE,
        PICKLE,
    )
    assert len(commit) == 40
    assert identify(ClipConfig(model=model, pretrained=tag)) == f"{model} {tag} {commit}"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            ClipConfig(),
            (
                "hf download timm/vit_large_patch14_clip_224.openai open_clip_model.safetensors "
                "--revision 18d"
            ),
        ),
        (ClipConfig(model="ViT-L-15"), "embedding.clip.pretrained: .*of ViT-L-15"),
        (ClipConfig(model="none.json"), "embedding.clip.model: none.json: no such file"),
        (
            ClipConfig(model="RN50", pretrained="mine"),
            "embedding.clip.pretrained: .*mine.*choose from openai, ",
        ),
        (
            ClipConfig(checkpoint="nowhere.pt"),
            "embedding.clip.checkpoint: nowhere.pt: no such file or folder",
        ),
    ],
)
def test_what_is_missing_is_named(tmp_path, monkeypatch, config, words):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=words):
        pin_clip(config, download=False)


@pytest.mark.parametrize(
    ("there", "lacking"), [("open_clip_config.json", "weights"), (SAFE, "open_clip_config.json")]
)
def test_folder_without_weights_never_becomes_a_random_model(tmp_path, folder, there, lacking):
    (tmp_path / there).write_bytes((folder / there).read_bytes())
    config = ClipConfig(checkpoint=str(tmp_path))
    with pytest.raises(
        ModelError, match=rf"embedding\.clip\.checkpoint: {tmp_path} .*{re.escape(lacking)}"
    ):
        pin_clip(config, download=False)
    with pytest.raises(ModelError, match=str(tmp_path)):
        _ = make_clip(config).prepare


@pytest.mark.parametrize("damage", ["cut", "other architecture", "program", "code"])
def test_damaged_or_foreign_weights_are_one_message(tmp_path, damage):
    path = tmp_path / "tiny-damaged.pt"
    described = write_clip_file(path)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    elif damage == "other architecture":
        torch.save({"weight": torch.zeros(3)}, path)
    elif damage == "program":
        with warnings.catch_warnings(action="ignore"):  # TorchScript is deprecated
            torch.jit.save(torch.jit.script(torch.nn.Identity()), str(path))
    else:
        path.write_bytes(pickle.dumps(Payload(tmp_path / "exploded")))
    embedder = make_clip(ClipConfig(model=str(described), checkpoint=str(path)))
    with pytest.raises(
        ModelError, match=r"embedding\.clip\.checkpoint: .*tiny-damaged\.pt"
    ) as refused:
        _ = embedder.prepare
    assert not (tmp_path / "exploded").exists()
    assert "weights_only" not in str(refused.value)
    assert ("not only tensors" in str(refused.value)) == (damage in ("program", "code"))
