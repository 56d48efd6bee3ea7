"""``pairwright train --objective sft --differential`` on a built dataset: from the command to page
and scores."""

import json
import shutil
from pathlib import Path

import pytest

from pairwright.schemas.training import SIZES
from pairwright.tasks.training import answer_questions
from tests.fixtures.benchmarks import ask_about_a_pair
from tests.fixtures.command import run, words_of

FAST = {
    "optimiser.max_steps": 1,
    "optimiser.per_device_train_batch_size": 4,
    "data.eval_split": "train",
    "data.max_eval_rows": 4,
}
DIFFERENTIAL = ("--objective", "sft", "--differential")


@pytest.fixture
def dataset(rendered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr(answer_questions, "MOST_TOKENS", 4)
    monkeypatch.setattr(answer_questions, "ROOM", 0)
    return Path(shutil.copytree(rendered, tmp_path / "data"))


@pytest.mark.slow
def test_it_is_trained_looked_at_scored_and_tuned(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", dataset, *DIFFERENTIAL, *words_of(FAST)]
    assert run(*words) == 0
    answers = [f"{dataset}/runs/sft/answers/{name}.jsonl" for name in ("predictions", "references")]
    assert f"pairwright evaluate captions {' '.join(answers)}" in capsys.readouterr().out
    page = (dataset / "runs/sft/report/index.html").read_text()
    sample = json.loads((dataset / "runs/sft/samples/samples.jsonl").read_text().splitlines()[0])
    assert sample["reference"] in page
    assert "cut here" in page
    assert (dataset / "runs/sft/checkpoint" / SIZES).exists()
    assert run("evaluate", "captions", *answers, "--metric", "cider-d", "--json") == 0
    assert json.loads(capsys.readouterr().out)["scores"]["CIDEr-D"]["score"] >= 0
    image = next((dataset / "runs/sft/samples").glob("*.png")).read_bytes()
    assert ask_about_a_pair(dataset / "runs/sft", dataset, second=image)["state"] == "answered"
    capsys.readouterr()
    assert run("train", dataset, "--objective", "dpo", "--from", "sft", "--name", "dpo") == 2
    assert "--objective sft" in capsys.readouterr().err
    assert not (dataset / "runs/dpo").exists()
    again = (*words, "--from", "sft", "--name", "again")
    assert run(*again, "--set", "model.differential.depth=1") == 2
    assert "model.differential.depth: " in capsys.readouterr().err
    assert run(*again) == 0
    assert run(*again) == 0
    assert "finished" in capsys.readouterr().out
