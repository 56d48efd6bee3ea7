"""Train on preferences with transformers' Trainer: objective, reference, adversary, atomic checkpoints.

Differences from the Trainer: the loader (``load_batches``), means over a step's rows across ranks
and accumulation, and atomic checkpoints (``save_checkpoints``). Three private methods of the
Trainer are overridden; a test checks them against the installed release.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel, PrinterCallback, Trainer, TrainerCallback
from typing_extensions import override

from pairwright.schemas.errors import TrainingError
from pairwright.schemas.training import NAME as MODULE
from pairwright.schemas.training import DpoConfig, TrainConfig
from pairwright.tasks.training import load_batches, runs
from pairwright.tasks.training.collate import Batch
from pairwright.tasks.training.freeze_rows import Refused
from pairwright.tasks.training.load_model import (
    restore_beside,
    save_beside,
    save_spread,
    split_rates,
    without_module,
)
from pairwright.tasks.training.losses import (
    CHOSEN,
    TEXTS,
    Loss,
    compute_loss,
    measures_of,
    negative_rewards,
)
from pairwright.tasks.training.pack_answers import Packed, pack_answers
from pairwright.tasks.training.ranks import Watcher, count_ranks, gather, own_rank
from pairwright.tasks.training.report.draw_run import arrange
from pairwright.tasks.training.report.find_alarms import Alarm, find_collapse
from pairwright.tasks.training.retriever.adversary import RetrieverAdversary
from pairwright.tasks.training.save_checkpoints import Saving
from pairwright.tasks.training.score_answers import (
    Copy,
    Reference,
    ReferenceScores,
    reach_whole,
    score_answers,
    sharing_features,
)

log = logging.getLogger(__name__)
WINDOW = "window.json"  # metrics since the last log entry, in a checkpoint


@dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """Everything that a training needs besides model and rows."""

    run: runs.Run
    config: TrainConfig
    reference: Reference | None
    adversary: RetrieverAdversary | None
    metrics: runs.MetricsFile
    # measures the model's answers to held-out rows
    measure_answers: "Callable[[PreferenceTrainer], dict[str, float]]"
    watcher: Watcher | None = None  # on the first rank only


class PreferenceTrainer(Trainer):
    """transformers' Trainer for the objectives of ``losses``."""

    def __init__(self, setting: TrainingSetup, **words: Any) -> None:
        super().__init__(**words)
        self.remove_callback(PrinterCallback)
        self.add_callback(_Events(self))
        self.model_accepts_loss_kwargs = False
        self.setting = setting
        self.window = runs.Window()
        self.stopping = False  # set to end after this step, with a checkpoint
        self.alarm: Alarm | None = None  # the alarm that stopped the training
        self.order = load_batches.BatchOrder(0, 1, None)
        self._agreed_to_stop, self._total = False, 0.0
        self._keys: list[str] = []
        self._refused: list[Refused] = []
        self._rows, self._tokens, self._since = 0, 0, time.monotonic()  # since the last log entry

    def fit(self, checkpoint: Path | None) -> None:
        """Train, from a checkpoint where there is one."""
        if checkpoint:
            if self.is_world_process_zero():
                self.window.join([json.loads((checkpoint / WINDOW).read_text())])
            if self.setting.adversary:
                self.setting.adversary.load(checkpoint)
            restore_beside(self.model, checkpoint)
        self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)

    # ---- rows

    @override
    def get_train_dataloader(self) -> Any:
        loader = self._loader(self.train_dataset, self.setting.config.seed)
        self.order = loader.batch_sampler
        return loader

    def _loader(self, rows: Any, seed: int | None) -> Any:
        config = self.setting.config
        batch = config.optimiser.per_device_train_batch_size
        lengths = (
            load_batches.text_lengths(rows)
            if config.data.group_by_length and seed is not None
            else ()
        )
        order = load_batches.BatchOrder(
            len(rows), batch, seed, ranks=count_ranks(), rank=own_rank(), lengths=lengths
        )
        workers = load_batches.count_workers(config.data.dataloader_num_workers)
        return load_batches.make_loader(
            rows, cast("Any", self.data_collator), order, workers=workers
        )

    @cached_property
    def _held_out(self) -> Any:
        """Return the loader of held-out rows, whose processes stay for the next evaluation."""
        return self._loader(self.eval_dataset, None)

    @override
    def get_batch_samples(
        self, epoch_iterator: Any, num_batches: int, device: Any
    ) -> tuple[list[Any], None]:
        """Return a step's batches; agree with the other ranks on their total weight and on stopping."""
        if (
            self.control.should_training_stop
        ):  # killed between the last checkpoint and the finished model
            return [], None
        try:
            samples, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        except (
            RuntimeError
        ) as error:  # a loading process was killed; PyTorch has no error of its own for it
            raise TrainingError(
                f"a process that reads rows ended: {error}. Out of memory? Try --set data.dataloader_num_workers=0, a "
                "smaller model.max_pixels, or in a container more shared memory (docker run --shm-size 4g)"
            ) from error
        batches = [sample["batch"] for sample in samples]
        self._keys = [key for batch in batches for key in batch.keys]
        weights, stopping = zip(
            *gather((sum(map(self._weight, batches)), self.stopping)), strict=True
        )
        self._total, self._agreed_to_stop = sum(weights), any(stopping)
        return samples, None

    @property
    def is_stopping(self) -> bool:
        """Return whether the training ends after this step; all ranks agree."""
        return self._agreed_to_stop or (self.stopping and count_ranks() == 1)

    def _weight(self, batch: Batch) -> float:
        """Return the denominator of a batch's mean loss: its examples, or for SFT their tokens."""
        if self.setting.config.objective != "sft":
            return len(batch.keys)
        return sum(
            len(answer.targets)
            for own in batch.answers
            for answer in own
            if answer.column == CHOSEN
        )

    @cached_property
    def _spare(self) -> Batch:
        """Return a batch of weight 0: all ranks must run the model equally often."""
        return load_batches.find_batch(self.train_dataset, cast("Any", self.data_collator))

    @override
    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Create the optimiser, with groups for the vision tower where it has its own learning rate."""
        optimizer = super().create_optimizer(model)
        if rate := self.setting.config.optimiser.vision_learning_rate:
            split_rates(optimizer, self.accelerator.unwrap_model(self.model), rate)
        return optimizer

    # ---- the loss

    @override
    def compute_loss(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return a batch's share of the step's loss."""
        del return_outputs, num_items_in_batch
        batch, setting = inputs["batch"], self.setting
        self._refused += batch.refused
        weight, last = self._weight(batch), self.accelerator.sync_gradients
        if not weight:
            loss, _ = self._loss(model, replace(self._spare), setting.config)
            if setting.adversary:
                setting.adversary.skip(step=last)
            return reach_whole(model, loss.value * 0)
        loss, rewards = self._loss(model, batch, setting.config, adversary=setting.adversary)
        values = _to_numbers(loss)
        if not math.isfinite(values["loss"]):
            raise TrainingError(self._not_finite(f"the loss is {values['loss']}", batch.keys))
        if setting.adversary and rewards is not None:
            self.window.add(setting.adversary.learn(rewards, step=last), len(batch.keys))
        self.window.add(values, weight, loss.counts)
        self._rows += len(batch.keys)
        # The Trainer divides by the number of batches, and the ranks' gradients are averaged.
        share = weight * count_ranks() * self.current_gradient_accumulation_steps / self._total
        return reach_whole(model, loss.value * share)

    def _loss(
        self,
        model: Any,
        batch: Batch,
        config: TrainConfig,
        *,
        adversary: RetrieverAdversary | None = None,
    ) -> tuple[Loss, Tensor | None]:
        if adversary:
            batch = load_batches.with_answers(
                batch, adversary.propose(batch.keys), config.model.max_length
            )
        self._tokens += sum(map(len, batch.prompts)) + sum(
            len(answer.ids) for own in batch.answers for answer in own
        )
        packed = self._pack(model, batch)
        reference = self.setting.reference
        with sharing_features(model, *([reference.model] if isinstance(reference, Copy) else [])):
            compared = reference.score(model, packed, batch.keys) if reference else None
            policy = score_answers(model, packed)
        loss = compute_loss(policy, compared, config)
        return loss, negative_rewards(
            policy, compared, config.adpo
        ) if adversary and compared else None

    def _pack(self, model: Any, batch: Batch, *, width: int = 0) -> Packed:
        dtype = torch.bfloat16 if self.args.bf16 else None
        return pack_answers(batch, self.accelerator.unwrap_model(model), width=width, dtype=dtype)

    @override
    def _clip_grad_norm(self, model: Any) -> Any:
        norm = super()._clip_grad_norm(model)
        if norm is not None and not math.isfinite(value := float(norm)):
            raise TrainingError(
                self._not_finite(f"the norm of the gradients is {value}", self._keys)
            )
        return norm

    def _not_finite(self, what: str, keys: Sequence[str]) -> str:
        rows = ", ".join(keys) or "another process' rows"
        latest = self.setting.run.latest()
        since = (
            f"The last checkpoint, {latest}, is older" if latest else "There is no checkpoint yet"
        )
        return (
            f"step {self.state.global_step + 1}: {what}. The batch is: {rows}. {since}. Start over with another "
            "--name and a lower learning rate (--set optimiser.learning_rate=...) or in fp32 "
            "(--set optimiser.precision=fp32)"
        )

    # ---- measuring and logging

    def _batches(self, rows: Any) -> Iterator[tuple[Batch, bool]]:
        """Yield this rank's batches for evaluation; False: it only keeps the ranks in step, uncounted.

        ``KeyboardInterrupt``: the training is to stop.
        """
        cast("Any", self.model).eval()
        for inputs in self._held_out if rows is self.eval_dataset else self._loader(rows, None):
            if self.stopping and count_ranks() == 1:
                raise KeyboardInterrupt
            batch: Batch = inputs["batch"]
            self._refused += batch.refused
            if batch.prompts or self.is_fsdp_enabled:
                yield (batch, True) if batch.prompts else (replace(self._spare), False)

    def score_reference(self) -> None:
        """Write the initial model's log-probabilities of all rows' answers, where they are the reference."""
        table, found = self.setting.reference, list[tuple[str, list[float], list[int]]]()
        if not isinstance(table, ReferenceScores) or any(gather(table.path.exists())):
            return
        log.info("the initial model scores all answers once, for the reference")
        width, model = TEXTS + measures_of(self.setting.config).texts, self.model
        for rows in (self.train_dataset, self.eval_dataset):
            for batch, counts in self._batches(rows):
                with torch.no_grad():
                    scored = score_answers(model, self._pack(model, batch, width=width))
                if counts:
                    found += zip(
                        batch.keys, scored.logps.tolist(), scored.tokens.tolist(), strict=True
                    )
        every = [row for own in gather(found) for row in own]
        if self.is_world_process_zero():
            if not every:
                _ = self._spare  # raises, with the reasons
            table.write(every)
        gather(None)  # the others read the file when it is there
        self._since = time.monotonic()

    def measure(self) -> None:
        """Evaluate on the held-out rows, once per step.

        ADPO, which draws its negatives, is evaluated as DPO on the rows' own rejected texts.
        """
        config, metrics, began = self.setting.config, self.setting.metrics, time.monotonic()
        rows, first = cast("Any", self.eval_dataset), self.is_world_process_zero()
        if not len(rows) or any(gather(metrics.has(self.state.global_step, runs.HELD_OUT))):
            return
        if self.setting.adversary:
            config = config.model_copy(
                update={"objective": "dpo", "dpo": DpoConfig(beta=config.adpo.beta)}
            )
        window, tokens = runs.Window(), self._tokens
        try:
            with torch.no_grad():
                for batch, counts in self._batches(rows):
                    loss, _ = self._loss(self.model, batch, config)
                    if counts:
                        window.add(_to_numbers(loss), self._weight(batch), loss.counts)
            window.join(gather(window.empty()))
            ranked = window.sums.get("accuracy", (0.0, 0.0))[1]
            found = window.take()
            if found and first:
                found |= ({runs.RANKED: ranked} if ranked else {}) | self.setting.measure_answers(
                    self
                )
        except KeyboardInterrupt:
            if not self.stopping:
                raise
            return
        if found and first:
            self._add(runs.HELD_OUT, found)
            due = self.control.should_log  # a report to trackers is no log entry of the step
            self.callback_handler.on_log(
                self.args, self.state, self.control, {f"eval_{k}": found[k] for k in found}
            )
            self.control.should_log = due
        cast("Any", self.model).train()
        self._tokens = tokens
        self._since += time.monotonic() - began

    def check_alarms(self) -> None:
        """Stop the training after this step where the model collapses; the first rank decides."""
        found = next(
            find_collapse(arrange(self.setting.metrics.entries), self.setting.config), None
        )
        if found:
            log.warning("step %d: %s. %s", self.state.global_step, *found)
        if found and self.setting.config.output.alarms == "stop":
            self.alarm, self.stopping = found, True

    @override
    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log the means over all ranks' rows since the last entry."""
        self._collect_ranks()
        found, now = self.window.take(), time.monotonic()
        speed = {"rows per second": self._rows, "tokens per second": self._tokens}
        seconds, self._since, self._rows, self._tokens = max(now - self._since, 1e-9), now, 0, 0
        if not found:  # not the first rank, or nothing new
            return
        found |= {name: logs[name] for name in ("grad_norm", "learning_rate") if name in logs}
        found |= {name: count / seconds for name, count in speed.items()}
        if torch.cuda.is_available():
            found["memory"] = torch.cuda.max_memory_allocated() / 2**30
        self._add(runs.TRAIN, found)
        super().log(found, start_time)

    def _add(self, split: str, found: Mapping[str, float]) -> None:
        self.setting.metrics.add(self.state.global_step, self.state.epoch or 0.0, split, found)
        if watcher := self.setting.watcher:
            watcher.logged(self.state.global_step, split, found)

    def _collect_ranks(self) -> None:
        """Collect all ranks' windows, counts and refused rows on the first rank."""
        windows, rows, tokens, refused = zip(
            *gather((self.window.empty(), self._rows, self._tokens, self._refused)), strict=True
        )
        self._rows, self._tokens, self._refused = 0, 0, []
        if not self.is_world_process_zero():
            return
        self.window.join(windows)
        self._rows, self._tokens = sum(rows), sum(tokens)
        for one in runs.append_refused(
            self.setting.run.refused, [one for own in refused for one in own]
        ):
            log.warning("row %s is skipped: %s %s", one.key, one.reason, one.detail)

    # ---- checkpoints

    @override
    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint under a temporary name and rename it, with all metrics so far."""
        began, first, save = (
            time.monotonic(),
            self.is_world_process_zero(),
            super()._save_checkpoint,
        )
        self._collect_ranks()
        saving = Saving(self.setting.run, f"{runs.STEP}{self.state.global_step}")
        saving.agree(lambda: saving.begin() if first else None)
        saving.agree(lambda: save(model, trial))

        def complete() -> None:
            (saving.staged / WINDOW).write_text(json.dumps(self.window.sums))
            if self.setting.adversary:
                self.setting.adversary.save(saving.staged)
            self.setting.metrics.write()
            saving.publish(self.setting.config.output.save_total_limit)

        saving.agree(complete if first else lambda: None)
        self._since += time.monotonic() - began

    @override
    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the finished model, or a checkpoint's; FSDP writes checkpoints itself."""
        if not (_internal_call and self.is_fsdp_enabled):
            super().save_model(output_dir, _internal_call)
        else:
            save_spread(self.model, Path(str(output_dir)), first=self.args.should_save)

    @override
    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None
    ) -> None:
        """Write the model; in a checkpoint under its modules' names, by which the Trainer loads it.

        A finished model has the published names, different in some families (Qwen2-VL). Gathered
        weights no longer share memory with those tied to them: each is written once.
        """
        model, weights, finished = (
            cast("Any", self.model),
            state_dict,
            runs.SAVING not in str(output_dir),
        )
        if whole := isinstance(model, PreTrainedModel):
            if finished and hasattr(model, MODULE):
                state_dict = without_module(state_dict or model.state_dict())
            if state_dict is not None:
                tied = model.all_tied_weights_keys
                state_dict = {
                    name: weight for name, weight in state_dict.items() if name not in tied
                }
        if whole and not finished:
            vars(model)["save_pretrained"] = partial(
                model.save_pretrained, save_original_format=False
            )
        try:
            super()._save(output_dir, state_dict)
        finally:
            vars(model).pop("save_pretrained", None)
        if self.args.should_save:
            save_beside(model, Path(str(output_dir)), finished=finished, weights=weights)


