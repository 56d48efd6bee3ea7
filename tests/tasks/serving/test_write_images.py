"""What served models are shown: the pixels of `decode_rgb`, in the file's own bytes if plain."""

import base64
import io
import struct

import numpy as np
import pytest
from PIL import Image

from pairwright.tasks.images.decode import decode_rgb, is_plain
from pairwright.tasks.serving.write_request import image_url
from tests.fixtures.pictures import chunk, encode, picture, raw_png

BUDGET = 1_003_520
ORIENTATION = 0x0112


def sent(data, pixels=BUDGET):
    """Return the media type and the file that a server gets."""
    head, body = image_url(data, pixels).split(";base64,")
    return head.removeprefix("data:"), base64.b64decode(body, validate=True)


def seen(data, pixels=BUDGET):
    """Return the pixels as a server decodes them, which turns by EXIF and composites nothing."""
    with Image.open(io.BytesIO(sent(data, pixels)[1])) as image:
        assert image.mode in ("RGB", "L")
        assert image.getexif().get(ORIENTATION, 1) == 1
        return np.asarray(image.convert("RGB"))


def smooth(width=64, height=48):
    """Return an image of gentle ramps, as photographs mostly are."""
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([across, down, (across + down) / 2], axis=2).astype(np.uint8))


@pytest.mark.parametrize(
    ("kind", "media"), [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp")]
)
def test_a_plain_file_goes_as_it_is(kind, media) -> None:
    data = picture(kind=kind, size=(64, 48))
    assert sent(data) == (media, data)
    assert (seen(data) == decode_rgb(data)).all()


def on_its_side():
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    return exif


def half_transparent():
    pixels = np.zeros((48, 64, 4), dtype=np.uint8)
    pixels[:, :32] = (255, 0, 0, 128)
    return Image.fromarray(pixels)


def grey_of_16_bits():
    return Image.fromarray(np.tile(np.linspace(0, 65535, 64).astype("<u2"), (48, 1)))


def png_of_16_bits():
    rows = b"".join(b"\0" + struct.pack(">192H", *range(0, 19200, 100)) for _ in range(48))
    return raw_png(64, 48, depth=16, colour=2, rows=rows)


def png_with_late_exif():
    """Turn by EXIF behind the pixels, which `decode_rgb` does not obey and other programs do."""
    data = encode(smooth())
    exif = chunk(b"eXIf", on_its_side().tobytes().removeprefix(b"Exif\0\0"))
    return data[:-12] + exif + data[-12:]


def two_frames(kind, **options):
    red, blue = (Image.new("RGB", (64, 48), colour) for colour in ("red", "blue"))
    return encode(red, kind, save_all=True, append_images=[blue], **options)


ODD = {
    "on its side": encode(smooth(), "JPEG", exif=on_its_side()),
    "a palette with a transparent colour": encode(smooth().quantize(16), transparency=3),
    "transparent": encode(half_transparent()),
    "a transparent colour": encode(smooth(), transparency=(0, 0, 0)),
    "transparent WebP": encode(half_transparent(), "WEBP", lossless=True),
    "CMYK": encode(smooth().convert("CMYK"), "JPEG"),
    "16 bits of grey": encode(grey_of_16_bits()),
    "16 bits of colour": png_of_16_bits(),
    "two frames of PNG": two_frames("PNG"),
    "two pictures of MPO": two_frames("MPO"),
    "TIFF": encode(smooth(), "TIFF"),
    "turned behind the pixels": png_with_late_exif(),
}


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
def test_any_other_file_is_sent_as_the_pixels_that_it_is_decoded_to(data) -> None:
    assert not is_plain(data)
    media, file = sent(data)
    assert media == "image/png"  # small, so nothing is lost
    assert file != data
    assert (seen(data) == decode_rgb(data)).all()


def test_a_large_photograph_is_shrunk_in_shape_and_loses_little() -> None:
    image = smooth(1500, 1000)
    noise = np.random.default_rng(0).integers(-8, 8, (1000, 1500, 3))
    noisy = (np.asarray(image) + noise).clip(0, 255).astype(np.uint8)
    media, file = sent(encode(Image.fromarray(noisy), "JPEG"))
    assert media == "image/jpeg"
    with Image.open(io.BytesIO(file)) as small:
        # 1500 x 1000 times the root of 1,003,520 / 1,500,000
        assert small.size == (1226, 817)
        assert small.layer[0][1:3] == small.layer[1][1:3], "as many samples of colour"
        shrunk = np.asarray(image.resize((1226, 817)), dtype=float)
        assert np.abs(np.asarray(small, dtype=float) - shrunk).mean() < 3


SIZES = {
    "within the budget": ((64, 48), BUDGET, (64, 48)),
    "just above it": ((1280, 785), BUDGET, (1279, 784)),
    "too small for a token": ((20, 16), BUDGET, (35, 28)),
    "too low for a token": ((3000, 20), BUDGET, (4200, 28)),
    "500 times as wide, made 199 times": ((10_000, 20), BUDGET, (5572, 28)),
    "500 times as high, made 199 times": ((20, 10_000), BUDGET, (28, 5572)),
    "room for no shape": ((100, 50), 784, (28, 28)),
}


@pytest.mark.parametrize(("size", "pixels", "expected"), SIZES.values(), ids=SIZES)
def test_sizes(size, pixels, expected) -> None:
    height, width, _ = seen(encode(Image.new("RGB", size, "red")), pixels).shape
    assert (width, height) == expected
