"""Whole trainings on a tiny model: how the loss goes, how they go on, what stops them."""

import os
import resource
import shutil
import signal
from collections import Counter
from dataclasses import replace
from inspect import signature
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText, AutoProcessor, Trainer

from pairwright.schemas.errors import ModelError, StoreError, TrainingError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.manifest import MANIFEST
from pairwright.tasks.training import fit_preferences
from pairwright.tasks.training.check_environment import explain_out_of_memory
from pairwright.tasks.training.estimate_memory import need_less, need_smaller_batch
from pairwright.tasks.training.fit_preferences import fit_preferences as train
from pairwright.tasks.training.image_size import read_max_pixels
from pairwright.tasks.training.load_model import freeze_model, load_model
from pairwright.tasks.training.preference_trainer import PreferenceTrainer
from pairwright.tasks.training.runs import HELD_OUT, REFERENCE, TRAIN, Run
from pairwright.tasks.training.score_answers import Copy
from tests.fixtures.preferences_to_train import CHOSEN
from tests.fixtures.retrievers_to_train import LIVELY, write_adpo_run
from tests.fixtures.runs_to_train import (
    PART,
    TABLE,
    At,
    curve,
    flip,
    logged,
    preferences,
    read_lines,
    settings,
    train_run,
    write_run,
)

WEIGHTS = "model.safetensors"
NOT_HELD_OUT = {"data": {"eval_split": ""}}
SPARSE = NOT_HELD_OUT | {"output": {"save_steps": 100}}
"""For trainings of which only the curve matters."""
FULL = {"tuning": "full"}
quick = pytest.mark.usefixtures("no_samples")


@pytest.fixture(scope="module")
def finished(qwen, tmp_path_factory):
    """Return a finished run of three steps with everything that it leaves."""
    output = {"eval_steps": 2, "save_steps": 1, "merge_adapters": True}
    config = settings("dpo", qwen, output=output, optimiser={"max_steps": 3})
    return train_run(tmp_path_factory.mktemp("finished"), config)


def copy_of(job, root):
    """Return a copy of a run, which a test may change."""
    shutil.copytree(Path(job.dataset.path("")), root, dirs_exist_ok=True)
    return replace(job, run=Run(root / "runs" / job.run.folder.name))


def test_what_is_private_to_the_trainer_and_ours_has_its_parameters():
    """Of the installed release: a name that it comes to use, or a parameter more, shows here."""
    ours = {
        name: item for name, item in vars(PreferenceTrainer).items() if name[0] == "_" != name[1]
    }
    theirs = {name: getattr(Trainer, name) for name in ours if hasattr(Trainer, name)}
    assert theirs.keys() == {"_save_checkpoint", "_save", "_clip_grad_norm"}
    for name, method in theirs.items():
        assert list(signature(ours[name]).parameters) == list(signature(method).parameters)


@quick
@pytest.mark.parametrize(
    ("objective", "names"), [("dpo", ("loss", "logp/chosen", "grad_norm")), ("sft", ("grad_norm",))]
)
def test_small_batches_are_one_large(objective, names, qwen, tmp_path):
    """Also in the last step of an epoch: of 11 rows, four by four. SFT's means are over tokens."""
    curves = []
    for batch in (4, 1):
        optimiser = {"per_device_train_batch_size": batch, "max_steps": 3}
        optimiser["gradient_accumulation_steps"] = 4 // batch
        config = settings(objective, qwen, optimiser=optimiser, **SPARSE)
        run = train_run(tmp_path, config, name=f"run{batch}").run
        curves.append([value for name in names for value in curve(run, name)])
    assert curves[1] == pytest.approx(curves[0], rel=5e-4)


def test_a_finished_run_has_its_latest_checkpoints_and_metrics(finished):
    run = finished.run
    assert run.is_finished
    assert run.steps() == [2, 3]
    assert {path.name for path in run.folder.glob(".*")} <= {".lock"}
    steps = Counter((entry[2], entry[0]) for entry in logged(run) if entry[3] == "loss")
    train_steps, held_out = ({(TRAIN, n) for n in (1, 2, 3)}, {(HELD_OUT, n) for n in (0, 2, 3)})
    assert steps == Counter(train_steps | held_out)
    names = {entry[3] for entry in logged(run)}
    assert {"accuracy", "grad_norm", "learning_rate", "margin"} <= names
    sample = read_lines(run.folder / "samples/samples.jsonl")[0]
    assert (sample["reference"], sample["prompt"]) == (CHOSEN[11 % len(CHOSEN)], "What differs?")
    assert len(sample["images"]) == 2


