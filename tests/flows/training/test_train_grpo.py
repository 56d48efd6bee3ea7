"""GRPO on a dataset of rendered scenes, as a user starts it."""

import json

import pytest

from tests.fixtures.command import run, words_of

FEW = [
    "optimiser.max_steps=2",
    "optimiser.per_device_train_batch_size=1",
    "grpo.num_generations=2",
    "grpo.max_completion_length=6",
    "output.logging_steps=1",
    "data.max_eval_rows=2",
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_grpo_trains_on_pairs_whose_changes_are_known(dataset) -> None:
    assert run("train", dataset, "--objective", "grpo", *words_of(FEW)) == 0
    folder = dataset / "runs" / "grpo"
    record = json.loads((folder / "data.json").read_text())
    assert record["rows"]["train"] > 0
    page = (folder / "report" / "index.html").read_text()
    assert "Reward of answers" in page


def test_a_model_without_truths_is_not_trained_by_them(dogs, capsys):
    """GRPO rewards by scene graphs; people's photographs have none."""
    words = ["train", dogs, "--objective", "grpo", "--name", "without-truths", "--model", "tiny"]
    assert run(*words) == 2
    assert "no scene graphs of one scene with known changes" in capsys.readouterr().err
