"""The decode rule, mode by mode, with values derived by hand; hostile bytes; the encoder."""

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pairwright.schemas.config import ImagesConfig
from pairwright.tasks.images.decode import (
    RefusedImageError,
    decode_rgb,
    encode_png,
    probe_image,
    put_patch,
    show_window,
)
from tests.fixtures.pictures import encode, raw_png

CONFIG = ImagesConfig(min_side=1)


def read(data, config=CONFIG):
    probe_image(data, config)
    return decode_rgb(data)


def refusal(data, config=CONFIG):
    with pytest.raises(RefusedImageError) as caught:
        read(data, config)
    return caught.value.reason


def one(image, kind="PNG", **options):
    """Return the only pixel's RGB."""
    return decode_rgb(encode(image, kind, **options))[0, 0].tolist()


def test_grey_becomes_rgb_and_sixteen_bits_are_scaled() -> None:
    assert one(Image.new("L", (1, 1), 77)) == [77, 77, 77]
    assert one(Image.new("1", (1, 1), 1)) == [255, 255, 255]
    for value, expected in [(0, 0), (128, 0), (129, 1), (257, 1), (32768, 128), (65535, 255)]:
        png = raw_png(1, 1, depth=16, colour=0, rows=b"\0" + struct.pack(">H", value))
        assert decode_rgb(png)[0, 0].tolist() == [expected] * 3
    for order in ("<u2", ">u2"):
        pixels = np.array([[0, 65535], [257, 514]], dtype=order)
        assert decode_rgb(encode(Image.fromarray(pixels), "TIFF"))[:, :, 0].tolist() == [
            [0, 255],
            [1, 2],
        ]


def test_thirty_two_bit_values_are_stretched_over_their_own_range() -> None:
    pixels = np.array([[-1.0, 0.0], [1.0, np.nan]], dtype=np.float32)
    # -1 -> 0, 0 and NaN -> 127.5, which rounds to even, 1 -> 255.
    assert decode_rgb(encode(Image.fromarray(pixels), "TIFF"))[:, :, 1].tolist() == [
        [0, 128],
        [255, 128],
    ]
    flat = Image.fromarray(np.full((2, 2), 3, dtype=np.int32))
    assert not decode_rgb(encode(flat, "TIFF")).any()


def test_palette_is_looked_up_and_its_transparent_entry_shows_white() -> None:
    image = Image.new("P", (1, 1), 1)
    image.putpalette([9, 9, 9, 10, 20, 30])
    assert one(image) == [10, 20, 30]
    assert one(image, "GIF") == [10, 20, 30]
    assert one(image, transparency=1) == [255, 255, 255]
    assert one(image, transparency=bytes([255, 0])) == [255, 255, 255]


def test_alpha_is_composited_on_white() -> None:
    assert one(Image.new("RGBA", (1, 1), (10, 20, 30, 255))) == [10, 20, 30]
    assert one(Image.new("RGBA", (1, 1), (10, 20, 30, 0))) == [255, 255, 255]
    # 255 - (255 - v) * 51/255 = 206, 208, 210.
    assert one(Image.new("RGBA", (1, 1), (10, 20, 30, 51))) == [206, 208, 210]
    assert one(Image.new("LA", (1, 1), (100, 51))) == [224, 224, 224]
    assert one(Image.new("RGB", (1, 1), (1, 2, 3)), transparency=(1, 2, 3)) == [255, 255, 255]


@pytest.mark.parametrize("kind", ["TIFF", "JPEG"])
def test_cmyk_becomes_rgb(kind) -> None:
    got = one(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), kind)
    assert np.abs(np.array(got) - [255, 0, 0]).max() <= (2 if kind == "JPEG" else 0)


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "WEBP", "PNG"])
def test_first_frame_counts(kind) -> None:
    first, second = Image.new("RGB", (8, 8), (255, 0, 0)), Image.new("RGB", (8, 8), (0, 0, 255))
    options = {"lossless": True} if kind == "WEBP" else {}
    assert one(first, kind, save_all=True, append_images=[second], **options) == [255, 0, 0]


# The picture is  1 2 3 / 4 5 6 ; EXIF's value n says how it was turned before it was stored.
SHOWN = {
    1: [[1, 2, 3], [4, 5, 6]],
    2: [[3, 2, 1], [6, 5, 4]],
    3: [[6, 5, 4], [3, 2, 1]],
    4: [[4, 5, 6], [1, 2, 3]],
}
SHOWN |= {5: [[1, 4], [2, 5], [3, 6]], 6: [[4, 1], [5, 2], [6, 3]]}
SHOWN |= {7: [[6, 3], [5, 2], [4, 1]], 8: [[3, 6], [2, 5], [1, 4]]}


