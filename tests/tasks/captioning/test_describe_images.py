"""Captions: true by their claims and by an independent reading, of the right length, the same in any order."""

import re
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from schemas.config import CaptionsConfig
from schemas.rows import Dropped
from tasks.captioning.compose_caption import compose_caption
from tasks.captioning.describe_images import describe_images
from tests.fixtures.graphs import PROPERTY, graph, image_row, pairs, random_pair, random_world, thing
from tests.fixtures.reader import PLACES, read_phrases

CONFIG = CaptionsConfig()
REGIONS = [(name, words, value) for name in ("column", "depth") for words, value in PLACES[name].items()]


def said_region(sentence):
    """Return the region that a sentence is about as a whole, which its phrases then do not repeat."""
    for name, words, value in REGIONS:
        if re.match(rf"(The part of the scene )?{words}", sentence, re.IGNORECASE) or re.search(
            rf"can be (seen|made out) {words}\.$", sentence
        ):
            return {name: value}
    return {}


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_every_sentence_is_true(both, seed):
    for scene in both:
        for part in compose_caption(scene, Random(seed)):
            assert part.true_of((scene, scene)), part.text
            for phrase in read_phrases(part.text):
                assert phrase.true_of(scene, **said_region(part.text)), part.text


def test_the_independent_reader_sees_lies():
    scene = graph(thing(colour="red"), thing("b", colour="red", column="right"))
    assert [a.true_of(scene) for a in read_phrases("A red metal ball, two red metal balls, no red metal ball.")] == [
        True,
        True,
        False,
    ]
    assert not read_phrases("Three red metal balls can be seen.")[0].true_of(scene)
    assert not read_phrases("a red metal ball in the centre")[0].true_of(scene)
    assert [
        a.count for a in read_phrases("a room without a red metal ball or a blue glass cube, but a red glass car")
    ] == [
        0,
        0,
        None,
    ]


@PROPERTY
@given(st.integers(0, 10**6))
def test_captions_have_forty_to_ninety_words(seed):
    scene = random_world(Random(seed), "w")[0]
    words = sum(len(part.text.split()) for part in compose_caption(scene, Random(seed)))
    assert words <= 90
    assert words >= 40 or len(scene.objects) < 4


def test_sentences_make_up_the_caption():
    scene = random_pair(5)[0]
    (row,) = describe_images([image_row("i", scene)], CONFIG)
    assert row.text == " ".join(row.sentences)
    assert len(row.sentences) >= 3
    assert all(re.match(r"[A-Z].*\.$", sentence) for sentence in row.sentences)
    assert (row.key, row.source_key, row.subject, row.model) == ("i", "i", "i", "scene-graph")


def test_captions_do_not_depend_on_their_neighbours():
    rows = [image_row(f"i{n}", random_pair(n)[0]) for n in range(20)]
    forward = {row.key: row for row in describe_images(rows, CONFIG)}
    backward = {row.key: row for row in describe_images(rows[::-1], CONFIG)}
    alone = {row.key: next(iter(describe_images([row], CONFIG))) for row in rows}
    assert forward == backward == alone


def test_the_seed_and_the_key_vary_the_wording():
    scene = random_pair(8)[0]
    texts = {row.text for row in describe_images([image_row(f"i{n}", scene) for n in range(30)], CONFIG)}
    assert len(texts) == 30
    assert next(iter(describe_images([image_row("i0", scene)], CaptionsConfig(seed=1)))).text not in texts


def test_an_empty_scene_is_described():
    (row,) = describe_images([image_row("i", graph())], CONFIG)
    assert "no object" in row.text


def test_given_captions_are_kept():
    given_row = image_row("i", captions=("A cat.", 'A cat sits on a  mat.\nIt is 3 years old. "Mat" it says.'))
    (row,) = describe_images([given_row], CONFIG)
    assert row.sentences == ("A cat sits on a mat.", "It is 3 years old.", '"Mat" it says.')
    assert row.text == 'A cat sits on a mat. It is 3 years old. "Mat" it says.'
    assert row.model == "given"


def test_nothing_known_is_dropped():
    rows = list(describe_images([image_row("i"), image_row("j", captions=("  ",))], CONFIG))
    assert rows == [Dropped(source_key=key, reason="no scene graph", detail=key) for key in ("i", "j")]