def test_a_training_changes_no_other_settings(finished, qwen):
    names = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
    for name in (*names, "chat_template.jinja"):
        assert (finished.run.model / name).read_bytes() == (qwen / name).read_bytes(), name


def test_a_finished_model_keeps_the_size_of_its_images(finished):
    folder = finished.run.model
    images = AutoProcessor.from_pretrained(folder).image_processor
    assert images.size["longest_edge"] == 448 * 448
    assert read_max_pixels(folder) == 448 * 448
    assert "at most 200,704 pixels" in (folder / "README.md").read_text()


def test_a_finished_model_is_loaded_by_transformers(finished):
    folder = finished.run.model
    assert not (folder / "training_args.bin").exists()
    before, after = (
        AutoModelForImageTextToText.from_pretrained(each).state_dict()
        for each in (finished.start, folder)
    )
    assert before.keys() == after.keys()
    assert any((before[name] != after[name]).any() for name in before)
    assert AutoProcessor.from_pretrained(folder).chat_template


@quick
def test_arguments_of_the_template_are_the_finished_models_defaults(checkpoint, tmp_path):
    model = {"template_kwargs": {"enable_thinking": False}}
    config = settings("sft", checkpoint("qwen3_5"), model=model, optimiser={"max_steps": 1})
    processor = AutoProcessor.from_pretrained(train_run(tmp_path, config).run.model)
    question = [{"role": "user", "content": [{"type": "text", "text": "What is new?"}]}]
    prompts = [
        processor.apply_chat_template(question, add_generation_prompt=True, **arguments)
        for arguments in ({}, {"enable_thinking": True})
    ]
    assert prompts[0].endswith("<think>\n\n</think>\n\n")
    assert prompts[1].endswith("assistant\n<think>\n")


@quick
def test_a_run_of_full_tuning_goes_on_from_its_checkpoint(qwen, tmp_path):
    model, optimiser = FULL | {"train_vision": True}, {"max_steps": 4}
    whole = train_run(tmp_path / "whole", settings("sft", qwen, model=model, optimiser=optimiser))
    stopped = copy_of(whole, tmp_path / "stopped")
    shutil.rmtree(stopped.run.model)
    shutil.rmtree(stopped.run.checkpoint(4))
    assert stopped.run.steps() == [2]
    assert train(stopped).finished
    assert curve(stopped.run) == curve(whole.run)
    assert (stopped.run.model / WEIGHTS).read_bytes() == (whole.run.model / WEIGHTS).read_bytes()
    published, saved = (
        set(safe_open(folder / WEIGHTS, "pt").keys()) for folder in (qwen, whole.run.model)
    )
    assert saved == published


@quick
def test_a_table_and_a_copy_of_the_reference_train_alike(qwen, tmp_path, monkeypatch):
    config = settings("adavip", qwen, model=FULL, sft_weight=0, optimiser={"max_steps": 4})
    table = train_run(tmp_path / "table", config).run
    frozen = Copy(freeze_model(load_model(qwen, config.model, dtype=torch.float32), torch.float32))
    monkeypatch.setattr(fit_preferences, "open_reference", lambda *_: frozen)
    copy = train_run(tmp_path / "copy", config).run
    assert [(run.folder / REFERENCE).exists() for run in (table, copy)] == [True, False]
    for split in (TRAIN, HELD_OUT):
        for name in ("loss", "margin", "margin/image"):
            expected = pytest.approx(curve(copy, name, split), rel=1e-5, abs=5e-5)
            assert curve(table, name, split) == expected
    assert len(set(curve(table))) == 4, "it learns"


def train_from(root, name, config, revision):
    """Train a run of a dataset whose record names its start model, and return it."""
    job = write_run(root, config, name=name)
    job.run.record_start(config, {"processes": 1, "start": {"revision": revision}}, [])
    assert train(job).finished
    return job.run


