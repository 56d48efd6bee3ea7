"""Checkpoints that are whole or not there, and the finished model of a run.

A checkpoint is written under another name, listed in its manifest, flushed, renamed; all ranks together, in a folder
that is one for all. In the finished model adapters are merged into the weights that they were trained on, and lie
beside them in ``adapters/``; without ``output.merge_adapters`` they are all that is written, but for those that were
trained upon other adapters.
"""

import contextlib
import json
import pickle
import shutil
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from pairwright.schemas.errors import ModelError, StoreError, TrainingError
from pairwright.schemas.training import SIZES, WEIGHTS, TrainConfig
from pairwright.tasks.store.manifest import README
from pairwright.tasks.training.find_model import ADAPTER_WEIGHTS, ADAPTERS, TUNED, find_base
from pairwright.tasks.training.load_model import choose_storage, load_plain, merge_adapters, round_to_4bit
from pairwright.tasks.training.ranks import gather
from pairwright.tasks.training.runs import FINISHING, SAVING, Run, advise, drop_folder, publish_folder

NOT_SAVED = (OSError, RuntimeError, SafetensorError, StoreError)
"""What a full disk looks like: PyTorch and safetensors do not say OSError."""
UNREADABLE = (
    *(OSError, EOFError, pickle.UnpicklingError, SafetensorError),
    *(RuntimeError, ValueError, LookupError, TypeError, AttributeError),
)
"""What reading a damaged file looks like."""
FOLDER = "adapters"
CACHE = "models--"
"""How the folder of a model begins in the Hub's local cache; its commit is a folder in ``snapshots``."""
OWN = (ADAPTERS, ADAPTER_WEIGHTS, TUNED)
"""What peft writes, and the weights that were trained beside adapters."""
NOT_NEEDED = "training_args.bin"
"""A pickle, which only the Trainer's own checkpoints need."""


@dataclass(frozen=True)
class Saving:
    """Writing of a checkpoint, or of the finished model."""

    run: Run
    name: str

    def agree(self, work: Callable[[], Any]) -> None:
        """Do a part of it; all ranks call this, and go on when all are done. Where one failed, all of them fail."""
        problem = ""
        try:
            work()
        except (*NOT_SAVED, ModelError) as error:  # the model that the run started from may be gone
            problem = str(error) or type(error).__name__
        if problems := [one for one in gather(problem) if one]:
            for name in (SAVING, FINISHING):
                shutil.rmtree(self.run.folder / name, ignore_errors=True)
            latest = self.run.latest()
            kept = f"the last checkpoint, {latest}, is whole" if latest else "there is no checkpoint before"
            raise TrainingError(
                f"{self.name} could not be saved: {problems[0]}; {kept}. Make room, and go on with the same command"
            )

    @property
    def growing(self) -> Path:
        """Return the folder in which it grows."""
        return self.run.folder / SAVING / self.name

    def begin(self) -> None:
        """Make the folder in which it grows."""
        shutil.rmtree(self.run.folder / SAVING, ignore_errors=True)
        self.growing.mkdir(parents=True)

    def publish(self, keep: int) -> None:
        """Give it its name, and delete the oldest."""
        publish_folder(self.growing, self.run.checkpoints / self.name)
        shutil.rmtree(self.run.folder / SAVING, ignore_errors=True)
        for step in self.run.steps()[:-keep]:
            with contextlib.suppress(OSError):  # one too many does no harm
                drop_folder(self.run.checkpoint(step))


def is_finite(model: Any) -> bool:
    """Return whether all trained weights, or this rank's part of FSDP's or of DeepSpeed's ZeRO-3, are numbers."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    own = [getattr(one.detach(), "_local_tensor", getattr(one, "ds_tensor", one.detach())) for one in trained]
    return bool(torch.stack([torch.isfinite(one).all() for one in own]).all()) if own else True


@contextlib.contextmanager
def reading(path: Path) -> Generator[None]:
    """Report of a checkpoint's file, or of a checkpoint, that it is damaged."""
    try:
        yield
    except UNREADABLE as error:
        folder = path if path.is_dir() else path.parent
        raise ModelError(f"{path}: cannot be read: {first_line(error)}. {advise(folder)}") from error


def first_line(error: BaseException) -> str:
    """Return what PyTorch says before it lists frames and weights."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def finish_model(saved: Path, start: Path, config: TrainConfig) -> None:
    """Complete what the Trainer saved in a folder of a run from ``start``; of several processes, one does."""
    for name in (NOT_NEEDED, README):  # peft's, which is left to be filled in
        (saved / name).unlink(missing_ok=True)
    if config.model.tuning != "lora":
        return
    below = find_base(start)
    _name_base(saved / ADAPTERS, start, of_adapters=below is not None)
    if not (config.output.merge_adapters or below):  # nothing on the disk holds what adapters upon adapters belong to
        return
    aside = saved / FOLDER
    aside.mkdir(exist_ok=True)
    for path in (saved / name for name in (*OWN, SIZES, WEIGHTS)):
        if path.exists():
            shutil.copyfile(path, aside / path.name)
            if path.name in OWN:  # differential perception stays beside the merged weights, too
                path.unlink()
    model = load_plain(start, config.model, dtype=choose_storage(config))
    if config.model.load_in_4bit:
        round_to_4bit(model)  # which the adapters were trained upon
    merge_adapters(model, aside).save_pretrained(saved)


def _name_base(path: Path, start: Path, *, of_adapters: bool) -> None:
    """Let adapters name a model of the Hub as it is called there, not where this machine keeps it.

    And upon adapters those, not what lies below them, as peft has it. Only at the end: peft would ask the Hub about it
    at each checkpoint.
    """
    cached, own = start.parent.parent.name, json.loads(path.read_text())
    if of_adapters:
        own |= {"base_model_name_or_path": str(start)}
    elif start.parent.name == "snapshots" and cached.startswith(CACHE):
        own |= {"base_model_name_or_path": cached.removeprefix(CACHE).replace("--", "/"), "revision": start.name}
    path.write_text(json.dumps(own, indent=2))
