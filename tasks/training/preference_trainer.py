"""Train on preferences with transformers' Trainer: the objective, the reference, the adversary, safe checkpoints.

A subclass, with that of its checkpoints the only ones here, since the Trainer is extended so: with it come FSDP,
DeepSpeed, mixed precision, accumulation, schedules, resuming and trackers. What it does otherwise: the loader
(``load_batches``), means that are over all rows of a step whatever the ranks and the accumulation, and checkpoints that
are whole or not there (``checkpointed_trainer``).
"""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PrinterCallback
from typing_extensions import override

from pairwright.schemas.errors import ConfigError, TrainingError
from pairwright.schemas.training import DpoConfig
from pairwright.tasks.training.checkpointed_trainer import CheckpointedTrainer
from pairwright.tasks.training.collate import Batch
from pairwright.tasks.training.freeze_rows import Refused
from pairwright.tasks.training.load_batches import Order, count_workers, make_loader
from pairwright.tasks.training.losses.adpo import negative_rewards
from pairwright.tasks.training.losses.objectives import OBJECTIVES, Goal
from pairwright.tasks.training.losses.scored import CHOSEN, TEXTS, Loss
from pairwright.tasks.training.metrics import HELD_OUT, TRAIN, Window
from pairwright.tasks.training.pack_answers import pack_answers
from pairwright.tasks.training.ranks import add_up, count_ranks, gather, own_rank
from pairwright.tasks.training.references import Asked
from pairwright.tasks.training.runs import append_refused
from pairwright.tasks.training.save_checkpoints import is_finite
from pairwright.tasks.training.score_answers import score_answers
from pairwright.tasks.training.see_once import seen_once
from pairwright.tasks.training.split_rates import split_rates
from pairwright.tasks.training.step_batches import count_tokens, find_batch, sound, with_answers
from pairwright.tasks.training.trainer_setting import Adversary, Setting
from pairwright.tasks.training.watch_training import MEASURED

log = logging.getLogger(__name__)


@dataclass
class Done:
    """Count what was trained on since the last time it was logged."""

    rows: int = 0
    tokens: int = 0


