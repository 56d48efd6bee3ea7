import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.tasks.models import perturb
from pairwright.tasks.models.perturb import FOG, NOISE, common_words, perturb_image, replace_words

GREY = np.full((224, 300, 3), 128, dtype=np.uint8)


@pytest.mark.parametrize("severity", [1, 2])
def test_noise_has_its_deviation_and_no_more(severity):
    noisy = perturb_image(GREY, "gaussian-noise", severity=severity, key="a").astype(float)
    assert abs(noisy.std() / 255 - NOISE[severity - 1]) < 0.001
    assert abs(noisy.mean() - 127.5) < 0.5  # what is between two values becomes the lower one
    channels = noisy.reshape(-1, 3).T
    assert np.abs(np.corrcoef(channels) - np.eye(3)).max() < 0.02


@pytest.mark.parametrize("severity", [1, 5])
def test_fog_lies_between_none_and_all_of_it(severity):
    thickness, _ = FOG[severity - 1]
    dim = GREY.copy()
    dim[0, 0] = 255  # so that the brightest value is 1, and the fog is divided by 1 + its thickness
    foggy = perturb_image(dim, "fog", severity=severity, key="a")[1:].astype(int)
    low, high = 128 / (1 + thickness), (128 + 255 * thickness) / (1 + thickness)
    assert int(low) <= foggy.min() <= foggy.max() <= int(high)
    assert foggy.max() - foggy.min() > 100  # plain grey before: the fog is uneven
    assert np.all(foggy == foggy[:, :, :1])
    steps = np.abs(np.diff(foggy[:, :, 0], axis=1))
    assert steps.mean() < 12  # and smooth


@pytest.mark.parametrize("kind", ["gaussian-noise", "fog"])
def test_the_key_decides_and_nothing_else(kind):
    first = perturb_image(GREY, kind, severity=5, key="a")
    perturb_image(GREY, kind, severity=5, key="b")
    assert np.array_equal(perturb_image(GREY, kind, severity=5, key="a"), first)
    assert not np.array_equal(perturb_image(GREY, kind, severity=5, key="b"), first)
    assert np.all(GREY == 128)
    assert perturb_image(GREY[:1, :1], kind, severity=1, key="a").shape == (1, 1, 3)
    assert perturb_image(np.zeros((20, 30, 3), np.uint8), kind, key="a").shape == (20, 30, 3)


TEXT = (
    "The difference is that the first image shows a man's red hat, while the second one "
    "doesn't: it's blue."
)
WORDS = 19


def changed(before: str, after: str) -> int:
    first, second = before.split(), after.split()
    assert len(first) == len(second)
    return sum(a != b for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(("share", "words"), [(0, 0), (0.2, 4), (0.6, 11), (1, 19)])
def test_the_share_is_exact_and_what_is_between_words_stays(share, words):
    # 19 words: 3.8, 7.6, 11.4 and 15.2 of them.
    assert len(TEXT.split()) == WORDS
    after = replace_words(TEXT, share, key="a")
    assert changed(TEXT, after) == words
    assert changed("a b", replace_words("a b", 0.25, key="k")) == 1  # half a word is a word
    assert changed("a b", replace_words("a b", 0.24, key="k")) == 0
    assert re.sub(r"[\w'-]+", "", after) == re.sub(r"[\w'-]+", "", TEXT)


@given(st.text("ab AB,.'", max_size=30), st.floats(0, 1), st.text())
def test_a_word_is_never_replaced_by_itself(text, share, key):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perturb, "common_words", lambda: ("a", "b", "B"))
        after = replace_words(text, share, key=key)
    words = [re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", one) for one in (text, after)]
    assert len(words[0]) == len(words[1])
    assert sum(a != b for a, b in zip(*words, strict=True)) == int(share * len(words[0]) + 0.5)
    assert all(a == b or a.casefold() != b.casefold() for a, b in zip(*words, strict=True))


def test_the_key_decides_and_all_words_are_drawn():
    assert replace_words(TEXT, 0.5, key="a") == replace_words(TEXT, 0.5, key="a")
    assert replace_words(TEXT, 0.5, key="a") != replace_words(TEXT, 0.5, key="b")
    long = replace_words(" ".join(["xyz"] * 20_000), 1, key="a").split()
    assert set(long) == set(common_words())
    # 20,000 draws of about 390 words: 51 of each, by chance 51 +- 5 * 7.2.
    expected = 20_000 / len(common_words())
    assert all(abs(long.count(word) - expected) < 5 * expected**0.5 for word in common_words())
