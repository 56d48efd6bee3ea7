"""Captions: true by their claims and by an independent reading, of the right length, the same in
any order."""

import re
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.claims import all_hold
from pairwright.schemas.config import CaptionsConfig
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import Dropped
from pairwright.tasks.captioning.compose_caption import compose_caption
from pairwright.tasks.captioning.describe_images import MOST_WORDS, describe_images, refuse_caption
from tests.fixtures.graphs import PROPERTY, graph, image_row, pairs, random_world, thing
from tests.fixtures.reader import PLACES, read_phrases

CONFIG = CaptionsConfig()
REGION = re.compile(
    rf"(?P<column>{'|'.join(PLACES['column'])})?(?:^| )?(?P<depth>{'|'.join(PLACES['depth'])})?",
    re.IGNORECASE,
)


def said_region(sentence):
    """Return the region that a sentence is about as a whole, which its phrases then do not
    repeat."""
    start = re.sub(r"^The part of the scene ", "", sentence)
    end = re.search(r"can be (?:seen|made out) ((?:on|in) the [a-z ]+)\.$", sentence)
    match = REGION.match(end[1] if end else start)
    return {name: PLACES[name][words.lower()] for name, words in match.groupdict().items() if words}


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_every_sentence_is_true(both, seed):
    for scene in both:
        for part in compose_caption(scene, Random(seed)):
            assert all_hold(part.claims, (scene, scene)), part.text
            for phrase in read_phrases(part.text):
                assert phrase.true_of(scene, **said_region(part.text)), part.text


@PROPERTY
@given(st.integers(0, 10**6))
def test_captions_have_forty_to_a_hundred_and_twenty_words_and_tally_all(seed):
    scene = random_world(Random(seed), "w")[0]
    words = sum(len(part.text.split()) for part in compose_caption(scene, Random(seed)))
    assert words <= 120
    assert words >= 40 or len(scene.objects) < 4
    scene = random_world(Random(seed), "w")[0]
    for part in compose_caption(scene, Random(seed)):
        if re.search(r"can be counted|^Counting through|^All in all", part.text):
            assert sum(claim.count for claim in part.claims) == len(scene.objects), part.text


@PROPERTY
@given(st.integers(0, 10**6))
def test_up_to_eight_objects_are_all_mentioned_and_the_largest_always(seed):
    """Read the sentences between opening and closing: single things once, like things with their
    whole number."""
    scene, rng = random_world(Random(seed), "w")[0], Random(seed)
    boxes = [(*a.box[:2], a.box[2], a.box[1] + rng.randint(5, 90)) for a in scene.objects]
    things = [
        a.model_copy(update={"box": box}) for a, box in zip(scene.objects, boxes, strict=True)
    ]
    scene = scene.model_copy(update={"objects": tuple(things)})
    text = " ".join(part.text for part in compose_caption(scene, Random(seed)))
    looks = Counter((a.colour, a.material, a.shape) for a in scene.objects)
    said = {
        (*(a.named.get(name) for name in ("colour", "material", "shape")), a.count)
        for a in read_phrases(text)
    }
    missing = [
        look for look, count in looks.items() if (*look, count if count > 1 else None) not in said
    ]
    assert not missing or len(scene.objects) > 8
    sizes = Counter()
    for a in scene.objects:
        look = (a.colour, a.material, a.shape)
        sizes[look] = max(sizes[look], (a.box[2] - a.box[0]) * (a.box[3] - a.box[1]))
    assert all(sizes[look] <= min(sizes[a] for a in sizes if a not in missing) for look in missing)


def test_like_things_in_several_places_are_counted():
    rings = [thing(f"r{n}", column=column) for n, column in enumerate(("left", "left", "right"))]
    rings += [thing(f"s{n}", depth=depth) for n, depth in enumerate(("middle", "back"))]
    texts = [" ".join(a.text for a in compose_caption(graph(*rings), Random(n))) for n in range(20)]
    assert all("five red metal balls" in text.lower() for text in texts)
    assert any("four on the left and one on the right" in text for text in texts)
    assert any(
        "three in the foreground, one in the middle ground and one in the background" in text
        for text in texts
    )
    assert not any(" a red metal ball" in text for text in texts)


def test_empty_scenes_given_captions_and_nothing():
    (row,) = describe_images([image_row("i", graph())], CONFIG)
    assert "no object" in row.text
    given_row = image_row(
        "i", captions=("A cat.", 'A cat sits on a  mat.\nIt is 3 years old. "Mat" it says.')
    )
    (row,) = describe_images([given_row], CONFIG)
    assert row.sentences == ("A cat sits on a mat.", "It is 3 years old.", '"Mat" it says.')
    assert row.text == 'A cat sits on a mat. It is 3 years old. "Mat" it says.'
    assert row.model == "given"
    rows = list(describe_images([image_row("i"), image_row("j", captions=("  ",))], CONFIG))
    assert rows == [
        Dropped(source_key=key, reason="no scene graph", detail=key) for key in ("i", "j")
    ]


GOOD = (
    "A red car stands in front of a white house. Two children play on the lawn beside a large "
    "oak tree."
)
ACCEPTED = {
    "plain": GOOD,
    "in quotation marks at its end": GOOD.removesuffix(".") + ' with a sign "Keep off."',
    "a number first": (
        "3.5 metres of snow lie on the roof of a small wooden house beside a frozen lake."
    ),
    "two alike sentences": f"{GOOD} A red car stands in front of a white house.",
    "a sorry sign": GOOD + ' A sign on the door reads "Sorry, we are closed".',
    "many like things": (
        "On it are a red cup, a blue cup, a green cup, a white cup and a black cup in a row."
    ),
}
UNFIT = {
    "empty": ["", "  \n"],
    "cut off": [GOOD.removesuffix("."), GOOD + " A bird", GOOD + " A bird,"],
    "the model declines": [
        "I'm sorry, I can't help with identifying or describing people in this image.",
        (
            "I cannot see any image. Please upload the image that you would like me to describe in "
            "detail."
        ),
        f"As an AI language model, I am unable to view images. {GOOD}",
    ],
    "more than one paragraph": [f"{GOOD}\n\n{GOOD}", f"{GOOD}\r{GOOD}"],
    "not a description": [
        f"Sure! {GOOD}",
        f"Here is a description: {GOOD}",
        f"1. {GOOD}",
        f"Description: {GOOD}",
    ],
    "repeats itself": [
        (
            "A dog stands there. A cat is beside it. A dog stands there. It is a sunny day. A dog "
            "stands there."
        ),
        "There is a red cup" + ", a blue cup and a plate" * 8 + ".",
    ],
    "too short (words=12)": ["A red car.", "A red car stands in front of a white house today."],
    "too long (words=600)": [
        " ".join(f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(MOST_WORDS)) + " end."
    ],
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted(case):
    assert refuse_caption(ACCEPTED[case]) is None


@pytest.mark.parametrize(
    ("reason", "text"), [(reason, one) for reason, many in UNFIT.items() for one in many]
)
def test_refused(reason, text):
    refused = refuse_caption(text)
    assert refused is not None
    assert refused.reason == reason


def test_a_long_answer_is_cut_off_even_with_a_full_stop():
    assert refuse_caption(GOOD, finish_reason="length") == RefusedText("cut off", "length")
