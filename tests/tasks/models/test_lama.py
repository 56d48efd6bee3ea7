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
from tests.fixtures import lama_checkpoints as tiny
from tests.fixtures.big_lama import BigLama

NOISE = np.random.default_rng(0).integers(0, 256, (250, 333, 3), dtype=np.uint8)
WINDOWS = [(0, 0, 40, 30), (5, 60, 300, 90), (100, 100, 101, 101)]


@pytest.fixture(autouse=True)
def forgotten(one_thread):
    yield
    module._load.cache_clear()


def inpainter(lama=None, **settings):
    lama = lama or LamaConfig()
    return LamaInpainter(config=RemovalsConfig(inpainter="lama", lama=lama, **settings))


def trusted(path, network=None, *, traced=False, **settings):
    """Return the inpainter of a network that is written to a file."""
    sha256 = tiny.write_lama(path, network, traced=traced)
    lama = pin_lama(LamaConfig(checkpoint=str(path), sha256=sha256), download=False)
    return inpainter(lama, **settings)


def disc(window):
    """Return the ellipse that fills a window."""
    x0, y0, x1, y1 = window
    rows, columns = np.ogrid[: y1 - y0, : x1 - x0]
    half = [max(side - 1, 1) / 2 for side in (y1 - y0, x1 - x0)]
    return ((rows - half[0]) / half[0]) ** 2 + ((columns - half[1]) / half[1]) ** 2 <= 1.0001


def fill(model, image, hole, window):
    (pixels,) = model.inpaint([model.prepare(image, hole, window)])
    return pixels.astype(int)


def simple_lama(path, crop, hole):
    """Do what simple-lama-inpainting 0.1.2 does with an image and a mask; crop its padding off."""
    network = torch.jit.load(path).eval()
    height, width = hole.shape
    more = ((0, 0), (0, -height % 8), (0, -width % 8))
    image = np.pad(crop.transpose(2, 0, 1).astype(np.float32) / 255, more, mode="symmetric")
    mask = np.pad(hole[None].astype(np.float32), more, mode="symmetric")
    with torch.inference_mode():
        output = network(torch.from_numpy(image)[None], (torch.from_numpy(mask)[None] > 0) * 1)[0]
    pixels = np.clip(output.permute(1, 2, 0).numpy() * 255, 0, 255).astype(np.uint8)
    return pixels[:height, :width]


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated")
def test_pixels_are_those_of_simple_lama(tmp_path):
    """90 x 101 pixels are seen whole and padded to 96 x 104, which that package does too."""
    image, window = NOISE[:90, :101], (30, 20, 70, 60)
    hole, inside = disc(window), (slice(20, 60), slice(30, 70))
    whole = np.zeros((90, 101), dtype=bool)
    whole[inside] = hole
    pixels = fill(trusted(tmp_path / "lama.pt"), image, hole, window)
    assert np.array_equal(pixels, simple_lama(tmp_path / "lama.pt", image, whole)[inside])
    assert (np.abs(pixels - image[inside])[hole] > 0).mean() > 0.9


def test_a_hole_takes_what_is_around_it_and_nothing_of_itself(tmp_path):
    image = np.full((70, 90, 3), (40, 80, 120), dtype=np.uint8)
    window = (20, 10, 60, 50)
    image[10:50, 20:60][disc(window)] = (255, 0, 0)
    pixels = fill(trusted(tmp_path / "mean.pt", tiny.HoleMean()), image, disc(window), window)
    assert np.abs(pixels - (40, 80, 120)).max() <= 1


def small_lama():
    return BigLama(width=2, blocks=1)


@pytest.mark.parametrize(
    ("network", "traced"),
    [(tiny.Convolutions, False), (tiny.Fourier, True), (tiny.Fourier, False), (small_lama, True)],
)
@pytest.mark.parametrize("batch", [0, 7])
def test_batches_give_what_single_crops_give(tmp_path, batch, network, traced):
    torch.manual_seed(0)
    model = trusted(tmp_path / "lama.pt", network(), batch_size=batch, traced=traced)
    crops = [model.prepare(NOISE, disc(window), window) for window in WINDOWS]
    assert len({crop.pixels.shape for crop in crops}) > 1
    together = list(model.inpaint(crops * 2))
    module._load.cache_clear()
    alone = [next(iter(model.inpaint([crop]))) for crop in crops]
    for pixels, expected in zip(together, alone * 2, strict=True):
        assert pixels.shape == expected.shape
        assert np.abs(pixels.astype(int) - expected).max() <= 1


def test_large_holes_are_filled_at_a_smaller_scale(tmp_path):
    """The network writes rows and columns of what it sees: shrunk by two, 300 rows are 0 to 149."""
    image, hole = np.zeros((300, 400, 3), dtype=np.uint8), np.ones((100, 200), dtype=bool)
    model = trusted(tmp_path / "ramp.pt", tiny.Ramp(), max_side=200, context=1.0)
    pixels = fill(model, image, hole, (100, 100, 300, 200))
    inner = (slice(6, -6), slice(6, -6))  # at the rim, black mixes in
    for channel, places in enumerate(np.indices((100, 200))):
        assert np.abs(pixels[:, :, channel] - (places + 100) / 2)[inner].max() <= 2


