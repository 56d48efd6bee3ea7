"""Preferred texts in, nouns out: each half about its own image."""

from dataclasses import replace

import pytest

from pairwright.schemas.config import NounsConfig
from pairwright.schemas.rows import Dropped, PreferenceRow, make_key
from pairwright.tasks.models.nouns import pin_model
from pairwright.tasks.rejected.find_mentions import MAX_CHARACTERS, find_mentions
from tests.fixtures.descriptions import description
from tests.fixtures.graphs import pair_row
from tests.fixtures.rows import row_of
from tests.fixtures.tagger import REAL

PAIR = pair_row("first", "second")


@pytest.fixture(scope="module")
def config():
    return pin_model(NounsConfig(model=REAL))


def difference(first, second, **fields):
    row = description(f"shows {first}", f"shows {second}", subject=PAIR.key)
    return replace(row, **fields)


def mentions(row, config):
    return list(find_mentions([row], config, pairs={PAIR.key: PAIR}))


def preference(chosen, *images):
    return row_of(PreferenceRow, chosen, source="item", image_keys=images, chosen=chosen)


def test_a_row_says_whose_nouns_by_which_model(config) -> None:
    row = difference("two dogs near a table, a dog on a chair", "people and a ball")
    first, second = mentions(row, config)
    assert (first.source_key, first.model) == (row.key, config.revision)
    assert (first.subject, first.nouns) == ("first", ("dog", "table", "chair"))
    assert (second.subject, second.nouns) == ("second", ("people", "ball"))
    assert first.key == make_key(
        "mentions", row.key, "first", config.revision, "dog", "table", "chair"
    )


def test_each_half_is_about_what_is_in_its_image(config) -> None:
    denied = mentions(difference("a table without a dog", "a table with a dog"), config)
    assert [(row.subject, row.nouns) for row in denied] == [
        ("first", ("table",)),
        ("second", ("table", "dog")),
    ]
    (row,) = mentions(difference("it is bright", "a cat sleeps"), config)
    assert (row.subject, row.nouns) == ("second", ("cat",))


NO_NOUNS = "no nouns in the preferred text"
LONG = "a dog " * (MAX_CHARACTERS // 6 + 1)


@pytest.mark.parametrize(
    ("fields", "reason", "detail"),
    [
        ({"no_change": True}, "a description of no change", ""),
        ({"first_half": "it is", "second_half": "was not"}, NO_NOUNS, "it is; was not"),
        ({"first_half": LONG}, "preferred text too long", "20,004 characters"),
    ],
)
def test_texts_without_mentions_say_why(config, fields, reason, detail) -> None:
    row = difference("a dog", "a dog", **fields)
    assert mentions(row, config) == [Dropped(source_key=row.key, reason=reason, detail=detail)]


def test_a_description_without_its_pair_is_dropped(config) -> None:
    row = difference("a dog", "a cat")
    reason = "no pair of the description"
    assert list(find_mentions([row], config, pairs={})) == [
        Dropped(source_key=row.key, reason=reason)
    ]


def test_a_given_preference_is_about_each_of_its_images(config) -> None:
    row = preference("A dog and a cat.", "first", "second")
    first, second = find_mentions([row], config)
    assert first.nouns == second.nouns == ("dog", "cat")
    assert (first.subject, second.subject, first.source_key) == ("first", "second", row.key)
    for row in (preference("It is.", "first"), preference("A dog.")):
        (dropped,) = find_mentions([row], config)
        assert isinstance(dropped, Dropped)
        assert dropped.reason == NO_NOUNS
