"""``pairwright train --objective namc`` on a built dataset: from the command to the page, and its
answers' scores."""

import json
import shutil
from pathlib import Path

import pytest

from tests.fixtures.benchmarks import ask_about_a_pair
from tests.fixtures.command import run, words_of
from tests.fixtures.tables import fill_column

FAST = {
    "optimiser.max_steps": 3,
    "optimiser.per_device_train_batch_size": 4,
    "output.logging_steps": 1,
    "data.eval_split": "train",
}


@pytest.fixture
def dataset(rendered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    return Path(shutil.copytree(rendered, tmp_path / "data"))


def test_it_is_trained_looked_at_scored_and_tuned(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", dataset, "--objective", "namc", *words_of(FAST)]
    assert run(*words, "--size", "small") == 0
    answers = [
        f"{dataset}/runs/namc/answers/{name}.jsonl" for name in ("predictions", "references")
    ]
    assert f"pairwright evaluate captions {' '.join(answers)}" in capsys.readouterr().out
    page = (dataset / "runs/namc/report/index.html").read_text()
    sample = json.loads((dataset / "runs/namc/samples/samples.jsonl").read_text().splitlines()[0])
    assert "namc · small" in page
    assert sample["reference"] in page
    assert run("evaluate", "captions", *answers, "--metric", "cider-d", "--json") == 0
    assert json.loads(capsys.readouterr().out)["scores"]["CIDEr-D"]["score"] >= 0
    row = ask_about_a_pair(dataset / "runs/namc", dataset)
    assert (row["state"], bool(row["answer"])) == ("answered", True)
    capsys.readouterr()
    assert run(*words) == 0
    assert "finished" in capsys.readouterr().out
    assert run(*words, "--from", "namc", "--name", "tuned") == 0
    capsys.readouterr()
    assert run("runs", dataset, "--json") == 0
    listed = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert {name: (one["model"], one["start"]) for name, one in listed.items()} == {
        "namc": ("namc small", ""),
        "tuned": ("namc small", "namc"),
    }
    assert run(*words, "--set", "namc.max_new_tokens=9") == 2
    assert "namc.max_new_tokens" in capsys.readouterr().err


def test_texts_of_another_form(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They have no halves to mask: it says so before it begins, and learns from them without
    masks."""
    fill_column(dataset, "preferences", "description", "A dog has come.")
    words = ["train", dataset, "--objective", "namc", *words_of(FAST)]
    assert run(*words) == 2
    said = capsys.readouterr().err
    assert "no implicit-change description (" in said
    advice = said.partition("To train on any text: ")[2].split()
    assert advice == ["--set", "namc.noise_enabled=false"]
    assert run(*words, *advice) == 0
