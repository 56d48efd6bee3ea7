"""Swapped texts: the halves exchanged, false by the claims, nothing where exchanging changes no truth."""

from hypothesis import given
from hypothesis import strategies as st

from pairwright.prompts import difference_verbs
from pairwright.schemas.claims import CLAIMS, Claim, Selector
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.rows import Dropped, RejectedTextRow, make_key
from pairwright.tasks.rejected.swap_texts import exchanged, swap_texts
from pairwright.tasks.texts.differences import Difference, read_difference
from tests.fixtures.descriptions import described, description, truth
from tests.fixtures.graphs import PROPERTY, graph, rows_of, thing

CONFIG = RejectedTextsConfig()


@PROPERTY
@given(st.integers(0, 10**6))
def test_swapped_texts_are_false_and_in_the_template(seed):
    rows, pairs, images = described([seed])
    for row, found in zip(rows, swap_texts(rows, CONFIG, pairs=pairs, images=images), strict=True):
        claims = tuple(exchanged(claim) for claim in CLAIMS.validate_json(row.claims))
        if isinstance(found, Dropped):
            assert row.no_change or truth(row, claims, pairs, images)
            continue
        assert not truth(row, claims, pairs, images)
        assert isinstance(read_difference(found.text, difference_verbs()), Difference)


def test_the_halves_change_places():
    row = description("shows a red ball", "depicts two cones")
    (found,) = swap_texts([row], CONFIG, pairs={}, images={})
    assert found == RejectedTextRow(
        key=make_key(row.subject, "swapped", found.text),
        source_key=row.key,
        subject=row.subject,
        text="The difference between the two images is that the first image depicts two cones, "
        "while the second image shows a red ball.",
        maker="swapped",
        note="first and second exchanged, unchecked",
        score=found.score,
        skipped_true=0,
    )
    assert 0.8 < found.score < 1


def test_a_swap_that_is_true_is_dropped():
    for seed in range(50):
        rows, pairs, images = described([seed])
        if rows and rows[0].no_change:
            (found,) = swap_texts(rows, CONFIG, pairs=pairs, images=images)
            assert found == Dropped(source_key=rows[0].key, reason="swapped text is true", detail=rows[0].text)
            return
    raise AssertionError("no pair without a change among the first fifty")


def test_claims_decide_whether_the_swap_is_true():
    (pair,), images = rows_of([(graph(thing(), thing("b", "cube")), graph(thing(), thing("b", "cube")))])
    claims = [
        Claim(side=side, kind="exists", selector=Selector(shape=shape)) for side, shape in enumerate(("ball", "cube"))
    ]
    row = description("shows a ball", "shows a cube", claims=claims, subject=pair.key)
    (found,) = swap_texts([row], CONFIG, pairs={pair.key: pair}, images=images)
    assert found.reason == "swapped text is true"


def test_no_change_needs_no_graphs_to_be_true():
    row = description("shows a red ball", "shows the same scene", no_change=True)
    (found,) = swap_texts([row], CONFIG, pairs={}, images={})
    assert found.reason == "swapped text is true"


def test_halves_that_say_nearly_the_same_are_not_swapped_unchecked():
    row = description("shows a man walking a dog", "depicts a man who walks the dog")
    (found,) = swap_texts([row], CONFIG, pairs={}, images={})
    assert found.reason == "swapped text is true"


def test_claims_change_sides():
    claim = Claim(side=0, kind="exists", selector=Selector(shape="ball"))
    assert exchanged(claim) == Claim(side=1, kind="exists", selector=Selector(shape="ball"))
    assert exchanged(exchanged(claim)) == claim