@quick
@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_a_sweep_scores_the_reference_once(tuning, qwen, tmp_path, caplog):
    """Runs with another rate or beta read the scores of the first; another model has its own."""
    caplog.set_level("INFO")
    model = {"tuning": tuning, "reference": "scores"}
    values = {"model": model, "optimiser": {"max_steps": 2}, "output": {"save_steps": 100}}
    config = settings("dpo", qwen, **values)
    sweep = settings("dpo", qwen, dpo={"beta": 0.5}, **values)
    small = settings("dpo", qwen, **values | {"model": {**model, "max_pixels": 784}})
    first = train_from(tmp_path, "one", config, "a" * 40)
    assert "the initial model scores all answers once" in caplog.text
    caplog.clear()
    second = train_from(tmp_path, "two", sweep, "a" * 40)
    assert "the initial model scores all answers once" not in caplog.text
    assert (first.folder / REFERENCE).read_bytes() == (second.folder / REFERENCE).read_bytes()
    assert len(list((tmp_path / "references").iterdir())) == 1
    train_from(tmp_path, "three", sweep, "b" * 40)
    train_from(tmp_path, "four", small, "a" * 40)
    assert len(list((tmp_path / "references").iterdir())) == 3


@quick
def test_adapters_train_alike_with_scores_and_without(qwen, tmp_path):
    values = {"optimiser": {"max_steps": 4}, "output": {"save_steps": 100}}
    each_step = train_run(tmp_path / "a", settings("adavip", qwen, **values)).run
    config = settings("adavip", qwen, model={"reference": "scores"}, **values)
    once = train_run(tmp_path / "b", config).run
    for name in ("loss", "margin", "margin/image"):
        assert curve(once, name) == pytest.approx(curve(each_step, name), rel=1e-5, abs=5e-5)


@quick
def test_a_run_killed_before_its_model_was_written_trains_no_more(finished, tmp_path):
    job = copy_of(finished, tmp_path)
    shutil.rmtree(job.run.model)
    ended = train(job)
    assert (ended.step, ended.steps, ended.finished) == (3, 3, True)
    assert job.run.is_finished
    assert logged(job.run) == logged(finished.run)


@quick
def test_who_goes_on_measures_what_was_stopped(qwen, tmp_path, monkeypatch):
    job = write_run(tmp_path, settings("dpo", qwen, optimiser={"max_steps": 2}))
    measure = PreferenceTrainer._loss

    def interrupted(trainer, *args, **words):
        if trainer.state.global_step == 2 and not trainer.stopping:
            os.kill(os.getpid(), signal.SIGINT)
        return measure(trainer, *args, **words)

    with monkeypatch.context() as patch:
        patch.setattr(PreferenceTrainer, "_loss", interrupted)
        assert not train(job).finished
    assert (job.run.is_finished, job.run.steps()) == (False, [2])
    assert train(job).finished
    measured = [entry[0] for entry in logged(job.run) if entry[2:4] == (HELD_OUT, "loss")]
    assert measured == [0, 2]


@quick
def test_bad_rows_are_named_once_and_the_others_are_learnt(qwen, tmp_path):
    rows = preferences(5, held_out=0)
    rows[1] = replace(rows[1], images=(b"no image",) * len(rows[1].images))
    rows[2] = replace(rows[2], chosen="long " * 3000)
    rows[4] = replace(rows[4], prompt=(replace(rows[4].prompt[0], text="<image>" * 3 + "What?"),))
    two_epochs = {"per_device_train_batch_size": 1, "max_steps": 10}
    job = train_run(tmp_path, settings("dpo", qwen, optimiser=two_epochs, **SPARSE), rows=rows)
    lines = sorted((line["key"], line["reason"]) for line in read_lines(job.run.refused))
    reasons = {1: "an image cannot be decoded", 2: "too long", 4: "images do not match the prompt"}
    assert lines == sorted((rows[position].key, reason) for position, reason in reasons.items())
    assert len(curve(job.run)) == 10 - 2 * 3, "a step without rows is not logged"


@quick
def test_a_training_of_which_all_rows_are_refused_ends(qwen, tmp_path):
    job = write_run(tmp_path, settings("dpo", qwen, model={"max_length": 16}, **NOT_HELD_OUT))
    with pytest.raises(TrainingError, match=r"\b11 rows .*\(11\): .* 16\b"):
        train(job)


