"""Swapped texts: the halves exchanged, false by the claims, nothing where exchanging changes no
truth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.prompts import difference_verbs
from pairwright.schemas.claims import CLAIMS, Claim, Selector
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.rows import Dropped
from pairwright.tasks.rejected.swap_texts import swap_texts
from pairwright.tasks.texts.differences import Difference, read_difference
from tests.fixtures.descriptions import (
    described,
    description,
    exchanged,
    person_said,
    rejected_text,
    truth,
)
from tests.fixtures.graphs import PROPERTY, graph, rows_of, thing

CONFIG = RejectedTextsConfig()


@PROPERTY
@given(st.integers(0, 10**6))
def test_swapped_texts_are_false_and_in_the_template(seed):
    rows, pairs, images = described([seed])
    for row, found in zip(rows, swap_texts(rows, CONFIG, pairs=pairs, images=images), strict=True):
        if isinstance(found, Dropped):
            assert row.no_change or truth(row, exchanged(row), pairs, images)
            continue
        assert not truth(row, exchanged(row), pairs, images)
        assert list(CLAIMS.validate_json(found.claims)) == exchanged(row)
        assert isinstance(read_difference(found.text, difference_verbs()), Difference)


def test_the_halves_change_places():
    row = description("shows a red ball", "depicts two cones")
    (found,) = swap_texts([row], CONFIG, pairs={}, images={})
    text = description("depicts two cones", "shows a red ball").text
    assert found == rejected_text(
        row, "swapped", text, note="first and second exchanged, unchecked"
    )
    assert 0.8 < found.score < 1


def test_claims_decide_whether_the_swap_is_true():
    (pair,), images = rows_of(
        [(graph(thing(), thing("b", "cube")), graph(thing(), thing("b", "cube")))]
    )
    claims = [
        Claim(side=side, kind="exists", selector=Selector(shape=shape))
        for side, shape in enumerate(("ball", "cube"))
    ]
    row = description("shows a ball", "shows a cube", claims=claims, subject=pair.key)
    (found,) = swap_texts([row], CONFIG, pairs={pair.key: pair}, images=images)
    assert found.reason == "swapped text is true"


@pytest.mark.parametrize(
    "row",
    [
        description("shows a red ball", "shows the same scene", no_change=True),
        description("shows a man walking a dog", "depicts a man who walks the dog"),
    ],
)
def test_without_graphs_no_change_and_equal_halves_are_true(row):
    (found,) = swap_texts([row], CONFIG, pairs={}, images={})
    assert found == Dropped(source_key=row.key, reason="swapped text is true", detail=row.text)


@pytest.mark.parametrize(
    ("text", "swapped"),
    [
        (
            "The first image has a dog, the second one none",
            "The second image has a dog, the first one none",
        ),
        (
            "Left picture: a dog. Right picture: a cat.",
            "Right picture: a dog. Left picture: a cat.",
        ),
        ("before it was open, after that closed", "after it was open, before that closed"),
        ("the dog is left of the tree now", None),
        ("a dog has come into the second image", None),
        ("the first image and the second image are identical", None),
    ],
)
def test_a_person_s_text_is_swapped_where_it_names_both_images(text, swapped):
    (found,) = swap_texts([person_said(text, subject="p")], CONFIG, pairs={}, images={})
    assert found.reason == "does not name both images" if swapped is None else found.text == swapped
    assert isinstance(found, Dropped) or found.note.endswith("unchecked")
