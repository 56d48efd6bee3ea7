"""Write a checkpoint so that it is whole or not there: under another name, flushed, renamed; all ranks together.

And say of one that cannot be read that it is damaged.

The run's folder must be one for all ranks. Needs PyTorch.
"""

import contextlib
import pickle
import shutil
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from pairwright.schemas.errors import ModelError, StoreError, TrainingError
from pairwright.tasks.training.ranks import gather
from pairwright.tasks.training.runs import SAVING, Run, drop_folder, publish_folder

DAMAGED = (OSError, EOFError, pickle.UnpicklingError, SafetensorError)
"""Beside errors of Python's own, what reading a damaged file looks like."""
NOT_SAVED = (OSError, RuntimeError, SafetensorError, StoreError)
"""What a full disk looks like: PyTorch and safetensors do not say OSError."""


@dataclass(frozen=True)
class Saving:
    """Be the writing of one checkpoint."""

    run: Run
    name: str

    def agree(self, work: Callable[[], Any]) -> None:
        """Do a part of it; all ranks call this, and go on when all are done.

        Raises:
            TrainingError: on every rank, where one of them failed.
        """
        problem = ""
        try:
            work()
        except NOT_SAVED as error:
            problem = str(error) or type(error).__name__
        if problems := [one for one in gather(problem) if one]:
            shutil.rmtree(self.run.folder / SAVING, ignore_errors=True)
            raise TrainingError(self._not_saved(problems[0]))

    def begin(self) -> None:
        """Make the folder in which it grows."""
        shutil.rmtree(self.run.folder / SAVING, ignore_errors=True)
        (self.run.folder / SAVING / self.name).mkdir(parents=True)

    def publish(self, keep: int) -> None:
        """Give it its name, and delete the oldest."""
        publish_folder(self.run.folder / SAVING / self.name, self.run.checkpoints / self.name)
        shutil.rmtree(self.run.folder / SAVING, ignore_errors=True)
        for step in self.run.steps()[:-keep]:
            with contextlib.suppress(OSError):  # one too many does no harm
                drop_folder(self.run.checkpoint(step))

    def _not_saved(self, problem: str) -> str:
        latest = self.run.latest()
        kept = f"the one before, {latest}, is whole" if latest else "there is none before"
        return f"{self.name} could not be saved: {problem}; {kept}. Make room, and go on with the same command"


def is_finite(model: Any) -> bool:
    """Say whether all trained weights are numbers."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    found = [torch.isfinite(_own(one)).all() for one in trained]
    return bool(torch.stack(found).all()) if found else True


def _own(weight: Any) -> torch.Tensor:
    """Return a weight, or this rank's part of it: of FSDP's, or of DeepSpeed's ZeRO-3."""
    return getattr(weight.detach(), "_local_tensor", getattr(weight, "ds_tensor", weight.detach()))


@contextlib.contextmanager
def reading(path: Path) -> Generator[None]:
    """Say of a checkpoint's file, or of a checkpoint, that it is damaged.

    Raises:
        ModelError: names it.
    """
    try:
        yield
    except (*DAMAGED, RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        first = str(error).strip().partition("\n")[0]
        folder = path if path.is_dir() else path.parent
        raise ModelError(f"{path}: cannot be read: {first}. {advise(folder)}") from error


def advise(folder: Path) -> str:
    """Say what can be done about a checkpoint that cannot be read."""
    return f"Delete {folder} to go on from the one before, or give another --name"