class PreferenceTrainer(CheckpointedTrainer):
    """Be transformers' Trainer for the objectives of ``tasks.training.losses``."""

    def __init__(self, setting: Setting, **words: Any) -> None:
        super().__init__(setting, **words)
        self.remove_callback(PrinterCallback)
        self.model_accepts_loss_kwargs = False
        self.stopping = False
        """Set by whoever wants the training to end after the step in work, with a checkpoint."""
        self._agreed_to_stop = False
        self._order = Order(0, 1, None)
        self._total = 0.0
        self._keys: list[str] = []
        self._refused: list[Refused] = []
        self._done, self._since = Done(), time.monotonic()
        self._spare: Batch | None = None

    # ---- rows

    @override
    def get_train_dataloader(self) -> Any:
        self._order = self._order_of(self.train_dataset, self.setting.config.seed)
        return self._loader(self.train_dataset, self._order)

    @override
    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        return self._loader(self.eval_dataset, self._order_of(self.eval_dataset, None))

    def _order_of(self, rows: Any, seed: int | None) -> Order:
        batch = self.setting.config.optimiser.per_device_train_batch_size
        return Order(len(rows), batch, seed, ranks=count_ranks(), rank=own_rank())

    def _loader(self, rows: Any, order: Order) -> Any:
        return make_loader(
            rows,
            cast("Any", self.data_collator),
            order,
            workers=count_workers(self.setting.config.data.dataloader_num_workers),
        )

    @override
    def _init_training_state(self, *args: Any, **words: Any) -> tuple[int, int]:
        found = super()._init_training_state(*args, **words)
        output = self.setting.config.output  # may be others than before
        self.state.logging_steps, self.state.save_steps = output.logging_steps, output.save_steps
        return found

    @override
    def _prepare_for_training(self, *args: Any, **words: Any) -> Any:
        """Wrap the model, and load a checkpoint of a wrapped one.

        Raises:
            ConfigError: DeepSpeed's settings do not go with the run's.
        """
        try:
            return super()._prepare_for_training(*args, **words)
        except ValueError as error:
            if not self.is_deepspeed_enabled:
                raise
            raise ConfigError(f"DeepSpeed: {error}") from error

    @override
    def _run_epoch(self, *args: Any, **words: Any) -> None:
        if self.state.global_step >= self.state.max_steps:  # killed between the last checkpoint and the finished model
            self.control.should_training_stop = True
            return
        self._order.epoch = words["epoch"]
        if not self.state.global_step:
            self.measure()
        super()._run_epoch(*args, **words)

    @override
    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> tuple[list[Any], None]:
        """Return a step's batches; learn how much they weigh over all ranks, and whether one of these is to stop."""
        try:
            samples, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        except RuntimeError as error:  # a loading process was killed: PyTorch names no type of its own
            raise TrainingError(_not_loaded(error)) from error
        batches = [sound(sample["batch"]) for sample in samples]
        self._keys = [key for batch in batches for key in batch.keys]
        self._total, stopping = add_up([sum(map(self._weight, batches)), float(self.stopping)])
        self._agreed_to_stop = bool(stopping)
        return samples, None

    @property
    def is_stopping(self) -> bool:
        """Say whether the training ends after this step: of several ranks, all say the same."""
        return self._agreed_to_stop or (self.stopping and count_ranks() == 1)

    def _weight(self, batch: Batch) -> float:
        """Return what a batch's loss is a mean over: its examples, or for SFT their tokens."""
        config = self.setting.config
        if config.objective != "sft" or config.sft.average_over == "examples":
            return len(batch.keys)
        return sum(len(answer.ids) for own in batch.answers for answer in own if answer.column == CHOSEN)

    def _spare_batch(self) -> Batch:
        """Return a batch that counts nothing: all ranks have to run the model equally often."""
        if self._spare is None:
            self._spare = find_batch(self.train_dataset, self.data_collator)
        return replace(self._spare)

    @override
    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Make the optimiser, the tower that sees in groups of its own where it has a learning rate of its own."""
        optimizer = super().create_optimizer(model)
        if rate := self.setting.config.optimiser.vision_learning_rate:
            split_rates(optimizer, self.accelerator.unwrap_model(self.model), rate)
        return optimizer

    # ---- the loss

    @override
    def compute_loss(
        self, model: Any, inputs: Mapping[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return a batch's share of the step's loss."""
        del return_outputs, num_items_in_batch
        batch, setting = sound(inputs["batch"]), self.setting
        self._refused += batch.refused
        weight, last = self._weight(batch), self.accelerator.sync_gradients
        if not weight:
            loss, _ = self._loss(model, self._spare_batch(), setting.goal)
            if setting.adversary:
                setting.adversary.skip(step=last)
            return loss.value * 0
        loss, rewards = self._loss(model, batch, setting.goal, adversary=setting.adversary)
        values = _read(loss)
        if not math.isfinite(values["loss"]):
            raise TrainingError(self._not_finite(f"the loss is {values['loss']}", batch.keys))
        if setting.adversary and rewards is not None:
            self.window.add(setting.adversary.learn(rewards, step=last), len(batch.keys))
        self.window.add(values, weight, loss.counts)
        self._done.rows += len(batch.keys)
        # The Trainer divides by the number of batches, and the ranks' gradients are averaged.
        return loss.value * (weight * count_ranks() * self.current_gradient_accumulation_steps / self._total)

    def _loss(
        self, model: Any, batch: Batch, goal: Goal, *, adversary: Adversary | None = None
    ) -> tuple[Loss, Tensor | None]:
        """Return a batch's loss, and the rewards of an adversary's negatives."""
        config = self.setting.config
        if goal.section != config.objective:  # measured as DPO, with the reward that is trained
            config = config.model_copy(update={"dpo": DpoConfig(beta=config.adpo.beta)})
        if adversary:
            batch = with_answers(batch, adversary.propose(batch.keys), config.model.max_length)
        self._done.tokens += count_tokens(batch)
        width = 1 + max(answer.column for own in batch.answers for answer in own)
        dtype = torch.bfloat16 if self.args.bf16 else torch.float16 if self.args.fp16 else None
        packed = pack_answers(batch, self.accelerator.unwrap_model(model), width=max(width, TEXTS), dtype=dtype)
        reference = self.setting.reference if goal.needs_reference else None
        asked = Asked(model, packed, batch.keys)
        with seen_once(model, *(reference.models if reference else ())):
            compared = reference.score(asked) if reference else None
            policy = score_answers(model, packed)
        loss = goal.compute(policy, compared, config)
        return loss, negative_rewards(policy, compared, config.adpo) if adversary else None

    @override
    def _clip_grad_norm(self, model: Any) -> Any:
        norm = super()._clip_grad_norm(model)
        scaled = getattr(self.accelerator, "scaler", None)  # of fp16: it passes over such a step with a lower scale
        if norm is not None and not scaled and not math.isfinite(value := float(norm)):
            raise TrainingError(self._not_finite(f"the norm of the gradients is {value}", self._keys))
        return norm

    def _not_finite(self, what: str, keys: Sequence[str]) -> str:
        rows = ", ".join(keys) or "another process' rows"
        latest = self.setting.run.latest()
        since = f"The last checkpoint, {latest}, is from before" if latest else "There is no checkpoint yet"
        return (
            f"step {self.state.global_step + 1}: {what}. The batch is: {rows}. {since}. Begin anew under another "
            "--name with a lower learning rate (--set optimiser.learning_rate=...) or in fp32 "
            "(--set optimiser.precision=fp32)"
        )

    # ---- measuring and logging

    def measure(self) -> None:
        """Measure on the held-out rows, unless it was done at this step.

        ADPO, which draws its negatives, is measured as DPO on the rows' own rejected texts.
        """
        step, metrics, began = self.state.global_step, self.setting.metrics, time.monotonic()
        rows, model = cast("Any", self.eval_dataset), cast("Any", self.model)
        if not len(rows) or any(gather(metrics.has(step, HELD_OUT))):
            return
        goal = OBJECTIVES["dpo"] if self.setting.adversary else self.setting.goal
        window, done = Window(), self._done.tokens
        model.eval()
        with torch.no_grad():
            for inputs in self.get_eval_dataloader():
                if self.stopping and count_ranks() == 1:
                    return
                self._measure_batch(sound(inputs["batch"]), goal, window)
        model.train()
        joined = Window()
        joined.join(gather(window.empty()))
        if (found := joined.take()) and self.is_world_process_zero():
            metrics.add(step, self.state.epoch or 0.0, HELD_OUT, found)
            self._tell({f"{MEASURED}{name}": value for name, value in found.items()})
        self._done.tokens = done
        self._since += time.monotonic() - began

    def _tell(self, logs: dict[str, float]) -> None:
        """Tell trackers and watchers, without what the Trainer does then: take the step for logged."""
        due = self.control.should_log
        self.callback_handler.on_log(self.args, self.state, self.control, logs)
        self.control.should_log = due

    def _measure_batch(self, batch: Batch, goal: Goal, window: Window) -> None:
        self._refused += batch.refused
        if batch.prompts:
            loss, _ = self._loss(self.model, batch, goal)
            window.add(_read(loss), self._weight(batch), loss.counts)
        elif self.is_sharded:
            self._loss(self.model, self._spare_batch(), goal)

    @override
    def _maybe_log_save_evaluate(self, *args: Any, **words: Any) -> None:
        every = self.setting.config.output.eval_steps
        if every and self.state.global_step % every == 0:
            self.measure()
        super()._maybe_log_save_evaluate(*args, **words)

    @override
    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log the means over all ranks' rows since the last time."""
        self._join()
        own, done, now = self.window.take(), self._done, time.monotonic()
        seconds, self._since, self._done = max(now - self._since, 1e-9), now, Done()
        if not own:  # not the first rank, or nothing since the last time
            return
        found = own | {name: logs[name] for name in ("grad_norm", "learning_rate") if name in logs}
        found |= {"rows per second": done.rows / seconds, "tokens per second": done.tokens / seconds}
        if torch.cuda.is_available():
            found["memory"] = torch.cuda.max_memory_allocated() / 2**30
        self.setting.metrics.add(self.state.global_step, self.state.epoch or 0.0, TRAIN, found)
        super().log(found, start_time)

    def _join(self) -> None:
        """Bring all ranks' windows, counts and refused rows to the first rank."""
        parts = gather((self.window.empty(), self._done, self._refused))
        self._done, self._refused = Done(), []
        if self.is_world_process_zero():
            self.window.join(sums for sums, _, _ in parts)
            self._done = Done(sum(done.rows for _, done, _ in parts), sum(done.tokens for _, done, _ in parts))
            self._list_refused([one for _, _, own in parts for one in own])

    def _list_refused(self, refused: Sequence[Refused]) -> None:
        path = self.setting.run.refused
        try:
            new = append_refused(path, refused)
        except OSError as error:
            raise TrainingError(
                f"{path}: cannot be written: {error}. Make room, and go on with the same command"
            ) from error
        for one in new:
            log.warning("row %s is not trained on: %s %s", one.key, one.reason, one.detail)

    # ---- checkpoints

    @override
    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint, and all metrics so far: a resumed run has none that came later.

        Raises:
            TrainingError: the disk refuses, or the weights are no numbers; the checkpoints before are as they were.
        """
        began = time.monotonic()
        if not all(gather(is_finite(model))):
            raise TrainingError(self._not_finite("weights are no longer finite", self._keys))
        self._join()
        super()._save_checkpoint(model, trial)
        self._since += time.monotonic() - began


def _read(loss: Loss) -> dict[str, float]:
    """Return a loss and its metrics as numbers; the host waits for the device once."""
    named = {"loss": loss.value.detach(), **loss.metrics}
    return dict(zip(named, torch.stack([value.float() for value in named.values()]).tolist(), strict=True))


def _not_loaded(error: Exception) -> str:
    return (
        f"a process that reads rows ended: {error}. Out of memory? Try --set data.dataloader_num_workers=0, a smaller "
        "model.max_pixels, or in a container more shared memory (docker run --shm-size 4g)"
    )
