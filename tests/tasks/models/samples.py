"""Photographs of awkward sizes, cut from the samples of scikit-image and scikit-learn; vectors."""

from pathlib import Path

import numpy as np
import skimage
import sklearn
from PIL import Image

SKIMAGE = Path(skimage.__file__).parent / "data"
SKLEARN = Path(sklearn.__file__).parent / "datasets" / "images"
FILES = (
    *(SKLEARN / f"{name}.jpg" for name in ("china", "flower")),
    *(SKIMAGE / f"{name}.png" for name in ("astronaut", "chelsea", "coffee", "camera")),
    SKIMAGE / "rocket.jpg",
    SKIMAGE / "gravel.png",
)


def photographs():
    """Return RGB arrays by what is special about them."""
    whole = {path.stem: np.asarray(Image.open(path).convert("RGB")) for path in FILES}
    china, astronaut = whole["china"], whole["astronaut"]
    return whole | {
        "odd": china[:333, :217],
        "odd, one more": china[:334, 1:217],
        "small": china[100:157, 200:301],
        "smaller than a crop": astronaut[:20, :31],
        "16 pixels": astronaut[60:76, 230:246],
        "wide": china[200:240],
        "tall": astronaut[:, 200:217],
        "very wide": np.tile(china[200:217], (1, 8, 1)),
        "as large as a crop": astronaut[:224, :224],
        "not contiguous": china[::-1, ::2],
    }


def moved(images):
    """Return images without their first twentieth."""
    return [image[:, image.shape[1] // 20 :] for image in images]


def embed(embedder, images):
    """Return the raw vectors that an embedder gives of images."""
    return embedder.encode([embedder.prepare(image) for image in images])


def unit(vectors):
    """Return vectors at length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def cosines(vectors, expected):
    """Return the cosine of each vector with its counterpart."""
    return (unit(vectors) * unit(expected)).sum(axis=1)


def assert_vectors(vectors, expected):
    """Compare the directions of float32 vectors, and roughly their lengths."""
    assert vectors.dtype == np.float32
    assert vectors.shape == expected.shape
    assert cosines(vectors, expected).min() >= 0.9999
    lengths, expected_lengths = (np.linalg.norm(each, axis=1) for each in (vectors, expected))
    np.testing.assert_allclose(lengths, expected_lengths, rtol=0.02)
