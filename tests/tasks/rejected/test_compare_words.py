"""When two texts say the same, and when one rules the other out, by hand."""

import pytest

from pairwright.tasks.rejected.compare_words import (
    compare_texts,
    denies_change,
    only_repeats,
    says_nothing_else,
    stem,
)
from tests.fixtures.descriptions import described


@pytest.mark.parametrize(
    ("old", "new", "went", "came"),
    [
        ("a red ball", "a blue ball", "red", "blue"),
        ("a man riding a horse", "a man rides a camel", "horse", "camel"),
        ("two dogs", "a dog", "two", "a"),
        ("3 cars", "four cars", "3", "four"),
        ("no dog", "a dog", "no", "a"),
        ("a street with a bus", "a street without a bus", "", "without"),
        ("a dog on a table", "a dog under a table", "on", "under"),
        ("a man standing", "a man sitting", "standing", "sitting"),
    ],
)
def test_words_that_exclude_each_other_contradict(old, new, went, came) -> None:
    change = compare_texts(old, new)
    assert (" ".join(change.went), " ".join(change.came)) == (went, came)
    assert (change.refusal, change.is_none) == ("", False)


SAME, ADDS, OMITS = "no other content", "only adds words", "only leaves words out"


@pytest.mark.parametrize(
    ("old", "new", "refusal"),
    [
        ("a red ball", "the red ball", SAME),
        ("a red ball and a blue cube", "a blue ball and a red cube", SAME),
        ("a dog", "a poodle", SAME),
        ("no dog", "a scene without any dog", SAME),
        ("a man holding a cup", "a man who holds a mug", SAME),
        ("an object", "a thing", SAME),
        ("a dog", "a dog and a cat", ADDS),
        ("dogs", "two dogs", ADDS),
        ("a dog and a cat", "a dog", OMITS),
        ("two dogs", "dogs", OMITS),
    ],
)
def test_other_changes_do_not(old, new, refusal) -> None:
    assert compare_texts(old, new).refusal == refusal


PIGEONS = "a man with a hat feeding pigeons near a stone fountain"


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (("a red ball", "no ball"), ("the red ball", "a scene without a ball"), True),
        (("a man in a jacket on a horse", "a dog"), ("a man in a coat on a horse", "a dog"), True),
        ((PIGEONS, "a square"), (PIGEONS.replace("stone", "weathered stone"), "a square"), True),
        (("a red ball", "no ball"), ("a blue ball", "no ball"), False),
        (("a red ball", "no ball"), ("no ball", "a red ball"), False),
        (("a dog", "a cat"), ("a dog and a bird", "a cat"), False),
        (("two dogs", "a cat"), ("three dogs", "a cat"), False),
        ((PIGEONS, "an empty square"), (PIGEONS, "a full square"), False),
    ],
)
def test_the_same_or_less_in_both_halves_is_nothing_else(old, new, same) -> None:
    assert says_nothing_else(new, old) is same


@pytest.mark.parametrize(
    ("halves", "sentence", "expected"),
    [
        (("a red car in the lot", "a car"), "The red car has left the parking lot.", True),
        (("a red car", "no car"), "The red car has left.", False),
        (("an unchanged street", "the same view"), "There is no difference.", True),
        (("a street", "a street with a bus"), "There is no difference.", False),
    ],
)
def test_what_people_said_is_repeated(halves, sentence, expected) -> None:
    assert only_repeats(halves, sentence) is expected


def test_no_change_is_told_from_changes() -> None:
    rows, *_ = described(range(300))
    assert [denies_change(row.text) for row in rows] == [row.no_change for row in rows]
    assert not denies_change("the same scene but with a dog")


@pytest.mark.parametrize("text", ["", "狗在草地上", "a" * 100_000], ids=lambda text: text[:9])
def test_odd_texts_say_the_same_as_themselves(text) -> None:
    assert compare_texts(text, text).refusal == SAME


def test_long_texts_are_compared() -> None:
    books = [" ".join(f"{letter}{number}" for number in range(100_000)) for letter in "ab"]
    assert compare_texts(*books).refusal == ""


@pytest.mark.parametrize(
    "forms", ["holds holding held", "rides riding", "boxes box", "women woman", "cities city"]
)
def test_forms_of_a_word_are_one(forms) -> None:
    assert len({stem(form) for form in forms.split()}) == 1