@quick
def test_a_run_that_unlearns_the_chosen_texts_stops(qwen, tmp_path):
    """A rate that is far too high, and nothing that holds what was just learnt; it may go on."""
    fast = {"learning_rate": 5e-3, "max_steps": 30}
    learnt = train_run(
        tmp_path / "learnt", settings("sft", qwen, model=FULL, optimiser=fast, **SPARSE)
    )
    wild = {"learning_rate": 0.02, "warmup_ratio": 0.0, "max_steps": 5}
    free = {"model": FULL, "optimiser": wild, "sft_weight": 0}
    stopping, going_on = (
        settings("dpo", learnt.run.model, output={"eval_steps": 4, "alarms": alarms}, **free)
        for alarms in ("stop", "log")
    )
    job = write_run(tmp_path / "wild", stopping)
    with pytest.raises(TrainingError, match=r"step 4: .*held-out chosen texts.*sft_weight"):
        train(job)
    assert job.run.steps()[-1] == 4
    assert not job.run.is_finished
    assert train(replace(job, config=going_on)).finished


@quick
def test_a_loss_that_is_no_number_names_step_and_rows(qwen, tmp_path, monkeypatch):
    """No model's weights overflow at a certain step: the loss is made NaN at the third."""
    batches = []
    whole = PreferenceTrainer._loss

    def poisoned(self, model, batch, config, *, adversary=None):
        loss, learned = whole(self, model, batch, config, adversary=adversary)
        batches.append(batch.keys)
        factor = float("nan") if len(batches) == 3 else 1
        return replace(loss, value=loss.value * factor), learned

    monkeypatch.setattr(PreferenceTrainer, "_loss", poisoned)
    job = write_run(tmp_path, settings("dpo", qwen, **NOT_HELD_OUT))
    with pytest.raises(TrainingError, match=r"step 3: .*nan") as error:
        train(job)
    assert ", ".join(batches[2]) in str(error.value)
    assert "checkpoint-2" in str(error.value)
    assert len(curve(job.run)) == 2, "also what was logged since"
    assert job.run.steps() == [2]


@quick
@pytest.mark.parametrize("is_broken", [True, False])
def test_a_first_step_that_is_no_number_is_no_learning_rate(
    is_broken, folder, tmp_path, monkeypatch
):
    if is_broken:
        weights = load_file(folder / WEIGHTS)
        name = next(name for name in weights if name.endswith("mlp.up_proj.weight"))
        weights[name][0, 0] = float("nan")
        save_file(weights, folder / WEIGHTS, {"format": "pt"})
    else:
        whole = PreferenceTrainer._loss

        def poisoned(self, *args, **words):
            loss, learned = whole(self, *args, **words)
            return replace(loss, value=loss.value * float("nan")), learned

        monkeypatch.setattr(PreferenceTrainer, "_loss", poisoned)
    job = write_run(tmp_path / "run", settings("sft", folder, **NOT_HELD_OUT))
    with pytest.raises(TrainingError, match=r"step 1: .*nan") as error:
        train(job)
    advice = str(error.value)
    assert "learning rate" not in advice
    assert ("1 weights with NaN" in advice) == is_broken
    assert ("up_proj" in advice) == is_broken


@quick
def test_gradients_that_are_no_numbers_do_not_reach_the_weights(qwen, tmp_path):
    job = write_run(tmp_path, settings("sft", qwen, output={"save_steps": 1}, **NOT_HELD_OUT))
    trainer = fit_preferences.make_trainer(job)
    embeddings = trainer.model.get_input_embeddings().weight

    def overflow(grad):
        return torch.full_like(grad, float("inf")) if trainer.state.global_step == 1 else grad

    next(item for item in trainer.model.parameters() if item.requires_grad).register_hook(overflow)
    with pytest.raises(TrainingError, match=r"step 2: .*(inf|nan)"):
        trainer.train()
    assert job.run.steps() == [1]
    assert embeddings.isfinite().all()


