import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pairwright.tasks.images.decode import decode_rgb, encode_png, put_patch
from pairwright.tasks.images.masks import encode_mask
from pairwright.tasks.pages import environment
from pairwright.tasks.report import write_images
from tests.tasks.report.handmade import make_images


@pytest.fixture(scope="module")
def images():
    return {row.format: row for row in make_images(1, 4)}


@pytest.fixture(scope="module")
def large():
    return make_images(1, 1, size=(1600, 1200))[0]


@pytest.fixture
def folder(tmp_path):
    return write_images.PictureFolder(tmp_path)


def pixels_of(file):
    """Return the pixels of a picture with their alpha."""
    with Image.open(file) as image:
        return np.asarray(image.convert("RGBA"))


@pytest.mark.parametrize(("form", "ending"), [("png", "png"), ("jpeg", "jpg"), ("webp", "webp")])
def test_small_images_keep_their_bytes(tmp_path, folder, images, form, ending):
    picture = folder.add_image(images[form])
    assert picture.src == f"images/{images[form].key}.{ending}"
    assert (tmp_path / picture.src).read_bytes() == images[form].image
    assert (picture.width, picture.height) == (160, 120)


def test_what_browsers_do_not_show_becomes_png_with_the_same_pixels(tmp_path, folder, images):
    picture = folder.add_image(images["tiff"])
    assert picture.src.endswith(".png")
    written = decode_rgb((tmp_path / picture.src).read_bytes())
    assert np.array_equal(written, decode_rgb(images["tiff"].image))


def test_moving_pictures_are_shown_as_models_see_them(tmp_path, folder, images):
    red, blue = (Image.new("RGB", (40, 30), colour) for colour in ("red", "blue"))
    sink = io.BytesIO()
    red.save(sink, format="PNG", save_all=True, append_images=[blue], duration=100)
    row = replace(images["png"], image=sink.getvalue(), width=40, height=30)
    with Image.open(tmp_path / folder.add_image(row).src) as shown:
        assert getattr(shown, "n_frames", 1) == 1
        assert shown.convert("RGB").getpixel((5, 5)) == (255, 0, 0)


def test_large_photographs_become_previews(tmp_path, folder, large):
    picture = folder.add_image(large)
    assert (picture.width, picture.height) == (640, 480)
    assert picture.src.endswith(".jpg")
    preview = decode_rgb((tmp_path / picture.src).read_bytes())
    assert preview.shape == (480, 640, 3)
    small = np.asarray(Image.fromarray(decode_rgb(large.image)).resize((640, 480)), np.int16)
    assert np.abs(small - preview).mean() < 4


def grey_patch(window):
    x0, y0, x1, y1 = window
    return encode_png(np.full((y1 - y0, x1 - x0, 3), 120, np.uint8)), window


def test_a_patch_is_what_it_changes_and_nothing_else(tmp_path, folder, images):
    row = images["png"]
    pixels, picture = decode_rgb(row.image), folder.add_image(row)
    src = folder.add_patch("k", pixels, grey_patch((30, 20, 70, 61)), over=picture)
    overlay = pixels_of(tmp_path / src)
    expected = np.zeros((120, 160), bool)
    expected[20:61, 30:70] = (pixels[20:61, 30:70] != 120).any(axis=2)
    assert np.array_equal(overlay[:, :, 3], expected * 255)
    assert (overlay[expected][:, :3] == 120).all()
    same = (encode_png(pixels[5:9, 5:9]), (5, 5, 9, 9))
    assert folder.add_patch("l", pixels, same, over=picture) == ""


@pytest.mark.parametrize(
    "window",
    [(0, 0, 400, 300), (801, 333, 1303, 777), (1590, 1190, 1600, 1200), (0, 0, 1600, 1200)],
)
def test_a_patch_of_a_large_photograph_lies_where_it_does_in_the_preview(
    tmp_path, folder, large, window
):
    """The whole image with the patch, made smaller at once, is what the overlay shows over the
    preview."""
    pixels, patch = decode_rgb(large.image), grey_patch(window)
    src = folder.add_patch("k", pixels, patch, over=folder.add_image(large))
    overlay = pixels_of(tmp_path / src)
    before, after = (
        np.asarray(Image.fromarray(image).resize((640, 480), Image.Resampling.LANCZOS), int)
        for image in (pixels, put_patch(pixels, *patch))
    )
    changed = overlay[:, :, 3] == 255
    assert np.abs(overlay[changed][:, :3] - after[changed]).max() <= 2
    assert np.abs(after - before)[~changed].max(initial=0) <= 2


