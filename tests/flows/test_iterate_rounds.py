"""``pairwright iterate``: rounds of a real build, training and evaluation, served by a command in
vLLM's place."""

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import pairwright as pw
from pairwright.flows.training import iterate_rounds
from pairwright.tasks.training.report.write_rounds_page import keep_rounds
from pairwright.tasks.training.runs import HELD_OUT, MetricsFile, Run
from tests.fixtures import forward_chat, serve_checkpoint
from tests.fixtures.chat_server import Asked, chat_server
from tests.fixtures.command import run, words_of
from tests.fixtures.photographs import write_photographs
from tests.fixtures.served_models import write_qwen2_vl
from tests.flows.conftest import SMALL

SERVER = json.dumps([sys.executable, serve_checkpoint.__file__])
SETTINGS = {
    "models.policy.launch.command": SERVER,
    "scenes.worlds": 6,
    "rejections.enabled": "false",
    "preferences.test_share": 0.3,
    "preferences.validation_share": 0.2,
    "sampled_texts.samples": 1,
    "sampled_texts.max_tokens": 8,
}
TRAINED = {
    "optimiser.max_steps": 2,
    "output.eval_steps": 0,
    "output.alarms": "log",
    "data.max_eval_rows": 2,
}


@pytest.mark.parametrize(
    ("worths", "kept"),
    [
        ([0.5], [True]),
        ([0.5, 0.5, 0.6], [True, True, True]),
        ([0.5, 0.6, 0.55], [True, True, False]),
        ([-1.2, -1.1, -1.3, -1.1], [True, True, False, True]),
    ],
)
def test_a_round_is_kept_unless_it_is_worse(worths: list[float], kept: list[bool]) -> None:
    assert keep_rounds(worths) == kept


