"""Atomic checkpoints, and the finished model of a run.

A checkpoint is written under a temporary name, listed in its manifest, flushed, renamed; all ranks
together, in one folder. In the finished model adapters are merged into their base weights, and kept
beside them in ``adapters/``; without ``output.merge_adapters`` adapters alone are written, unless
they were trained on top of other adapters.
"""

import contextlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pairwright.schemas.errors import ModelError, StoreError, TrainingError
from pairwright.schemas.training import SIZES, WEIGHTS, TrainConfig
from pairwright.tasks.store.manifest import README
from pairwright.tasks.training.find_model import ADAPTER_WEIGHTS, ADAPTERS, TUNED, find_base
from pairwright.tasks.training.load_model import (
    choose_storage,
    load_plain,
    merge_adapters,
    round_to_4bit,
)
from pairwright.tasks.training.ranks import gather_ranks
from pairwright.tasks.training.runs import FINISHING, SAVING, Run, drop_folder, publish_folder

NOT_SAVED = (OSError, RuntimeError, SafetensorError, StoreError)
"""Errors of a full disk: PyTorch and safetensors do not raise OSError."""
FOLDER = "adapters"
# prefix of a model's folder in the Hub cache; its commit is a folder in ``snapshots``
CACHE = "models--"
OWN = (ADAPTERS, ADAPTER_WEIGHTS, TUNED)  # files of peft, and weights trained beside adapters
TEMPLATE = "chat_template.jinja"
UNCHANGED = (
    TEMPLATE,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
"""Files that a training does not change. Padding while it runs would stay in them otherwise."""
NOT_NEEDED = "training_args.bin"  # a pickle, used only by the Trainer's own checkpoints


@dataclass(frozen=True)
class Saving:
    """Saving of a checkpoint, or of the finished model."""

    run: Run
    name: str

    def agree(self, work: Callable[[], Any]) -> None:
        """Do a part of the work on all ranks, which continue together; if one fails, all raise."""
        problem = ""
        try:
            work()
        except (*NOT_SAVED, ModelError) as error:  # the start model may be gone
            problem = str(error) or type(error).__name__
        problems = [text for text in gather_ranks(problem) if text]
        if not problems:
            return
        for name in (SAVING, FINISHING):
            shutil.rmtree(self.run.folder / name, ignore_errors=True)
        state = "there is no earlier checkpoint"
        latest = self.run.latest()
        if latest:
            state = f"the last checkpoint, {latest}, is intact"
        raise TrainingError(
            f"{self.name} could not be saved: {problems[0]}; {state}. "
            "Free disk space and repeat the command"
        )

    @property
    def staged(self) -> Path:
        """Return the temporary folder."""
        return self.run.folder / SAVING / self.name

    def create_folder(self) -> None:
        """Create the temporary folder."""
        shutil.rmtree(self.run.folder / SAVING, ignore_errors=True)
        self.staged.mkdir(parents=True)

    def publish_checkpoint(self, keep: int) -> None:
        """Give the folder its final name, and delete the oldest checkpoints."""
        publish_folder(self.staged, self.run.checkpoints / self.name)
        shutil.rmtree(self.run.folder / SAVING, ignore_errors=True)
        for step in self.run.steps()[:-keep]:
            with contextlib.suppress(OSError):  # an extra one is harmless
                drop_folder(self.run.checkpoint(step))


def finish_model(saved: Path, start: Path, config: TrainConfig) -> None:
    """Complete the Trainer's files of a run from ``start``; one process calls it.

    Adapters name their base model as on the Hub, not by its local path, in the finished model only:
    peft would ask the Hub about it at each checkpoint. Adapters on top of others name the folder of
    those.
    """
    for name in (NOT_NEEDED, README):  # peft's, which is left to be filled in
        (saved / name).unlink(missing_ok=True)
    if config.model.tuning != "lora":
        return
    base = find_base(start)
    _name_base(saved / ADAPTERS, start, on_adapters=base is not None)
    if not config.output.merge_adapters and base is None:
        return  # adapters on adapters are always merged: they would have no base on the disk
    adapters = _move_adapters(saved)
    model = load_plain(start, config.model, dtype=choose_storage(config))
    if config.model.load_in_4bit:
        round_to_4bit(model)  # the adapters' base
    merge_adapters(model, adapters).save_pretrained(saved)


def restore_settings(saved: Path, start: Path, config: TrainConfig) -> None:
    """Copy the start model's tokenizer and generation settings over those that were saved.

    The chat template stays as saved where it has arguments of its own.
    """
    for name in UNCHANGED:
        if name == TEMPLATE and config.model.template_kwargs:
            continue
        if (saved / name).is_file() and (start / name).is_file():
            shutil.copyfile(start / name, saved / name)


def _name_base(path: Path, start: Path, *, on_adapters: bool) -> None:
    """Write the base model's name and revision into the settings of adapters."""
    content = json.loads(path.read_text())
    repository = start.parent.parent.name
    if on_adapters:
        content["base_model_name_or_path"] = str(start)
    elif start.parent.name == "snapshots" and repository.startswith(CACHE):
        content["base_model_name_or_path"] = repository.removeprefix(CACHE).replace("--", "/")
        content["revision"] = start.name
    path.write_text(json.dumps(content, indent=2))


def _move_adapters(saved: Path) -> Path:
    """Move the files of adapters into a folder of their own, and return it.

    The module of differential perception also stays beside the merged weights.
    """
    folder = saved / FOLDER
    folder.mkdir(exist_ok=True)
    for name in (*OWN, SIZES, WEIGHTS):
        path = saved / name
        if path.exists():
            shutil.copyfile(path, folder / name)
            if name in OWN:
                path.unlink()
    return folder
