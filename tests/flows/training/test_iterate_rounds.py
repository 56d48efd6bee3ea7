"""``pairwright iterate``: rounds of a real build, training and evaluation, served by a command in
vLLM's place."""

import hashlib
import json
import re
import sys

import pytest

import pairwright as pw
from pairwright.flows.training import iterate_rounds
from pairwright.tasks.training.report.write_rounds_page import keep_rounds
from pairwright.tasks.training.runs import HELD_OUT, MetricsFile, Run
from tests.fixtures import forward_chat, serve_checkpoint
from tests.fixtures.chat_server import chat_server
from tests.fixtures.command import run, words_of
from tests.fixtures.photographs import write_photographs
from tests.fixtures.served_models import write_qwen2_vl
from tests.flows.conftest import SMALL

LAUNCH = "models.policy.launch.command"
SETTINGS = {
    LAUNCH: json.dumps([sys.executable, serve_checkpoint.__file__]),
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
def test_a_round_is_kept_unless_it_is_worse(worths, kept):
    assert keep_rounds(worths) == kept


class Iterated:
    def __init__(self, out, model, capsys):
        self.out, self.model, self.capsys = out, model, capsys

    def __call__(self, *words):
        trained = [f"--train-set={name}={value}" for name, value in TRAINED.items()]
        settings = [*words_of(SETTINGS), *words_of(SMALL[1:]), *trained]
        self.capsys.readouterr()
        profile = ("--profile", "scenes", "--model", self.model)
        code = run("iterate", self.out, *profile, *settings, *words)
        return code, *self.capsys.readouterr()

    def run(self, number):
        return Run(self.out / "runs" / f"iterate-{number}")

    def page(self):
        return (self.out / "runs/iterate/index.html").read_text()

    def files(self):
        own = ("snapshots/*", "tables/**/*.parquet", "runs/*/checkpoint/*", "runs/*/truth.json")
        return {path: path.stat().st_mtime_ns for pattern in own for path in self.out.glob(pattern)}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_qwen2_vl(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def iterate(tmp_path, model, capsys):
    return Iterated(tmp_path / "demo", model, capsys)


@pytest.mark.slow
def test_rounds_from_nothing_to_the_page_and_once_only(iterate, monkeypatch):
    """Stopped between training and evaluation of the first round, it goes on there, and makes the
    second."""
    evaluate = iterate_rounds.evaluate_model

    def stop(config, **how):
        if "iterate-1" in config.model:
            raise KeyboardInterrupt
        return evaluate(config, **how)

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
    versions = [pw.open(iterate.out, number) for number in (1, 2, 3)]
    assert [each.data()["snapshot"] for each in runs] == [1, 2, 3]
    assert [version.version for version in pw.open(iterate.out).versions()] == [1, 2, 3]
    starts = [("sft", ""), ("dpo", "iterate-0"), ("dpo", "iterate-1")]
    assert [
        (config.objective, config.start) for config in (each.config() for each in runs)
    ] == starts
    first, *policies = (version.profile.models.get("policy") for version in versions)
    assert first is None
    expected = [(str(each.model), 448 * 448) for each in runs[:2]]
    assert [(policy.model, policy.max_pixels) for policy in policies] == expected
    scores = json.loads((runs[2].folder / "truth.json").read_text())["scores"]
    (true,) = (score["value"] for score in scores if score["name"] == "true")
    links = re.findall(r'href="\.\./([^/]+)/report/index.html"', iterate.page())
    assert set(links) == {each.folder.name for each in runs}
    for text in (out, iterate.page()):
        assert f"{true:.1%}" in text
        assert "no sample is in the template" in " ".join(text.split())
    assert f"{runs[2].model}" in out

    code, again, _ = iterate("--rounds", 2)
    assert (code, again, iterate.files()) == (0, out, after)


COMPARISON = (
    "Commonalities: Both images show a table.\n\nDifferences:\n1. Object types: Image 1 has "
    "another thing.\n2. Counting the objects: Image 2 has three things."
)
DIFFERENCE = (
    "The difference between the two images is that the first image shows the ball number {}, while "
    "the second image shows the ball number {}."
)


def write(asked):
    if "Summarize the commonalities" in asked.text:
        return COMPARISON
    if len(asked.images) < 2:  # the probe of a model's eyes
        return "A brown square."
    balls = (int(hashlib.sha256(image).hexdigest()[:6], 16) for image in asked.images)
    return DIFFERENCE.format(*balls)


COMPARING = ["--objective", "sft", "--train-set", "data.table=comparisons"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("writes", "words"),
    [
        ("differences", ["--objective", "dpo"]),
        ("comparisons", [*COMPARING, "--set", "comparisons.input=images"]),
    ],
)
def test_photographs_are_judged_by_the_loss_of_held_out_texts(writes, words, iterate, tmp_path):
    write_photographs(tmp_path / "in", variants=2)
    with chat_server(write) as server:
        chat = {"endpoint": server.url, "model": "tiny", "structured_output": '"none"'}
        settings = {f"models.chat.{name}": value for name, value in chat.items()}
        settings |= {"differences.writer": "served", f"{writes}.writer": "served"}
        settings[LAUNCH] = json.dumps([sys.executable, forward_chat.__file__, server.url])
        source = ("--source", tmp_path / "in", "--writes", writes, "--rounds", 1)
        code, out, err = iterate(*source, *words, *words_of(settings))
        assert code == 0, err
        users = {item.body.get("user", "") for item in server.asked}
    assert users == {"", str(iterate.run(0).model)}, "the trained model wrote the round's texts"
    loss = MetricsFile(iterate.run(1).metrics).read_until().last(HELD_OUT)["nll"]
    assert f"{loss:.3g}" in out
    assert "Loss per token of the held-out chosen texts" in iterate.page()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rounds", 0], "--rounds"),
        (["--writes", "captions"], "must be one of sampled_texts, blind, comparisons, differences"),
        (["--set", f"{LAUNCH}=/nowhere/no-vllm"], LAUNCH),
        (["--set", "sampled_texts.sample=2"], "sampled_texts.sample: no such field"),
        (["--train-set", "optimiser.rate=2"], "optimiser.rate"),
        (["--train-set", "output.merge_adapters=false"], "output.merge_adapters"),
        (["--objective", "namc"], "NAMC"),
        (["--name", "a/b"], "--name"),
    ],
)
def test_what_would_fail_in_hours_is_refused_at_once(words, message, iterate):
    code, _, err = iterate(*words)
    assert (code, message in " ".join(err.split())) == (2, True)
    assert not iterate.out.exists()


def test_a_folder_without_a_dataset_is_refused(tmp_path, capsys):
    assert run("iterate", tmp_path / "nowhere") == 2
    assert "holds no dataset" in capsys.readouterr().err
