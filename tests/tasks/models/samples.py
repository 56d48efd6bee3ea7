"""Photographs of awkward sizes for embedders, cut from the samples that ship with scikit-image and
scikit-learn."""

from pathlib import Path

import numpy as np
import skimage
import sklearn
from PIL import Image

SKIMAGE = Path(skimage.__file__).parent / "data"
SKLEARN = Path(sklearn.__file__).parent / "datasets" / "images"
FILES = (
    SKLEARN / "china.jpg",
    SKLEARN / "flower.jpg",
    SKIMAGE / "astronaut.png",
    SKIMAGE / "chelsea.png",
    SKIMAGE / "coffee.png",
    SKIMAGE / "camera.png",
    SKIMAGE / "rocket.jpg",
    SKIMAGE / "gravel.png",
)


def embed(embedder, images):
    """Return the raw vectors that an embedder gives of images."""
    return embedder.encode([embedder.prepare(image) for image in images])


def unit(vectors):
    """Return vectors at length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


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
