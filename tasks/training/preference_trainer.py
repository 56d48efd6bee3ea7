"""Train on preferences with transformers' Trainer: objective, reference, adversary, checkpoints.

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
    restore_extra_weights,
    save_extra_weights,
    save_sharded_weights,
    split_rates,
    without_module,
)
from pairwright.tasks.training.losses import (
    CHOSEN,
    Loss,
    compute_loss,
    count_columns,
    measures_of,
    negative_rewards,
)
from pairwright.tasks.training.pack_answers import Packed, pack_answers
from pairwright.tasks.training.ranks import Watcher, count_ranks, gather_ranks, own_rank
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

    def __init__(self, setup: TrainingSetup, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.remove_callback(PrinterCallback)
        self.add_callback(_Events(self))
        self.model_accepts_loss_kwargs = False
        self.setup = setup
        self.window = runs.Window()
        self.stopping = False  # set to end after this step, with a checkpoint
        self.alarm: Alarm | None = None  # the alarm that stopped the training
        self.order = load_batches.BatchOrder(0, 1, None)
        self._agreed_to_stop = False
        self._total = 0.0  # weight of the step's batches on all ranks
        self._keys: list[str] = []
        self._refused: list[Refused] = []
        # since the last log entry
        self._rows = 0
        self._tokens = 0
        self._since = time.monotonic()

    def fit(self, checkpoint: Path | None) -> None:
        """Train, from a checkpoint where there is one."""
        if checkpoint is None:
            self.train()
            return
        if self.is_world_process_zero():
            self.window.add_sums(json.loads((checkpoint / WINDOW).read_text()))
        if self.setup.adversary:
            self.setup.adversary.restore_state(checkpoint)
        restore_extra_weights(self.model, checkpoint)
        self.train(resume_from_checkpoint=str(checkpoint))

    # ---- rows

    @override
    def get_train_dataloader(self) -> Any:
        loader = self._make_loader(self.train_dataset, self.setup.config.seed)
        self.order = loader.batch_sampler
        return loader

    def _make_loader(self, rows: Any, seed: int | None) -> Any:
        """Return the loader of this rank's batches; without a seed, in the rows' order."""
        config = self.setup.config
        lengths: Sequence[int] = ()
        if config.data.group_by_length and seed is not None:
            lengths = load_batches.text_lengths(rows)
        order = load_batches.BatchOrder(
            len(rows),
            config.optimiser.per_device_train_batch_size,
            seed,
            ranks=count_ranks(),
            rank=own_rank(),
            lengths=lengths,
        )
        workers = load_batches.count_workers(config.data.dataloader_num_workers)
        collate = cast("Any", self.data_collator)
        return load_batches.make_loader(rows, collate, order, workers=workers)

    @property
    def answer_collator(self) -> Any:
        """Return the collator by which answers are counted in tokens."""
        return self.data_collator

    @cached_property
    def _held_out(self) -> Any:
        """Return the loader of held-out rows, whose processes stay for the next evaluation."""
        return self._make_loader(self.eval_dataset, None)

    @override
    def get_batch_samples(
        self, epoch_iterator: Any, num_batches: int, device: Any
    ) -> tuple[list[Any], None]:
        """Return a step's batches; agree with the other ranks on their weight and on stopping."""
        if self.control.should_training_stop:
            # It was killed between the last checkpoint and the finished model.
            return [], None
        try:
            samples, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        except RuntimeError as error:
            # A loading process was killed; PyTorch has no error of its own for it.
            raise TrainingError(
                f"a process that reads rows ended: {error}. Out of memory? "
                "Try --set data.dataloader_num_workers=0, a smaller model.max_pixels, "
                "or in a container more shared memory (docker run --shm-size 4g)"
            ) from error
        batches = [sample["batch"] for sample in samples]
        self._keys = [key for batch in batches for key in batch.keys]
        own_weight = sum(self._weight(batch) for batch in batches)
        states = gather_ranks((own_weight, self.stopping))
        self._total = sum(weight for weight, _ in states)
        self._agreed_to_stop = any(stopping for _, stopping in states)
        return samples, None

    @property
    def is_stopping(self) -> bool:
        """Return whether the training ends after this step; all ranks agree."""
        return self._agreed_to_stop or (self.stopping and count_ranks() == 1)

    def _weight(self, batch: Batch) -> float:
        """Return the denominator of a batch's mean loss: its examples, or for SFT their tokens."""
        if self.setup.config.objective != "sft":
            return len(batch.keys)
        tokens = 0
        for answers in batch.answers:
            for answer in answers:
                if answer.column == CHOSEN:
                    tokens += len(answer.loss_tokens)
        return tokens

    @cached_property
    def _spare(self) -> Batch:
        """Return a batch of weight 0: all ranks must run the model equally often."""
        return load_batches.find_batch(self.train_dataset, cast("Any", self.data_collator))

    @override
    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Create the optimiser, with groups for a vision tower that has its own learning rate."""
        optimizer = super().create_optimizer(model)
        rate = self.setup.config.optimiser.vision_learning_rate
        if rate:
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
        batch = inputs["batch"]
        config = self.setup.config
        adversary = self.setup.adversary
        self._refused += batch.refused
        weight = self._weight(batch)
        is_last = self.accelerator.sync_gradients  # of the step's batches
        if not weight:
            loss, _ = self._loss(model, replace(self._spare), config)
            if adversary:
                adversary.skip(step=is_last)
            return reach_whole(model, loss.value * 0)
        loss, rewards = self._loss(model, batch, config, adversary=adversary)
        values = _to_numbers(loss)
        if not math.isfinite(values["loss"]):
            raise TrainingError(self._explain(f"the loss is {values['loss']}", batch.keys))
        if adversary and rewards is not None:
            self.window.add_batch(adversary.learn(rewards, step=is_last), len(batch.keys))
        self.window.add_batch(values, weight, loss.counts)
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
        """Return a batch's loss, and the rewards of the negatives that an adversary proposed."""
        if adversary:
            proposed = adversary.propose(batch.keys)
            batch = load_batches.with_answers(batch, proposed, config.model.max_length)
        self._tokens += _count_tokens(batch)
        packed = self._pack(model, batch)
        reference = self.setup.reference
        copies = [reference.model] if isinstance(reference, Copy) else []
        with sharing_features(model, *copies):
            compared = reference.score(model, packed, batch.keys) if reference else None
            policy = score_answers(model, packed)
        loss = compute_loss(policy, compared, config)
        if adversary and compared:
            return loss, negative_rewards(policy, compared, config.adpo)
        return loss, None

    def _pack(self, model: Any, batch: Batch, *, width: int = 0) -> Packed:
        dtype = torch.bfloat16 if self.args.bf16 else None
        return pack_answers(batch, self.accelerator.unwrap_model(model), width=width, dtype=dtype)

    @override
    def _clip_grad_norm(self, model: Any) -> Any:
        norm = super()._clip_grad_norm(model)
        if norm is None:
            return None
        value = float(norm)
        if not math.isfinite(value):
            raise TrainingError(self._explain(f"the norm of the gradients is {value}", self._keys))
        return norm

    def _explain(self, what: str, keys: Sequence[str]) -> str:
        """Return the message about a value that is not finite."""
        rows = ", ".join(keys) or "another process' rows"
        latest = self.setup.run.latest()
        checkpoint = "There is no checkpoint yet"
        if latest:
            checkpoint = f"The last checkpoint, {latest}, is older"
        return (
            f"step {self.state.global_step + 1}: {what}. The batch is: {rows}. {checkpoint}. "
            f"{self._advise()}"
        )

    def _advise(self) -> str:
        """Return what to change after a value that is not finite."""
        precision = "in fp32 (--set optimiser.precision=fp32)"
        if self.state.global_step:
            rate = "a lower learning rate (--set optimiser.learning_rate=...)"
            return f"Start over with another --name and {rate} or {precision}"
        # No step was taken: the learning rate has changed nothing yet.
        bad = [
            name
            for name, weight in cast("Any", self.model).named_parameters()
            if weight.is_floating_point() and not weight.isfinite().all()
        ]
        if bad:
            return (
                f"The start model has {len(bad):,} weights with NaN or infinite values, "
                f"{bad[0]} the first: fetch or convert it again"
            )
        return (
            f"The start model's weights are finite: look at these rows, or start over {precision}"
        )

    # ---- measuring and logging

    def _iterate_batches(self, rows: Any) -> Iterator[tuple[Batch, bool]]:
        """Yield this rank's batches for evaluation, and whether each counts.

        One that does not count keeps the ranks in step. ``KeyboardInterrupt``: the training is to
        stop.
        """
        cast("Any", self.model).eval()
        loader = self._held_out if rows is self.eval_dataset else self._make_loader(rows, None)
        for inputs in loader:
            if self.stopping and count_ranks() == 1:
                raise KeyboardInterrupt
            batch: Batch = inputs["batch"]
            self._refused += batch.refused
            if batch.prompts:
                yield batch, True
            elif self.is_fsdp_enabled:
                yield replace(self._spare), False

    def score_reference(self) -> None:
        """Write the initial model's log-probabilities, where they are the reference."""
        table = self.setup.reference
        if not isinstance(table, ReferenceScores):
            return
        if self.is_world_process_zero():
            table.copy_shared()
        if any(gather_ranks(table.path.exists())):
            return
        log.info("the initial model scores all answers once, for the reference")
        scores = list[tuple[str, list[float], list[int]]]()
        width = count_columns(measures_of(self.setup.config))
        model = self.model
        for rows in (self.train_dataset, self.eval_dataset):
            for batch, counts in self._iterate_batches(rows):
                with torch.no_grad():
                    scored = score_answers(model, self._pack(model, batch, width=width))
                if counts:
                    logps = scored.logps.tolist()
                    tokens = scored.tokens.tolist()
                    scores += zip(batch.keys, logps, tokens, strict=True)
        all_scores = [row for rank_scores in gather_ranks(scores) for row in rank_scores]
        if self.is_world_process_zero():
            if not all_scores:
                _ = self._spare  # raises, with the reasons
            table.write_scores(all_scores)
        gather_ranks(None)  # the others read the file when it is there
        self._since = time.monotonic()

    def measure(self) -> None:
        """Evaluate on the held-out rows, once per step.

        ADPO, which draws its negatives, is evaluated as DPO on the rows' own rejected texts.
        """
        began = time.monotonic()
        tokens = self._tokens
        metrics = self.setup.metrics
        step = self.state.global_step
        has_rows = len(cast("Any", self.eval_dataset)) > 0
        if not has_rows or any(gather_ranks(metrics.is_logged(step, runs.HELD_OUT))):
            return
        is_first = self.is_world_process_zero()
        try:
            values = self._measure_losses()
            if values and is_first:
                values |= self.setup.measure_answers(self)
        except KeyboardInterrupt:
            if not self.stopping:
                raise
            return
        if values and is_first:
            self._add_metrics(runs.HELD_OUT, values)
            should_log = self.control.should_log  # a report to trackers is no log entry of the step
            reported = {f"eval_{name}": value for name, value in values.items()}
            self.callback_handler.on_log(self.args, self.state, self.control, reported)
            self.control.should_log = should_log
        cast("Any", self.model).train()
        self._tokens = tokens
        self._since += time.monotonic() - began

    def _measure_losses(self) -> dict[str, float]:
        """Return the means over all ranks' held-out rows, and how many rows were ranked."""
        config = self.setup.config
        window = runs.Window()
        if self.setup.adversary:
            dpo = DpoConfig(beta=config.adpo.beta)
            config = config.model_copy(update={"objective": "dpo", "dpo": dpo})
        with torch.no_grad():
            for batch, counts in self._iterate_batches(self.eval_dataset):
                loss, _ = self._loss(self.model, batch, config)
                if counts:
                    window.add_batch(_to_numbers(loss), self._weight(batch), loss.counts)
        for sums in gather_ranks(window.take_sums()):
            window.add_sums(sums)
        _, ranked = window.sums.get("accuracy", (0.0, 0.0))
        values = window.take_means()
        if values and ranked:
            values[runs.RANKED] = ranked
        return values

    def check_alarms(self) -> None:
        """Stop the training after this step where the model collapses; the first rank decides."""
        config = self.setup.config
        entries = self.setup.metrics.entries
        alarm = next(find_collapse(arrange(entries), config), None)
        if alarm is None:
            return
        log.warning("step %d: %s. %s", self.state.global_step, *alarm)
        if config.output.alarms == "stop":
            self.alarm = alarm
            self.stopping = True

    @override
    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log the means over all ranks' rows since the last entry."""
        self._collect_ranks()
        values = self.window.take_means()
        now = time.monotonic()
        seconds = max(now - self._since, 1e-9)
        rows = self._rows
        tokens = self._tokens
        self._since = now
        self._rows = 0
        self._tokens = 0
        if not values:  # not the first rank, or nothing new
            return
        for name in ("grad_norm", "learning_rate"):
            if name in logs:
                values[name] = logs[name]
        values["rows per second"] = rows / seconds
        values["tokens per second"] = tokens / seconds
        if torch.cuda.is_available():
            values["memory"] = torch.cuda.max_memory_allocated() / 2**30
        self._add_metrics(runs.TRAIN, values)
        super().log(values, start_time)

    def _add_metrics(self, split: str, values: Mapping[str, float]) -> None:
        step = self.state.global_step
        self.setup.metrics.add_values(step, self.state.epoch or 0.0, split, values)
        if self.setup.watcher:
            self.setup.watcher.logged(step, split, values)

    def _collect_ranks(self) -> None:
        """Collect all ranks' windows, counts and refused rows on the first rank."""
        states = gather_ranks((self.window.take_sums(), self._rows, self._tokens, self._refused))
        self._rows = 0
        self._tokens = 0
        self._refused = []
        if not self.is_world_process_zero():
            return
        refused = list[Refused]()
        for sums, rows, tokens, rank_refused in states:
            self.window.add_sums(sums)
            self._rows += rows
            self._tokens += tokens
            refused += rank_refused
        for row in runs.append_refused(self.setup.run.refused, refused):
            log.warning("row %s is skipped: %s %s", row.key, row.reason, row.detail)

    # ---- checkpoints

    @override
    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint under a temporary name and rename it, with all metrics so far."""
        began = time.monotonic()
        is_first = self.is_world_process_zero()
        save = super()._save_checkpoint
        self._collect_ranks()
        saving = Saving(self.setup.run, f"{runs.STEP}{self.state.global_step}")

        def begin() -> None:
            if is_first:
                saving.create_folder()

        def complete_checkpoint() -> None:
            if not is_first:
                return
            (saving.staged / WINDOW).write_text(json.dumps(self.window.sums))
            if self.setup.adversary:
                self.setup.adversary.save_state(saving.staged)
            self.setup.metrics.write_file()
            saving.publish_checkpoint(self.setup.config.output.save_total_limit)

        saving.agree(begin)
        saving.agree(lambda: save(model, trial))
        saving.agree(complete_checkpoint)
        self._since += time.monotonic() - began

    @override
    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the finished model, or a checkpoint's; FSDP writes checkpoints itself."""
        if _internal_call and self.is_fsdp_enabled:
            save_sharded_weights(self.model, Path(str(output_dir)), first=self.args.should_save)
        else:
            super().save_model(output_dir, _internal_call)

    @override
    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None
    ) -> None:
        """Write the model; in a checkpoint under its modules' names, by which the Trainer loads it.

        A finished model has the published names, different in some families (Qwen2-VL). Gathered
        weights no longer share memory with those tied to them: each is written once.
        """
        model = cast("Any", self.model)
        weights = state_dict
        is_finished = runs.SAVING not in str(output_dir)
        if isinstance(model, PreTrainedModel):
            if is_finished and hasattr(model, MODULE):
                state_dict = without_module(state_dict or model.state_dict())
            if state_dict is not None:
                state_dict = _drop_tied(state_dict, model)
            if not is_finished:
                plain = partial(model.save_pretrained, save_original_format=False)
                vars(model)["save_pretrained"] = plain
        try:
            super()._save(output_dir, state_dict)
        finally:
            vars(model).pop("save_pretrained", None)
        if self.args.should_save:
            save_extra_weights(model, Path(str(output_dir)), finished=is_finished, weights=weights)


