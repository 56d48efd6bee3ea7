"""Captions: true by their claims and by an independent reading, of the right length."""

import re
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.claims import all_hold
from pairwright.schemas.config import CaptionsConfig
from pairwright.schemas.rows import Dropped
from pairwright.tasks.captioning.compose_caption import compose_caption
from pairwright.tasks.captioning.describe_images import MOST_WORDS, describe_images, refuse_caption
from tests.fixtures.graphs import PROPERTY, graph, image_row, pairs, random_world, thing
from tests.fixtures.reader import PLACES, read_phrases

REGION = re.compile(
    rf"(?P<column>{'|'.join(PLACES['column'])})?(?:^| )?(?P<depth>{'|'.join(PLACES['depth'])})?",
    re.IGNORECASE,
)


def region_of(sentence):
    """Return the region that a whole sentence is about, which its phrases do not repeat."""
    start = sentence.removeprefix("The part of the scene ")
    end = re.search(r"can be (?:seen|made out) ((?:on|in) the [a-z ]+)\.$", sentence)
    match = REGION.match(end[1] if end else start)
    return {name: PLACES[name][words.lower()] for name, words in match.groupdict().items() if words}


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_every_sentence_is_true(both, seed) -> None:
    for scene in both:
        for part in compose_caption(scene, Random(seed)):
            assert all_hold(part.claims, (scene, scene)), part.text
            for phrase in read_phrases(part.text):
                assert phrase.true_of(scene, **region_of(part.text)), part.text


@PROPERTY
@given(st.integers(0, 10**6))
def test_captions_have_forty_to_a_hundred_and_twenty_words_and_tally_all(seed) -> None:
    scene = random_world(Random(seed), "w")[0]
    parts = compose_caption(scene, Random(seed))
    words = sum(len(part.text.split()) for part in parts)
    assert words <= 120
    assert words >= 40 or len(scene.objects) < 4
    for part in parts:
        if re.search(r"can be counted|^Counting through|^All in all", part.text):
            assert sum(claim.count for claim in part.claims) == len(scene.objects), part.text


def look_of(scene_object):
    return scene_object.colour, scene_object.material, scene_object.shape


@PROPERTY
@given(st.integers(0, 10**6))
def test_up_to_eight_objects_are_all_mentioned_and_the_largest_always(seed) -> None:
    """Single objects are mentioned once, like ones with their whole number."""
    scene, rng = random_world(Random(seed), "w")[0], Random(seed)
    objects, areas = [], Counter()
    for each in scene.objects:
        left, top, right, _ = each.box
        height = rng.randint(5, 90)
        objects.append(each.model_copy(update={"box": (left, top, right, top + height)}))
        areas[look_of(each)] = max(areas[look_of(each)], (right - left) * height)
    scene = scene.model_copy(update={"objects": tuple(objects)})
    text = " ".join(part.text for part in compose_caption(scene, Random(seed)))
    mentions = {
        (*map(phrase.named.get, ("colour", "material", "shape")), phrase.count)
        for phrase in read_phrases(text)
    }
    looks = Counter(map(look_of, scene.objects))
    expected = {look: (*look, count if count > 1 else None) for look, count in looks.items()}
    missing = [look for look, mention in expected.items() if mention not in mentions]
    smallest = min((areas[look] for look in areas if look not in missing), default=0)
    assert not missing or len(scene.objects) > 8
    assert all(areas[look] <= smallest for look in missing)


def test_like_things_in_several_places_are_counted() -> None:
    rings = [thing(f"r{n}", column=column) for n, column in enumerate(("left", "left", "right"))]
    rings += [thing(f"s{n}", depth=depth) for n, depth in enumerate(("middle", "back"))]
    captions = [compose_caption(graph(*rings), Random(seed)) for seed in range(20)]
    texts = [" ".join(part.text for part in parts) for parts in captions]
    by_depth = "three in the foreground, one in the middle ground and one in the background"
    assert all("five red metal balls" in text.lower() for text in texts)
    assert any("four on the left and one on the right" in text for text in texts)
    assert any(by_depth in text for text in texts)
    assert not any(" a red metal ball" in text for text in texts)


def test_given_captions_empty_scenes_and_nothing_to_describe() -> None:
    texts = ("A cat.", 'A cat sits on a  mat.\nIt is 3 years old. "Mat" it says.')
    images = [image_row("empty", graph()), image_row("given", captions=texts)]
    images += [image_row("i"), image_row("j", captions=("  ",))]
    empty, given_row, *dropped = describe_images(images, CaptionsConfig())
    assert "a wooden table-top" in empty.text
    assert given_row.sentences == ("A cat sits on a mat.", "It is 3 years old.", '"Mat" it says.')
    assert given_row.text == " ".join(given_row.sentences)
    assert given_row.model == "given"
    reason = "no scene graph"
    assert dropped == [Dropped(source_key=key, reason=reason, detail=key) for key in ("i", "j")]


GOOD = (
    "A red car stands in front of a white house. Two children play on the lawn beside a large "
    "oak tree."
)
SNOW = "3.5 metres of snow lie on the roof of a small wooden house beside a frozen lake."
CUPS = "On it are a red cup, a blue cup, a green cup, a white cup and a black cup in a row."


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(GOOD, id="plain"),
        pytest.param(GOOD.removesuffix(".") + ' with a sign "Keep off."', id="quotes at its end"),
        pytest.param(SNOW, id="a number first"),
        pytest.param(f"{GOOD} A red car stands in front of a white house.", id="said twice"),
        pytest.param(f'{GOOD} A sign reads "Sorry, we are closed".', id="a sorry sign"),
        pytest.param(CUPS, id="many like things"),
    ],
)
def test_accepted(text) -> None:
    assert refuse_caption(text) is None


DOG = "A dog stands there."
LONG = [f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(MOST_WORDS)]
UNFIT = {
    "no full stop": ["", GOOD.removesuffix("."), GOOD + " A bird", GOOD + " A bird,"],
    "more than one paragraph": [f"{GOOD}\n\n{GOOD}", f"{GOOD}\r{GOOD}"],
    "not a description": [
        f"{start} {GOOD}" for start in ("Sure!", "Here is a description:", "1.", "Description:")
    ],
    "repeats itself": [
        f"{DOG} A cat is beside it. {DOG} It is a sunny day. {DOG}",
    ],
    "too short (words=12)": ["A red car.", "A red car stands in front of a white house today."],
    "too long (words=600)": [" ".join([*LONG, "end."])],
}


@pytest.mark.parametrize(
    ("reason", "text"), [(reason, text) for reason, texts in UNFIT.items() for text in texts]
)
def test_refused(reason, text) -> None:
    assert refuse_caption(text).reason == reason
