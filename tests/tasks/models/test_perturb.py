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
    """What is between two values becomes the lower one."""
    noisy = perturb_image(GREY, "gaussian-noise", severity=severity, key="a").astype(float)
    assert abs(noisy.std() / 255 - NOISE[severity - 1]) < 0.001
    assert abs(noisy.mean() - 127.5) < 0.5
    channels = noisy.reshape(-1, 3).T
    assert np.abs(np.corrcoef(channels) - np.eye(3)).max() < 0.02


@pytest.mark.parametrize("severity", [1, 5])
def test_fog_lies_between_none_and_all_of_it(severity):
    """One pixel is white, so that the fog is divided by 1 + its thickness; it is uneven, smooth."""
    thickness, _ = FOG[severity - 1]
    image = GREY.copy()
    image[0, 0] = 255
    foggy = perturb_image(image, "fog", severity=severity, key="a")[1:].astype(int)
    low, high = 128 / (1 + thickness), (128 + 255 * thickness) / (1 + thickness)
    assert int(low) <= foggy.min() <= foggy.max() <= int(high)
    assert foggy.max() - foggy.min() > 100
    assert np.all(foggy == foggy[:, :, :1])
    assert np.abs(np.diff(foggy[:, :, 0], axis=1)).mean() < 12


@pytest.mark.parametrize("kind", ["gaussian-noise", "fog"])
def test_the_key_decides_and_nothing_else(kind):
    first = perturb_image(GREY, kind, severity=5, key="a")
    perturb_image(GREY, kind, severity=5, key="b")
    assert np.array_equal(perturb_image(GREY, kind, severity=5, key="a"), first)
    assert not np.array_equal(perturb_image(GREY, kind, severity=5, key="b"), first)
    assert np.all(GREY == 128)


@pytest.mark.parametrize("kind", ["gaussian-noise", "fog"])
def test_pixels_and_black_images_keep_their_shape(kind):
    assert perturb_image(GREY[:1, :1], kind, severity=1, key="a").shape == (1, 1, 3)
    assert perturb_image(np.zeros((20, 30, 3), np.uint8), kind, key="a").shape == (20, 30, 3)


TEXT = (
    "The difference is that the first image shows a man's red hat, while the second one "
    "doesn't: it's blue."
)


def count_changed(before, after):
    return sum(a != b for a, b in zip(before.split(), after.split(), strict=True))


@pytest.mark.parametrize(
    ("text", "share", "count"),
    [
        *((TEXT, share, count) for share, count in ((0, 0), (0.2, 4), (0.6, 11), (1, 19))),
        pytest.param("a b", 0.25, 1, id="half a word is a word"),
        pytest.param("a b", 0.24, 0, id="less is none"),
    ],
)
def test_the_share_is_exact_and_what_is_between_words_stays(text, share, count):
    after = replace_words(text, share, key="a")
    assert count_changed(text, after) == count
    assert re.sub(r"[\w'-]+", "", after) == re.sub(r"[\w'-]+", "", text)


@given(st.text("ab AB,.'", max_size=30), st.floats(0, 1), st.text())
def test_a_word_is_never_replaced_by_itself(text, share, key):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perturb, "common_words", lambda: ("a", "b", "B"))
        after = replace_words(text, share, key=key)
    words = [re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", each) for each in (text, after)]
    pairs = list(zip(*words, strict=True))
    assert sum(a != b for a, b in pairs) == int(share * len(pairs) + 0.5)
    assert all(a == b or a.casefold() != b.casefold() for a, b in pairs)


def test_the_key_decides_which_words():
    assert replace_words(TEXT, 0.5, key="a") == replace_words(TEXT, 0.5, key="a")
    assert replace_words(TEXT, 0.5, key="a") != replace_words(TEXT, 0.5, key="b")


def test_all_words_are_drawn():
    """20,000 draws of about 390 words: 51 of each, by chance 51 +- 5 * 7.2."""
    words = replace_words(" ".join(["xyz"] * 20_000), 1, key="a").split()
    assert set(words) == set(common_words())
    expected = 20_000 / len(common_words())
    assert all(abs(words.count(word) - expected) < 5 * expected**0.5 for word in common_words())
