"""LaMa from a TorchScript file: what it sees, what comes back, and which programs do not run."""

import hashlib
import re

import numpy as np
import pytest
import torch

from pairwright.schemas.config import RemovalsConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import LamaConfig
from pairwright.tasks.models import lama as module
from pairwright.tasks.models.lama import LamaInpainter, pin_lama, put_back
from tests.fixtures import lama_checkpoints
from tests.fixtures.big_lama import BigLama
from tests.fixtures.lama_checkpoints import (
    Convolutions,
    Fourier,
    HoleMean,
    OneArgument,
    Ramp,
    write_lama,
)

NOISE = np.random.default_rng(0).integers(0, 256, (250, 333, 3), dtype=np.uint8)
WINDOWS = [
    (0, 0, 40, 30),
    (293, 220, 333, 250),
    (140, 0, 170, 200),
    (100, 100, 101, 101),
    (5, 60, 300, 90),
]


@pytest.fixture(autouse=True)
def forgotten(one_thread):
    yield
    module._load.cache_clear()


def inpainter(path, network=None, *, batch=0, traced=False, **config):
    sha256 = write_lama(path, network, traced=traced)
    pinned = pin_lama(LamaConfig(checkpoint=str(path), sha256=sha256), download=False)
    return LamaInpainter(
        config=RemovalsConfig(inpainter="lama", lama=pinned, batch_size=batch, **config)
    )


def discs(windows):
    """Return an ellipse in each window."""
    for x0, y0, x1, y1 in windows:
        rows, columns = np.indices((y1 - y0, x1 - x0))
        h, w = max(y1 - y0 - 1, 1) / 2, max(x1 - x0 - 1, 1) / 2
        yield (
            ((rows - h) / h) ** 2 + ((columns - w) / w) ** 2 <= 1.0001
            if (y1 - y0) > 1
            else np.ones((1, 1), bool)
        )


def prepared(model, image=NOISE, windows=WINDOWS):
    return [
        model.prepare(image, hole, window)
        for hole, window in zip(discs(windows), windows, strict=True)
    ]


def simple_lama(path, crop, hole):
    """Do what simple-lama-inpainting 0.1.2 does with an image and a mask, and crop its padding
    off."""
    network = torch.jit.load(path).eval()
    more = ((0, 0), (0, -crop.shape[0] % 8), (0, -crop.shape[1] % 8))
    image = np.pad(crop.transpose(2, 0, 1).astype(np.float32) / 255, more, mode="symmetric")
    mask = np.pad(hole[None].astype(np.float32), more, mode="symmetric")
    with torch.inference_mode():
        made = network(torch.from_numpy(image)[None], (torch.from_numpy(mask)[None] > 0) * 1)[0]
    return np.clip(made.permute(1, 2, 0).numpy() * 255, 0, 255).astype(np.uint8)[
        : crop.shape[0], : crop.shape[1]
    ]


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated")
def test_pixels_are_those_of_simple_lama(tmp_path):
    # 90 x 101 pixels are seen whole, and padded to 96 x 104: what that package does with the image.
    model, image, window = inpainter(tmp_path / "lama.pt"), NOISE[:90, :101], (30, 20, 70, 60)
    (hole,) = discs([window])
    whole = np.zeros((90, 101), dtype=bool)
    whole[20:60, 30:70] = hole
    (got,) = model.fill([model.prepare(image, hole, window)])
    assert np.array_equal(got, simple_lama(tmp_path / "lama.pt", image, whole)[20:60, 30:70])
    assert (np.abs(got.astype(int) - image[20:60, 30:70])[hole] > 0).mean() > 0.9


def test_a_hole_takes_what_is_around_it_and_nothing_of_itself(tmp_path):
    # Everything around is (40, 80, 120); the hole is (255, 0, 0), and its mean over all would be
    # another.
    image = np.full((70, 90, 3), (40, 80, 120), dtype=np.uint8)
    model, window = inpainter(tmp_path / "mean.pt", HoleMean()), (20, 10, 60, 50)
    (hole,) = discs([window])
    image[10:50, 20:60][hole] = (255, 0, 0)
    (got,) = model.fill([model.prepare(image, hole, window)])
    assert np.abs(got.astype(int) - (40, 80, 120)).max() <= 1


def small_lama():
    return BigLama(width=2, blocks=1)


NETWORKS = [(Convolutions, False), (Fourier, True), (Fourier, False), (small_lama, True)]


@pytest.mark.parametrize(("network", "traced"), NETWORKS)
@pytest.mark.parametrize("batch", [0, 7])
def test_batches_give_what_single_crops_give(tmp_path, batch, network, traced):
    torch.manual_seed(0)
    model = inpainter(tmp_path / "lama.pt", network(), batch=batch, traced=traced)
    crops = prepared(model) * 5
    assert len({crop.pixels.shape for crop in crops}) > 1
    together = list(model.fill(crops))
    module._load.cache_clear()
    for one, made in zip(crops, together, strict=True):
        (alone,) = model.fill([one])
        assert made.shape == alone.shape
        assert np.abs(made.astype(int) - alone).max() <= 1


def test_large_holes_are_filled_at_a_smaller_scale(tmp_path):
    # The network writes rows and columns of what it sees: shrunk by two, 300 rows are 0 to 149.
    image = np.zeros((300, 400, 3), dtype=np.uint8)
    model = inpainter(tmp_path / "ramp.pt", Ramp(), max_side=200, context=1.0)
    (got,) = model.fill(
        [model.prepare(image, np.ones((100, 200), dtype=bool), (100, 100, 300, 200))]
    )
    rows, columns = np.indices((100, 200))
    inner = (slice(6, -6), slice(6, -6))  # at the rim, black mixes in
    assert np.abs(got[:, :, 0] - (rows + 100) / 2)[inner].max() <= 2
    assert np.abs(got[:, :, 1] - (columns + 100) / 2)[inner].max() <= 2


