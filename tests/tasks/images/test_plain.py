"""Images that programs show in different ways become plain ones; plain ones keep their bytes."""

import io

import numpy as np
import pytest
from PIL import Image

from pairwright.tasks.images.decode import decode_rgb, is_plain
from pairwright.tasks.images.plain import MAX_RECENT, PlainImages
from tests.fixtures.pictures import encode, picture

PIXELS = np.random.default_rng(3).integers(0, 255, (24, 32, 3), dtype=np.uint8)


def turned(kind):
    exif = Image.Exif()
    exif[0x0112] = 6
    return encode(Image.fromarray(PIXELS), kind, exif=exif)


def transparent(kind):
    alpha = np.full((24, 32, 1), 200, np.uint8)
    alpha[:, :8] = 0
    return encode(Image.fromarray(np.concatenate([PIXELS, alpha], axis=2)), kind)


def deep():
    return encode(Image.fromarray(PIXELS[:, :, 0].astype(np.uint16) * 257))


def moving():
    frames = [Image.fromarray(255 - PIXELS)]
    return encode(Image.fromarray(PIXELS), "PNG", save_all=True, append_images=frames)


OTHERS = {
    "turned jpeg": turned("JPEG"),
    "turned png": turned("PNG"),
    "turned webp": turned("WEBP"),
    "transparent png": transparent("PNG"),
    "transparent webp": transparent("WEBP"),
    "16 bits": deep(),
    "moving": moving(),
    "cmyk": encode(Image.fromarray(PIXELS).convert("CMYK"), "JPEG"),
    "palette": encode(Image.fromarray(PIXELS).convert("P"), "GIF"),
    "tiff": encode(Image.fromarray(PIXELS), "TIFF"),
    "bmp": encode(Image.fromarray(PIXELS), "BMP"),
}


def seen_by_pillow(data):
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("name", OTHERS)
def test_pillow_shows_what_models_saw(name) -> None:
    data = OTHERS[name]
    plain = PlainImages().make_plain(data)
    assert is_plain(plain)
    assert (seen_by_pillow(plain) == decode_rgb(data)).all()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_plain_images_and_broken_ones_keep_their_bytes(kind) -> None:
    plain = PlainImages()
    for data in (picture(kind=kind), picture(kind=kind)[:60], b"", b"no image"):
        assert plain.make_plain(data) is data
    assert not plain.sizes


def test_each_image_is_written_once_and_its_key_says_so(monkeypatch) -> None:
    calls = []

    def count(data):
        calls.append(data)
        return decode_rgb(data)

    monkeypatch.setattr("pairwright.tasks.images.plain.decode_rgb", count)
    plain = PlainImages()
    images = (OTHERS["16 bits"], picture())
    for _ in range(3):
        written, keys = plain.make_images(images, ("aa", "bb"))
        assert keys == ("aa-plain", "bb")
        assert written[1] == images[1]
    assert len(calls) == 1
    assert plain.sizes == {"aa": len(written[0])}
    for number in range(MAX_RECENT):
        plain.make_plain(OTHERS["bmp"], f"{number}")
    plain.make_plain(images[0], "aa")
    assert len(calls) == 2 + MAX_RECENT  # no more are kept