class Iterated:
    def __init__(self, out: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.out, self.model, self.capsys = out, model, capsys

    def __call__(self, *words: object) -> tuple[int, str, str]:
        trained = [
            word for name, value in TRAINED.items() for word in ("--train-set", f"{name}={value}")
        ]
        given = [
            "--profile",
            "scenes",
            "--model",
            self.model,
            *words_of(SETTINGS),
            *words_of(SMALL[1:]),
            *trained,
        ]
        self.capsys.readouterr()
        code = run("iterate", self.out, *given, *words)
        out, err = self.capsys.readouterr()
        return code, out, err

    def run(self, number: int) -> Run:
        return Run(self.out / "runs" / f"iterate-{number}")

    def files(self) -> dict[Path, int]:
        own = ("snapshots/*", "tables/**/*.parquet", "runs/*/checkpoint/*", "runs/*/truth.json")
        return {path: path.stat().st_mtime_ns for pattern in own for path in self.out.glob(pattern)}


@pytest.fixture
def iterate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterated:
    return Iterated(tmp_path / "demo", write_qwen2_vl(tmp_path / "model"), capsys)


@pytest.mark.slow
def test_rounds_from_nothing_to_the_page_and_once_only(
    iterate: Iterated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between training and evaluation of the first round, it goes on there, and makes the
    second."""
    evaluate = iterate_rounds.evaluate_model

    def stop(config: Any, **told: Any) -> Any:
        if "iterate-1" in config.model:
            raise KeyboardInterrupt
        return evaluate(config, **told)

    with monkeypatch.context() as patch:
        patch.setattr(iterate_rounds, "evaluate_model", stop)
        code, _, err = iterate("--rounds", 2)
    assert (code, "Run the same command again" in err) == (130, True)
    assert iterate.run(1).is_finished
    assert not (iterate.run(1).folder / "truth.json").exists()
    before = iterate.files()
    code, out, _ = iterate("--rounds", 2)
    assert code == 0
    after = iterate.files()
    assert before.items() <= after.items(), "what was there is as it was"

    runs = [iterate.run(number) for number in range(3)]
    assert [one.data()["snapshot"] for one in runs] == [1, 2, 3]
    assert [version.version for version in pw.open(iterate.out).versions()] == [1, 2, 3]
    configs = [one.config() for one in runs]
    assert [(one.objective, one.start) for one in configs if one] == [
        ("sft", ""), ("dpo", "iterate-0"), ("dpo", "iterate-1"),
    ]  # fmt: skip
    policies = [pw.open(iterate.out, version).profile.models.get("policy") for version in (1, 2, 3)]
    assert [one and one.model for one in policies] == [None, str(runs[0].model), str(runs[1].model)]
    assert [one and one.max_pixels for one in policies[1:]] == [448 * 448] * 2
    scores = {
        one["name"]: one
        for one in json.loads((runs[2].folder / "truth.json").read_text())["scores"]
    }
    page = (iterate.out / "runs/iterate/index.html").read_text()
    assert set(re.findall(r'href="\.\./([^/]+)/report/index.html"', page)) == {
        one.folder.name for one in runs
    }
    for shown in (out, page):
        assert f"{scores['true']['value']:.1%}" in shown
        assert "no sample is in the template" in " ".join(shown.split())
    assert f"{runs[2].model}" in out

    code, again, _ = iterate("--rounds", 2)
    assert (code, again, iterate.files()) == (0, out, after)


COMPARISON = (
    "Commonalities: Both images show a table.\n\n"
    "Differences:\n1. Object types: Image 1 has another thing.\n2. Counting the objects: Image 2 "
    "has three things."
)


def write(asked: Asked) -> str:
    if "Summarize the commonalities" in asked.text:
        return COMPARISON
    if len(asked.images) < 2:  # the probe of a model's eyes
        return "A brown square."
    first, second = (
        f"the ball number {int(hashlib.sha256(one).hexdigest()[:6], 16)}" for one in asked.images
    )
    return (
        f"The difference between the two images is that the first image shows {first}, while the "
        f"second image shows "
        f"{second}."
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("writes", "settings", "words"),
    [
        ("differences", {}, ["--objective", "dpo"]),
        (
            "comparisons",
            {"comparisons.input": "images"},
            ["--objective", "sft", "--train-set", "data.table=comparisons"],
        ),
    ],
)
def test_photographs_are_judged_by_the_loss_of_held_out_texts(
    writes: str, settings: dict[str, Any], words: list[str], iterate: Iterated, tmp_path: Path
) -> None:
    write_photographs(tmp_path / "in", variants=2)
    with chat_server(write) as server:
        chat = {"endpoint": server.url, "model": "tiny", "structured_output": '"none"'}
        own = {
            "differences.writer": "served",
            f"{writes}.writer": "served",
            **{f"models.chat.{name}": value for name, value in chat.items()},
        }
        own["models.policy.launch.command"] = json.dumps(
            [sys.executable, forward_chat.__file__, server.url]
        )
        given = [
            "--source",
            str(tmp_path / "in"),
            "--writes",
            writes,
            *words,
            *words_of({**own, **settings}),
        ]
        code, out, err = iterate(*given, "--rounds", 1)
        assert code == 0, err
        asked = {one.body.get("user", "") for one in server.asked}
    assert asked == {"", str(iterate.run(0).model)}, (
        "the model that was trained wrote the round's texts"
    )
    loss = MetricsFile(iterate.run(1).metrics).resume().last(HELD_OUT)["nll"]
    page = (iterate.out / "runs/iterate/index.html").read_text()
    assert f"{loss:.3g}" in out
    assert "Loss per token of the held-out chosen texts" in page


def test_what_would_fail_in_hours_is_refused_at_once(iterate: Iterated, tmp_path: Path) -> None:
    missing = str(tmp_path / "no-vllm")
    for words, said in (
        (["--rounds", 0], "--rounds"),
        (
            ["--writes", "captions"],
            "--writes captions: must be one of sampled_texts, comparisons, differences",
        ),
        (["--set", f"models.policy.launch.command={missing}"], "models.policy.launch.command"),
        (["--set", "sampled_texts.sample=2"], "sampled_texts.sample: no such field"),
        (["--train-set", "optimiser.rate=2"], "optimiser.rate"),
        (["--train-set", "output.merge_adapters=false"], "output.merge_adapters"),
        (["--objective", "namc"], "NAMC"),
        (["--name", "a/b"], "--name"),
    ):
        code, _, err = iterate(*words)
        assert (code, said in " ".join(err.split())) == (2, True), (words, err)
        assert not iterate.out.exists(), words
    iterate.capsys.readouterr()
    assert run("iterate", tmp_path / "nowhere") == 2
    assert "holds no dataset" in iterate.capsys.readouterr().err
