"""``pairwright train --objective namc`` on a built dataset: from the command to the page, and its
answers' scores."""

import json

from pairwright.tasks.training.runs import Run
from tests.fixtures.benchmarks import ask_about_a_pair
from tests.fixtures.command import run, words_of
from tests.fixtures.runs_to_train import read_lines
from tests.fixtures.tables import fill_column

FAST = {
    "optimiser.max_steps": 2,
    "optimiser.per_device_train_batch_size": 4,
    "output.logging_steps": 1,
    "data.eval_split": "train",
}


def test_it_is_trained_looked_at_scored_and_tuned(copy, capsys):
    command = ["train", copy, "--objective", "namc", *words_of(FAST)]
    assert run(*command, "--size", "small") == 0
    trained = Run(copy / "runs/namc")
    answers = [str(trained.answers / f"{name}.jsonl") for name in ("predictions", "references")]
    assert f"pairwright evaluate captions {' '.join(answers)}" in capsys.readouterr().out
    page = (trained.folder / "report/index.html").read_text()
    assert "namc · small" in page
    assert read_lines(trained.folder / "samples/samples.jsonl")[0]["reference"] in page
    assert run("evaluate", "captions", *answers, "--metric", "cider-d", "--json") == 0
    assert json.loads(capsys.readouterr().out)["scores"]["CIDEr-D"]["score"] >= 0
    row = ask_about_a_pair(trained.folder, copy)
    assert (row["state"], bool(row["answer"])) == ("answered", True)
    capsys.readouterr()
    assert run(*command) == 0
    assert "finished" in capsys.readouterr().out
    assert run(*command, "--from", "namc", "--name", "tuned") == 0
    capsys.readouterr()
    assert run("runs", copy, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    starts = {(row["name"], row["model"], row["start"]) for row in rows}
    assert starts == {("namc", "namc small", ""), ("tuned", "namc small", "namc")}
    assert run(*command, "--set", "namc.max_new_tokens=9") == 2
    assert "namc.max_new_tokens" in capsys.readouterr().err


def test_texts_of_another_form(copy, capsys):
    """They have no halves to mask: it says so before it begins, and learns from them without
    masks."""
    fill_column(copy, "preferences", "description", "A dog has come.")
    command = ["train", copy, "--objective", "namc", *words_of(FAST)]
    assert run(*command) == 2
    message = capsys.readouterr().err
    assert "no implicit-change description (" in message
    advice = message.partition("To train on any text: ")[2].split()
    assert advice == ["--set", "namc.noise_enabled=false"]
    assert run(*command, *advice) == 0
