import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.common_words import COMMON_WORDS
from pairwright.tasks.store.replace_words import replace_words

TEXT = "The difference is that the first image shows a man's red hat, while the second one doesn't: it's blue."
WORDS = 19


def changed(before: str, after: str) -> int:
    first, second = before.split(), after.split()
    assert len(first) == len(second)
    return sum(a != b for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(("share", "words"), [(0, 0), (0.2, 4), (0.4, 8), (0.6, 11), (0.8, 15), (1, 19)])
def test_the_share_is_exact_and_what_is_between_words_stays(share, words):
    # 19 words: 3.8, 7.6, 11.4 and 15.2 of them.
    assert len(TEXT.split()) == WORDS
    after = replace_words(TEXT, share, key="a")
    assert changed(TEXT, after) == words
    assert re.sub(r"[\w'-]+", "", after) == re.sub(r"[\w'-]+", "", TEXT)


def test_half_a_word_is_a_word():
    assert changed("a b", replace_words("a b", 0.25, key="k")) == 1
    assert changed("a b", replace_words("a b", 0.24, key="k")) == 0


@given(st.text("ab AB,.'", max_size=30), st.floats(0, 1), st.text())
def test_a_word_is_never_replaced_by_itself(text, share, key):
    after = replace_words(text, share, key=key, vocabulary=("a", "b", "B"))
    words = [re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", one) for one in (text, after)]
    assert len(words[0]) == len(words[1])
    assert sum(a != b for a, b in zip(*words, strict=True)) == int(share * len(words[0]) + 0.5)
    assert all(a == b or a.casefold() != b.casefold() for a, b in zip(*words, strict=True))


def test_the_key_decides_and_all_words_are_drawn():
    assert replace_words(TEXT, 0.5, key="a") == replace_words(TEXT, 0.5, key="a")
    assert replace_words(TEXT, 0.5, key="a") != replace_words(TEXT, 0.5, key="b")
    long = replace_words(" ".join(["xyz"] * 20_000), 1, key="a").split()
    assert set(long) == set(COMMON_WORDS)
    # 20,000 draws of about 390 words: 51 of each, by chance 51 +- 5 * 7.2.
    expected = 20_000 / len(COMMON_WORDS)
    assert all(abs(long.count(word) - expected) < 5 * expected**0.5 for word in COMMON_WORDS)


def test_what_cannot_be_done_is_refused():
    with pytest.raises(ValueError, match=r"1\.1"):
        replace_words(TEXT, 1.1, key="a")
    for vocabulary in ((), ("xyz", "XYZ")):
        with pytest.raises(ValueError, match="'xyz'"):
            replace_words("xyz", 1, key="a", vocabulary=vocabulary)
