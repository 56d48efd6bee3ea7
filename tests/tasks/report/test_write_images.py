import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from schemas.rows import make_key
from tasks.report.write_images import CHANGED, PictureFolder, paint_mask
from tasks.store.images import decode_rgb
from tasks.store.masks import encode_mask
from tests.tasks.report.handmade import ball_mask, encode, make_images


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
    assert np.array_equal(decode_rgb((tmp_path / picture.src).read_bytes()), decode_rgb(images["tiff"].image))


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


def test_pictures_are_written_once(tmp_path, images):
    folder = PictureFolder(tmp_path)
    first = folder.add_image(images["png"])
    (tmp_path / first.src).unlink()
    assert folder.add_image(images["png"]) == first
    assert not (tmp_path / first.src).exists()


def test_removals_are_written(tmp_path):
    data = encode(Image.new("RGB", (50, 40), "green"), "png")
    picture = PictureFolder(tmp_path).add_removal("k", data)
    assert ((tmp_path / picture.src).read_bytes(), picture.width, picture.height) == (data, 50, 40)
    large = PictureFolder(tmp_path).add_removal("l", encode(Image.new("RGB", (1280, 100), "green"), "png"))
    assert (large.width, large.height) == (640, 50)


def test_mask_is_half_transparent_with_a_full_rim():
    mask = np.zeros((5, 6), bool)
    mask[1:4, 1:5] = True
    pixels = paint_mask(mask, CHANGED)
    expected = np.zeros((5, 6), int)
    expected[1:4, 1:5] = 255
    expected[2, 2:4] = 96
    assert np.array_equal(pixels[:, :, 3], expected)
    assert pixels[2, 2, :3].tolist() == list(CHANGED)


def test_masks_are_joined_and_follow_the_preview(tmp_path):
    row = make_images(1, 1, size=(1600, 1200))[0]
    folder = PictureFolder(tmp_path)
    picture = folder.add_image(row)
    masks = [ball_mask(20, 50, (1600, 1200)), ball_mask(80, 50, (1600, 1200))]
    src = folder.add_masks(make_key("m"), masks, over=picture, colour=CHANGED)
    with Image.open(tmp_path / src) as shown:
        alpha = np.asarray(shown)[:, :, 3]
    assert alpha.shape == (480, 640)
    # Balls of radius 160 at 20 % and 80 % of the width, seen at 0.4 of the size.
    assert alpha[240, 128] > 0 < alpha[240, 512]
    assert alpha[240, 320] == 0
    assert (alpha > 0).sum() == pytest.approx(2 * np.pi * 64**2, rel=0.02)


def test_empty_masks_have_no_file(tmp_path, images):
    folder = PictureFolder(tmp_path)
    picture = folder.add_image(images["png"])
    empty = encode_mask(np.zeros((120, 160), bool))
    assert folder.add_masks("m", [empty], over=picture, colour=CHANGED) == ""
    assert folder.add_masks("n", [], over=picture, colour=CHANGED) == ""
