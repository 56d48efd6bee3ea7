"""``pairwright train`` on a real dataset: what it prints, its exit codes, what it says of bad
input."""

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from huggingface_hub import ModelCard

import pairwright as pw
from pairwright.flows.training.make_train_config import make_config
from pairwright.flows.training.train_model import train
from pairwright.flows.versions.version import open_version
from pairwright.tasks.serving import gpu_memory
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training import load_model, preference_objective
from pairwright.tasks.training.preference_trainer import PreferenceTrainer
from pairwright.tasks.training.runs import Run
from tests.fixtures.benchmarks import ask_about_a_pair
from tests.fixtures.chat_server import chat_server
from tests.fixtures.command import run
from tests.fixtures.dogs_to_train import BIN, ROWS, training_of
from tests.fixtures.runs_to_train import flip, interrupt
from tests.fixtures.tables import fill_column
from tests.flows.conftest import SMALL, WIDE, build

SHORT = {"optimiser__max_steps": 3}
EACH_STEP = SHORT | {"output__save_steps": 1}


class Trainer:
    """Train under a name of its own."""

    def __init__(self, dataset, model, name, capsys):
        self.dataset, self.model, self.name, self.capsys = dataset, model, name, capsys
        self.run = Run(dataset / "runs" / name)

    def words(self, objective="dpo", **settings):
        return training_of(self.dataset, self.model, self.name, objective, **SHORT | settings)

    def __call__(self, objective="dpo", **settings):
        return self.call(*self.words(objective, **settings))

    def call(self, *words):
        """Return the exit code of a command and what it prints, all together."""
        self.capsys.readouterr()
        code = run(*words)
        return code, "".join(self.capsys.readouterr())

    def stop(self, step, **settings):
        """Train, and press Ctrl-C twice at a step."""
        words = self.words(**settings)
        changes = [word for flag, word in pairwise(words) if flag == "--set"]
        config = make_config("dpo", changes, model=str(self.model))
        version = open_version(Folder(str(self.dataset)))
        with pytest.raises(KeyboardInterrupt):
            train(version, config, name=self.name, watcher=interrupt(step))


@pytest.fixture
def trainer(dogs, qwen, request, capsys):
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    return Trainer(dogs, qwen, name, capsys)


@pytest.fixture
def own(dogs, qwen, tmp_path, capsys):
    """Return who trains on a copy of the dataset that a test may change."""
    copy = shutil.copytree(dogs, tmp_path / "own", ignore=shutil.ignore_patterns("runs"))
    return Trainer(Path(copy), qwen, "own", capsys)


