"""Classifiers that tell rejected from chosen by style alone, and counts of repeated wording."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import cv2
import numpy as np
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.bench.truth_text import ATTRIBUTES, Reading, Said

FOLDS = 5
NAMED = (*ATTRIBUTES, "column", "depth")
CLASSIFIERS = {
    "n-grams": lambda: make_pipeline(
        CountVectorizer(ngram_range=(1, 3)), LogisticRegression(max_iter=2000)
    ),
    "length": lambda: make_pipeline(StandardScaler(), GradientBoostingClassifier(random_state=0)),
    "structure": lambda: GradientBoostingClassifier(random_state=0),
    "image statistics": lambda: make_pipeline(
        StandardScaler(), LogisticRegression(max_iter=2000, C=0.1)
    ),
}


def tell_apart(
    name: str, features: Sequence, labels: Sequence[int], worlds: Sequence[str]
) -> tuple[int, int]:
    """Return how many of the held-out examples a classifier gets right, and of how many; no world
    is in two folds."""
    folds = GroupKFold(min(FOLDS, len(set(worlds))))
    data = list(features) if name == "n-grams" else np.array(features, dtype=float)
    told = cross_val_predict(
        CLASSIFIERS[name](), data, np.array(labels), groups=np.array(worlds), cv=folds
    )
    return int((told == np.array(labels)).sum()), len(labels)


def structure_of(
    reading: Reading, text: str, usual: Mapping[tuple[str, ...], set[str]], world: str
) -> list[float]:
    """Return what a text names, how often, and how what it says of the two photographs fits
    together.

    ``usual``: the worlds that have things of a shape and a material; looks that no other world has
    are counted.
    """
    things = [one for one in reading.said if one.kind == "things"]
    row = [float(len(reading.said)), float(len(text.split())), float(len(reading.unread))]
    for side in (0, 1):
        own = [one for one in things if one.side == side]
        row += [
            len(own),
            sum(one.high == 0 for one in own),
            sum(one.low for one in own if one.low == one.high),
        ]
        row += [sum(name in dict(one.look) for one in own) for name in NAMED]
    pairs = [
        (a, b) for a in things for b in things if a.side < b.side and _core(a)[:1] == _core(b)[:1]
    ]
    alike = [(dict(a.look), dict(b.look)) for a, b in pairs if _core(a) == _core(b)]
    row += [len(pairs), len(alike), sum(a.low != b.low for a, b in pairs)]
    for pool in ([(dict(a.look), dict(b.look)) for a, b in pairs], alike):
        row += [
            sum(name in a and name in b and a[name] != b[name] for a, b in pool) for name in NAMED
        ]
    row += [
        max((sum(a[name] != b[name] for name in a.keys() & b.keys()) for a, b in alike), default=0)
    ]
    looks = [tuple(map(dict(one.look).get, ("shape", "material"))) for one in things]
    row += [sum(None not in look and not usual.get(look, set()) - {world} for look in looks)]
    places = [one.value for one in reading.said if one.kind == "place"]
    return [*row, len(places), len(set(places)), sum(one.kind == "same" for one in reading.said)]


def _core(said: Said) -> tuple[str | None, ...]:
    return tuple(map(dict(said.look).get, ("shape", "colour", "material")))


def statistics_of(image: np.ndarray) -> list[float]:
    """Return colours, edges, noise and spectrum of an image."""
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32)
    edges = np.hypot(cv2.Sobel(grey, cv2.CV_32F, 1, 0), cv2.Sobel(grey, cv2.CV_32F, 0, 1))
    fine = np.abs(cv2.Laplacian(grey, cv2.CV_32F))
    smooth = cv2.blur(fine, (13, 13))
    spectrum = np.log1p(np.abs(np.fft.rfft2(grey - grey.mean())))
    radius = np.hypot(
        *np.meshgrid(np.fft.fftfreq(grey.shape[0]), np.fft.rfftfreq(grey.shape[1]), indexing="ij")
    )
    bands = [
        spectrum[(radius >= low) & (radius < low + 0.0625)].mean()
        for low in np.arange(0, 0.5, 0.0625)
    ]
    levels = [
        np.percentile(plane, (1, 10, 50, 90, 99))
        for plane in (*cv2.split(image), edges, fine, smooth)
    ]
    return [
        *image.mean((0, 1)),
        *image.std((0, 1)),
        *np.concatenate(levels),
        edges.mean(),
        fine.std(),
        *bands,
    ]


def distinct_bigrams(texts: Sequence[str]) -> tuple[int, int]:
    """Return how many different pairs of neighbouring words the texts have, and how many pairs in
    all."""
    words = [re.findall(r"[\w'-]+", text.lower()) for text in texts]
    pairs = [pair for own in words for pair in pairwise(own)]
    return len(set(pairs)), len(pairs)
