"""``pairwright train`` on a real dataset: what it prints, its exit codes, what it says of bad
input."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from huggingface_hub import ModelCard

from pairwright.flows.training.make_train_config import make_config
from pairwright.flows.training.train_model import train
from pairwright.flows.versions.version import open_version
from pairwright.tasks.serving import gpu_memory
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training import load_model, preference_objective
from pairwright.tasks.training.preference_trainer import PreferenceTrainer
from pairwright.tasks.training.runs import Run
from tests.fixtures.benchmarks import ask_about_a_pair
from tests.fixtures.command import run, words_of
from tests.fixtures.pictures import picture
from tests.fixtures.runs_to_train import At
from tests.fixtures.tables import IMAGE, fill_column, struct, write_table

BIN = Path(sys.executable).parent
ROWS = 24
COLUMNS: dict[str, Any] = {
    "image": [struct(picture(n, size=(48, 40)), f"{n}.png") for n in range(ROWS)],
    "question": ["What is it?"] * ROWS,
    "chosen": [f"A dog and {n} balls." for n in range(ROWS)],
    "rejected": [f"A cube, not {n} dogs." for n in range(ROWS)],
}
FAST = {
    "optimiser.max_steps": 4,
    "optimiser.per_device_train_batch_size": 2,
    "model.lora.rank": 4,
    "output.logging_steps": 1,
    "output.save_steps": 2,
    "output.merge_adapters": "false",
    "output.keep_checkpoints": "true",
    "data.eval_split": "train",
    "data.max_eval_rows": 2,
    "data.max_train_rows": 6,
}


def write_dataset(out: Path, **columns: Any) -> Path:
    """Build preferences that were given, with one image each."""
    source = out.parent / f"{out.name}-source"
    source.mkdir()
    write_table(
        source / "RLAIF-V-Dataset_000.parquet", {**COLUMNS, **columns}, types={"image": IMAGE}
    )
    assert run("build", f"rlaif-v:{source}", "--out", out, "--set", "run.workers=1") == 0
    return out


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data") / "dogs")


class Trainer:
    """Train under names of their own."""

    def __init__(
        self, dataset: Path, model: Path, name: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.dataset, self.model, self.name, self.capsys = dataset, model, name, capsys
        self.run = Run(dataset / "runs" / name)

    def words(self, objective: str = "dpo", **settings: Any) -> list[str]:
        named = {name.replace("__", "."): value for name, value in settings.items()}
        start = [
            "train",
            str(self.dataset),
            "--objective",
            objective,
            "--name",
            self.name,
            "--model",
            str(self.model),
        ]
        return [*start, *words_of(FAST | named)]

    def __call__(self, objective: str = "dpo", **settings: Any) -> tuple[int, str, str]:
        self.capsys.readouterr()
        ended = run(*self.words(objective, **settings))
        return ended, *self.capsys.readouterr()


@pytest.fixture
def trainer(
    dataset: Path, qwen: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> Trainer:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    return Trainer(dataset, qwen, name, capsys)


def test_a_run_from_the_verb_to_the_finished_model(trainer: Trainer) -> None:
    code, out, _ = trainer(output__keep_checkpoints="false")
    assert code == 0
    assert f"4 steps: {trainer.run.model}" in out
    assert not trainer.run.checkpoints.exists()
    assert "Held out" in out
    assert (trainer.run.folder / "report/index.html").exists()
    data = trainer.run.data()
    assert (data["snapshot"], data["processes"], data["refused"]) == (1, 1, {})
    assert data["rows"] == {"train": ROWS}
    before = {
        path: path.stat().st_mtime_ns for path in trainer.run.folder.rglob("*") if path.is_file()
    }

    held_out = out[out.index("Held out") :].splitlines()[0]
    code, out, _ = trainer(output__keep_checkpoints="false")
    assert code == 0
    assert held_out in out
    after = {
        path: path.stat().st_mtime_ns for path in trainer.run.folder.rglob("*") if path.is_file()
    }
    assert {path.name for path in after if after[path] != before.get(path)} <= {".lock"}

    assert run("runs", trainer.dataset, "--json") == 0
    (one,) = (
        one for one in json.loads(trainer.capsys.readouterr().out) if one["name"] == trainer.name
    )
    assert (one["objective"], one["step"], one["finished"], one["problem"]) == ("dpo", 4, True, "")
    assert one["loss"] > 0
    assert run("runs", trainer.dataset) == 0
    assert trainer.name[:20] in trainer.capsys.readouterr().out

    code, _, err = trainer(dpo__beta=0.5, output__save_steps=3)
    assert code == 2
    assert re.search(r"dpo\.beta was 0\.1, is 0\.5\b.*--name", err)
    assert "output" not in err


def test_the_card_of_a_finished_model(trainer: Trainer, qwen: Path, tmp_path: Path) -> None:
    """It names no path of this machine, and the licence that the first model's card states."""
    trainer.model = Path(shutil.copytree(qwen, tmp_path / "their-model"))
    (trainer.model / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    assert trainer()[0] == 0
    card = ModelCard.load(trainer.run.model / "README.md")
    told = card.data.to_dict()
    assert (told["license"], told["pipeline_tag"], told["library_name"]) == (
        "apache-2.0",
        "image-text-to-text",
        "peft",
    )
    assert "base_model" not in told, "a folder is no name on the Hub"
    for words in (
        "their-model",
        "objective `dpo`",
        f"{ROWS} rows",
        "`train`",
        "`dogs`, version 1",
        f"({ROWS})",
    ):
        assert words in card.text, words
    page = (trainer.run.folder / "report/index.html").read_text()
    (accuracy,) = re.findall(r"held-out accuracy \| (.* of 2 \(.*\)) \|", card.text)
    assert accuracy in page
    assert told["model-index"][0]["results"][0]["metrics"][0]["name"].endswith(accuracy)
    assert str(tmp_path) not in card.content
    assert str(trainer.dataset.parent) not in card.content


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for place in range(len(data) // 2, len(data) // 2 + 8):
        data[place] ^= 255
    path.write_bytes(data)


def test_damage_is_named_by_whoever_goes_on_from_it(trainer: Trainer, tmp_path: Path) -> None:
    """A checkpoint that is gone on from, the finished model that a run starts from or that is
    asked; and by status."""
    settings: dict[str, Any] = {"output__save_steps": 1}
    with pytest.raises(KeyboardInterrupt):
        train(
            open_version(Folder(str(trainer.dataset))),
            _config(trainer.words(**settings)),
            name=trainer.name,
            watcher=interrupt(3),
        )
    assert trainer.run.steps() == [1, 2]
    damaged = trainer.run.checkpoint(2) / "optimizer.pt"
    flip(damaged)
    code, _, err = trainer(**settings)
    assert (code, f"{damaged}: is damaged" in err) == (2, True)
    assert trainer.run.steps() == [1, 2]
    shutil.rmtree(damaged.parent)
    assert trainer(**settings)[0] == 0
    assert (
        run("status", trainer.dataset, "--verify")
        == run("status", trainer.run.folder, "--verify")
        == 0
    )

    assert ask_about_a_pair(trainer.run.folder, tmp_path)["state"] == "answered"
    weights = trainer.run.model / "adapter_model.safetensors"
    flip(weights)
    for code, *words in (
        [
            2,
            "train",
            trainer.dataset,
            "--objective",
            "dpo",
            "--from",
            trainer.name,
            "--name",
            "next",
        ],
        [
            2,
            "evaluate",
            "model",
            trainer.run.folder,
            "--benchmark",
            "nlvr2",
            "--data",
            tmp_path / "nlvr2",
        ],
        [1, "status", trainer.dataset, "--verify"],
        [1, "status", trainer.run.folder, "--verify"],
    ):
        trainer.capsys.readouterr()
        assert run(*words) == code, words
        assert f"{weights}: is damaged" in trainer.capsys.readouterr().err
    shutil.rmtree(trainer.run.folder)  # the dataset is the other tests', too


def test_a_run_goes_on_with_the_version_that_it_began_with(
    trainer: Trainer, qwen: Path, tmp_path: Path
) -> None:
    """The dataset is built on meanwhile, with fewer rows."""
    out = write_dataset(tmp_path / "grown")
    grown = Trainer(out, qwen, "one", trainer.capsys)
    settings: dict[str, Any] = {"output__save_steps": 1, "model__tuning": "full"}
    words = grown.words(**settings)
    with pytest.raises(KeyboardInterrupt):
        train(open_version(Folder(str(out))), _config(words), name="one", watcher=interrupt(2))
    keys = grown.run.rows.read_bytes()
    assert run("build", f"rlaif-v:{tmp_path / 'grown-source'}", "--out", out, "--limit", 8) == 0
    assert run(*words, "--version", 2) == 2
    assert "--name" in trainer.capsys.readouterr().err
    tables = sorted((out / "tables").rglob("*.parquet"))
    reference = grown.run.folder / "reference.npz"
    scores = reference.read_bytes()
    reference.unlink()
    code, _, err = grown(**settings)
    assert (code, str(reference) in err, "--name" in err) == (1, True, True)
    reference.write_bytes(scores)
    assert grown(**settings)[0] == 0
    assert grown.run.rows.read_bytes() == keys
    assert grown.run.data()["snapshot"] == 1
    assert sorted((out / "tables").rglob("*.parquet")) == tables


def _config(words: list[str]) -> Any:
    settings = [word for flag, word in pairwise(words) if flag == "--set"]
    return make_config("dpo", settings, model=words[words.index("--model") + 1])


def interrupt(step: int) -> At:
    """Press Ctrl-C twice at a step."""
    return At(step, lambda: [signal.raise_signal(signal.SIGINT) for _ in range(2)])


def test_a_run_without_a_checkpoint_begins_anew(trainer: Trainer) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(
            open_version(Folder(str(trainer.dataset))),
            _config(trainer.words(dpo__beta=0.9)),
            name=trainer.name,
            watcher=interrupt(1),
        )
    assert trainer.run.config() is not None
    assert trainer.run.steps() == []
    assert trainer()[0] == 0
    config = trainer.run.config()
    assert config is not None
    assert config.dpo.beta == 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimiser__per_device_train_batch_size": 0}, "(given: 0)"),
        ({"objective": "cheese"}, "objective: "),
        ({"data__split": "nowhere"}, "split 'nowhere'"),
        ({"model__name": "nowhere/nothing"}, "model.name: nowhere/nothing"),
        ({"objective": "adpo", "adpo__encoder": "clip4idc"}, "embedding.clip: "),
    ],
)
def test_wrong_settings(
    settings: dict[str, Any],
    message: str,
    trainer: Trainer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    settings = dict(settings)
    if "model__name" in settings:
        trainer.model = settings.pop("model__name")
    code, _, err = trainer(settings.pop("objective", "dpo"), **settings)
    assert code == 2
    assert message in err
    assert not trainer.run.config()


def test_no_rejected_side(trainer: Trainer, tmp_path: Path) -> None:
    """Other builds leave a preference without one where nothing could be rejected; here, the column
    is emptied."""
    out = write_dataset(tmp_path / "same")
    fill_column(out, "preferences", "rejected", "")
    same = Trainer(out, trainer.model, "same", trainer.capsys)
    code, _, err = same("dpo")
    assert code == 2
    assert f"no rejected side ({ROWS})" in err
    assert same("sft")[0] == 0, "which needs none"


def test_memory_that_does_not_suffice(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does until the fourth step, and then not even to go on; there is a checkpoint of the
    second step."""
    step, steps = PreferenceTrainer.training_step, list[int]()

    def take(*_: Any, **__: Any) -> Any:
        return torch.empty(2**50)  # 4 PB

    def grow(self: PreferenceTrainer, *words: Any, **named: Any) -> Any:
        steps.append(1)
        return take() if len(steps) == 4 else step(self, *words, **named)

    monkeypatch.setattr(PreferenceTrainer, "training_step", grow)
    code, _, err = trainer("sft")
    assert code == 1
    assert "out of memory" in err
    assert (
        "--set optimiser.per_device_train_batch_size=1 --set "
        "optimiser.gradient_accumulation_steps=2"
    ) in err
    assert "--name" in err
    assert trainer.run.steps() == [2]
    assert trainer.run.metrics.exists(), "the page shows how it came to that"
    monkeypatch.undo()
    with monkeypatch.context() as full:
        full.setattr("transformers.Trainer._load_from_checkpoint", take)
        code, _, err = trainer("sft")
    assert (code, "out of memory" in err) == (1, True)
    assert trainer("sft")[0] == 0


def test_a_model_that_fits_no_gpu_is_refused_before_it_is_loaded(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "said").write_text("0, GPU-0, 1024\n")
    monkeypatch.setattr(gpu_memory, "ASK", ("cat", str(tmp_path / "said")))
    with monkeypatch.context() as context:
        context.setattr(load_model, "load_plain", None)
        context.setattr(preference_objective, "count_gpus", lambda: 1)
        code, _, err = trainer("sft")
    assert (code, trainer.run.config()) == (2, None)
    assert "and the smallest has 1.1. Try --set optimiser.per_device_train_batch_size=" in err


def test_rows_that_namc_cannot_learn_from(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are about one image each: it says so before models look at the images, and leaves no
    run."""
    monkeypatch.setattr(
        "pairwright.tasks.training.namc.namc_objective.pin_models", lambda config, *_, **__: config
    )
    for size in ("small", "paper"):
        assert (
            run(
                "train",
                trainer.dataset,
                "--objective",
                "namc",
                "--size",
                size,
                "--name",
                trainer.name,
            )
            == 2
        )
        said = f"not about two images ({ROWS})"
        assert said in trainer.capsys.readouterr().err
        assert not (trainer.run.folder / "config.yaml").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order_and_the_same_command_goes_on(
    number: int, trainer: Trainer
) -> None:
    words = trainer.words(optimiser__max_steps=400, data__max_train_rows=0, output__save_steps=1000)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [BIN / "pairwright", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "step 3/400" in line:
            process.send_signal(number)
            break
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    (step,) = trainer.run.steps()
    assert f"step {step} of 400" in err
    assert "Traceback" not in err
    assert (trainer.run.folder / "report/index.html").exists()
    with pytest.raises(KeyboardInterrupt):
        train(
            open_version(Folder(str(trainer.dataset))),
            _config(words),
            name=trainer.name,
            watcher=interrupt(step + 2),
        )
    rows = pq.read_table(trainer.run.metrics).to_pylist()
    steps = [row["step"] for row in rows if (row["name"], row["split"]) == ("loss", "train")]
    assert steps == [*range(1, step + 1)]
