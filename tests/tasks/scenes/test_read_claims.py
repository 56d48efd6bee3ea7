"""Claims that are read of composed texts: those of the writer; of changed texts, others or none."""

import re
from random import Random

import pytest

from pairwright.schemas.claims import Claim, Selector
from pairwright.tasks.captioning.describe_differences import compose_difference
from pairwright.tasks.scenes.read_claims import read_claims
from pairwright.tasks.texts.say_claims import KINDS, OF_ANY_PAIR, are_same_claims, say_claims
from tests.fixtures.graphs import random_pair

SEEDS = range(400)
SWAPS = (
    *(("left", "right"), ("first", "second"), ("foreground", "background"), ("red", "blue")),
    *(("green", "orange"), ("metal", "rubber"), ("ball", "cube"), ("balls", "cubes")),
    *(("car", "sign"), ("two", "three"), ("small", "large"), ("open", "closed"), ("one", "two")),
    *(("'stop'", "'cafe'"), ("centre", "left"), ("away", "left"), ("behind", "before")),
    *(("no", "a"), ("dim", "bright"), ("warm", "cool"), ("low", "high"), ("nothing", "something")),
    *(("darker", "brighter"), ("gone", "new"), ("added", "removed"), ("appeared", "disappeared")),
)
OTHER = {**dict(SWAPS), **{second: first for first, second in SWAPS}}


def composed(seeds):
    """Yield random texts of every kind with the claims that they were composed from."""
    for seed in seeds:
        both = random_pair(seed, (2, 5, 12)[seed % 3])
        written = compose_difference(both, Random(seed))
        if written is None:
            continue
        yield written.text, written.claims
        for kind in KINDS[1:] if both[0].world == both[1].world else OF_ANY_PAIR[1:]:
            yield say_claims(written.claims, kind, Random(seed)), written.claims


def test_what_is_read_is_what_was_composed() -> None:
    texts = list(composed(SEEDS))
    for text, claims in texts:
        reading = read_claims(text)
        assert reading.understood, text
        assert are_same_claims(reading.claims, claims), text
    assert len(texts) > 1000


def changed_words(text, rng):
    """Yield the text with one content word replaced: by its opposite, or by one of no text."""
    words = list(re.finditer(r"'?[A-Za-z]+'?", text))
    named = [word for word in words if word[0].lower() in OTHER]
    for word in rng.sample(named, min(len(named), 3)):
        yield text[: word.start()] + OTHER[word[0].lower()] + text[word.end() :]
    word = rng.choice(words)
    yield f"{text[: word.start()]}giraffe{text[word.end() :]}"


def test_another_word_is_another_claim_or_not_understood() -> None:
    rng = Random(0)
    changed = 0
    for text, claims in composed(SEEDS):
        for other in changed_words(text, rng):
            reading = read_claims(other)
            is_same = reading.understood and are_same_claims(reading.claims, claims)
            assert not is_same, (text, other)
            changed += 1
    assert changed > 3000


RED_BALL = {"shape": "ball", "colour": "red"}


def claim(side, kind="exists", count=0, **values):
    return Claim(side=side, kind=kind, count=count, selector=Selector(**{**RED_BALL, **values}))


BESIDE = Claim(
    side=0,
    kind="relation",
    selector=Selector(**RED_BALL),
    relation="left of",
    other=Selector(shape="box"),
)


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("The red ball is gone.", (claim(0), claim(1, "absent"))),
        ("Red ball missing", (claim(0), claim(1, "absent"))),
        ("There are two red balls instead of one.", (claim(0, "count", 1), claim(1, "count", 2))),
        ("The only red ball was removed.", (claim(0, "count", 1), claim(1, "absent"))),
        ("The red ball to the left of the box is gone.", (claim(0), BESIDE, claim(1, "absent"))),
        (
            "In the first image there is a red ball. The second has no red ball or cube.",
            (claim(0), claim(1, "absent"), claim(1, "absent", shape="cube", colour=None)),
        ),
        (
            "There is a red ball in the first image. The second has none.",
            (claim(0), claim(1, "absent")),
        ),
        (
            "There is no red ball in the first image. The second has one.",
            (claim(0, "absent"), claim(1)),
        ),
        (
            "The first image has one red ball. The second shows three.",
            (claim(0, "count", 1), claim(1, "count", 3)),
        ),
        (
            "The first image has a red ball on the left. The second has a blue one.",
            (claim(0, column="left"), claim(1, column="left", colour="blue")),
        ),
        (
            "The first image has a red ball facing left. The second has one facing away.",
            (claim(0, facing="left"), claim(1, facing="back")),
        ),
        (
            "The red ball moved from the left to the right.",
            (claim(0, column="left"), claim(1, column="right")),
        ),
        (
            "On a toy street, red ball now blue.",
            (
                Claim(side=0, kind="place", value="a toy street"),
                Claim(side=1, kind="place", value="a toy street"),
                claim(0),
                claim(1, colour="blue"),
            ),
        ),
        (
            "Nothing has changed. The second image is just darker.",
            (
                Claim(side=0, kind="no_change"),
                Claim(side=1, kind="light", value="dim light"),
                Claim(side=0, kind="light", value="usual light"),
            ),
        ),
    ],
)
def test_sentences_become_claims(text, claims) -> None:
    reading = read_claims(text)
    assert reading.understood
    assert reading.claims == claims


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The red ball is probably gone.",
        "The red ball is gone. It rolled away.",
        "The red balls are gone.",
        "There are two red ball now.",
        "The red ball is now red.",
        "The second has none.",
        "The first image has a red ball. The second has a red one.",
        "The first image has a red ball. The second has one on the left.",
        "The first image has a red ball and a cube. The second has none.",
        "The first image has no red ball. The second has none.",
        "The giraffe is gone.",
        "⟨thing 0⟩ is gone.",
        "the red ball " * 100_000,
    ],
    ids=lambda text: text[:25],
)
def test_other_texts_are_not_understood(text) -> None:
    assert not read_claims(text).understood


def test_of_a_description_in_other_words_only_what_is_sure_is_read() -> None:
    text = (
        "The difference between the two images is that the first image shows two shiny red balls "
        "beside a giraffe, while the second image shows no red ball."
    )
    reading = read_claims(text)
    assert not reading.understood
    assert reading.claims == (claim(0), claim(1, "absent"))