class _Events(TrainerCallback):
    """Actions at the start of the training, and after each step."""

    def __init__(self, trainer: PreferenceTrainer) -> None:
        self.trainer = trainer

    @override
    def on_train_begin(self, args: Any, state: Any, control: Any, **words: Any) -> None:
        output = self.trainer.setting.config.output  # may differ from the checkpoint's
        state.logging_steps, state.save_steps = output.logging_steps, output.save_steps
        if watcher := self.trainer.setting.watcher:
            watcher.begin(state.global_step, state.max_steps)

    @override
    def on_epoch_begin(self, args: Any, state: Any, control: Any, **words: Any) -> None:
        self.trainer.order.epoch = int(state.epoch or 0)
        if state.global_step >= state.max_steps:
            control.should_training_stop = True
        elif not state.global_step:
            self.trainer.score_reference()
            self.trainer.measure()

    @override
    def on_step_end(self, args: Any, state: Any, control: Any, **words: Any) -> None:
        every, watcher = self.trainer.setting.config.output.eval_steps, self.trainer.setting.watcher
        if watcher:
            watcher.advance(state.global_step)
        if every and state.global_step % every == 0:
            self.trainer.measure()
            if state.global_step < state.max_steps:
                self.trainer.check_alarms()
        if self.trainer.is_stopping:
            control.should_save = control.should_training_stop = True


def _to_numbers(loss: Loss) -> dict[str, float]:
    """Return a loss and its metrics as numbers, with one device sync."""
    named = {"loss": loss.value.detach(), **loss.metrics}
    return dict(
        zip(named, torch.stack([value.float() for value in named.values()]).tolist(), strict=True)
    )