def block(left):
    mask = np.zeros((120, 160), bool)
    mask[40:80, left : left + 40] = True
    return encode_mask(mask)


def test_masks_have_their_own_colours(tmp_path, folder, images):
    masks = [(block(10), write_images.TONE_COLOURS[0]), (block(90), write_images.TONE_COLOURS[3])]
    src = folder.add_masks("k", masks, over=folder.add_image(images["png"]))
    overlay = pixels_of(tmp_path / src)
    assert overlay[60, 30].tolist() == [*write_images.TONE_COLOURS[0], 96]
    assert overlay[60, 110].tolist() == [*write_images.TONE_COLOURS[3], 96]
    assert overlay[60, 70, 3] == 0


def test_pages_know_the_colours_of_masks():
    looks = environment.LOOKS.read_text()
    for tone, colour in enumerate(write_images.TONE_COLOURS):
        assert f".tone{tone} {{ --tone: #{bytes(colour).hex()}; }}" in looks


def test_a_painted_mask_has_a_dense_edge():
    mask = np.zeros((5, 6), bool)
    mask[1:4, 1:5] = True
    pixels = write_images.paint_mask(mask, write_images.CHANGED)
    assert pixels[:, :, 3].tolist() == [
        [0, 0, 0, 0, 0, 0],
        [0, 255, 255, 255, 255, 0],
        [0, 255, 96, 96, 255, 0],
        [0, 255, 255, 255, 255, 0],
        [0, 0, 0, 0, 0, 0],
    ]
    assert pixels[2, 2, :3].tolist() == list(write_images.CHANGED)


def test_no_overlay_is_written_of_nothing(folder, images):
    picture, empty = folder.add_image(images["png"]), encode_mask(np.zeros((120, 160), bool))
    assert folder.add_masks("m", [(empty, write_images.CHANGED)], over=picture) == ""
    assert folder.add_masks("n", [], over=picture) == ""


def plain(colour, size=(64, 48)):
    return np.full((size[1], size[0], 3), colour, np.uint8)


def test_what_differs_glows_and_the_rest_is_veiled():
    first, second = plain(200), plain(200)
    second[12:36, 16:32] = 0
    png, share = write_images.draw_heat(first, second)
    # L falls by 80.6; a blur of 1.5 pixels leaves 10 of it 1.7 pixels beyond each edge: 27.4 x 19.4
    # of 64 x 48.
    assert share == pytest.approx(27.4 * 19.4 / (64 * 48), abs=0.01)
    heat = pixels_of(io.BytesIO(png))
    assert heat.shape == (48, 64, 4)
    glow, veil = heat[24, 24], heat[2, 2]
    assert glow[:3].sum() > 600
    assert glow[3] == 235
    assert veil[:3].sum() < 20
    assert veil[3] == 150


def test_no_heat_is_drawn_where_all_or_nothing_differs():
    assert write_images.draw_heat(plain(30), plain(220)) == (b"", 1.0)
    noise = plain(100)
    noise[::2, ::2] = 104
    assert write_images.draw_heat(plain(100), noise) == (b"", 0.0)
    assert write_images.draw_heat(plain(0, (1, 1)), plain(255, (1, 1)))[1] == 1.0


def test_sizes_may_differ_and_large_ones_become_small():
    first, second = plain(200, (1000, 500)), plain(200, (400, 400))
    second[:100, :100] = 0
    png, share = write_images.draw_heat(first, second)
    assert pixels_of(io.BytesIO(png)).shape[:2] == (write_images.SIDE // 2, write_images.SIDE)
    assert share == pytest.approx(1 / 16, abs=0.01)
    assert len(png) < 4000
