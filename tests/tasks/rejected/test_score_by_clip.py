"""Sums of cosines by hand, on vectors that are made up; and what of a text is read."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwright.tasks.rejected.score_by_clip import MOST_PIECES, ClipScores, Fit, read_texts, sentences_of
from pairwright.tasks.store.vectors import Vectors


class Plain:
    """Read a text as numbers: the first letters of its words; a piece is three words at the most."""

    version = "plain"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        found = np.array([[text.count(letter) for letter in "abc"] for text in texts], dtype=np.float32)
        return found.reshape(len(texts), 3)

    def pieces(self, text: str) -> tuple[str, ...]:
        words = text.split()
        return tuple(" ".join(words[start : start + 3]) for start in range(0, len(words), 3))


def space(**vectors: Sequence[float]) -> dict[str, Vectors]:
    """Return vectors under keys that are filled up to 32 digits."""
    keys = sorted(vectors)
    matrix = np.array([vectors[key] for key in keys], dtype=np.float16)
    return {"clip": Vectors(np.array([key.ljust(32, "0").encode() for key in keys]), matrix, np.ones(len(keys)))}


def key(name: str) -> str:
    return name.ljust(32, "0")


IMAGES, REMOVALS = space(a1=(1, 0, 0), a2=(0, 3, 4)), space(e1=(0, 0, 2), e2=(0, 0, 0))


def read(*texts: str) -> ClipScores:
    return read_texts(texts, Plain(), images=IMAGES, removals=REMOVALS)


def test_sums_of_cosines() -> None:
    scores = read("a b. C c c c", "")
    # Sentences: "a b." is (1, 1, 0); "C c c" is (0, 0, 2) and "c", cut off from it, (0, 0, 1).
    assert scores.fit("a b. C c c c", key("a1"), key("e1")) == Fit(drop=1 - 3, clip=3)
    # The second image is (0, 0.6, 0.8) at unit length.
    assert scores.fit("a b. C c c c", key("a2"), key("e1")) == Fit(drop=0.0, clip=3)
    # An image in which the model sees nothing is at 0 from everything.
    assert scores.fit("a b. C c c c", key("a2"), key("e2")) == Fit(drop=3.0, clip=0)
    assert scores.fit("", key("a1"), key("e1")) == Fit(drop=0, clip=0)


def test_without_a_vector_there_is_no_score() -> None:
    scores = read("a")
    assert scores.fit("a", key("a3"), key("e1")) is None
    assert scores.fit("a", key("a1"), key("e3")) is None
    assert read_texts(["a"], Plain(), images={}, removals=REMOVALS).fit("a", key("a1"), key("e1")) is None
    assert read_texts(["a"], Plain(), images=IMAGES, removals={}).fit("a", key("a1"), key("e1")) is None
    assert read_texts([], Plain(), images=IMAGES, removals=REMOVALS).sentences.size == 0


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 12))
def test_for_one_image_the_largest_drop_is_the_lowest_sum(seed: int, sentences: int, candidates: int) -> None:
    """Eq. 9's order, down to ties."""
    rng = np.random.default_rng(seed)
    original = space(a=rng.normal(size=4))["clip"]
    names = [chr(ord("b") + n) for n in range(candidates)]
    removals = space(**{name: rng.normal(size=4) for name in names})["clip"]
    texts = rng.normal(size=(sentences, 4)).astype(np.float32)
    scores = ClipScores({"text": range(sentences)}, texts, original, removals)
    fits = [scores.fit("text", key("a"), key(name)) for name in names]
    ranked = sorted(range(candidates), key=lambda n: fits[n].clip)
    assert ranked == sorted(range(candidates), key=lambda n: -fits[n].drop)
    lowest = fits[ranked[0]]
    unit = removals.matrix[ranked[0]].astype(np.float64)
    assert lowest.clip == pytest.approx((texts @ (unit / np.linalg.norm(unit))).sum(), abs=1e-5)


def test_of_an_endless_text_the_beginning_is_read() -> None:
    assert sentences_of("A cat sits there. A dog runs.", Plain()) == ("A cat sits", "there.", "A dog runs.")
    assert len(sentences_of("A b c. " * 5000, Plain())) == MOST_PIECES
    assert sum(map(len, sentences_of("x" * 50_000, Plain()))) == 20_000
    assert sentences_of("", Plain()) == ()