def test_unknown_programs_do_not_run(tmp_path):
    sha256 = tiny.write_marker(tmp_path / "lama.pt", tmp_path / "marker")
    config = LamaConfig(checkpoint=str(tmp_path / "lama.pt"))
    with pytest.raises(ModelError, match=f"SHA-256 .*--set removals.lama.sha256={sha256}"):
        pin_lama(config, download=False)
    with pytest.raises(ModelError, match=sha256):
        list(inpainter(config).inpaint([]))
    with pytest.raises(ModelError, match=sha256):
        pin_lama(config.model_copy(update={"sha256": "0" * 64}), download=False)
    pinned = pin_lama(config.model_copy(update={"sha256": sha256.upper()}), download=False)
    assert not list(tmp_path.glob("marker*"))
    list(inpainter(pinned).inpaint([]))
    markers = {file.name for file in tmp_path.glob("marker*")}
    assert markers == {"marker.loaded", "marker.run"}, "the same program with its hash does run"


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 cut short"])
def test_a_trusted_file_that_is_no_program_is_an_error(tmp_path, data):
    path = tmp_path / "lama.pt"
    path.write_bytes(data)
    config = LamaConfig(checkpoint=str(path), sha256=hashlib.sha256(data).hexdigest())
    with pytest.raises(ModelError, match=re.escape(str(path))):
        list(inpainter(config).inpaint([]))


def test_other_programs_are_errors(tmp_path):
    with pytest.raises(ModelError, match=r"other.pt .*argument"):
        list(trusted(tmp_path / "other.pt", tiny.OneArgument()).inpaint([]))


def picture(height, width):
    """Return an image in which each pixel says where it is."""
    rows, columns = np.indices((height, width))
    high = (rows // 256) * 16 + columns // 256
    return np.stack([rows % 256, columns % 256, high], axis=2).astype(np.uint8)


def windows_of(height, width):
    """Return windows in the middle, at each border, in each corner, of one pixel, and of all."""
    h, w = max(height // 5, 1), max(width // 5, 1)
    tops, lefts = (0, (height - h) // 2, height - h), (0, (width - w) // 2, width - w)
    middle = (width // 2, height // 2, width // 2 + 1, height // 2 + 1)
    around = [(left, top, left + w, top + h) for top in tops for left in lefts]
    return [*around, (0, 0, width, height), middle]


def crop(image, window, **settings):
    hole = np.ones((window[3] - window[1], window[2] - window[0]), dtype=bool)
    settings = {"context": 1.0, "max_side": 1 << 13, **settings}
    return inpainter(**settings).prepare(image, hole, window)


@pytest.mark.parametrize("size", [(240, 320), (501, 375), (97, 1203), (1, 1), (129, 1)])
def test_a_crop_is_a_part_of_the_image_with_the_hole_in_its_place(size):
    image = picture(*size)
    for window in windows_of(*size):
        part = crop(image, window)
        x0, y0, x1, y1 = window
        height, width = part.shrunk
        assert part.shrunk == part.size, "nothing is shrunk"
        top, left = y0 - part.window[0].start, x0 - part.window[1].start
        assert min(top, left) >= 0
        hole = np.zeros((*size, 1), dtype=np.uint8)
        hole[y0:y1, x0:x1] = 1
        expected = np.dstack([image, hole])[top : top + height, left : left + width]
        assert np.array_equal(part.pixels[:height, :width], expected)
        back = put_back(part, part.pixels[:, :, :3])
        assert np.array_equal(back, image[y0:y1, x0:x1])


def test_context_is_counted_in_sides_and_ends_at_few_places():
    """Around 100 x 80 one side of context is columns 300 to 600 and rows 300 to 540: then 256 to
    640 and 256 to 576. Without any there are 64 pixels on each side; at the border, what there
    is."""
    image = picture(1000, 1000)
    part = crop(image, (400, 380, 500, 460))
    assert part.size == (320, 384)
    assert (part.window[1].start, part.window[0].start) == (144, 124)
    assert crop(image, (400, 380, 500, 460), context=0.0).size == (320, 256)
    assert crop(image, (0, 940, 100, 1000)).size == (168, 256)


def test_of_a_shrunk_hole_no_pixel_is_seen():
    image = np.full((1000, 1400, 3), (0, 0, 200), dtype=np.uint8)
    rows, columns = np.ogrid[:1000, :1400]
    hole = (rows - 503) ** 2 + (columns - 711) ** 2 < 333**2
    image[hole] = (255, 0, 0)
    model = inpainter(context=1.0, max_side=200)
    part = model.prepare(image, hole[171:836, 379:1044], (379, 171, 1044, 836))
    pixels = part.pixels[: part.shrunk[0], : part.shrunk[1]]
    outside = pixels[pixels[:, :, 3] == 0]
    assert len(outside) > 10000
    assert (outside == (0, 0, 200, 0)).all()
    assert set(np.unique(part.pixels[:, :, 3])) == {0, 1}
