"""Which names are those of things; these lists are independent of the filter's words."""

import pytest

from pairwright.tasks.rejected.tag_images import MAX_CHARACTERS, why_refused
from pairwright.tasks.texts.things import names_thing, read_words, tidy

THINGS = """
candy bar, glass of water, bottle of wine, person, football player, police, fly, starfish
park bench, flower bed, lamp shade, painting, bathroom sink, glasses, toilet paper, stuffing
topping, drink, orange juice, playing card, tights, engagement ring, swimming trunks, railing
palm tree, sand castle, space shuttle, present, entertainment center, iceberg, piggy bank
"""
NO_THINGS = """
health, group of people, body of water, pair of shoes, piece of cake, view of the city, face
red, Green, black and white, gold, blue sky, brick wall, evening light, fog, pine forest, mountains
coffee shop, tennis court, bike ride, play tennis, ice skating, cooking, climb mountain, go for
wooden, several, round, stainless steel, day, christmas, rain, clip art, selfie, polka dot, race
fashion show, traffic jam, thing, idea, music, hand, long hair, feet, arm
"""


def entries(text: str) -> list[str]:
    return [entry.strip() for line in text.strip().splitlines() for entry in line.split(",")]


def test_things_are_kept_and_all_else_is_refused() -> None:
    assert not [name for name in entries(THINGS) if why_refused(name)]
    assert not [name for name in entries(NO_THINGS) if why_refused(name) != "names no thing"]
    assert why_refused("Teddy  Bear", ["teddy bear"]) == "excluded by the profile"
    assert why_refused("bear", ["teddy bear"]) == ""
    assert why_refused("sky", ["sky"]) == "excluded by the profile"
    assert why_refused("a" * MAX_CHARACTERS) == ""
    assert why_refused("a" * (MAX_CHARACTERS + 1)) == "too long for a name"
    assert why_refused("  DIRT\tRoad ") == "names no thing"
    # "Shorts" are clothes, though "short" is no thing; "skies" are sky.
    assert names_thing("shorts")
    assert not names_thing("skies")
    assert not names_thing("beaches")
    assert names_thing("dishes")


@pytest.mark.parametrize("name", ["", "3", "—"])
def test_what_is_no_word_is_refused(name: str) -> None:
    assert why_refused(name) == "names no thing"


def test_every_entry_of_the_list_counts() -> None:
    words = read_words()
    assert len(words.whole) > 1500
    assert not [word for word in words.whole if word != tidy(word)]
    assert not [word for word in words.whole - words.things if names_thing(word)]
    assert not [word for word in words.things if not names_thing(word)]
    assert words.last <= words.whole
    assert not words.things & words.whole


def test_words_of_a_domain_are_things_where_the_profile_says_so() -> None:
    words = read_words(included=("Water", "road", "rust", "scratch"))
    names = ("water", "dirty water", "dirt roads", "rust", "scratches", "body of water")
    assert [name for name in names if why_refused(name, (), words)] == ["body of water"]
    assert [name for name in names if not why_refused(name)] == []
    assert why_refused("sky", (), words) == "names no thing"
    own = read_words("# Ours.\n[things] sky\n[stuff] glass, =light\n")
    refused = ["glass", "window glass", "light", "sky", "traffic light", "water"]
    assert [name for name in refused if why_refused(name, (), own)] == refused[:3]
