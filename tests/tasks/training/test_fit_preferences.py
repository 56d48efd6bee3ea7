"""Whole trainings on a tiny model: how the loss goes, how they go on, what stops them."""

import json
import os
import resource
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import Trainer

from pairwright.schemas.errors import ModelError, StoreError, TrainingError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.manifest import MANIFEST
from pairwright.tasks.training import fit_preferences, preference_trainer
from pairwright.tasks.training.check_environment import explain_out_of_memory
from pairwright.tasks.training.estimate_memory import need_less, need_smaller_batch
from pairwright.tasks.training.fit_preferences import fit_preferences as train
from pairwright.tasks.training.fit_preferences import make_trainer
from pairwright.tasks.training.load_model import freeze_model, load_model
from pairwright.tasks.training.preference_trainer import PreferenceTrainer
from pairwright.tasks.training.runs import HELD_OUT, REFERENCE, TRAIN, Run
from pairwright.tasks.training.score_answers import Copy
from tests.fixtures.families_of_models import write_qwen2_vl
from tests.fixtures.preferences_to_train import CHOSEN
from tests.fixtures.retrievers_to_train import LIVELY, write_adpo_run
from tests.fixtures.runs_to_train import (
    PART,
    TABLE,
    At,
    curve,
    logged,
    preferences,
    settings,
    write_run,
)

pytestmark = pytest.mark.usefixtures("no_samples")
WEIGHTS = "model.safetensors"
SPARSE: dict[str, Any] = {"data": {"eval_split": ""}, "output": {"save_steps": 100}}
"""For trainings of which only the curve matters."""
FULL = {"tuning": "full"}


def test_what_is_private_to_the_trainer_and_ours_has_its_parameters() -> None:
    """Of the installed release: a name that it comes to use, or a parameter more, is seen here
    first."""
    own = {name: one for name, one in vars(PreferenceTrainer).items() if name[0] == "_" != name[1]}
    shared = {name: getattr(Trainer, name) for name in own if hasattr(Trainer, name)}
    assert shared.keys() == {"_save_checkpoint", "_save", "_clip_grad_norm"}
    for name, theirs in shared.items():
        assert list(signature(own[name]).parameters) == list(signature(theirs).parameters)


@pytest.mark.parametrize(
    ("objective", "names"), [("dpo", ("loss", "logp/chosen", "grad_norm")), ("sft", ("grad_norm",))]
)
def test_small_batches_are_one_large(
    objective: str, names: Sequence[str], qwen: Path, tmp_path: Path
) -> None:
    """Also in the last step of an epoch, which has three rows: of 11, four by four. SFT's means are
    over tokens."""
    curves: list[list[float]] = []
    for batch, accumulate in ((4, 1), (1, 4)):
        optimiser = {
            "per_device_train_batch_size": batch,
            "gradient_accumulation_steps": accumulate,
            "max_steps": 5,
        }
        job = write_run(
            tmp_path, settings(objective, qwen, optimiser=optimiser, **SPARSE), name=f"run{batch}"
        )
        train(job)
        curves.append([value for name in names for value in curve(job.run, name)])
    assert curves[1] == pytest.approx(curves[0], rel=5e-4)


