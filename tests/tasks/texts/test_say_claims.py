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


def wordings(kind, *claims):
    """Return all texts of a kind."""
    return {say_claims(claims, kind, Random(seed)) for seed in range(200)}


def claim(side, kind="exists", count=0, **values):
    return Claim(side=side, kind=kind, count=count, selector=Selector(**{**BALL, **values}))


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_every_thing_that_a_text_names_is_there(both, seed) -> None:
    written = compose_difference(both, Random(seed))
    if written is None:
        return
    carriers = [
        {"shape": thing.rests_on} for scene in both for thing in scene.objects
    ]  # random ones may be missing
    for kind in KINDS[1:] if both[0].world == both[1].world else OF_ANY_PAIR[1:]:
        text = say_claims(written.claims, kind, Random(seed))
        for phrase in read_phrases(text):
            # "on a cube facing left": what follows the carrier is said of the thing on it
            named = phrase.named.items()
            carrier = {name: word for name, word in named if name not in ("facing", "pose", "text")}
            assert any(phrase.true_of(scene) for scene in both) or carrier in carriers, (kind, text)


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_of_two_sentences_each_is_true_of_its_image(both, seed) -> None:
    written = compose_difference(both, Random(seed))
    if written is None or is_no_change(both):
        return
    sentences = say_claims(written.claims, "sentences", Random(seed)).removesuffix(".").split(". ")
    for scene, sentence in zip(both, sentences, strict=True):
        assert all(phrase.true_of(scene) for phrase in read_phrases(sentence)), sentence


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_exchanged_claims_are_another_text(both, seed) -> None:
    written = compose_difference(both, Random(seed))
    if written is None or is_no_change(both) or all_hold(written.claims, both[::-1]):
        return
    exchanged = [claim.model_copy(update={"side": 1 - claim.side}) for claim in written.claims]
    for kind in KINDS[1:]:
        text = say_claims(written.claims, kind, Random(seed))
        assert say_claims(exchanged, kind, Random(seed)) != text


LEFT, RIGHT = "on the left", "on the right"
FRONT_LEFT, BACK_RIGHT = f"{LEFT} in the foreground", f"{RIGHT} in the background"
CHANGES = {
    "gone": (
        (claim(0), claim(1, "absent")), "The red metal ball is gone.", "Red metal ball gone."
    ),
    "added": (
        (claim(0, "absent"), claim(1)),
        "A red metal ball has been added.",
        "Red metal ball added.",
    ),
    "another colour": (
        (claim(0), claim(1, colour="blue")),
        "The red metal ball has turned blue.",
        "Red metal ball now blue.",
    ),
    "fewer": (
        (claim(0, "count", 3), claim(1, "count", 2)),
        "There are now two red metal balls instead of three.",
        "Two red metal balls instead of three.",
    ),
    "all gone": (
        (claim(0, "count", 2), claim(1, "absent")),
        "The two red metal balls have disappeared.",
        "Two red metal balls gone.",
    ),
    "moved": (
        (claim(0, column="left"), claim(1, column="right")),
        f"The red metal ball is {RIGHT} instead of {LEFT}.",
        f"Red metal ball now {RIGHT} instead of {LEFT}.",
    ),
    "moved also in depth": (
        (claim(0, column="left", depth="front"), claim(1, column="right", depth="back")),
        f"The red metal ball is {BACK_RIGHT} instead of {FRONT_LEFT}.",
        f"Red metal ball now {BACK_RIGHT} instead of {FRONT_LEFT}.",
    ),
    "taken off": (
        (claim(0, rests_on="box"), claim(1, "absent")),
        "The red metal ball on a box is gone.",
        "Red metal ball on a box gone.",
    ),
    "replaced": (
        (claim(0), claim(1, shape="cone", size="large")),
        "The red metal ball has been replaced by a large red metal cone.",
        "Red metal ball replaced by a large red metal cone.",
    ),
    "another number of others": (
        (claim(0, "count", 2), claim(1, colour="blue")),
        "The first image has two red metal balls, the second has a blue metal ball.",
        "Two red metal balls before, a blue metal ball now.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("claims", "sentence", "brief"), CHANGES.values(), ids=CHANGES)
def test_changes_come_first(claims, sentence, brief) -> None:
    assert sentence in wordings("changes", *claims)
    assert f"1. {sentence}" in wordings("list", *claims)
    assert brief in wordings("short", *claims)


def beside_lamp(claim):
    where = {"kind": "relation", "relation": "left of", "other": LAMP}
    return Claim(side=claim.side, selector=claim.selector, **where)


def test_relations_of_a_thing_that_is_moved_or_taken_stay() -> None:
    taken, moved = claim(0, rests_on="box"), claim(1, column="right")
    texts = wordings("changes", taken, beside_lamp(taken), claim(1, "absent"))
    beside = "to the left of the blue metal lamp"
    assert f"The red metal ball on a box {beside} is gone." in texts
    texts = wordings("changes", claim(0, column="left"), moved, beside_lamp(moved))
    assert f"The red metal ball {LEFT} has moved and is now {RIGHT} {beside}." in texts


SECOND_SENTENCES = {
    "gone": ((claim(0), claim(1, "absent")), "The second has none."),
    "added": ((claim(0, "absent"), claim(1)), "The second has one."),
    "counted": ((claim(0, "count", 1), claim(1, "count", 2)), "The second has two."),
    "colour": ((claim(0), claim(1, colour="orange")), "The second has an orange one."),
    "facing": (
        (claim(0, facing="left"), claim(1, facing="back")),
        "The second has one facing away.",
    ),
    "position": (
        (claim(0, column="left", depth="front"), claim(1, column="right", depth="back")),
        "The second has one on the right in the background.",
    ),
}


@pytest.mark.parametrize(
    ("claims", "sentence"), SECOND_SENTENCES.values(), ids=SECOND_SENTENCES.keys()
)
def test_the_second_sentence_says_what_differs(claims, sentence) -> None:
    assert any(text.endswith(f". {sentence}") for text in wordings("sentences", *claims))


def test_an_object_that_is_not_the_same_is_named_again() -> None:
    others = (
        claim(1, colour="blue", material="glass"),
        claim(1, shape="cube"),
        claim(1, "count", 2, colour="blue"),
    )
    for other in others:
        for text in wordings("sentences", claim(0), other):
            assert text.split(". ")[1].count("ball") + text.split(". ")[1].count("cube") == 1, text


def test_no_change_is_a_text_of_its_own() -> None:
    lights = [
        Claim(side=side, kind="light", value=f"{light} warm light from above")
        for side, light in enumerate(("bright", "dim"))
    ]
    claims = (Claim(side=0, kind="no_change"), claim(0), claim(1), *lights)
    light = "the light has changed from bright warm light from above to dim warm light from above"
    same = f"Nothing in the scene has changed. Only {light}."
    assert f"{same} Both images show a red metal ball." in wordings("changes", *claims)
    brief = "dim warm light from above instead of bright warm light from above"
    assert f"No change, {brief}, a red metal ball in both." in wordings("short", *claims)
    for kind in KINDS:
        assert not any("ifference between" in text for text in wordings(kind, *claims))
