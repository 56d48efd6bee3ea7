"""A checkpoint is whole or not there, and what cannot be written says what is left."""

import json

import pytest
import torch
from safetensors import SafetensorError
from transformers import Trainer, TrainingArguments

from pairwright.schemas.errors import ModelError, TrainingError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.find_model import find_model
from pairwright.tasks.training.load_model import load_model, load_processor, prepare_model
from pairwright.tasks.training.runs import SAVING, Run
from pairwright.tasks.training.save_checkpoints import FOLDER, NOT_SAVED, Saving, finish_model
from tests.fixtures.examples_to_pack import picture
from tests.fixtures.runs_to_train import move_weights


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    return Run(tmp_path / "run")


def save(run, step):
    saving = Saving(run, f"checkpoint-{step}")
    saving.agree(saving.create_folder)
    saving.agree(lambda: (run.folder / SAVING / saving.name / "weights").write_text(str(step)))
    saving.agree(lambda: saving.publish_checkpoint(2))


def test_the_latest_are_kept(run):
    for step in (2, 9, 10, 11):
        save(run, step)
    assert run.steps() == [10, 11]
    assert (run.checkpoint(11) / "weights").read_text() == "11"
    assert list(run.folder.iterdir()) == [run.checkpoints]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left"), RuntimeError("short write"), SafetensorError("full")]
)
def test_what_cannot_be_written_says_what_is_left(error, run):
    def fail():
        raise error

    saving = Saving(run, "checkpoint-2")
    saving.agree(saving.create_folder)
    with pytest.raises(TrainingError, match="checkpoint-2 "):
        saving.agree(fail)
    save(run, 1)
    with pytest.raises(TrainingError, match="checkpoint-1"):
        saving.agree(fail)
    assert list(run.folder.iterdir()) == [run.checkpoints]


def settings(*, merged=True):
    output = {"merge_adapters": merged}
    return TrainConfig.model_validate({"objective": "sft", "output": output})


def load(folder):
    return load_model(folder, settings().model, dtype=torch.float32)


def train(start, folder):
    """Train adapters a little, save them as a training does, and return the model."""
    model = move_weights(prepare_model(load(start), settings()))
    arguments = TrainingArguments(output_dir=str(folder), report_to="none", use_cpu=True)
    Trainer(model, arguments, processing_class=load_processor(start)).save_model(str(folder))
    return model


@torch.no_grad()
def logits(model, start):
    processor = load_processor(start)
    turn = [{"type": "image"}, {"type": "text", "text": "What is it?"}]
    text = processor.apply_chat_template(
        [{"role": "user", "content": turn}], add_generation_prompt=True, tokenize=False
    )
    return model(**processor(text=[text], images=[picture(56, 56)], return_tensors="pt")).logits


def test_adapters_upon_adapters_are_merged(start, tmp_path):
    """Else they would name the model below both, and the first ones would be lost."""
    first, second = tmp_path / "first", tmp_path / "second"
    train(start, first)
    finish_model(first, start, settings(merged=False))
    model = train(first, second)
    finish_model(second, first, settings(merged=False))
    assert find_model(str(second)).base == ("", "")
    loaded = load(second).eval()
    torch.testing.assert_close(logits(loaded, start), logits(model, start), rtol=1e-5, atol=1e-5)
    with pytest.raises(ModelError, match=f"{second / FOLDER} .*{first}"):
        find_model(str(second / FOLDER))


@pytest.mark.parametrize(("merged", "place"), [(True, FOLDER), (False, ".")])
def test_adapters_of_a_hubs_model_name_it_and_its_commit(start, merged, place, tmp_path):
    snapshot = tmp_path / "models--owner--name" / "snapshots" / ("a" * 40)
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(start)
    folder = tmp_path / "out"
    train(snapshot, folder)
    finish_model(folder, snapshot, settings(merged=merged))
    about = json.loads((folder / place / "adapter_config.json").read_text())
    assert (about["base_model_name_or_path"], about["revision"]) == ("owner/name", "a" * 40)


def test_a_start_that_is_gone_and_a_disk_that_refuses(start, tmp_path):
    folder = tmp_path / "checkpoint"
    train(start, folder)
    with pytest.raises(ModelError, match=r"config\.json|gone"):
        finish_model(folder, tmp_path / "gone", settings())
    (folder / "model.safetensors").mkdir()
    with pytest.raises(NOT_SAVED):
        finish_model(folder, start, settings())
