"""Tables of images' places equal what each model's own library gives, one image at a time."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import cosine_similarity
from torchvision.transforms.functional import normalize, to_tensor

from pairwright.schemas.errors import ModelError
from pairwright.schemas.namc_config import CnnConfig, DualEncoderConfig, VqganConfig
from pairwright.schemas.rows import Dropped, ImageRow, PlacesRow, make_key
from pairwright.tasks.models.namc_places import (
    CROP,
    load_codes,
    load_grids,
    make_place_clip,
    pin_weights,
)
from pairwright.tasks.training.namc import feature_tables
from tests.fixtures.checkpoints import READING_CLIP, write_clip_file
from tests.fixtures.namc_models import CODES, make_cnn, make_vqgan, write_cnn, write_vqgan
from tests.fixtures.pictures import picture
from tests.fixtures.rows import row_of

ALIKE = 0.9999
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def row(data):
    return row_of(ImageRow, data, source=make_key(data), image=data, format="png")


@pytest.fixture(scope="module")
def images():
    """Return two images of the crop's size, of which no rounding is lost, and between them one that
    does not decode."""
    first, last = (picture(n, size=(224, 224)) for n in (1, 2))
    return [row(first), row(b"GIF89a"), row(last)]


def scaled(image):
    """Return ``(3, 224, 224)`` in [0, 1]."""
    return to_tensor(Image.open(io.BytesIO(image.image)))


@pytest.mark.parametrize("size", [(260, 120), (90, 250)])
def test_the_crop_is_the_squashed_image(size):
    image = Image.open(io.BytesIO(picture(3, size=size)))
    theirs = np.asarray(image.resize((224, 224), Image.Resampling.BICUBIC), dtype=np.float32)
    assert np.abs(CROP(np.asarray(image)) - theirs).mean() < 0.5  # of 255 levels


def values(actual):
    kind = {"float16": np.float16, "uint16": np.uint16}[actual.kind]
    return np.frombuffer(actual.values, dtype=kind).reshape(196, -1).astype(np.float32)


def test_grids_are_those_of_torchvision(images, tmp_path):
    config = CnnConfig(model="resnet18", checkpoint=str(write_cnn(tmp_path / "resnet18.pth")))
    torn, first, last = feature_tables.encode_places(images, pin_weights(config))
    assert isinstance(torn, Dropped)
    assert (torn.source_key, torn.reason) == (images[1].key, "damaged image")
    model = make_cnn()
    for image, actual in ((images[0], first), (images[2], last)):
        assert (actual.subject, actual.width, len(actual.values)) == (image.key, 256, 196 * 256 * 2)
        seen = normalize(scaled(image), list(MEAN), list(STD))[None]
        with torch.no_grad():
            seen = model.maxpool(model.relu(model.bn1(model.conv1(seen))))
            theirs = model.layer3(model.layer2(model.layer1(seen)))[0].flatten(1).T
        assert cosine_similarity(torch.from_numpy(values(actual)), theirs).min() > ALIKE


def test_codes_are_those_of_another_implementation(images, tmp_path):
    model = make_vqgan()
    config = VqganConfig(checkpoint=str(write_vqgan(tmp_path / "vqgan.ckpt", model)))
    actual = [
        each for each in feature_tables.encode_places(images, config) if isinstance(each, PlacesRow)
    ]
    for image, own in zip((images[0], images[2]), actual, strict=True):
        assert (own.width, len(own.values)) == (CODES, 196 * 2)
        with torch.no_grad():
            theirs = model.quantize(model.quant_conv(model.encoder(scaled(image)[None] * 2 - 1)))[
                2
            ].reshape(196)
        own_codes = torch.from_numpy(values(own)).flatten()
        assert own_codes.unique().numel() > 3
        assert (own_codes == theirs).float().mean() > 0.98  # a tie may be rounded the other way


def test_models_that_see_other_places_are_refused(tmp_path):
    cnn = write_cnn(tmp_path / "resnet18.pth")
    with pytest.raises(ModelError, match=r"namc\.cnn: .*resnet18\.pth: .*layer1\.0\."):
        load_grids(CnnConfig(model="resnet50", checkpoint=str(cnn)).model_dump_json())
    with pytest.raises(ModelError, match=r"namc\.cnn\.model: convnext_atto: .*32 pixels"):
        load_grids(CnnConfig(model="convnext_atto", checkpoint=str(cnn)).model_dump_json())
    with pytest.raises(ModelError, match=r"namc\.vqgan: .*resnet18\.pth"):
        load_codes(VqganConfig(checkpoint=str(cnn)).model_dump_json())
    file = tmp_path / "small.safetensors"
    described = write_clip_file(file, architecture=READING_CLIP)
    with pytest.raises(ModelError, match=r"namc\.clip\.model: .*224 in 14 x 14"):
        make_place_clip(DualEncoderConfig(model=str(described), checkpoint=str(file)))


def test_a_changed_file_is_another_model(tmp_path):
    config = CnnConfig(model="resnet18", checkpoint=str(write_cnn(tmp_path / "resnet18.pth")))
    pinned = pin_weights(config)
    write_cnn(tmp_path / "resnet18.pth", seed=1)
    with pytest.raises(ModelError, match=r"namc\.cnn\.revision"):
        pin_weights(pinned)
    assert feature_tables.name_model(pin_weights(config)) != feature_tables.name_model(pinned)
