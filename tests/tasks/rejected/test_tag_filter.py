"""Which names are those of things; the lists here were made by hand, apart from the words of the filter."""

import pytest

from pairwright.tasks.rejected.tag_images import MAX_CHARACTERS, names_thing, read_words, tidy, why_refused

THINGS = """
person, man, woman, baby, bride, couple, crowd, football player, ice hockey player, musician, chef, police, twin
king, dog, puppy, german shepherd, sea lion, water buffalo, mountain lion, ground squirrel, snow leopard, butterfly
fly, bat, calf, starfish, seagull, flock, horse, school bus, car, sports car, race car, train, bullet train, plane
sailboat, bicycle, motorcycle, fire truck, wheel, tire, traffic light, street light, stop sign, parking meter
park bench, table, kitchen table, dining table, chair, bed, flower bed, couch, lamp, lamp shade, floor lamp
wall clock, mirror, window, door, curtain, carpet, red carpet, fireplace, staircase, bookshelf, picture frame
poster, painting, sculpture, pillow, blanket, towel, toilet, toilet paper, bathroom sink, bathtub, shower head
shower curtain, refrigerator, stove, cup, coffee cup, wine glass, glass of water, water bottle, bottle of wine
plate, place setting, knife, spoon, bowl, pizza, cake, wedding cake, birthday candle, apple, orange, peach, banana
candy bar, ice cream cone, sandwich, egg, chicken wing, french fries, spring roll, dumpling, pudding, frosting
topping, stuffing, drink, red wine, orange juice, laptop, phone, television, keyboard, camera, playing card
card game, board game, book, newspaper, letter, ticket, hat, shirt, dress, wedding dress, evening dress, shorts
tights, glasses, sunglasses, shoe, high heel, earring, ring, engagement ring, necklace, watch, belt, stocking
clothing, bag, handbag, umbrella, backpack, fishing pole, kite, ball, baseball bat, golf club, tennis racket
surfboard, skateboard, swing, swimming trunks, string, railing, spider web, tree, palm tree, christmas tree, flower
rose, sunflower, lily, potted plant, bush, hedge, leaf, autumn leave, grapevine, building, house, church, tower
lighthouse, bridge, castle, sand castle, barn, tent, fence, gazebo, statue, fountain, boulder, stone, iceberg
ice cube, snowman, snowball, sun, moon, star, balloon, flag, sign, clock, candle, fire, flame, teddy bear, toy car
doll, gift, present, birthday present, piggy bank, entertainment center, space shuttle, robot, elevator door
city bus, beach chair, beach umbrella, garden hose, market stall, street sign, wind chime, rainbow trout
"""
NO_THINGS = """
red, blue, Green, black and white, dark blue, colour, color, monochrome, silver, gold, sky, blue sky, cloud
storm cloud, water, ocean water, wave, ground, dirt, sand, snow, grass, lawn, floor, hardwood floor, wall
brick wall, ceiling, shadow, reflection, light, evening light, sunlight, fog, smoke, background, foreground
surface, place, scene, winter scene, landscape, city, city street, street, road, dirt road, highway, sidewalk
forest, pine forest, beach, sea, ocean, river, lake, mountain, mountains, snow mountain, hill, cliff, valley
desert, field, corn field, park, amusement park, garden, zoo, kitchen, living room, bathroom, office, hotel lobby
restaurant, coffee shop, grocery store, museum, airport, train station, parking lot, tennis court, baseball stadium
swimming pool, town square, church interior, run, running, stand, standing, sit, sitting, walk, jump, ride
bike ride, play tennis, playing golf, ice skating, cooking, mountain biking, climb mountain, go for, lead to
pick up, stop at, catch, swim, wine tasting, smile, throw, pose, look, beautiful, big, small, young, old, happy
wooden, wet, snowy, modern, empty, crowded, tall, several, digital, round, wood, metal, stainless steel, leather
plastic, concrete, cotton, fabric, marble, material, building material, morning, night, sunset, summer, winter
season, day, time, christmas, halloween, birthday, vacation, today, weather, rain, snowfall, thunderstorm
lightning, tornado, wind, rainbow, image, photo, group photo, picture, close-up, view, city view, illustration, art
clip art, film, horror film, icon, pattern, design, text, font, watermark, screenshot, selfie, polka dot, circle
line, event, party, birthday party, wedding, ceremony, award ceremony, concert, game, football game, tennis, sport
race, meeting, conference, festival, exhibition, fashion show, parade, accident, traffic, traffic jam, thing
things, object, stuff, group, pair, side, top, front, back, middle, lot, kind, way, part, bunch, number, shape
size, idea, love, beauty, music, history, culture, science, technology, business, government, education, power
health, group of people, body of water, pair of shoes, variety of fruit, piece of cake, view of the city, face
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
