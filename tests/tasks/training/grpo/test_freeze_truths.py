"""Truths of pairs: which pairs have one, and that they come back from a run's folder."""

import pytest

from pairwright.schemas.errors import StoreError
from pairwright.schemas.scene import SceneChange
from pairwright.tasks.scenes.reward_answers import reward
from pairwright.tasks.training.grpo.freeze_truths import find_truth, open_truths, write_truths
from tests.fixtures.graphs import graph, thing

BASE = graph(thing())
CHANGE = SceneChange(type="colour", object_id="a", before="red", after="blue")
BLUE = graph(thing(colour="blue"), photograph=1, changes=(CHANGE,))


def test_a_pair_of_one_scene_has_a_truth_by_which_answers_are_scored() -> None:
    truth = find_truth([BASE, BLUE])
    assert reward("The red ball turned blue.", truth) > reward("The red ball turned green.", truth)


@pytest.mark.parametrize(
    "graphs",
    [
        pytest.param([BASE, None], id="no graph"),
        pytest.param([BASE], id="one image"),
        pytest.param([BASE, graph(thing(), world="other")], id="another scene"),
    ],
)
def test_other_pairs_have_none(graphs) -> None:
    assert find_truth(graphs) == ""


def test_truths_are_read_back_or_named_as_missing(tmp_path) -> None:
    with pytest.raises(StoreError, match="another --name"):
        open_truths(tmp_path)
    truths = {"a": find_truth([BASE, BLUE]), "b": find_truth([BASE, BASE])}
    write_truths(tmp_path, truths)
    assert open_truths(tmp_path) == truths
