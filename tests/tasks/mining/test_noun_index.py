"""The index says both ways which image has which nouns; the order of its table does not matter."""

import numpy as np
import pyarrow as pa

from pairwright.schemas.config import NounPairsConfig
from pairwright.schemas.rows import make_key
from pairwright.tasks.mining.noun_index import build_index

KEYS = [make_key("image", number) for number in range(5)]
NOUNS = [["dog", "table"], ["ball", "dog", "image"], [], ["dog", "Picture", "table"], ["image"]]


def table(order=range(5)):
    schema = pa.schema([("subject", pa.string()), ("nouns", pa.list_(pa.string()))])
    return pa.table({"subject": [KEYS[n] for n in order], "nouns": [NOUNS[n] for n in order]}, schema)


CONFIG = NounPairsConfig(stop_words=("Image",))


def words(index, key):
    (number,) = index.numbers_of([key])
    return [index.words[noun] for noun in index.nouns_of(int(number))]


def test_an_images_nouns_come_rarest_first_without_those_of_the_stop_list():
    index = build_index(table(), CONFIG)
    assert index.words == ["Picture", "ball", "table", "dog"]  # in 1, 1, 2 and 3 images
    expected = [["table", "dog"], ["ball", "dog"], [], ["Picture", "table", "dog"], []]
    assert [words(index, key) for key in KEYS] == expected


def test_a_nouns_images_rise_and_know_their_places():
    index = build_index(table(), CONFIG)
    lists = index.lists
    for noun, word in enumerate(index.words):
        holders = [key for key, some in zip(KEYS, NOUNS, strict=True) if word in some]
        images = lists.noun_images[lists.noun_starts[noun] : lists.noun_starts[noun + 1]]
        assert images.tolist() == sorted(index.numbers_of(holders).tolist())
    owners = np.repeat(np.arange(5), np.diff(lists.image_starts))
    found = lists.noun_images[lists.noun_starts[lists.image_nouns] + lists.places]
    assert found.tolist() == owners.tolist()


def test_the_order_of_the_table_does_not_matter():
    one = build_index(table(), CONFIG)
    parts = pa.concat_tables([table([3, 1]), table([]), table([4, 0, 2])])
    other = build_index(parts, CONFIG)
    assert one.words == other.words
    assert one.keys.tolist() == other.keys.tolist()
    assert all((a == b).all() for a, b in zip(one.lists, other.lists, strict=True))


def test_images_are_numbered_in_an_order_that_the_seed_draws():
    keys = sorted(make_key(n) for n in range(2000))
    many = pa.table({"subject": keys, "nouns": pa.array([["dog"]] * 2000, pa.list_(pa.string()))})
    first = build_index(many, NounPairsConfig(seed=0)).numbers_of(keys)
    second = build_index(many, NounPairsConfig(seed=1)).numbers_of(keys)
    for one, other in ((first, second), (first, np.arange(2000))):
        # 2000 pairs of unrelated numbers are correlated by less than 4 / sqrt(2000) in all but 1 of 15,000 draws.
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / 2000**0.5
    assert sorted(first.tolist()) == list(range(2000))


def test_nothing_at_all_is_an_index_too():
    index = build_index(table([2]), CONFIG)
    assert (index.words, index.nouns_of(0)) == ([], [])
    assert len(index.lists.noun_images) == 0