@pytest.fixture(scope="module")
def finished(dogs, qwen, tmp_path_factory):
    """Return the words that trained a model whose card states a licence, and what they printed."""
    model = Path(shutil.copytree(qwen, tmp_path_factory.mktemp("models") / "their-model"))
    (model / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    words = training_of(dogs, model, "finished", **SHORT, output__keep_checkpoints="false")
    with redirect_stdout(StringIO()) as printed:
        assert run(*words) == 0
    return words, printed.getvalue()


@pytest.fixture
def done(dogs, finished, capsys):
    return Trainer(dogs, "", "finished", capsys)


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_run_from_the_verb_to_the_finished_model(finished, done):
    _, printed = finished
    assert f"3 steps: {done.run.model}" in printed
    assert "Held out" in printed
    assert not done.run.checkpoints.exists()
    assert (done.run.folder / "report/index.html").exists()
    data = done.run.data()
    assert (data["snapshot"], data["processes"], data["refused"]) == (1, 1, {})
    assert data["rows"] == {"train": ROWS}


def test_a_finished_run_is_shown_and_not_trained_again(finished, done):
    words, printed = finished
    before = times(done.run.folder)
    code, printed_again = done.call(*words)
    assert code == 0
    assert printed[printed.index("Held out") :].splitlines()[0] in printed_again
    changed = dict(times(done.run.folder).items() - before.items())
    assert {path.name for path in changed} <= {".lock"}


def test_runs_are_listed(done):
    _, listed = done.call("runs", done.dataset, "--json")
    (row,) = (row for row in json.loads(listed) if row["name"] == "finished")
    assert (row["objective"], row["step"], row["finished"], row["problem"]) == ("dpo", 3, True, "")
    assert row["loss"] > 0
    code, table = done.call("runs", done.dataset)
    assert (code, "finished" in table) == (0, True)


def test_a_run_with_other_settings_needs_another_name(finished, done):
    words, _ = finished
    code, printed = done.call(*words, "--set", "dpo.beta=0.5", "--set", "output.save_steps=3")
    assert code == 2
    assert re.search(r"dpo\.beta was 0\.1, is 0\.5\b.*--name", printed)
    assert "output" not in printed


def test_the_card_of_a_finished_model(finished, done):
    """It names no path of this machine, and the licence that the first model's card states."""
    words, _ = finished
    card = ModelCard.load(done.run.model / "README.md")
    data = card.data.to_dict()
    assert (data["license"], data["library_name"]) == ("apache-2.0", "peft")
    assert data["pipeline_tag"] == "image-text-to-text"
    assert "base_model" not in data, "a folder is no name on the Hub"
    named = ("their-model", "objective `dpo`", f"{ROWS} rows", "`train`", "`dogs`, version 1")
    assert all(name in card.text for name in (*named, f"({ROWS})"))
    page = (done.run.folder / "report/index.html").read_text()
    (accuracy,) = re.findall(r"held-out accuracy \| (.* of 2 \(.*\)) \|", card.text)
    assert accuracy in page
    assert data["model-index"][0]["results"][0]["metrics"][0]["name"].endswith(accuracy)
    model = Path(words[words.index("--model") + 1])
    assert str(model.parent) not in card.content
    assert str(done.dataset.parent) not in card.content


def test_a_damaged_checkpoint_is_not_gone_on_from(own):
    own.stop(3, **EACH_STEP)
    assert own.run.steps() == [1, 2]
    damaged = own.run.checkpoint(2) / "optimizer.pt"
    flip(damaged)
    code, printed = own(**EACH_STEP)
    assert (code, f"{damaged}: is damaged" in printed) == (2, True)
    assert own.run.steps() == [1, 2]
    shutil.rmtree(damaged.parent)
    assert own(**EACH_STEP)[0] == 0


def test_a_damaged_model_is_named_by_whoever_reads_it(finished, dogs, own, tmp_path):
    """By a run that starts from it, who asks it, and status."""
    run_folder = Path(shutil.copytree(dogs / "runs/finished", own.dataset / "runs/own"))
    assert ask_about_a_pair(run_folder, tmp_path)["state"] == "answered"
    verify = [("status", folder, "--verify") for folder in (own.dataset, run_folder)]
    assert [run(*words) for words in verify] == [0, 0]
    weights = own.run.model / "adapter_model.safetensors"
    flip(weights)
    next_run = ("--objective", "dpo", "--from", "own", "--name", "next")
    benchmark = ("--benchmark", "nlvr2", "--data", tmp_path / "nlvr2")
    for expected, words in (
        (2, ("train", own.dataset, *next_run)),
        (2, ("evaluate", "model", run_folder, *benchmark)),
        *((1, words) for words in verify),
    ):
        code, printed = own.call(*words)
        assert (code, f"{weights}: is damaged" in printed) == (expected, True), words


def test_a_run_goes_on_with_the_version_that_it_began_with(own, dogs):
    """The dataset is built on meanwhile, with fewer rows."""
    settings = EACH_STEP | {"model__tuning": "full"}
    own.stop(2, **settings)
    rows = own.run.rows.read_bytes()
    source = f"rlaif-v:{dogs.parent / 'dogs-source'}"
    assert run("build", source, "--out", own.dataset, "--limit", 8) == 0
    code, printed = own.call(*own.words(**settings), "--version", 2)
    assert (code, "--name" in printed) == (2, True)
    tables = sorted((own.dataset / "tables").rglob("*.parquet"))
    assert own(**settings)[0] == 0
    assert own.run.rows.read_bytes() == rows
    assert own.run.data()["snapshot"] == 1
    assert sorted((own.dataset / "tables").rglob("*.parquet")) == tables


def test_a_run_whose_reference_is_gone_names_it(own):
    settings = EACH_STEP | {"model__tuning": "full"}
    own.stop(2, **settings)
    reference = own.run.folder / "reference.npz"
    reference.unlink()
    code, printed = own(**settings)
    assert (code, str(reference) in printed, "--name" in printed) == (1, True, True)


def test_a_run_without_a_checkpoint_begins_anew(trainer):
    trainer.stop(1, dpo__beta=0.9)
    assert trainer.run.config().dpo.beta == 0.9
    assert trainer.run.steps() == []
    assert trainer()[0] == 0
    assert trainer.run.config().dpo.beta == 0.1


@pytest.mark.parametrize(
    ("objective", "settings", "model", "message"),
    [
        ("dpo", {"optimiser__per_device_train_batch_size": 0}, "", "(given: 0)"),
        ("cheese", {}, "", "objective: "),
        ("dpo", {"data__split": "nowhere"}, "", "split 'nowhere'"),
        ("dpo", {}, "nowhere/nothing", "model.name: nowhere/nothing"),
        ("adpo", {"adpo__encoder": "clip4idc"}, "", "embedding.clip: "),
    ],
)
def test_wrong_settings(objective, settings, model, message, trainer, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    trainer.model = model or trainer.model
    code, printed = trainer(objective, **settings)
    assert (code, message in printed) == (2, True)
    assert not trainer.run.config()


def test_rows_without_a_rejected_side(own):
    """Builds leave them where nothing could be rejected; here, the column is emptied."""
    fill_column(own.dataset, "preferences", "rejected", "")
    code, printed = own("dpo")
    assert (code, f"no rejected side ({ROWS})" in printed) == (2, True)
    assert own("sft")[0] == 0, "which needs none"


def take(*_, **__):
    return torch.empty(2**50)  # 4 PB


def test_memory_that_does_not_suffice(trainer, monkeypatch):
    """It does until the third step, and then not even to go on."""
    step, steps = PreferenceTrainer.training_step, []

    def grow(self, *words, **named):
        steps.append(1)
        return take() if len(steps) == 3 else step(self, *words, **named)

    with monkeypatch.context() as patch:
        patch.setattr(PreferenceTrainer, "training_step", grow)
        code, printed = trainer("sft")
    assert (code, "out of memory" in printed) == (1, True)
    size, steps = "optimiser.per_device_train_batch_size", "optimiser.gradient_accumulation_steps"
    assert f"--set {size}=1 --set {steps}=2" in printed
    assert "--name" in printed
    assert trainer.run.steps() == [2]
    assert trainer.run.metrics.exists(), "the page shows how it came to that"
    with monkeypatch.context() as patch:
        patch.setattr("transformers.Trainer._load_from_checkpoint", take)
        code, printed = trainer("sft")
    assert (code, "out of memory" in printed) == (1, True)
    assert trainer("sft")[0] == 0


def test_a_model_that_fits_no_gpu_is_not_loaded(trainer, monkeypatch, tmp_path):
    (tmp_path / "said").write_text("0, GPU-0, 1024\n")
    monkeypatch.setattr(gpu_memory, "ASK", ("cat", str(tmp_path / "said")))
    monkeypatch.setattr(load_model, "load_plain", None)
    monkeypatch.setattr(preference_objective, "count_gpus", lambda: 1)
    code, printed = trainer("sft")
    assert (code, trainer.run.config()) == (2, None)
    advice = "the smallest has 1.1. Try --set optimiser.per_device_train_batch_size="
    assert advice in printed


@pytest.mark.parametrize("size", ["small", "paper"])
def test_rows_that_namc_cannot_learn_from(size, trainer, monkeypatch):
    """They are about one image each: it says so before models look, and leaves no run."""
    namc = "pairwright.tasks.training.namc.namc_objective"
    monkeypatch.setattr(f"{namc}.pin_models", lambda config, *_, **__: config)
    words = ("train", trainer.dataset, "--objective", "namc", "--size", size)
    code, printed = trainer.call(*words, "--name", trainer.name)
    assert (code, f"not about two images ({ROWS})" in printed) == (2, True)
    assert not trainer.run.config()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order_and_the_same_command_goes_on(number, trainer):
    long = {"optimiser__max_steps": 400, "data__max_train_rows": 0, "output__save_steps": 1000}
    process = subprocess.Popen(
        [BIN / "pairwright", *trainer.words(**long)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    next(line for line in process.stderr if "step 3/400" in line)
    process.send_signal(number)
    _, printed = process.communicate(timeout=120)
    assert process.returncode == 130, printed
    (step,) = trainer.run.steps()
    assert f"step {step} of 400" in printed
    assert "Traceback" not in printed
    assert (trainer.run.folder / "report/index.html").exists()
    trainer.stop(step + 2, **long)
    rows = pq.read_table(trainer.run.metrics).to_pylist()
    steps = [row["step"] for row in rows if (row["name"], row["split"]) == ("loss", "train")]
    assert steps == [*range(1, step + 1)]


def test_rows_that_a_blind_model_answers_right_are_left_out(copy, qwen, capsys):
    """A server that always says A is as often right as not: each row's hardness is a half."""
    with chat_server(lambda _: "A") as server:
        settings = ["hardness.enabled=true", f"models.chat.endpoint={server.url}"]
        build(copy, None, settings=[*SMALL, *WIDE, *settings])
    assert {row.hardness for row in pw.open(copy)["hardness"].rows()} == {0.5}
    least = ["--set", "data.min_hardness=0.6"]
    training = training_of(copy, qwen, "hard", "sft", model__max_pixels=12544)
    assert run(*training, *least) == 2
    message = capsys.readouterr().err
    assert "expected without the images" in message
    assert run(*training, "--set", "data.min_hardness=0.5") == 0