def test_unknown_programs_do_not_run(tmp_path):
    path, marker = tmp_path / "lama.pt", tmp_path / "marker"
    sha256 = lama_checkpoints.write_marker(path, marker)
    config = LamaConfig(checkpoint=str(path))
    with pytest.raises(ModelError, match=f"SHA-256 .*--set removals.lama.sha256={sha256}"):
        pin_lama(config, download=False)
    with pytest.raises(ModelError, match=sha256):
        list(LamaInpainter(config=RemovalsConfig(inpainter="lama", lama=config)).fill([]))
    with pytest.raises(ModelError, match=sha256):
        pin_lama(config.model_copy(update={"sha256": "0" * 64}), download=False)
    assert not list(tmp_path.glob("marker*"))
    # The same program with its hash does run: the marker would have told.
    trusted = pin_lama(config.model_copy(update={"sha256": sha256.upper()}), download=False)
    assert not list(tmp_path.glob("marker*"))
    list(LamaInpainter(config=RemovalsConfig(inpainter="lama", lama=trusted)).fill([]))
    assert {file.name for file in tmp_path.glob("marker*")} == {"marker.loaded", "marker.run"}


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 cut short"])
def test_a_trusted_file_that_is_no_program_is_an_error(tmp_path, data):
    (tmp_path / "lama.pt").write_bytes(data)
    config = LamaConfig(
        checkpoint=str(tmp_path / "lama.pt"), sha256=hashlib.sha256(data).hexdigest()
    )
    with pytest.raises(ModelError, match=re.escape(str(tmp_path / "lama.pt"))):
        list(LamaInpainter(config=RemovalsConfig(inpainter="lama", lama=config)).fill([]))


def test_other_programs_are_errors(tmp_path):
    with pytest.raises(ModelError, match=r"other.pt .*argument"):
        list(inpainter(tmp_path / "other.pt", OneArgument()).fill([]))


SIZES = [(240, 320), (501, 375), (97, 1203), (1, 1), (129, 1)]


def picture(height, width):
    """Return an image in which each pixel says where it is."""
    rows, columns = np.indices((height, width))
    return np.stack(
        [rows % 256, columns % 256, (rows // 256) * 16 + columns // 256], axis=2
    ).astype(np.uint8)


def windows_of(height, width):
    """Return windows in the middle, at each border, in each corner, of one pixel, and of all."""
    h, w = max(height // 5, 1), max(width // 5, 1)
    tops, lefts = (0, (height - h) // 2, height - h), (0, (width - w) // 2, width - w)
    around = {(left, top, left + w, top + h) for top in tops for left in lefts}
    return sorted(
        around | {(0, 0, width, height), (width // 2, height // 2, width // 2 + 1, height // 2 + 1)}
    )


def prepare(image, hole, window, **config):
    return LamaInpainter(config=RemovalsConfig(inpainter="lama", **config)).prepare(
        image, hole, window
    )


def crop(image, window, **config):
    hole = np.ones((window[3] - window[1], window[2] - window[0]), dtype=bool)
    return prepare(image, hole, window, **{"context": 1.0, "max_side": 1 << 13, **config})


@pytest.mark.parametrize("size", SIZES)
def test_a_crop_is_a_part_of_the_image_with_the_hole_in_its_place(size):
    image = picture(*size)
    for window in windows_of(*size):
        made = crop(image, window)
        x0, y0, x1, y1 = window
        height, width = made.shrunk
        assert made.shrunk == made.size  # nothing is shrunk
        top, left = y0 - made.window[0].start, x0 - made.window[1].start
        assert min(top, left) >= 0
        hole = np.zeros((*size, 1), dtype=np.uint8)
        hole[y0:y1, x0:x1] = 1
        whole = np.dstack([image, hole])
        assert np.array_equal(
            made.pixels[:height, :width], whole[top : top + height, left : left + width]
        )
        # What a network gives of the crop comes back to the same pixels.
        assert np.array_equal(put_back(made, made.pixels[:, :, :3]), image[y0:y1, x0:x1])


def test_context_is_counted_in_sides_and_ends_at_few_places():
    # 100 x 80 in the middle; one side of context: columns 300 to 600, rows 300 to 540; then 256 to
    # 640 and 256 to 576.
    made = crop(picture(1000, 1000), (400, 380, 500, 460))
    assert made.size == (320, 384)
    assert (made.window[1].start, made.window[0].start) == (144, 124)
    # None is asked for: there are 64 pixels on each side all the same.
    assert crop(picture(1000, 1000), (400, 380, 500, 460), context=0.0).size == (320, 256)
    # At the border, what there is.
    assert crop(picture(1000, 1000), (0, 940, 100, 1000)).size == (168, 256)


def test_of_a_shrunk_hole_no_pixel_is_seen():
    # Red in the hole, blue around it: a network that saw a trace of red would see what is to be
    # removed.
    image = np.full((1000, 1400, 3), (0, 0, 200), dtype=np.uint8)
    rows, columns = np.indices((1000, 1400))
    hole = (rows - 503) ** 2 + (columns - 711) ** 2 < 333**2
    image[hole] = (255, 0, 0)
    window = (379, 171, 1044, 836)
    made = prepare(image, hole[171:836, 379:1044], window, context=1.0, max_side=200)
    outside = made.pixels[: made.shrunk[0], : made.shrunk[1]][
        made.pixels[: made.shrunk[0], : made.shrunk[1], 3] == 0
    ]
    assert len(outside) > 10000
    assert (outside == (0, 0, 200, 0)).all()
    assert set(np.unique(made.pixels[:, :, 3])) == {0, 1}
