import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pairwright.tasks.images.decode import decode_rgb, encode_png, put_patch
from pairwright.tasks.images.masks import encode_mask
from pairwright.tasks.pages import environment
from pairwright.tasks.report.write_images import (
    CHANGED,
    SIDE,
    TONE_COLOURS,
    PictureFolder,
    draw_heat,
    paint_mask,
)
from tests.tasks.report.handmade import make_images


@pytest.fixture(scope="module")
def images():
    return {row.format: row for row in make_images(1, 4)}


@pytest.mark.parametrize(("form", "ending"), [("png", "png"), ("jpeg", "jpg"), ("webp", "webp")])
def test_small_images_keep_their_bytes(tmp_path, images, form, ending):
    picture = PictureFolder(tmp_path).add_image(images[form])
    assert picture.src == f"images/{images[form].key}.{ending}"
    assert (tmp_path / picture.src).read_bytes() == images[form].image
    assert (picture.width, picture.height) == (160, 120)


def test_what_browsers_do_not_show_becomes_png_with_the_same_pixels(tmp_path, images):
    picture = PictureFolder(tmp_path).add_image(images["tiff"])
    assert picture.src.endswith(".png")
    assert np.array_equal(
        decode_rgb((tmp_path / picture.src).read_bytes()), decode_rgb(images["tiff"].image)
    )


def test_moving_pictures_are_shown_as_models_see_them(tmp_path, images):
    frames = [Image.new("RGB", (40, 30), colour) for colour in ("red", "blue")]
    sink = io.BytesIO()
    frames[0].save(sink, format="PNG", save_all=True, append_images=frames[1:], duration=100)
    row = replace(images["png"], image=sink.getvalue(), width=40, height=30)
    picture = PictureFolder(tmp_path).add_image(row)
    with Image.open(tmp_path / picture.src) as shown:
        assert getattr(shown, "n_frames", 1) == 1
        assert shown.convert("RGB").getpixel((5, 5)) == (255, 0, 0)


def test_large_photographs_become_previews(tmp_path):
    row = make_images(1, 1, size=(1600, 1200))[0]
    picture = PictureFolder(tmp_path).add_image(row)
    assert (picture.width, picture.height) == (640, 480)
    assert picture.src.endswith(".jpg")
    with Image.open(tmp_path / picture.src) as shown:
        assert shown.size == (640, 480)
    small = np.asarray(Image.fromarray(decode_rgb(row.image)).resize((640, 480)), np.int16)
    assert np.abs(small - decode_rgb((tmp_path / picture.src).read_bytes())).mean() < 4


def grey_patch(row, window):
    x0, y0, x1, y1 = window
    return encode_png(np.full((y1 - y0, x1 - x0, 3), 120, np.uint8)), window


def test_a_patch_is_what_it_changes_and_nothing_else(tmp_path, images):
    row = images["png"]
    folder, pixels, window = PictureFolder(tmp_path), decode_rgb(row.image), (30, 20, 70, 61)
    src = folder.add_patch("k", pixels, grey_patch(row, window), over=folder.add_image(row))
    with Image.open(tmp_path / src) as shown:
        overlay = np.asarray(shown)
    expected = np.zeros((120, 160), bool)
    expected[20:61, 30:70] = (pixels[20:61, 30:70] != 120).any(axis=2)
    assert np.array_equal(overlay[:, :, 3], expected * 255)
    assert (overlay[expected][:, :3] == 120).all()
    assert (
        folder.add_patch(
            "l", pixels, (encode_png(pixels[5:9, 5:9]), (5, 5, 9, 9)), over=folder.add_image(row)
        )
        == ""
    )


