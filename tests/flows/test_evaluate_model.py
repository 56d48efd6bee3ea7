"""A model on a benchmark: on this machine, behind a server, stopped and gone on with, with files
that are wrong."""

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from pairwright.flows.building.progress import show_steps
from pairwright.flows.training.evaluate_model import EvaluationConfig, evaluate_model
from pairwright.schemas.errors import ServerError
from pairwright.tasks.evaluation.benchmark import SHORT
from tests.fixtures.asking import config_of
from tests.fixtures.benchmarks import counts_of, evaluate, rows_of, scores_of, write_folder
from tests.fixtures.chat_server import Asked, Fault, Status, chat_server

OWN = "COLA_multiobjects_matching_benchmark.json"
PAIRS = 4


@pytest.fixture
def cola(tmp_path: Path) -> Path:
    names = [f"{number}{side}.png" for number in range(PAIRS) for side in "ab"]
    rows = [
        [f"http://x/{n}a.png", f"red {n}", f"http://x/{n}b.png?big", f"blue {n}"]
        for n in range(PAIRS)
    ]
    return write_folder(tmp_path / "cola", images=names, files={OWN: rows})


def test_a_checkpoint_with_adapters_is_asked_once_for_each_question(
    qwen: Path, cola: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to, adapters = tmp_path / "scores.json", write_adapters(qwen, tmp_path / "adapters")
    words = ("--benchmark", "cola", "--data", cola, "--to", to)
    assert evaluate(adapters, *words, "--limit", 1, "--batch", 3) == 0
    assert counts_of(to) == {
        "items": 1,
        "scored_items": 1,
        "questions": 2,
        "answered": 2,
        "not_read": 2,
    }
    first, kept = rows_of(to), to.with_suffix(".answers").stat().st_size
    assert evaluate(adapters, *words) == 0
    rows, grown = rows_of(to), to.with_suffix(".answers").stat().st_size
    assert len(rows) == 2 * PAIRS
    assert {name: rows[name] for name in first} == first
    assert evaluate(adapters, *words) == 0
    assert to.with_suffix(".answers").stat().st_size == grown > kept
    assert scores_of(to) == {("", "image"): 0, ("", "image (exact)"): 0}
    assert "8 answers" in capsys.readouterr().out.replace("\n", " ")
    assert evaluate(qwen, *words, "--limit", 1) == 0
    assert {name: row["answer"] for name, row in rows_of(to).items()} != {
        n: row["answer"] for n, row in first.items()
    }


def write_adapters(model: Path, folder: Path) -> Path:
    """Write adapters of a model that change what it says."""
    import peft
    import torch
    from transformers import AutoModelForImageTextToText

    base = AutoModelForImageTextToText.from_pretrained(model)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "o_proj"])
    with warnings.catch_warnings():  # this peft asks transformers by a name that is to go
        warnings.simplefilter("ignore", FutureWarning)
        tuned = peft.get_peft_model(base, config)
    with torch.no_grad():
        for name, parameter in tuned.named_parameters():
            if "lora_" in name:
                parameter.copy_(
                    torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name)))
                )
    tuned.save_pretrained(str(folder))
    settings = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(
        json.dumps(settings | {"base_model_name_or_path": str(model)})
    )
    return folder


def answerer(folder: Path) -> Callable[[Asked], str | Fault]:
    """Return who answers: right of pairs 0 to 2, in words that are no option of pair 3."""
    names = {path.read_bytes(): path.stem for path in (folder / "images").iterdir()}

    def answer(asked: Asked) -> str | Fault:
        if "suits" not in asked.text:  # whoever asks finds out first what the model sees
            return "a square"
        if {names[image] for image in asked.images} == {"3a", "3b"}:
            return "The first one, A."
        return "A" if '"red' in asked.text else "(B)"

    return answer


