"""What served models are shown: the pixels of `decode_rgb`, in the file's own bytes where any
decoder gives them."""

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
GREY_RAMP = np.tile(np.linspace(0, 65535, 64).astype("<u2"), (48, 1))


def sent(data, pixels=BUDGET):
    """Return the media type and the file that a server gets."""
    head, body = image_url(data, pixels).split(";base64,")
    return head.removeprefix("data:"), base64.b64decode(body, validate=True)


def seen(data, pixels=BUDGET):
    """Return the pixels as a server decodes them, which turns by EXIF and composites nothing."""
    with Image.open(io.BytesIO(sent(data, pixels)[1])) as image:
        assert image.mode in ("RGB", "L")
        assert image.getexif().get(0x0112, 1) == 1
        return np.asarray(image.convert("RGB"))


def smooth(width, height):
    """Return an image of gentle ramps, as photographs mostly are."""
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([across, down, (across + down) / 2], axis=2).astype(np.uint8))


@pytest.mark.parametrize(
    ("kind", "media"),
    [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp")],
    ids=lambda text: text,
)
def test_a_plain_file_goes_as_it_is(kind, media) -> None:
    data = picture(kind=kind, size=(64, 48))
    assert sent(data) == (media, data)
    assert (seen(data) == decode_rgb(data)).all()


def turned_jpeg(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(smooth(64, 48), "JPEG", exif=exif)


def transparent_png():
    pixels = np.zeros((48, 64, 4), dtype=np.uint8)
    pixels[:, :32] = (255, 0, 0, 128)
    return encode(Image.fromarray(pixels))


def sixteen_bit_rgb_png():
    rows = b"".join(b"\0" + struct.pack(">192H", *range(0, 19200, 100)) for _ in range(48))
    return raw_png(64, 48, depth=16, colour=2, rows=rows)


def late_exif_png():
    """Turn by EXIF behind the pixels, which `decode_rgb` does not obey and other programs do."""
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode(smooth(64, 48))
    return data[:-12] + chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0")) + data[-12:]


def frames(kind, **options):
    images = [Image.new("RGB", (64, 48), colour) for colour in ("red", "blue")]
    return encode(images[0], kind, save_all=True, append_images=images[1:], **options)


ODD = {
    "on its side": turned_jpeg(6),
    "a palette": encode(smooth(64, 48).quantize(16)),
    "a palette with a transparent colour": encode(smooth(64, 48).quantize(16), transparency=3),
    "transparent": transparent_png(),
    "a transparent colour": encode(smooth(64, 48), transparency=(0, 0, 0)),
    "transparent WebP": encode(Image.open(io.BytesIO(transparent_png())), "WEBP", lossless=True),
    "CMYK": encode(smooth(64, 48).convert("CMYK"), "JPEG"),
    "16 bits of grey": encode(Image.fromarray(GREY_RAMP)),
    "16 bits of colour": sixteen_bit_rgb_png(),
    "two frames of PNG": frames("PNG"),
    "two frames of WebP": frames("WEBP", lossless=True),
    "two pictures of MPO": frames("MPO"),
    "TIFF": encode(smooth(64, 48), "TIFF"),
    "turned behind the pixels": late_exif_png(),
}


@pytest.mark.parametrize("name", ODD)
def test_any_other_file_is_sent_as_the_pixels_that_it_is_decoded_to(name) -> None:
    assert not is_plain(ODD[name])
    media, data = sent(ODD[name])
    assert media == "image/png"  # small, so nothing is lost
    assert data != ODD[name]
    assert (seen(ODD[name]) == decode_rgb(ODD[name])).all()


def test_a_large_photograph_is_shrunk_in_shape_and_loses_little() -> None:
    image = smooth(2000, 1500)
    noise = np.random.default_rng(0).integers(-8, 8, (1500, 2000, 3))
    data = encode(
        Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype(np.uint8)), "JPEG"
    )
    media, small = sent(data)
    assert media == "image/jpeg"
    with Image.open(io.BytesIO(small)) as shown:
        # 2000 x 1500 times the root of 1,003,520 / 3,000,000
        assert shown.size == (1156, 867)
        assert (
            shown.layer[0][1:3] == shown.layer[1][1:3]
        )  # as many samples of colour as of brightness
        difference = np.abs(
            np.asarray(shown, dtype=float) - np.asarray(image.resize((1156, 867)), dtype=float)
        )
    assert difference.mean() < 3


@pytest.mark.parametrize(
    ("size", "pixels", "expected"),
    [
        ((64, 48), BUDGET, (64, 48)),
        ((1280, 785), BUDGET, (1279, 784)),
        ((20, 16), BUDGET, (35, 28)),  # too small for a token: made larger
        ((3000, 20), BUDGET, (4200, 28)),
        ((10_000, 20), BUDGET, (5572, 28)),  # 500 times as wide as high: squeezed to 199 times
        ((20, 10_000), BUDGET, (28, 5572)),
        ((100, 50), 784, (28, 28)),  # room for no shape
    ],
)
def test_sizes(size, pixels, expected) -> None:
    shown = seen(encode(Image.new("RGB", size, "red")), pixels)
    assert (shown.shape[1], shown.shape[0]) == expected