@pytest.mark.parametrize("orientation", SHOWN)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation_is_applied(kind, orientation) -> None:
    stored = np.kron(np.array(SHOWN[1], dtype=np.uint8) * 40, np.ones((16, 16), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if kind == "WEBP" else {"quality": 95} if kind == "JPEG" else {}
    data = encode(Image.fromarray(stored).convert("RGB"), kind, exif=exif, **options)
    info, pixels = probe_image(data, CONFIG), decode_rgb(data)
    assert (np.rint(pixels[8::16, 8::16, 0] / 40)).tolist() == SHOWN[orientation]
    assert pixels.shape == (info.height, info.width, 3)
    assert info.format == kind.lower()


def test_damaged_exif_counts_as_none() -> None:
    data = encode(Image.new("RGB", (20, 10)), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff junk")
    assert decode_rgb(data).shape == (10, 20, 3)


def test_bomb_is_refused_before_decoding(monkeypatch) -> None:
    bomb = raw_png(14000, 14000, depth=8, colour=2, rows=b"\0" * 1000)
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("decoded"))
    with pytest.raises(RefusedImageError, match="14000 x 14000"):
        probe_image(bomb, ImagesConfig())
    assert probe_image(bomb, ImagesConfig(max_pixels=14000 * 14000)).width == 14000


def test_limits_are_inclusive_and_a_canvas_counts_by_its_header() -> None:
    data = encode(Image.new("RGB", (20, 10)))
    assert probe_image(data, ImagesConfig(max_pixels=200, min_side=10)).width == 20
    assert refusal(data, ImagesConfig(max_pixels=199, min_side=10)) == "too many pixels"
    assert refusal(data, ImagesConfig(min_side=11)) == "too few pixels"
    body = b"VP8X" + struct.pack("<I", 10) + b"\0\0\0\0" + struct.pack("<I", 16382)[:3] * 2
    webp = b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body
    assert refusal(webp) in ("too many pixels", "damaged image")


@pytest.mark.parametrize("data", [b"hello", b"P6 1 1 255 abc", b"%!PS-Adobe-3.0 EPSF-3.0\n"])
def test_what_is_no_image_or_of_no_known_format_is_refused(data) -> None:
    assert refusal(data) == "not an image"
    assert refusal(b"") == "empty file"
    assert refusal(encode(Image.new("LAB", (20, 20)), "TIFF")) == "unsupported pixel format"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "GIF", "BMP", "WEBP"])
def test_truncated_is_refused_and_named(kind) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    data = encode(Image.fromarray(pixels), kind)
    assert refusal(data[: len(data) // 2]) in ("truncated image", "damaged image")
    assert refusal(data[:12]) in ("truncated image", "damaged image")
    if kind in ("JPEG", "PNG", "BMP"):
        assert refusal(data[: len(data) // 2]) == "truncated image"


@settings(max_examples=150)
@given(kind=st.sampled_from(["JPEG", "PNG", "TIFF", "GIF", "BMP", "WEBP"]), flips=st.data())
def test_damage_never_escapes(kind, flips) -> None:
    data = bytearray(encode(Image.new("RGB", (24, 24), (1, 200, 3)), kind))
    for place in flips.draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=6)):
        data[place] ^= flips.draw(st.integers(1, 255))
    with contextlib.suppress(RefusedImageError):
        assert read(bytes(data), ImagesConfig(max_pixels=10_000, min_side=1)).shape[2] == 3


def test_png_round_trip_is_exact_and_deterministic() -> None:
    pixels = np.random.default_rng(1).integers(0, 255, (9, 7, 3), dtype=np.uint8)
    assert encode_png(pixels) == encode_png(pixels.copy())
    assert (decode_rgb(encode_png(pixels)) == pixels).all()


def test_a_patch_replaces_its_window_and_nothing_else() -> None:
    pixels = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    patch = encode_png(np.full((2, 3, 3), 200, dtype=np.uint8))
    made = put_patch(pixels, patch, (4, 1, 7, 3))
    assert (made[1:3, 4:7] == 200).all()
    changed = (made != pixels).any(axis=2)
    assert not np.delete(changed.ravel(), [11, 12, 13, 18, 19, 20]).any()
    assert pixels[1, 4, 0] == 33  # the original is as it was


@pytest.mark.parametrize(
    "window", [(0, 0, 2, 3), (5, 1, 8, 3), (4, 4, 7, 6)], ids=["turned", "right", "below"]
)
def test_a_patch_that_does_not_fit_is_an_error(window) -> None:
    pixels = np.zeros((5, 7, 3), dtype=np.uint8)
    patch = encode_png(np.zeros((2, 3, 3), dtype=np.uint8))
    with pytest.raises(ValueError, match=r"3 x 2 .*window \("):
        put_patch(pixels, patch, window)


def test_a_window_is_shown_at_the_size_of_the_image() -> None:
    pixels = np.zeros((60, 90, 3), dtype=np.uint8)
    pixels[10:20, 30:60] = (10, 20, 30)
    pixels[10:20, 60:75] = (200, 100, 50)
    shown = show_window(pixels, (45, 10, 75, 20))
    assert shown.shape == pixels.shape
    # Half of the window is of either colour; they mix only around the line between them.
    assert (shown[:, :40] == (10, 20, 30)).all()
    assert (shown[:, 50:] == (200, 100, 50)).all()
    assert (show_window(pixels, (0, 0, 90, 60)) == pixels).all()


@pytest.mark.parametrize("window", [(0, 0, 91, 60), (-1, 0, 3, 3), (4, 4, 4, 6), (5, 9, 8, 3)])
def test_a_window_that_is_not_in_the_image_is_an_error(window) -> None:
    with pytest.raises(ValueError, match="90 x 60"):
        show_window(np.zeros((60, 90, 3), dtype=np.uint8), window)
