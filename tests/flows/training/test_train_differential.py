"""``pairwright train --objective sft --differential`` on a built dataset: from the command to page
and scores."""

import json

import pytest

from pairwright.schemas.training import SIZES
from pairwright.tasks.training import answer_questions
from pairwright.tasks.training.runs import Run
from tests.fixtures.benchmarks import ask_about_a_pair
from tests.fixtures.command import run, words_of
from tests.fixtures.runs_to_train import read_lines

FAST = {
    "optimiser.max_steps": 1,
    "optimiser.per_device_train_batch_size": 4,
    "data.eval_split": "train",
    "data.max_eval_rows": 4,
}


@pytest.mark.slow
def test_it_is_trained_looked_at_scored_and_tuned(copy, capsys, monkeypatch):
    monkeypatch.setattr(answer_questions, "MOST_TOKENS", 4)
    monkeypatch.setattr(answer_questions, "ROOM", 0)
    command = ["train", copy, "--objective", "sft", "--differential", *words_of(FAST)]
    assert run(*command) == 0
    trained = Run(copy / "runs/sft")
    answers = [str(trained.answers / f"{name}.jsonl") for name in ("predictions", "references")]
    assert f"pairwright evaluate captions {' '.join(answers)}" in capsys.readouterr().out
    page = (trained.folder / "report/index.html").read_text()
    assert read_lines(trained.folder / "samples/samples.jsonl")[0]["reference"] in page
    assert "cut here" in page
    assert (trained.model / SIZES).exists()
    assert run("evaluate", "captions", *answers, "--metric", "cider-d", "--json") == 0
    assert json.loads(capsys.readouterr().out)["scores"]["CIDEr-D"]["score"] >= 0
    image = next((trained.folder / "samples").glob("*.png")).read_bytes()
    assert ask_about_a_pair(trained.folder, copy, second=image)["state"] == "answered"
    capsys.readouterr()
    assert run("train", copy, "--objective", "dpo", "--from", "sft", "--name", "dpo") == 2
    assert "--objective sft" in capsys.readouterr().err
    assert not (copy / "runs/dpo").exists()
    again = (*command, "--from", "sft", "--name", "again")
    assert run(*again, "--set", "model.differential.depth=1") == 2
    assert "model.differential.depth: " in capsys.readouterr().err
    assert run(*again) == 0
    assert run(*again) == 0
    assert "finished" in capsys.readouterr().out