@quick
def test_a_part_that_is_damaged_below_a_run(qwen, tmp_path):
    job = write_run(tmp_path, settings("dpo", qwen))
    part = tmp_path / TABLE / PART
    data = bytearray(part.read_bytes())
    for position in range(len(data) // 4, len(data) // 2):
        data[position] ^= 1
    part.write_bytes(data)
    with pytest.raises(StoreError, match=PART):
        train(job)


@pytest.fixture(scope="module")
def stopped(qwen, tmp_path_factory):
    """Return a run of ADPO, all weights trained, with two checkpoints and no finished model."""
    values = {"model": FULL, "adpo": LIVELY, "optimiser": {"max_steps": 2}, **NOT_HELD_OUT}
    config = settings("adpo", qwen, output={"save_steps": 1}, **values)
    job = write_adpo_run(tmp_path_factory.mktemp("stopped"), config)
    train(job)
    shutil.rmtree(job.run.model)
    return job


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


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
@pytest.mark.parametrize(
    ("damage", "what"),
    [(flip, "is damaged"), (cut, "is damaged: its .* bytes"), (Path.unlink, "is missing")],
)
def test_a_damaged_checkpoint_is_named(name, damage, what, stopped):
    run = stopped.run
    path = run.checkpoint(2) / name
    whole = path.read_bytes()
    damage(path)
    with pytest.raises(ModelError, match=rf"^{path}: {what}.*\. Delete {path.parent} to resume"):
        run.check_latest()
    path.write_bytes(whole)
    run.check_latest()


def test_a_checkpoint_without_a_manifest_is_named(stopped, tmp_path):
    run = copy_of(stopped, tmp_path).run
    shutil.rmtree(run.checkpoint(1))
    (run.checkpoint(2) / MANIFEST).unlink()
    with pytest.raises(
        ModelError, match=r"checkpoint-2: has no manifest.* Delete .* to start over"
    ):
        run.check_latest()


@pytest.fixture
def full_disk():
    """Give what lets no file of this process grow beyond a size, as a full disk does to large
    ones; 0 takes the limit away."""

    def limit(size=0):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size or resource.RLIM_INFINITY, before[1]))

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@quick
@pytest.mark.parametrize("file", ["adapter_model.safetensors", "optimizer.pt"])
def test_a_disk_that_is_full_at_a_checkpoint(file, finished, full_disk, qwen, tmp_path):
    """PyTorch and safetensors each have their own words for it."""
    size = (finished.run.checkpoint(3) / file).stat().st_size - 100
    config = settings(
        "dpo", qwen, output={"save_steps": 1}, optimiser={"max_steps": 3}, **NOT_HELD_OUT
    )
    job = write_run(tmp_path, config)
    with pytest.raises(TrainingError, match=r"checkpoint-3 .*checkpoint-2"):
        train(replace(job, watcher=At(3, lambda: full_disk(size))))
    full_disk()
    assert job.run.steps() == [1, 2]
    assert not (job.run.folder / ".saving").exists()
    assert train(job).finished


@quick
def test_a_disk_that_is_full_at_the_finished_model(finished, full_disk, tmp_path):
    job = copy_of(finished, tmp_path)
    shutil.rmtree(job.run.model)
    full_disk((job.start / WEIGHTS).stat().st_size // 2)
    with pytest.raises(TrainingError, match=str(job.run.folder)):
        train(job)
    full_disk()
    assert (job.run.steps(), job.run.is_finished) == ([2, 3], False)
    assert train(job).finished
    assert (job.run.model / WEIGHTS).exists()


SIZE, STEPS = "optimiser.per_device_train_batch_size", "optimiser.gradient_accumulation_steps"
LESS = (
    f"--set {SIZE}=4 --set {STEPS}=6, or --set optimiser.gradient_checkpointing=true, "
    "or --set model.load_in_4bit=true (with LoRA), or --set model.max_pixels=100352"
)


@pytest.mark.parametrize(
    ("objective", "need", "batch", "steps", "begun", "advice"),
    [
        pytest.param("dpo", need_less, 8, 3, False, LESS, id="settings that need less"),
        pytest.param("namc", need_smaller_batch, 1, 1, False, "a smaller model", id="one row"),
        pytest.param("namc", need_smaller_batch, 2, 1, True, "--name", id="a run that has begun"),
    ],
)
def test_out_of_memory_says_what_helps(objective, need, batch, steps, begun, advice, tmp_path):
    optimiser = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": steps}
    config = TrainConfig.model_validate({"objective": objective, "optimiser": optimiser})
    (tmp_path / "checkpoints" / ("checkpoint-2" * begun)).mkdir(parents=True)
    with (
        pytest.raises(TrainingError) as error,
        explain_out_of_memory(Run(tmp_path), lambda: need(config)),
    ):
        torch.empty(2**50)  # no machine has 4 PB
    assert str(error.value).endswith(advice)
