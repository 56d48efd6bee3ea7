"""Captions in, distinct lemmas out: per image, whatever else is in the shard."""

from pairwright.schemas.config import NounsConfig
from pairwright.schemas.rows import Dropped, ImageRow, make_key
from pairwright.tasks.mining.find_nouns import MAX_CHARACTERS, find_nouns
from pairwright.tasks.models.nouns import name_model
from tests.fixtures.rows import row_of
from tests.fixtures.tagger import REAL

CONFIG = NounsConfig(model=REAL)
DOGS = "In this image there are two dogs near a table."


def image(number, *captions):
    return row_of(ImageRow, "image", number, source="item", name=f"{number}.png", captions=captions)


def test_an_image_has_the_distinct_nouns_of_all_its_captions():
    row = image(0, DOGS, "", "A dog runs after some people.")
    (nouns,) = find_nouns([row], CONFIG)
    (model,) = name_model(CONFIG)
    assert nouns.nouns == ("dog", "image", "people", "table")
    assert (nouns.subject, nouns.source_key, nouns.model) == (row.key, row.key, model)
    assert nouns.key == make_key("nouns", row.key, model, "dog", "image", "people", "table")


def test_images_without_nouns_are_dropped_with_the_reason():
    long = image(2, "a dog " * (MAX_CHARACTERS // 6), "a cat")
    images = [image(0), image(1, ""), long, image(3, "it runs", ""), image(4, "a dog")]
    *dropped, dog = find_nouns(images, CONFIG)
    assert dropped == [
        Dropped(source_key=images[0].key, reason="no captions", detail="0.png"),
        Dropped(source_key=images[1].key, reason="no captions", detail="1.png"),
        Dropped(source_key=long.key, reason="captions too long", detail="2.png: 20,003 characters"),
        Dropped(source_key=images[3].key, reason="no nouns in captions", detail="3.png: it runs"),
    ]
    assert dog.nouns == ("dog",)
