"""CLIP by open_clip's real loaders: vectors are those of its own pipeline, image by image."""

import json
import re

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from pairwright.schemas.config import ClipConfig
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.embedders import make_clip
from pairwright.tasks.models.open_clip_embedder import KNOWN, PICKLE, SAFE, identify_clip, pin_clip
from tests.fixtures.checkpoints import CLIP_ARCHITECTURE, write_clip_file, write_hub_cache
from tests.fixtures.hostile_checkpoints import NOT_TENSORS, write_hostile
from tests.tasks.models.samples import assert_vectors, cosines, embed, moved, photographs, unit

IMAGES = list(photographs().values())


def pin(**settings):
    return pin_clip(ClipConfig(**settings), download=False)


def reference(name, images, **options):
    """Return what a user of open_clip gets: its transform, one image at a time, float32."""
    model, _, preprocess = open_clip.create_model_and_transforms(name, **options)
    model.eval()
    with torch.inference_mode():
        inputs = (preprocess(Image.fromarray(image))[None] for image in images)
        return np.concatenate([model.encode_image(pixels).numpy() for pixels in inputs])


def test_vectors_are_those_of_open_clip(clip_folder):
    embedder = make_clip(pin(checkpoint=str(clip_folder)))
    vectors = embed(embedder, IMAGES)
    assert vectors.shape == (len(IMAGES), CLIP_ARCHITECTURE["embed_dim"])
    assert_vectors(vectors, reference(f"local-dir:{clip_folder}", IMAGES))
    others = (unit(vectors) @ unit(vectors).T)[~np.eye(len(IMAGES), dtype=bool)]
    assert np.median(others) < 0.9, "photographs differ"
    shifted = embed(embedder, moved(IMAGES))
    assert np.median(cosines(vectors, shifted)) < 0.999, "a wrong crop would show"


@pytest.mark.parametrize("ending", [".pt", ".bin", ".safetensors"])
def test_a_file_with_a_description_of_the_model(tmp_path, clip_folder, ending):
    file = tmp_path / f"tiny-for{ending[1:]}{ending}"
    described = write_clip_file(file)
    embedder = make_clip(pin(model=str(described), checkpoint=str(file)))
    same = make_clip(pin(checkpoint=str(clip_folder)))
    vectors, expected = embed(embedder, IMAGES[:3]), embed(same, IMAGES[:3])
    np.testing.assert_allclose(vectors, expected, rtol=1e-5, atol=1e-5)


class Tagged:
    """Models that open_clip knows by a tag, with weights in the Hub's cache."""

    def __init__(self, cache, folder, monkeypatch):
        self.snapshot = write_hub_cache(cache, "timm/tiny.squeezed", folder)
        self.options = {"pretrained": str(self.snapshot / SAFE)}
        self.folder, self.monkeypatch = cache, monkeypatch
        tag = open_clip.get_pretrained_cfg("ViT-B-16-SigLIP", "webli")
        self.tag = {**tag, "hf_hub": "timm/tiny.squeezed/", "url": ""}
        fields = ("mean", "std", "interpolation", "resize_mode")
        self.transform = {f"image_{name}": tag[name] for name in fields}

    def make(self, name, *, described=(), **changes):
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(CLIP_ARCHITECTURE | dict(described)))
        open_clip.add_model_config(path)
        known = {"squeezed": {**self.tag, **changes}}
        self.monkeypatch.setitem(open_clip.pretrained._PRETRAINED, name, known)
        return pin(model=name, pretrained="squeezed")


@pytest.fixture
def tagged(hub_cache, monkeypatch, clip_folder):
    return Tagged(hub_cache, clip_folder, monkeypatch)


def test_a_tag_is_read_from_the_hubs_cache_with_its_own_transform(tagged):
    config = tagged.make("tiny-tagged")
    assert config.revision == tagged.snapshot.name == "c" * 40
    assert identify_clip(config) == f"tiny-tagged squeezed {'c' * 40}"
    vectors = embed(make_clip(config), IMAGES[:4])
    expected = reference("tiny-tagged", IMAGES[:4], **tagged.options, **tagged.transform)
    assert cosines(vectors, expected).min() >= 0.9999
    plain = reference("tiny-tagged", IMAGES[:4], **tagged.options)
    assert cosines(vectors, plain).min() < 0.999


