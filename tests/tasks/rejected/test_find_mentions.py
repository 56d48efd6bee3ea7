"""Preferred texts in, nouns out: each half about its own image."""

from dataclasses import replace

import pytest

from pairwright.schemas.config import NounsConfig
from pairwright.schemas.rows import (
    DifferenceRow,
    Dropped,
    MentionRow,
    PairRow,
    PreferenceRow,
    make_key,
)
from pairwright.tasks.models.nouns import pin_model
from pairwright.tasks.rejected.find_mentions import MAX_CHARACTERS, find_mentions
from tests.fixtures.rows import row_of
from tests.fixtures.tagger import REAL

FIRST, SECOND = make_key("image", 1), make_key("image", 2)


@pytest.fixture(scope="module")
def config() -> NounsConfig:
    return pin_model(NounsConfig(model=REAL))


def pair(number: int = 0) -> PairRow:
    key = make_key("pair", number)
    return row_of(PairRow, source=FIRST, key=key, subject=key, first=FIRST, second=SECOND)


def difference(
    first: str, second: str, *, number: int = 0, no_change: bool = False
) -> DifferenceRow:
    halves = {"first_half": first, "second_half": second}
    return row_of(
        DifferenceRow,
        *halves.values(),
        number,
        source=make_key("pair", number),
        **halves,
        no_change=no_change,
    )


def preference(chosen: str, *images: str) -> PreferenceRow:
    return row_of(PreferenceRow, chosen, source=images[0], image_keys=images, chosen=chosen)


def mentions(*rows: DifferenceRow, config: NounsConfig) -> list[MentionRow | Dropped]:
    return list(
        find_mentions(rows, config, pairs={row.subject: pair(n) for n, row in enumerate(rows)})
    )


def test_each_half_is_about_what_is_in_its_image(config: NounsConfig) -> None:
    row = difference("two dogs near a table, a dog on a chair", "people and a ball")
    first, second = mentions(row, config=config)
    assert isinstance(first, MentionRow)
    assert (first.subject, first.source_key, first.nouns) == (
        FIRST,
        row.key,
        ("dog", "table", "chair"),
    )
    assert isinstance(second, MentionRow)
    assert (second.subject, second.source_key, second.nouns) == (
        SECOND,
        row.key,
        ("people", "ball"),
    )
    assert first.model == second.model == config.revision
    assert first.key == make_key(
        "mentions", row.key, FIRST, config.revision, "dog", "table", "chair"
    )
    first, second = mentions(
        difference("a table without a dog", "a table with a dog"), config=config
    )
    assert isinstance(first, MentionRow)
    assert isinstance(second, MentionRow)
    assert (first.nouns, second.nouns) == (("table",), ("table", "dog"))
    (found,) = mentions(difference("it is bright", "a cat sleeps"), config=config)
    assert isinstance(found, MentionRow)
    assert (found.subject, found.nouns) == (SECOND, ("cat",))


def test_texts_without_mentions_say_why(config: NounsConfig) -> None:
    rows = [
        difference("a dog", "a dog", number=0, no_change=True),
        difference("it is", "was not", number=1),
        difference("", "", number=2),
        difference("a dog " * (MAX_CHARACTERS // 6 + 1), "a cat", number=3),
    ]
    found = mentions(*rows, config=config)
    assert found == [
        Dropped(source_key=rows[0].key, reason="a description of no change"),
        Dropped(
            source_key=rows[1].key, reason="no nouns in the preferred text", detail="it is; was not"
        ),
        Dropped(source_key=rows[2].key, reason="no nouns in the preferred text", detail="; "),
        Dropped(
            source_key=rows[3].key, reason="preferred text too long", detail="20,004 characters"
        ),
    ]
    assert list(find_mentions(rows[1:2], config, pairs={})) == [
        Dropped(source_key=rows[1].key, reason="no pair of the description")
    ]


def test_a_given_preference_is_about_each_of_its_images(config: NounsConfig) -> None:
    row = preference("A dog and a cat.", FIRST, SECOND, FIRST)
    found = list(find_mentions([row, preference("It is.", FIRST), preference("", SECOND)], config))
    assert [one.nouns for one in found[:2] if isinstance(one, MentionRow)] == [("dog", "cat")] * 2
    assert [one.subject for one in found[:2] if isinstance(one, MentionRow)] == [FIRST, SECOND]
    assert found[0].source_key == row.key
    assert [one.reason for one in found[2:] if isinstance(one, Dropped)] == [
        "no nouns in the preferred text"
    ] * 2
    (found,) = find_mentions([replace(preference("A dog.", FIRST), image_keys=())], config)
    assert isinstance(found, Dropped)