def test_a_finished_run(qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a model that from_pretrained loads, samples, metrics of each step, and its latest
    checkpoints."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    monkeypatch.undo()
    job = write_run(
        tmp_path, settings("dpo", qwen, output={"eval_steps": 3, "merge_adapters": True})
    )
    ended = train(job)
    assert (ended.step, ended.steps, ended.finished, job.run.is_finished) == (6, 6, True, True)
    assert job.run.steps() == [4, 6]
    assert {path.name for path in job.run.folder.glob(".*")} <= {".lock"}
    steps = Counter((entry[0], entry[2]) for entry in logged(job.run) if entry[3] == "loss")
    assert steps == {
        **{(n, TRAIN): 1 for n in range(1, 7)},
        **{(n, HELD_OUT): 1 for n in (0, 3, 6)},
    }
    assert {"accuracy", "grad_norm", "learning_rate", "margin"} <= {
        entry[3] for entry in logged(job.run)
    }
    (first, *_) = (
        json.loads(line)
        for line in (job.run.folder / "samples/samples.jsonl").read_text().splitlines()
    )
    assert (first["reference"], first["prompt"]) == (CHOSEN[11 % len(CHOSEN)], "What differs?")
    assert len(first["images"]) == 2
    assert not (job.run.model / "training_args.bin").exists()
    before, after = (
        AutoModelForImageTextToText.from_pretrained(folder).state_dict()
        for folder in (qwen, job.run.model)
    )
    assert before.keys() == after.keys()
    assert any((before[name] != after[name]).any() for name in before)
    assert AutoProcessor.from_pretrained(job.run.model).chat_template


def test_a_run_of_full_tuning_goes_on_from_its_checkpoint(qwen: Path, tmp_path: Path) -> None:
    config = settings("sft", qwen, model={"tuning": "full", "train_vision": True})
    whole, stopped = (write_run(tmp_path / name, config) for name in ("whole", "stopped"))
    train(whole)
    train(stopped)
    shutil.rmtree(stopped.run.model)
    shutil.rmtree(stopped.run.checkpoints / "checkpoint-6")
    assert stopped.run.steps() == [4]
    assert train(stopped).finished
    assert curve(stopped.run) == curve(whole.run)
    assert (stopped.run.model / WEIGHTS).read_bytes() == (whole.run.model / WEIGHTS).read_bytes()
    published = set(safe_open(qwen / WEIGHTS, "pt").keys())
    assert set(safe_open(whole.run.model / WEIGHTS, "pt").keys()) == published


def test_a_table_and_a_copy_of_the_reference_train_alike(
    qwen: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    config = settings("adavip", qwen, model=FULL, sft_weight=0)
    table, copy = (write_run(tmp_path / name, config) for name in ("table", "copy"))
    train(table)
    frozen = Copy(freeze_model(load_model(qwen, config.model, dtype=torch.float32), torch.float32))
    monkeypatch.setattr(fit_preferences, "open_reference", lambda *_: frozen)
    train(copy)
    assert [(job.run.folder / REFERENCE).exists() for job in (table, copy)] == [True, False]
    for split in (TRAIN, HELD_OUT):
        for name in ("loss", "margin", "margin/image"):
            assert curve(table.run, name, split) == pytest.approx(
                curve(copy.run, name, split), rel=1e-5, abs=5e-5
            )
    assert len(set(curve(table.run))) > 3, "it learns"


def test_a_run_killed_before_its_model_was_written_trains_no_step_more(
    qwen: Path, tmp_path: Path
) -> None:
    """Six steps are one more than an epoch of 11 rows has: the run ends within an epoch."""
    job = write_run(tmp_path, settings("dpo", qwen, optimiser={"max_steps": 4}))
    train(job)
    before = logged(job.run)
    shutil.rmtree(job.run.model)
    assert train(job).step == 4
    assert job.run.is_finished
    assert logged(job.run) == before


def test_a_run_stopped_in_its_last_measurement_is_measured_by_who_goes_on(
    qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_run(tmp_path, settings("dpo", qwen, optimiser={"max_steps": 2}))
    measure = PreferenceTrainer._loss

    def interrupted(trainer: PreferenceTrainer, *args: Any, **words: Any) -> Any:
        if trainer.state.global_step == 2 and not trainer.stopping:
            os.kill(os.getpid(), signal.SIGINT)
        return measure(trainer, *args, **words)

    monkeypatch.setattr(PreferenceTrainer, "_loss", interrupted)
    ended = train(job)
    assert (ended.finished, job.run.is_finished, job.run.steps()) == (False, False, [2])
    monkeypatch.undo()
    assert train(job).finished
    assert [
        step for step, _, split, name, _ in logged(job.run) if (split, name) == (HELD_OUT, "loss")
    ] == [0, 2]


def test_bad_rows_are_named_once_and_the_others_keep_their_order(
    qwen: Path, tmp_path: Path
) -> None:
    rows = preferences()
    bad = {
        1: replace(rows[1], images=(b"no image",) * len(rows[1].images)),
        4: replace(rows[4], chosen="long " * 3000),
        7: replace(rows[7], prompt=(replace(rows[7].prompt[0], text="<image>" * 3 + "What?"),)),
    }
    mixed = [bad.get(place, row) for place, row in enumerate(rows)]
    job = write_run(
        tmp_path,
        settings(
            "dpo", qwen, optimiser={"per_device_train_batch_size": 1, "max_steps": 22}, **SPARSE
        ),
        rows=mixed,
    )
    train(job)
    lines = [json.loads(line) for line in job.run.refused.read_text().splitlines()]
    assert {line["key"]: line["reason"] for line in lines} == {
        rows[1].key: "an image cannot be decoded",
        rows[4].key: "too long",
        rows[7].key: "images do not match the prompt",
    }
    assert len(lines) == 3
    assert len(curve(job.run)) == 22 - 2 * 3, "a step without rows is not logged"


def test_a_training_of_which_all_rows_are_refused_ends(qwen: Path, tmp_path: Path) -> None:
    config = settings("dpo", qwen, data={"eval_split": ""})
    short = config.model_copy(update={"model": config.model.model_copy(update={"max_length": 16})})
    job = write_run(tmp_path, short)
    with pytest.raises(TrainingError, match=r"\b11 rows .*\(11\): .* 16\b"):
        train(job)


def test_a_run_that_unlearns_the_chosen_texts_stops_with_a_checkpoint(
    qwen: Path, tmp_path: Path
) -> None:
    """A rate that is far too high, and nothing that holds the texts just learnt; it may go on all
    the same."""
    learnt = write_run(
        tmp_path / "learnt",
        settings("sft", qwen, model=FULL, optimiser={"learning_rate": 5e-3, "max_steps": 30}),
    )
    train(learnt)
    wild = {"learning_rate": 0.02, "warmup_ratio": 0.0, "max_steps": 8}
    free = {"eval_steps": 4, "alarms": "stop"}
    config = settings(
        "dpo", learnt.run.model, model=FULL, optimiser=wild, output=free, sft_weight=0
    )
    job = write_run(tmp_path / "wild", config)
    with pytest.raises(
        TrainingError,
        match=r"stopped at step 4: the model forgets the held-out chosen texts.*sft_weight",
    ):
        train(job)
    assert job.run.steps()[-1] == 4
    assert not job.run.is_finished
    assert train(replace(job, config=settings_with(config, alarms="log"))).finished


def settings_with(config: TrainConfig, **output: Any) -> TrainConfig:
    return config.model_copy(update={"output": config.output.model_copy(update=output)})


def test_a_loss_that_is_no_number_names_step_and_rows(
    qwen: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """A model whose weights overflow is not to be had at a certain step: the loss is made NaN at
    the fourth."""
    steps: list[list[str]] = []
    whole = preference_trainer.PreferenceTrainer._loss

    def poisoned(self, model, batch, config, *, adversary=None):
        loss, learned = whole(self, model, batch, config, adversary=adversary)
        steps.append(batch.keys)
        return (
            replace(loss, value=loss.value * float("nan")) if len(steps) == 4 else loss
        ), learned

    monkeypatch.setattr(preference_trainer.PreferenceTrainer, "_loss", poisoned)
    job = write_run(
        tmp_path, settings("dpo", qwen, data={"eval_split": ""}, output={"save_steps": 2})
    )
    with pytest.raises(TrainingError, match=r"step 4: .*nan") as error:
        train(job)
    assert ", ".join(steps[3]) in str(error.value)
    assert "checkpoint-2" in str(error.value)
    assert len(curve(job.run)) == 3, "also what was logged since"
    assert job.run.steps() == [2]


def test_gradients_that_are_no_numbers_do_not_reach_the_weights(qwen: Path, tmp_path: Path) -> None:
    job = write_run(
        tmp_path, settings("sft", qwen, output={"save_steps": 1}, data={"eval_split": ""})
    )
    trainer = make_trainer(job)
    spoil = trainer.model.get_input_embeddings().weight

    def overflow(grad: torch.Tensor) -> torch.Tensor:
        return torch.full_like(grad, float("inf")) if trainer.state.global_step == 2 else grad

    next(one for one in trainer.model.parameters() if one.requires_grad).register_hook(overflow)
    with pytest.raises(TrainingError, match=r"step 3: .*(inf|nan)"):
        trainer.train()
    assert job.run.steps() == [1, 2]
    assert spoil.isfinite().all()


def test_a_part_that_is_damaged_below_a_run(qwen: Path, tmp_path: Path) -> None:
    job = write_run(tmp_path, settings("dpo", qwen))
    part = tmp_path / TABLE / PART
    data = bytearray(part.read_bytes())
    for place in range(len(data) // 4, len(data) // 2):
        data[place] ^= 1
    part.write_bytes(data)
    with pytest.raises(StoreError, match=PART):
        train(job)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of ADPO, all weights trained, with two checkpoints and no finished
    model."""
    root = tmp_path_factory.mktemp("stopped")
    values: dict[str, Any] = {
        "model": FULL,
        "adpo": LIVELY,
        "optimiser": {"max_steps": 4},
        "data": {"eval_split": ""},
    }
    job = write_adpo_run(root, settings("adpo", write_qwen2_vl(root / "qwen"), **values))
    train(job)
    shutil.rmtree(job.run.model)
    return job.run.folder


@pytest.mark.parametrize(
    "name",
    [
        WEIGHTS,
        "optimizer.pt",
        "scheduler.pt",
        "retriever.pt",
        "rng_state.pth",
        "trainer_state.json",
    ],
)
def test_eight_flipped_bytes_of_a_checkpoint(name: str, stopped: Path, tmp_path: Path) -> None:
    run = Run(Path(shutil.copytree(stopped, tmp_path / "run")))
    path = run.checkpoint(4) / name
    whole, half = path.read_bytes(), path.stat().st_size // 2
    path.write_bytes(
        whole[:half] + bytes(byte ^ 255 for byte in whole[half : half + 8]) + whole[half + 8 :]
    )
    after = rf"Delete {run.checkpoint(4)} to resume from the previous one, or give another --name"
    with pytest.raises(ModelError, match=rf"^{path}: is damaged.*\. {after}"):
        run.check_latest()
    path.write_bytes(whole[:-1])
    with pytest.raises(
        ModelError,
        match=rf"^{path}: is damaged: its {len(whole) - 1:,} bytes .* {len(whole):,} .*\. {after}",
    ):
        run.check_latest()
    path.unlink()
    with pytest.raises(ModelError, match=rf"^{path}: is missing\. {after}"):
        run.check_latest()
    path.write_bytes(whole)
    run.check_latest()
    shutil.rmtree(run.checkpoint(2))
    (run.checkpoint(4) / MANIFEST).unlink()
    with pytest.raises(
        ModelError, match=r"checkpoint-4: has no manifest.* Delete .* to start over"
    ):
        run.check_latest()


def fill(step: int, most: int) -> At:
    """Let no file of this process grow beyond a size, from a step on: what a full disk does to
    large files."""
    return At(
        step, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    )


@pytest.fixture
def _room() -> Any:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("_room")
@pytest.mark.parametrize("file", ["adapter_model.safetensors", "optimizer.pt"])
def test_a_disk_that_is_full_while_a_checkpoint_is_written(
    file: str, qwen: Path, tmp_path: Path
) -> None:
    """PyTorch and safetensors each have their own words for it."""
    job = write_run(
        tmp_path, settings("dpo", qwen, data={"eval_split": ""}, output={"save_steps": 1})
    )
    train(
        replace(
            job, config=settings("dpo", qwen, optimiser={"max_steps": 1}, output={"save_steps": 1})
        )
    )
    most = (job.run.checkpoint(1) / file).stat().st_size - 100
    job = write_run(tmp_path, job.config, name="full")
    with pytest.raises(TrainingError, match=r"checkpoint-4 .*checkpoint-3"):
        train(replace(job, watcher=fill(4, most)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert job.run.steps() == [2, 3]
    assert not (job.run.folder / ".saving").exists()
    assert train(job).finished


@pytest.mark.usefixtures("_room")
def test_a_disk_that_is_full_while_the_finished_model_is_written(
    qwen: Path, tmp_path: Path
) -> None:
    config = settings("dpo", qwen, output={"merge_adapters": True}, optimiser={"max_steps": 2})
    job = write_run(tmp_path, config)
    most = (job.start / "model.safetensors").stat().st_size // 2
    with pytest.raises(TrainingError, match=str(job.run.folder)):
        train(replace(job, watcher=fill(2, most)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert (job.run.steps(), job.run.is_finished) == ([2], False)
    assert train(job).finished
    assert (job.run.model / "model.safetensors").exists()


FAR_TOO_MUCH = 2**50
"""Numbers; no machine has 4 PB."""


def take(*_: Any, **__: Any) -> Any:
    return torch.empty(FAR_TOO_MUCH)


SIZE, STEPS = "optimiser.per_device_train_batch_size", "optimiser.gradient_accumulation_steps"


@pytest.mark.parametrize(
    ("need", "values", "advice"),
    [
        (
            need_less,
            {
                "objective": "dpo",
                "optimiser": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 3},
            },
            f"--set {SIZE}=4 --set {STEPS}=6, or "
            "--set optimiser.gradient_checkpointing=true, or --set model.load_in_4bit=true (with "
            "LoRA), or "
            "--set model.max_pixels=100352",
        ),
        (
            need_smaller_batch,
            {"objective": "namc", "optimiser": {"per_device_train_batch_size": 1}},
            "a smaller model",
        ),
    ],
)
def test_what_helps(
    need: Callable[[TrainConfig], str], values: dict[str, Any], advice: str, tmp_path: Path
) -> None:
    config = TrainConfig.model_validate(values)
    with (
        pytest.raises(TrainingError) as caught,
        explain_out_of_memory(Run(tmp_path), lambda: need(config)),
    ):
        take()
    assert str(caught.value).endswith(advice)


def test_a_run_with_a_checkpoint_keeps_its_settings(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "checkpoint-2").mkdir(parents=True)
    config = TrainConfig.model_validate({"objective": "namc"})
    with (
        pytest.raises(TrainingError, match="--name"),
        explain_out_of_memory(Run(tmp_path), lambda: need_smaller_batch(config)),
    ):
        take()
