"""A checkpoint is whole or not there, and what cannot be written says what is left."""

import json
from pathlib import Path
from typing import Any

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


def save(run: Run, step: int, *, keep: int = 2) -> None:
    saving = Saving(run, f"checkpoint-{step}")
    saving.agree(saving.begin)
    saving.agree(lambda: (run.folder / SAVING / saving.name / "weights").write_text(str(step)))
    saving.agree(lambda: saving.publish(keep))


def test_the_latest_are_kept(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.checkpoints.mkdir()
    for step in (2, 9, 10, 11):
        save(run, step)
    assert run.steps() == [10, 11]
    assert (run.checkpoint(11) / "weights").read_text() == "11"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left"), RuntimeError("short write"), SafetensorError("full")]
)
def test_what_cannot_be_written_says_what_is_left(error: Exception, tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.checkpoints.mkdir()

    def fail() -> None:
        raise error

    saving = Saving(run, "checkpoint-2")
    saving.agree(saving.begin)
    with pytest.raises(TrainingError, match="checkpoint-2 "):
        saving.agree(fail)
    save(run, 1)
    with pytest.raises(TrainingError, match="checkpoint-1"):
        saving.agree(fail)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def settings(**values: Any) -> TrainConfig:
    return TrainConfig.model_validate({"objective": "sft", **values})


def trained(start: Path, config: TrainConfig) -> Any:
    return move_weights(prepare_model(load_model(start, config.model, dtype=torch.float32), config))


def finish(model: Any, start: Path, folder: Path) -> None:
    """Save it as a training does."""
    arguments = TrainingArguments(output_dir=str(folder), report_to="none", use_cpu=True)
    Trainer(model, arguments, processing_class=load_processor(start)).save_model(str(folder))


def logits_here(model: Any, start: Path) -> torch.Tensor:
    processor = load_processor(start)
    messages = [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}
    ]
    text = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    with torch.no_grad():
        return model(**processor(text=[text], images=[picture(56, 56)], return_tensors="pt")).logits


def test_adapters_upon_adapters_are_merged(start: Path, tmp_path: Path) -> None:
    """Else they would name the model below both, and the first ones would be lost."""
    config, first, second = (
        settings(output={"merge_adapters": False}),
        tmp_path / "first",
        tmp_path / "second",
    )
    for place, begun in ((first, start), (second, first)):
        model = trained(begun, config)
        finish(model, begun, place)
        finish_model(place, begun, config)
    assert find_model(str(second)).base == ("", "")
    found = load_model(second, config.model, dtype=torch.float32).eval()
    torch.testing.assert_close(
        logits_here(found, start), logits_here(model, start), rtol=1e-5, atol=1e-5
    )
    with pytest.raises(ModelError, match=f"{second / FOLDER} .*{first}"):
        find_model(str(second / FOLDER))


@pytest.mark.parametrize("merged", [True, False])
def test_adapters_of_a_hubs_model_name_it_and_its_commit(
    start: Path, merged: bool, tmp_path: Path
) -> None:
    place = tmp_path / "models--owner--name" / "snapshots" / ("a" * 40)
    place.parent.mkdir(parents=True)
    place.symlink_to(start)
    config, folder = settings(output={"merge_adapters": merged}), tmp_path / "out"
    finish(trained(place, config), place, folder)
    finish_model(folder, place, config)
    own = json.loads((folder / (FOLDER if merged else ".") / "adapter_config.json").read_text())
    assert (own["base_model_name_or_path"], own["revision"]) == ("owner/name", "a" * 40)


def test_a_start_that_is_gone_and_a_disk_that_refuses(start: Path, tmp_path: Path) -> None:
    config, folder = settings(), tmp_path / "checkpoint"
    finish(trained(start, config), start, folder)
    with pytest.raises(ModelError, match=r"config\.json|gone"):
        finish_model(folder, tmp_path / "gone", config)
    (folder / "model.safetensors").mkdir()
    with pytest.raises(NOT_SAVED):
        finish_model(folder, start, config)
