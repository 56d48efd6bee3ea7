"""Kinds of texts: each says what the claims say, by an independent reader of phrases and by
hand."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.claims import Claim, Selector, all_hold, is_no_change
from pairwright.tasks.captioning.describe_differences import compose_difference
from pairwright.tasks.texts.say_claims import KINDS, OF_ANY_PAIR, say_claims
from tests.fixtures.graphs import PROPERTY, pairs
from tests.fixtures.reader import read_phrases

BALL = {"shape": "ball", "colour": "red", "material": "metal"}
LAMP = Selector(shape="lamp", colour="blue", material="metal")


def said(kind, *claims):
    return {say_claims(claims, kind, Random(seed)) for seed in range(200)}


def claim(side, kind="exists", count=0, **values):
    return Claim(side=side, kind=kind, count=count, selector=Selector(**{**BALL, **values}))


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_every_thing_that_a_text_names_is_there(both, seed):
    written = compose_difference(both, Random(seed))
    if written is None:
        return
    carriers = [
        {"shape": thing.rests_on} for scene in both for thing in scene.objects
    ]  # random ones may be missing
    for kind in KINDS[1:] if both[0].world == both[1].world else OF_ANY_PAIR[1:]:
        text = say_claims(written.claims, kind, Random(seed))
        for phrase in read_phrases(text):
            # "on top of a cube facing left": what follows the carrier is said of the thing on it
            carrier = {
                name: word
                for name, word in phrase.named.items()
                if name not in ("facing", "pose", "text")
            }
            assert any(phrase.true_of(scene) for scene in both) or carrier in carriers, (kind, text)


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_of_two_sentences_each_is_true_of_its_image(both, seed):
    written = compose_difference(both, Random(seed))
    if written is None or is_no_change(both):
        return
    sentences = say_claims(written.claims, "sentences", Random(seed)).removesuffix(".").split(". ")
    for scene, sentence in zip(both, sentences, strict=True):
        assert all(phrase.true_of(scene) for phrase in read_phrases(sentence)), sentence


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_exchanged_claims_are_another_text(both, seed):
    written = compose_difference(both, Random(seed))
    if written is None or is_no_change(both) or all_hold(written.claims, both[::-1]):
        return
    exchanged = [one.model_copy(update={"side": 1 - one.side}) for one in written.claims]
    for kind in KINDS[1:]:
        assert say_claims(exchanged, kind, Random(seed)) != say_claims(
            written.claims, kind, Random(seed)
        )


@pytest.mark.parametrize(
    ("first", "second", "sentence", "brief"),
    [
        (claim(0), claim(1, "absent"), "The red metal ball is gone.", "Red metal ball gone."),
        (claim(0, "absent"), claim(1), "A red metal ball has been added.", "Red metal ball added."),
        (
            claim(0),
            claim(1, colour="blue"),
            "The red metal ball has turned blue.",
            ("Red metal ball now blue."),
        ),
        (
            claim(0, "count", 3),
            claim(1, "count", 2),
            "There are now two red metal balls instead of three.",
            ("Two red metal balls instead of three."),
        ),
        (
            claim(0, "count", 2),
            claim(1, "absent"),
            "The two red metal balls have disappeared.",
            "Two red metal balls gone.",
        ),
        (
            claim(0, column="left"),
            claim(1, column="right"),
            "The red metal ball on the left has moved and is now on the right.",
            "Red metal ball on the left now on the right.",
        ),
        (
            claim(0, column="left", depth="front"),
            claim(1, column="right", depth="back"),
            (
                "The red metal ball on the left in the foreground has moved and is "
                "now on the right in the background."
            ),
            "Red metal ball on the left in the foreground now on the right in the background.",
        ),
        (
            claim(0, rests_on="box"),
            claim(1, "absent"),
            "The red metal ball has been taken off a box and is gone.",
            ("Red metal ball gone from a box."),
        ),
        (
            claim(0),
            claim(1, shape="cone", size="large"),
            "The red metal ball has been replaced by a large red metal cone.",
            "Red metal ball replaced by a large red metal cone.",
        ),
        (
            claim(0, "count", 2),
            claim(1, colour="blue"),
            "The first image shows two red metal balls, the second a blue metal ball.",
            "Two red metal balls, then a blue metal ball.",
        ),
    ],
)
def test_changes_come_first(first, second, sentence, brief):
    assert sentence in said("changes", first, second)
    assert f"1. {sentence}" in said("list", first, second)
    assert brief in said("short", first, second)


def test_what_is_said_of_a_thing_that_is_moved_or_taken_stays():
    taken, moved = claim(0, rests_on="box"), claim(1, column="right")
    beside = [
        Claim(side=one.side, kind="relation", selector=one.selector, relation="left of", other=LAMP)
        for one in (taken, moved)
    ]
    assert (
        "The red metal ball to the left of the blue metal lamp has been taken off a box and is "
        "gone."
    ) in said("changes", taken, beside[0], claim(1, "absent"))
    assert (
        "Someone has moved the red metal ball on the left, now on the right to the left of the "
        "blue metal lamp."
    ) in (said("changes", claim(0, column="left"), moved, beside[1]))


def test_no_change_is_said_as_no_change():
    lights = [Claim(side=0, kind="light", value="bright warm light from above")]
    lights += [Claim(side=1, kind="light", value="dim warm light from above")]
    claims = (Claim(side=0, kind="no_change"), claim(0), claim(1), *lights)
    assert (
        "Nothing in the scene has changed; only the light is dimmer. Both images show a red metal "
        "ball."
    ) in said("changes", *claims)
    assert "No change, only the light is dimmer: a red metal ball." in said("short", *claims)
    for kind in KINDS:
        assert not any("ifference between" in text for text in said(kind, *claims))
