"""Train on preferences with transformers' Trainer: the objective, the reference, the adversary, safe checkpoints.

The only subclass here, since the Trainer is extended so: with it come FSDP, DeepSpeed, mixed precision, accumulation,
schedules, resuming and trackers.
"""

import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import Trainer
from typing_extensions import override

from schemas.errors import TrainingError
from schemas.training import TrainConfig
from tasks.training.collate import Answer, Batch
from tasks.training.freeze_rows import Refused
from tasks.training.losses.adpo import negative_rewards
from tasks.training.losses.objectives import OBJECTIVES, Goal
from tasks.training.losses.scored import CHOSEN, TEXTS, Loss
from tasks.training.metrics import MetricsFile, Window
from tasks.training.pack_answers import pack_answers
from tasks.training.references import Asked, Reference
from tasks.training.runs import STEP, Run, publish_folder
from tasks.training.score_answers import score_answers


class Adversary(Protocol):
    """Choose negatives for a batch, and learn which are hard (ADPO's retriever)."""

    def propose(self, keys: Sequence[str]) -> Sequence[Sequence[Answer]]:
        """Return m answers per row (fewer where there are no candidates), in columns from ``TEXTS`` on."""
        ...

    def learn(self, rewards: Tensor, *, step: bool) -> Mapping[str, float]:
        """Learn from the (B, m) rewards of what was proposed last; step the optimiser where asked. Returns metrics."""
        ...

    def save(self, folder: Path) -> None:
        """Write its state beside a checkpoint's."""
        ...

    def load(self, folder: Path) -> None:
        """Read its state."""
        ...


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Hold what a training needs beside the model and the rows."""

    run: Run
    config: TrainConfig
    goal: Goal
    reference: Reference | None
    adversary: Adversary | None
    metrics: MetricsFile
    refuse: Callable[[Sequence[Refused]], None]
    """Is told the rows that turn out to be no good."""


class PreferenceTrainer(Trainer):
    """Be transformers' Trainer for the objectives of ``tasks.training.losses``."""

    def __init__(self, setting: Setting, **words: Any) -> None:
        super().__init__(**words)
        self.setting = setting
        self.window = Window()
        self.model_accepts_loss_kwargs = False
        self._began = (time.monotonic(), 0)
        self._rows = 0

    @override
    def compute_loss(
        self, model: Any, inputs: Mapping[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the objective's loss of a batch."""
        batch: Batch = inputs["batch"]
        self.setting.refuse(batch.refused)
        if not batch.prompts:
            return _nothing(model)
        loss, learned = self._loss(model, batch, self.setting.goal, adversary=self.setting.adversary)
        if not math.isfinite(value := float(loss.value.detach())):
            raise TrainingError(_not_finite(value, self.state.global_step, batch, self.setting.run))
        metrics = {name: float(tensor) for name, tensor in loss.metrics.items()}
        self.window.add({"loss": value, **metrics, **learned}, len(batch.keys))
        self._rows += len(batch.keys)
        return loss.value

    def _loss(
        self, model: Any, batch: Batch, goal: Goal, *, adversary: Adversary | None = None
    ) -> tuple[Loss, Mapping[str, float]]:
        config = self.setting.config
        if adversary:
            batch = with_answers(batch, adversary.propose(batch.keys))
        width = 1 + max(answer.column for own in batch.answers for answer in own)
        packed = pack_answers(batch, self.accelerator.unwrap_model(model), width=max(width, TEXTS))
        reference = self.setting.reference if goal.needs_reference else None
        compared = reference.score(Asked(model, packed, batch.keys)) if reference else None
        policy = score_answers(model, packed)
        loss = goal.compute(policy, compared, config)
        if not adversary:
            return loss, {}
        rewards = negative_rewards(policy, compared, config.adpo)
        return loss, adversary.learn(rewards, step=self.accelerator.sync_gradients)

    def measure(self) -> dict[str, float]:
        """Measure on the held-out rows: against their own rejected texts, whatever the objective."""
        goal = OBJECTIVES["dpo"] if self.setting.adversary else self.setting.goal
        window, model = Window(), self._model()
        model.eval()
        with torch.no_grad():
            for inputs in self.get_eval_dataloader():
                batch: Batch = inputs["batch"]
                if batch.prompts:
                    loss, _ = self._loss(model, batch, goal)
                    values = {name: float(value) for name, value in loss.metrics.items()}
                    window.add({"loss": float(loss.value), **values}, len(batch.keys))
        model.train()
        found = window.take()
        self.setting.metrics.add(self.state.global_step, self.state.epoch or 0.0, "held-out", found)
        return found

    def _model(self) -> Any:
        return self.model

    @override
    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log the means since the last time."""
        own = self.window.take()
        if own:
            now = time.monotonic()
            seconds, rows = now - self._began[0], self._rows - self._began[1]
            self._began = (now, self._rows)
            logs |= own | {"rows per second": rows / max(seconds, 1e-9)}
            if torch.cuda.is_available():
                logs["memory"] = torch.cuda.max_memory_allocated() / 2**30
            self.setting.metrics.add(self.state.global_step, self.state.epoch or 0.0, "train", logs)
        super().log(logs, start_time)

    @override
    def _get_output_dir(self, trial: Any) -> str:
        """Return where a checkpoint is written before it gets its name."""
        return str(self.setting.run.folder / ".saving")

    @override
    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        staging = Path(self._get_output_dir(trial))
        name = f"{STEP}{self.state.global_step}"
        if self.is_world_process_zero():
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir(parents=True)
        self.accelerator.wait_for_everyone()
        try:
            super()._save_checkpoint(model, trial)
            if self.setting.adversary and self.is_world_process_zero():
                self.setting.adversary.save(staging / name)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
            shutil.rmtree(staging, ignore_errors=True)
            raise TrainingError(_not_saved(staging / name, error, self.setting.run)) from error
        self.accelerator.wait_for_everyone()
        if self.is_world_process_zero():
            self.setting.metrics.write()
            publish_folder(staging / name, self.setting.run.checkpoints / name)
            self._forget_old()

    def _forget_old(self) -> None:
        folder = self.setting.run.checkpoints
        found = sorted(folder.glob(f"{STEP}*"), key=lambda path: int(path.name.removeprefix(STEP)))
        for path in found[: -self.setting.config.saving.keep]:
            shutil.rmtree(path, ignore_errors=True)

    @override
    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self.setting.adversary:
            self.setting.adversary.load(Path(resume_from_checkpoint))


def with_answers(batch: Batch, added: Sequence[Sequence[Answer]]) -> Batch:
    """Return a batch with more answers: behind those of the example's prompt, or in prompts that wait for one."""
    answers = list(batch.answers)
    for example, own in enumerate(added):
        places = [n for n, owner in enumerate(batch.owners) if owner == example]
        waiting = [n for n in places if not answers[n]]
        if waiting:
            for place, answer in zip(waiting, own, strict=False):
                answers[place] = (answer,)
        else:
            first = next(n for n in places if any(answer.column == CHOSEN for answer in answers[n]))
            answers[first] = (*answers[first], *own)
    return replace(batch, answers=answers)


def _nothing(model: Any) -> Tensor:
    """Return a loss of 0 that every trained parameter is part of."""
    return sum((p.sum() * 0 for p in model.parameters() if p.requires_grad), start=torch.zeros(()))


def _not_finite(value: float, step: int, batch: Batch, run: Run) -> str:
    latest = run.latest()
    since = f"The last checkpoint, {latest}, is from before." if latest else "There is no checkpoint yet."
    return (
        f"step {step + 1}: the loss is {value}. The batch is: {', '.join(batch.keys)}. {since} "
        "Try a lower learning rate (--set optimiser.learning_rate=...) or fp32 (--set optimiser.precision=fp32)"
    )


def _not_saved(place: Path, error: Exception, run: Run) -> str:
    latest = run.latest()
    kept = f"the one before, {latest}, is whole" if latest else "there is none before"
    return f"{place.name} could not be saved: {error}; {kept}. Make room, and go on with the same command"
