"""Captions in, distinct lemmas out: per image, whatever else is in the shard."""

import pytest

from pairwright.schemas.config import NounsConfig
from pairwright.schemas.rows import Dropped, ImageRow, make_key
from pairwright.tasks.mining.find_nouns import MAX_CHARACTERS, find_nouns
from pairwright.tasks.models.nouns import name_model
from tests.fixtures.rows import row_of
from tests.fixtures.tagger import REAL


@pytest.fixture(scope="module")
def config():
    return NounsConfig(model=REAL)


def image(number, *captions):
    return row_of(ImageRow, "image", number, source="item", name=f"{number}.png", captions=captions)


def test_an_image_has_the_distinct_nouns_of_all_its_captions(config):
    row = image(
        0, "In this image there are two dogs near a table.", "", "A dog runs after some people."
    )
    (found,) = find_nouns([row], config)
    (model,) = name_model(config)
    assert found.nouns == ("dog", "image", "people", "table")
    assert (found.subject, found.source_key, found.model) == (row.key, row.key, model)
    assert found.key == make_key("nouns", row.key, model, "dog", "image", "people", "table")
    long = image(2, "a dog " * (MAX_CHARACTERS // 6), "a cat")
    rows = [image(0), image(1, ""), long, image(3, "it runs", ""), image(4, "a dog")]
    assert [row for row in find_nouns(rows, config) if isinstance(row, Dropped)] == [
        Dropped(source_key=rows[0].key, reason="no captions", detail="0.png"),
        Dropped(source_key=rows[1].key, reason="no captions", detail="1.png"),
        Dropped(source_key=long.key, reason="captions too long", detail="2.png: 20,003 characters"),
        Dropped(source_key=rows[3].key, reason="no nouns in captions", detail="3.png: it runs"),
    ]