class _Events(TrainerCallback):
    """Actions at the start of the training, and after each step."""

    def __init__(self, trainer: PreferenceTrainer) -> None:
        self.trainer = trainer

    @override
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        output = self.trainer.setup.config.output  # may differ from the checkpoint's
        state.logging_steps = output.logging_steps
        state.save_steps = output.save_steps
        watcher = self.trainer.setup.watcher
        if watcher:
            watcher.begin(state.global_step, state.max_steps)

    @override
    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer.order.epoch = int(state.epoch or 0)
        if state.global_step >= state.max_steps:
            control.should_training_stop = True
        elif not state.global_step:
            self.trainer.score_reference()
            self.trainer.measure()

    @override
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        watcher = self.trainer.setup.watcher
        if watcher:
            watcher.advance(state.global_step)
        eval_steps = self.trainer.setup.config.output.eval_steps
        if eval_steps and state.global_step % eval_steps == 0:
            self.trainer.measure()
            if state.global_step < state.max_steps:
                self.trainer.check_alarms()
        if self.trainer.is_stopping:
            control.should_save = True
            control.should_training_stop = True


def _count_tokens(batch: Batch) -> int:
    """Return the tokens of a batch's prompts and answers."""
    tokens = sum(len(prompt) for prompt in batch.prompts)
    for answers in batch.answers:
        tokens += sum(len(answer.ids) for answer in answers)
    return tokens


def _drop_tied(weights: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Return the weights without those that others are tied to."""
    tied = model.all_tied_weights_keys
    return {name: weight for name, weight in weights.items() if name not in tied}


def _to_numbers(loss: Loss) -> dict[str, float]:
    """Return a loss and its metrics as numbers, with one device sync."""
    named = {"loss": loss.value.detach(), **loss.metrics}
    numbers = torch.stack([value.float() for value in named.values()]).tolist()
    return dict(zip(named, numbers, strict=True))