def test_a_served_model_is_scored_by_hand(cola: Path, tmp_path: Path) -> None:
    to = tmp_path / "scores.json"
    with chat_server(answerer(cola)) as server:
        words = ("tiny", "--server", server.url, "--benchmark", "cola", "--data", cola, "--to", to)
        assert evaluate(*words) == 0
        asked = len(server.asked)
        assert scores_of(to) == {
            ("", "image"): 0.75,
            ("", "image (exact)"): 0,
        }  # "(B)" is read, and is not B
        assert counts_of(to) == {
            "items": PAIRS,
            "scored_items": PAIRS,
            "questions": 8,
            "answered": 8,
            "not_read": 2,
        }
        held = json.loads(to.read_text())["scores"][0]
        assert 0.25 <= held["low"] < 0.75 < held["high"] == 1
        assert evaluate(*words) == 0
        probes = 3  # which model there is, whether it sees two images, and what holds it to a form
        assert len(server.asked) <= asked + probes


def test_what_was_answered_is_not_asked_again(cola: Path, tmp_path: Path) -> None:
    to, answer = tmp_path / "scores.json", answerer(cola)
    with chat_server(lambda asked: Status(503) if asked.number > 5 else answer(asked)) as server:
        config = config_of(
            server,
            structured_output="none",
            patience_seconds=0.2,
            max_attempts=2,
            max_concurrency=1,
        )
        wanted = EvaluationConfig(model="tiny", benchmark="cola", data=cola, to=to, server=config)
        with pytest.raises(ServerError):
            evaluate_model(wanted, watch=show_steps)
        assert not to.exists()
        start, server.answer = len(server.asked), answer
        answered = {
            (one.text, one.images) for one in server.asked[:5] if one.body["max_tokens"] == SHORT
        }
        found = evaluate_model(wanted, watch=show_steps)
        asked = [
            (one.text, one.images)
            for one in server.asked[start:]
            if one.body["max_tokens"] == SHORT
        ]
    assert len(answered) >= 2
    assert not answered & {*asked}
    assert found.results.counts["answered"] == 2 * PAIRS


def test_items_without_an_image_are_left_out(qwen: Path, cola: Path, tmp_path: Path) -> None:
    (cola / "images/1a.png").unlink()
    (cola / "images/2b.png").write_bytes(b"no image")
    to = tmp_path / "scores.json"
    assert evaluate(qwen, "-b", "cola", "--data", cola, "--to", to) == 0
    assert counts_of(to) == {
        "items": PAIRS,
        "scored_items": 2,
        "questions": 8,
        "answered": 4,
        "not_read": 4,
        "without_image": 4,
    }
    details = {row["detail"] for row in rows_of(to).values() if row["state"] == "no image"}
    assert any("1a.png" in detail for detail in details)


def test_the_benchmarks_are_listed_with_what_they_need(capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate() == 0
    listed = capsys.readouterr().out
    assert "cola" in listed
    assert evaluate("tiny", "-b", "colas") == 2
    assert "cola" in capsys.readouterr().err


def test_a_profile_names_the_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # no Java, which would take seconds
    lines = [{"id": 1, "image1": "a.png", "image2": "b.png", "caption": "The cup is gone."}]
    folder = write_folder(
        tmp_path / "data", images=["a.png", "b.png"], files={}, lines={"test.jsonl": lines}
    )
    to, profile = tmp_path / "scores.json", tmp_path / "judged.yaml"

    def judge(asked: Asked) -> str:
        found = re.search(r'"number": "(\w+)"', asked.text)
        return json.dumps({"number": found[1], "reason": "", "rating": 70}) if found else "a square"

    with chat_server(lambda _: "No cup.") as server, chat_server(judge) as judging:
        profile.write_text(f"models: {{judge: {{endpoint: '{judging.url}', model: tiny}}}}\n")
        words = ("tiny", "--server", server.url, "-b", "omnidiff", "--data", folder, "--to", to)
        assert evaluate(*words, "--judge", profile) == 0
        assert scores_of(to)["", "score (0 to 100)"] == 70
        assert evaluate(*words, "--judge", judging.url, "--judge-model", "large") == 2
        assert json.loads(to.read_text())["judge"] == "tiny"
        assert evaluate(*words) == 0
    assert json.loads(to.read_text())["judge"] == ""
    assert "score (0 to 100)" not in {name for _, name in scores_of(to)}
