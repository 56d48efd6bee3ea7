"""Rewards of answers, by hand and against the texts that are composed from the same graphs."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pairwright as pw
from pairwright.schemas.scene import SceneChange
from pairwright.tasks.captioning.describe_differences import compose_difference
from pairwright.tasks.scenes.reward_answers import AnswerScore, dump_truth, read_truth, score_answer
from pairwright.tasks.texts.say_claims import KINDS, say_claims
from tests.fixtures.graphs import PROPERTY, graph, pairs, thing

BALL = thing("ball", column="left")
MUG = thing("mug", shape="mug", material="ceramic", column="right")
SIGN = thing("sign", shape="sign", colour="green", text="OPEN", column="centre")
CHANGES = (
    SceneChange(type="colour", object_id="ball", before="red", after="blue"),
    SceneChange(type="disappearance", object_id="mug"),
)
PAIR = (
    graph(BALL, MUG, SIGN),
    graph(BALL.model_copy(update={"colour": "blue"}), SIGN, changes=CHANGES),
)
SAME = (graph(BALL, SIGN), graph(BALL, SIGN, light="dim white light from above"))


@pytest.mark.parametrize(
    ("answer", "precision", "recall"),
    [
        ("The red ball turned blue. The mug is gone.", 1, 1),
        ("The red ball turned blue.", 1, 1 / 2),
        ("The mug is gone.", 1, 1 / 2),
        ("The red ball turned green.", 1 / 2, 0),
        ("The green sign is gone.", 1 / 2, 0),
        ("The first image has a red ball.", 1, 0),
        ("The first image has a red ball. The second has a blue one.", 1, 1 / 2),
        ("The mug is gone. The weather is lovely.", 2 / 3, 1 / 2),
        ("There is no teapot in the first image.", 0, 0),
        ("There is no mug in the first image.", 0, 0),
        ("Nothing has changed.", 0, 0),
        ("<think>The mug?</think>\n\nThe mug is gone.", 1, 1 / 2),
        ("", 0, 0),
    ],
)
def test_scores_by_hand(answer, precision, recall) -> None:
    assert score_answer(answer, PAIR) == AnswerScore(precision, recall)


@pytest.mark.parametrize(
    ("answer", "reward"),
    [("Nothing has changed.", 1.0), ("The ball is gone.", 0.0), ("There is a red ball now.", 0.0)],
)
def test_of_an_unchanged_scene_that_is_to_be_said(answer, reward) -> None:
    assert score_answer(answer, SAME).reward == reward


def test_a_row_of_an_export_or_its_truth_gives_the_reward() -> None:
    truth = dump_truth(PAIR)
    answer = "The red ball turned blue."
    assert pw.reward(answer, truth) == pw.reward(answer, {"truth": truth}) == pytest.approx(2 / 3)


def test_two_scenes_have_no_truth() -> None:
    truth = dump_truth((PAIR[0], graph(BALL, world="v")))
    with pytest.raises(ValueError, match="two worlds: w, v"):
        read_truth(truth)


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_a_composed_text_has_no_false_statement(both, seed) -> None:
    written = compose_difference(both, Random(seed))
    if written is None or both[0].world != both[1].world:
        return
    graphs = read_truth(dump_truth(both))
    for kind in KINDS[1:]:
        text = say_claims(written.claims, kind, Random(seed))
        assert score_answer(text, graphs).precision == 1, text
