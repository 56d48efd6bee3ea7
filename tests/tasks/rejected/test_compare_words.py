"""When two texts say the same, and when one rules the other out, by hand."""

import pytest

from pairwright.tasks.rejected.compare_words import (
    compare_texts,
    denies_change,
    repeats,
    says_nothing_else,
    stem,
)
from tests.fixtures.descriptions import described

CONTRADICTIONS = [
    ("a red ball", "a blue ball", "red", "blue"),
    ("a dog on a sofa", "a cat on a sofa", "dog", "cat"),
    ("a man riding a horse", "a man rides a camel", "horse", "camel"),
    ("two dogs", "three dogs", "two", "three"),
    ("two dogs", "a dog", "two", "a"),
    ("a dog", "several dogs", "a", "several"),
    ("3 cars", "four cars", "3", "four"),
    ("no dog", "a dog", "no", "a"),
    ("a street with a bus", "a street without a bus", "", "without"),
    ("a dog on a table", "a dog under a table", "on", "under"),
    ("a dog to the left of a cat", "a dog to the right of a cat", "left", "right"),
    ("a box with its lid open", "a box with its lid closed", "open", "closed"),
    ("a man standing", "a man sitting", "standing", "sitting"),
    ("a man", "a woman", "man", "woman"),
]


@pytest.mark.parametrize(("old", "new", "went", "came"), CONTRADICTIONS)
def test_words_that_exclude_each_other_contradict(old, new, went, came):
    change = compare_texts(old, new)
    assert (" ".join(change.went), " ".join(change.came)) == (went, came)
    assert change.refusal == ""
    assert not change.is_none


REFUSALS = {
    "no other content": [
        ("a red ball", "the red ball"),
        ("a dog, sitting", "a sitting dog"),
        ("a red ball and a blue cube", "a blue ball and a red cube"),
        ("a small dog", "a little dog"),
        ("a dog", "a poodle"),
        ("a person", "a man"),
        ("a grey car", "a silver automobile"),
        ("no dog", "a scene without any dog"),
        ("3 cars", "three cars"),
        ("a man holding a cup", "a man who holds a mug"),
        ("an object", "a thing"),
    ],
    "only adds words": [
        ("a dog", "a dog and a cat"),
        ("dogs", "two dogs"),
        ("the dog", "a small dog"),
    ],
    "only leaves words out": [
        ("a dog and a cat", "a dog"),
        ("two dogs", "dogs"),
        ("the small dog", "a dog"),
    ],
}


@pytest.mark.parametrize(
    ("reason", "texts"), [(reason, one) for reason, many in REFUSALS.items() for one in many]
)
def test_other_changes_do_not(reason, texts):
    assert compare_texts(*texts).refusal == reason


SAME = [
    (("a red ball", "no ball"), ("the red ball", "a scene without a ball")),
    (
        ("a man in a red jacket on a horse", "a horse"),
        ("a man in a red coat on a horse", "a horse"),
    ),
    (("a red metal ball on a table", "a table"), ("a red ball", "a table")),
    (("two dogs", "a cat"), ("dogs", "a cat")),
    (
        ("a man with a hat feeding pigeons near a stone fountain", "an empty square"),
        ("a man with a hat feeding pigeons near a weathered stone fountain", "an empty square"),
    ),
]


@pytest.mark.parametrize(("old", "new"), SAME)
def test_the_same_or_less_is_nothing_else(old, new):
    assert says_nothing_else(new, old)


OTHER = [
    (("a red ball", "no ball"), ("a blue ball", "no ball")),
    (("a red ball", "no ball"), ("no ball", "a red ball")),
    (("a man on a horse", "a horse"), ("a man on a camel", "a camel")),
    (("a dog", "a cat"), ("a dog and a bird", "a cat")),
    (("two dogs", "a cat"), ("three dogs", "a cat")),
    (("a dog", "a cat"), ("a dog", "no cat")),
    (
        ("a man with a hat feeding pigeons near a stone fountain", "an empty square"),
        ("a man with a hat feeding pigeons near a stone fountain", "a full square"),
    ),
]


@pytest.mark.parametrize(("old", "new"), OTHER)
def test_what_is_said_of_one_half_only_is_something_else(old, new):
    assert not says_nothing_else(new, old)


@pytest.mark.parametrize(
    ("halves", "said", "expected"),
    [
        (("a red car in the lot", "a car"), "The red car has left the parking lot.", True),
        (("a red car", "no car"), "The red car has left.", False),
        (("a blue car", "a car"), "The red car has left.", False),
        (("an unchanged street", "the same view"), "There is no difference.", True),
        (("a street", "a street with a bus"), "There is no difference.", False),
    ],
)
def test_what_people_said_is_repeated(halves, said, expected):
    assert repeats(halves, said) is expected


def test_no_change_is_told_from_changes():
    rows, *_ = described(range(300))
    assert [denies_change(row.text) for row in rows] == [row.no_change for row in rows]
    assert not denies_change("the same scene but with a dog")
    for odd in ("", "—", "!!!", "狗在草地上", "a" * 100_000, "a " * 10_000):
        assert compare_texts(odd, odd).refusal == "no other content"
    books = [" ".join(f"{letter}{number}" for number in range(100_000)) for letter in "ab"]
    assert compare_texts(*books).refusal == ""


@pytest.mark.parametrize(
    "forms",
    [
        ("holds", "holding", "held"),
        ("rides", "riding"),
        ("boxes", "box"),
        ("women", "woman"),
        ("cities", "city"),
    ],
)
def test_forms_of_a_word_are_one(forms):
    assert len({stem(form) for form in forms}) == 1
