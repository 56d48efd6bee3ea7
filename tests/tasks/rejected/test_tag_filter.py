"""Which names are those of things; the lists here were made by hand, apart from the words of the
filter."""

import pytest

from pairwright.tasks.rejected.tag_images import (
    MAX_CHARACTERS,
    names_thing,
    read_words,
    tidy,
    why_refused,
)

THINGS = """
candy bar, glass of water, bottle of wine
person, man, woman, baby, bride, couple, crowd, football player, ice hockey player, musician, chef
police, twin
fly, bat, calf, starfish, seagull, flock, horse, school bus, car, sports car, race car, train
bullet train, plane
park bench, table, kitchen table, dining table, chair, bed, flower bed, couch, lamp, lamp shade
floor lamp
poster, painting, sculpture, pillow, blanket, towel, toilet, toilet paper, bathroom sink, bathtub
shower head
plate, place setting, knife, spoon, bowl, pizza, cake, wedding cake, birthday candle, apple
orange, peach, banana
topping, stuffing, drink, red wine, orange juice, laptop, phone, television, keyboard, camera
playing card
tights, glasses, sunglasses, shoe, high heel, earring, ring, engagement ring, necklace, watch
belt, stocking
surfboard, skateboard, swing, swimming trunks, string, railing, spider web, tree, palm tree
christmas tree, flower
lighthouse, bridge, castle, sand castle, barn, tent, fence, gazebo, statue, fountain, boulder
stone, iceberg
doll, gift, present, birthday present, piggy bank, entertainment center, space shuttle, robot
elevator door
"""
NO_THINGS = """
health, group of people, body of water, pair of shoes, variety of fruit, piece of cake
view of the city, face
red, blue, Green, black and white, dark blue, colour, color, monochrome, silver, gold, sky
blue sky, cloud
brick wall, ceiling, shadow, reflection, light, evening light, sunlight, fog, smoke, background
foreground
forest, pine forest, beach, sea, ocean, river, lake, mountain, mountains, snow mountain, hill
cliff, valley
restaurant, coffee shop, grocery store, museum, airport, train station, parking lot, tennis court
baseball stadium
bike ride, play tennis, playing golf, ice skating, cooking, mountain biking, climb mountain
go for, lead to
wooden, wet, snowy, modern, empty, crowded, tall, several, digital, round, wood, metal
stainless steel, leather
season, day, time, christmas, halloween, birthday, vacation, today, weather, rain, snowfall
thunderstorm
clip art, film, horror film, icon, pattern, design, text, font, watermark, screenshot, selfie
polka dot, circle
race, meeting, conference, festival, exhibition, fashion show, parade, accident, traffic
traffic jam, thing
size, idea, love, beauty, music, history, culture, science, technology, business, government
education, power
hand, hands, hair, long hair, eye, foot, feet, beard, tail, paw, teeth, arm
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
    assert tidy("  Wine\n Glass ") == "wine glass"
    assert why_refused("  DIRT\tRoad ") == "names no thing"
    # "Shorts" are clothes, though "short" is no thing; "skies" are sky.
    assert names_thing("shorts")
    assert not names_thing("skies")
    assert not names_thing("beaches")
    assert names_thing("dishes")


@pytest.mark.parametrize("name", ["", " ", "3", "—", "100 %"])
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
