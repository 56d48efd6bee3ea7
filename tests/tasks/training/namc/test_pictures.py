import io

import numpy as np
import torch
from PIL import Image

from pairwright.tasks.training.namc.pictures import crop, sizes_for, to_codes, to_patches, to_pixels


def test_places_run_along_rows():
    """The patch in the first row and second column is place 1: red 255 there gives code 3 x 16."""
    image = np.zeros((64, 64, 3), np.uint8)
    image[:8, 8:16, 0] = 255
    image[8:16, :8] = [0, 64, 128]
    crops = torch.from_numpy(image)[None]
    codes = to_codes(crops)[0]
    assert codes[1] == 3 * 16
    assert codes[8] == 1 * 4 + 2
    assert codes.count_nonzero() == 2
    patches = to_patches(crops)[0]
    assert patches.shape == (64, 192)
    assert patches[1].reshape(8, 8, 3)[..., 0].eq(1).all()
    assert patches[0].eq(-1).all()
    assert to_pixels(crops).shape == (1, 3, 64, 64)


def test_an_image_of_any_shape_becomes_a_square():
    file = io.BytesIO()
    Image.new("RGB", (200, 30), "blue").save(file, "PNG")
    found = crop(file.getvalue())
    assert found.shape == (64, 64, 3)
    assert (found == [0, 0, 255]).all()


def test_the_sizes_fit_the_pictures():
    sizes = sizes_for(500)
    assert (sizes.places, sizes.features, sizes.codes) == (64, 192, 64)
