"""Swapped texts: the halves exchanged, if that makes them false."""

import pytest

from pairwright.prompts import difference_verbs
from pairwright.schemas.claims import CLAIMS, Claim, Selector
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.rows import Dropped, RejectedTextRow
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
from tests.fixtures.graphs import graph, rows_of, thing


def swap(row, pairs=(), images=None):
    tables = {"pairs": {pair.key: pair for pair in pairs}, "images": images or {}}
    (result,) = swap_texts([row], RejectedTextsConfig(), **tables)
    return result


def test_swapped_texts_are_false_and_in_the_template() -> None:
    rows, pairs, images = described(range(300))
    results = [(row, swap(row, [pairs[row.subject]], images)) for row in rows]
    dropped = [row for row, result in results if isinstance(result, Dropped)]
    swapped = [pair for pair in results if isinstance(pair[1], RejectedTextRow)]
    assert dropped
    assert all(row.no_change or truth(row, exchanged(row), pairs, images) for row in dropped)
    assert len(swapped) > 100
    for row, result in swapped:
        assert not truth(row, exchanged(row), pairs, images)
        assert list(CLAIMS.validate_json(result.claims)) == exchanged(row)
        assert isinstance(read_difference(result.text, difference_verbs()), Difference)


def test_the_halves_change_places() -> None:
    row = description("shows a red ball", "depicts two cones")
    text = description("depicts two cones", "shows a red ball").text
    note = "first and second exchanged, unchecked"
    result = swap(row)
    assert result == rejected_text(row, "swapped", text, note=note)
    assert 0.8 < result.score < 1


def test_claims_decide_whether_the_swap_is_true() -> None:
    scene = graph(thing(), thing("b", "cube"))
    (pair,), images = rows_of([(scene, scene)])
    claims = [
        Claim(side=side, kind="exists", selector=Selector(shape=shape))
        for side, shape in enumerate(("ball", "cube"))
    ]
    row = description("shows a ball", "shows a cube", claims=claims, subject=pair.key)
    assert swap(row, [pair], images).reason == "swapped text is true"


@pytest.mark.parametrize(
    "row",
    [
        description("shows a red ball", "shows the same scene", no_change=True),
        description("shows a man walking a dog", "depicts a man who walks the dog"),
    ],
    ids=["no change", "equal halves"],
)
def test_what_is_true_without_graphs(row) -> None:
    reason = "swapped text is true"
    assert swap(row) == Dropped(source_key=row.key, reason=reason, detail=row.text)


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
    ],
)
def test_a_person_s_text_is_swapped_where_it_names_both_images(text, swapped) -> None:
    result = swap(person_said(text, subject="p"))
    assert result.text == swapped
    assert result.note.endswith("unchecked")


@pytest.mark.parametrize(
    "text",
    [
        "the dog is left of the tree now",
        "a dog has come into the second image",
        "the first image and the second image are identical",
    ],
)
def test_a_person_s_text_about_one_image_is_not_swapped(text) -> None:
    result = swap(person_said(text, subject="p"))
    assert isinstance(result, Dropped)
    assert result.reason == "does not name both images"