def test_weights_compute_with_the_activation_that_they_were_trained_with(tagged):
    config = tagged.make("tiny-quick", quick_gelu=True)
    vectors = embed(make_clip(config), IMAGES[:4])
    options = tagged.options | tagged.transform
    quick = reference("tiny-quick", IMAGES[:4], force_quick_gelu=True, **options)
    slow = reference("tiny-quick", IMAGES[:4], force_quick_gelu=False, **options)
    assert cosines(vectors, quick).min() >= 0.99999
    assert 5 * np.abs(vectors - quick).max() < np.abs(vectors - slow).max()


def test_a_description_with_another_activation_is_refused(tagged):
    config = tagged.make("tiny-quickgelu", described={"quick_gelu": True})
    message = r"embedding\.clip\.model: tiny-quickgelu: .* GELU.*: set it to tiny$"
    with pytest.raises(ModelError, match=message):
        _ = make_clip(config).prepare


@pytest.mark.parametrize("known", KNOWN)
def test_the_known_places_are_those_of_open_clips_table(known):
    repository, commit = KNOWN[known]
    model, tag = known.split()
    assert open_clip.get_pretrained_cfg(model, tag)["hf_hub"] == f"{repository}/"
    names = open_clip.constants.HF_SAFE_WEIGHTS_NAME, open_clip.constants.HF_WEIGHTS_NAME
    assert names == (SAFE, PICKLE)
    assert len(commit) == 40
    assert identify_clip(ClipConfig(model=model, pretrained=tag)) == f"{model} {tag} {commit}"


LARGE = "hf download timm/vit_large_patch14_clip_224.openai open_clip_model.safetensors"


@pytest.mark.usefixtures("hub_cache")
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, f"{LARGE} --revision 18d"),
        ({"model": "ViT-L-15"}, "pretrained: .*of ViT-L-15"),
        ({"model": "none.json"}, "model: none.json: no such file"),
        ({"model": "RN50", "pretrained": "mine"}, "pretrained: .*mine.*choose from openai, "),
        ({"checkpoint": "nowhere.pt"}, "checkpoint: nowhere.pt: no such file or folder"),
    ],
)
def test_what_is_missing_is_named(settings, reason):
    with pytest.raises(ModelError, match=rf"(?s)^embedding\.clip.*{reason}"):
        pin(**settings)


@pytest.mark.parametrize(
    ("file", "missing"), [("open_clip_config.json", "weights"), (SAFE, "open_clip_config.json")]
)
def test_an_incomplete_folder_never_becomes_a_random_model(tmp_path, clip_folder, file, missing):
    (tmp_path / file).write_bytes((clip_folder / file).read_bytes())
    message = rf"embedding\.clip\.checkpoint: {tmp_path} .*{re.escape(missing)}"
    with pytest.raises(ModelError, match=message):
        pin(checkpoint=str(tmp_path))
    with pytest.raises(ModelError, match=str(tmp_path)):
        _ = make_clip(ClipConfig(checkpoint=str(tmp_path))).prepare


@pytest.mark.parametrize("kind", [*NOT_TENSORS, "a cut end", "another model"])
def test_damaged_or_foreign_weights_are_one_message(tmp_path, kind):
    path, marker = tmp_path / "tiny-damaged.pt", tmp_path / "exploded"
    described = write_clip_file(path)
    write_hostile(path, kind, marker)
    embedder = make_clip(ClipConfig(model=str(described), checkpoint=str(path)))
    with pytest.raises(ModelError, match=r"embedding\.clip\.checkpoint: .*damaged\.pt") as refusal:
        _ = embedder.prepare
    assert not marker.exists()
    assert "weights_only" not in str(refusal.value)
    assert ("not only tensors" in str(refusal.value)) == (kind in NOT_TENSORS)