@pytest.mark.parametrize(
    "window",
    [(0, 0, 400, 300), (801, 333, 1303, 777), (1590, 1190, 1600, 1200), (0, 0, 1600, 1200)],
)
def test_a_patch_of_a_large_photograph_lies_where_it_does_in_the_preview(tmp_path, window):
    """The whole image with the patch, made smaller at once, is what the overlay shows over the
    preview."""
    row = make_images(1, 1, size=(1600, 1200))[0]
    folder, pixels = PictureFolder(tmp_path), decode_rgb(row.image)
    picture = folder.add_image(row)
    src = folder.add_patch("k", pixels, grey_patch(row, window), over=picture)
    with Image.open(tmp_path / src) as shown:
        overlay = np.asarray(shown)
    whole = put_patch(pixels, *grey_patch(row, window))
    both = [
        np.asarray(Image.fromarray(one).resize((640, 480), Image.Resampling.LANCZOS), int)
        for one in (pixels, whole)
    ]
    changed = overlay[:, :, 3] == 255
    assert np.abs(overlay[changed][:, :3] - both[1][changed]).max() <= 2
    assert np.abs(both[1] - both[0])[~changed].max(initial=0) <= 2


def test_masks_have_their_own_colours(tmp_path, images):
    folder, row = PictureFolder(tmp_path), images["png"]
    masks = []
    for left, colour in ((10, TONE_COLOURS[0]), (90, TONE_COLOURS[3])):
        mask = np.zeros((120, 160), bool)
        mask[40:80, left : left + 40] = True
        masks.append((encode_mask(mask), colour))
    src = folder.add_masks("k", masks, over=folder.add_image(row))
    with Image.open(tmp_path / src) as shown:
        overlay = np.asarray(shown)
    assert overlay[60, 30].tolist() == [*TONE_COLOURS[0], 96]
    assert overlay[60, 110].tolist() == [*TONE_COLOURS[3], 96]
    assert overlay[60, 70, 3] == 0
    text = environment.LOOKS.read_text()
    for tone, colour in enumerate(TONE_COLOURS):
        assert f".tone{tone} {{ --tone: #{bytes(colour).hex()}; }}" in text
    mask = np.zeros((5, 6), bool)
    mask[1:4, 1:5] = True
    pixels = paint_mask(mask, CHANGED)
    expected = np.zeros((5, 6), int)
    expected[1:4, 1:5] = 255
    expected[2, 2:4] = 96
    assert np.array_equal(pixels[:, :, 3], expected)
    assert pixels[2, 2, :3].tolist() == list(CHANGED)
    folder = PictureFolder(tmp_path)
    picture, empty = folder.add_image(images["png"]), encode_mask(np.zeros((120, 160), bool))
    assert (
        folder.add_masks("m", [(empty, CHANGED)], over=picture)
        == folder.add_masks("n", [], over=picture)
        == ""
    )


def plain(colour, size=(64, 48)):
    return np.full((size[1], size[0], 3), colour, np.uint8)


def opened(png):
    with Image.open(io.BytesIO(png)) as image:
        return np.asarray(image.convert("RGBA"))


def test_what_differs_glows_and_the_rest_is_veiled():
    first, second = plain(200), plain(200)
    second[12:36, 16:32] = 0
    png, share = draw_heat(first, second)
    # L falls by 80.6; a blur of 1.5 pixels leaves 10 of it 1.7 pixels beyond each edge: 27.4 x 19.4
    # of 64 x 48.
    assert share == pytest.approx(27.4 * 19.4 / (64 * 48), abs=0.01)
    shown = opened(png)
    assert shown.shape == (48, 64, 4)
    (light, full), (dark, veil) = (
        (int(one[:3].sum()), one[3]) for one in (shown[24, 24], shown[2, 2])
    )
    assert (light > 600, full, dark < 20, veil) == (True, 235, True, 150)
    assert draw_heat(plain(30), plain(220)) == (b"", 1.0)
    noise = plain(100)
    noise[::2, ::2] = 104
    assert draw_heat(plain(100), noise) == (b"", 0.0)


def test_sizes_may_differ_and_large_ones_become_small():
    first, second = plain(200, (1000, 500)), plain(200, (400, 400))
    second[:100, :100] = 0
    png, share = draw_heat(first, second)
    assert opened(png).shape[:2] == (SIDE // 2, SIDE)
    assert share == pytest.approx(1 / 16, abs=0.01)
    assert len(png) < 4000
    assert draw_heat(plain(0, (1, 1)), plain(255, (1, 1)))[1] == 1.0
