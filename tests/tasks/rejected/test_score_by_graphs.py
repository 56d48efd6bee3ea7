"""Scores derived by hand from small graphs."""

import pytest
from tasks.preferences.score_removals import score_removals

from schemas.claims import CLAIMS, Claim, Selector
from schemas.rows import DifferenceRow, ImageRow, RemovalRow
from schemas.scene import Mask, SceneChange, SceneGraph, SceneObject


def thing(name, shape, colour):
    return SceneObject(
        id=name,
        shape=shape,
        colour=colour,
        material="metal",
        size="small",
        column="left",
        depth="front",
        box=(0, 0, 1, 1),
        visible=1,
        mask=Mask(height=1, width=1, counts=(0, 1)),
    )


def graph(*things, changes=()):
    words = {"place": "a table", "light": "light", "viewpoint": "a viewpoint"}
    return SceneGraph(world="w", photograph=0, objects=things, changes=changes, **words)


def removal(key, *ids, area=0.1):
    return RemovalRow(
        key=key,
        source_key="image",
        subject="image",
        tag=f"without {ids}",
        object_ids=ids,
        box=(0, 0, 1, 1),
        mask="",
        image=b"",
        area_share=area,
        changed_outside=0,
    )


def claims(*made):
    return CLAIMS.dump_json(made).decode()


BALLS = (thing("a", "ball", "red"), thing("b", "ball", "red"), thing("c", "cube", "blue"))
FIRST, SECOND = graph(*BALLS), graph(BALLS[2], changes=(SceneChange(type="counting", object_ids=("a", "b")),))
RED_BALL = Selector(shape="ball", colour="red")
CUBE = Selector(shape="cube")


def difference(text):
    words = {"text": "", "first_half": "", "second_half": "", "verbs": (), "finish_reason": "stop", "model": ""}
    return DifferenceRow(key="", source_key="", subject="", attempts=1, claims=text, no_change=False, **words)


def images(graphs):
    words = {"format": "png", "name": "", "source": "", "licence": "", "group": ""}
    return tuple(
        ImageRow(key="", source_key="", subject="", image=b"", width=1, height=1, graph=one, **words) for one in graphs
    )


def scores(text, first=(), second=(), graphs=(FIRST, SECOND)):
    made = score_removals(difference(text), images(graphs), (first, second))
    return {(score.side, score.removal): score.score for score in made}, [s.removal for s in made if s.chosen]


def test_the_candidate_that_breaks_most_claims_is_chosen():
    text = claims(
        Claim(side=0, kind="count", selector=RED_BALL, count=2),
        Claim(side=0, kind="exists", selector=RED_BALL),
        Claim(side=1, kind="exists", selector=CUBE),
        Claim(side=1, kind="absent", selector=RED_BALL),
    )
    first = (removal("one ball", "a"), removal("both balls", "a", "b"), removal("cube", "c"))
    got, chosen = scores(text, first, (removal("cube", "c"),))
    # One ball breaks the count; both break count and existence; the first image's cube is not spoken of.
    assert got == {(0, "one ball"): 0.25, (0, "both balls"): 0.5, (0, "cube"): 0, (1, "cube"): 0.25}
    assert chosen == ["both balls"]


def test_only_claims_that_are_true_count():
    text = claims(
        Claim(side=1, kind="exists", selector=RED_BALL),
        Claim(side=1, kind="exists", selector=CUBE),
    )
    got, chosen = scores(text, (removal("other", "c"),), (removal("cube", "c"),))
    assert got == {(0, "other"): 0, (1, "cube"): 1}
    assert chosen == ["cube"]


def test_a_claim_that_speaks_of_what_is_left_holds():
    text = claims(Claim(side=0, kind="exists", selector=RED_BALL))
    assert scores(text, (removal("one ball", "a"),)) == ({(0, "one ball"): 0.0}, [])


def test_relations_break_with_either_end():
    relation = Claim(side=0, kind="relation", selector=CUBE, relation="behind", other=RED_BALL)
    near = [item.model_copy(update={"depth": "back"}) if item.id == "c" else item for item in BALLS]
    first = (removal("balls", "a", "b"), removal("cube", "c"), removal("ball", "b"))
    got, chosen = scores(claims(relation), first, graphs=(graph(*near), SECOND))
    assert got == {(0, "balls"): 1, (0, "cube"): 1, (0, "ball"): 0}
    assert chosen == ["balls"]


def test_any_removal_ends_no_change():
    text = claims(Claim(side=0, kind="no_change"))
    got, chosen = scores(text, (removal("x", "a"),), (removal("y", "c"),), graphs=(FIRST, FIRST))
    assert got == {(0, "x"): 1, (1, "y"): 1}
    assert chosen == ["x"]


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ([("m", 0.2), ("z", 0.1)], "z"),
        ([("z", 0.1), ("m", 0.1)], "m"),
    ],
)
def test_ties_go_to_the_smaller_area_then_to_the_lower_key(candidates, expected):
    text = claims(Claim(side=0, kind="count", selector=RED_BALL, count=2))
    assert scores(text, [removal(key, "a", area=area) for key, area in candidates])[1] == [expected]


def test_nothing_to_choose_from():
    assert score_removals(difference("[]"), images((FIRST, SECOND)), ((), ())) == ()
    (score,) = score_removals(difference("[]"), images((FIRST, SECOND)), ((removal("x", "a"),), ()))
    assert (score.score, score.chosen) == (0, False)


def test_images_without_graphs_have_no_scores():
    assert score_removals(difference("[]"), images((FIRST, None)), ((removal("x", "a"),), ())) == ()
