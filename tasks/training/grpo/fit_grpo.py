"""Train by TRL's GRPOTrainer on a run's frozen rows, from its last checkpoint.

Reads the run's folder, the dataset's parts, the model; writes checkpoints, metrics, the finished
model, samples of its answers. Held-out rows are answered greedily, and their rewards averaged.
Needs PyTorch, transformers, peft, TRL.
"""

import contextlib
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from transformers import PrinterCallback, TrainerCallback
from transformers.utils.logging import disable_progress_bar
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from typing_extensions import override

from pairwright.schemas.errors import PairwrightError, StoreError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.scenes.reward_answers import reward, reward_completions
from pairwright.tasks.training import load_model, runs
from pairwright.tasks.training.answer_questions import answer_held_out
from pairwright.tasks.training.chat_format import make_messages
from pairwright.tasks.training.collate import Collator, Loaded
from pairwright.tasks.training.fit_preferences import (
    argument_values,
    finish_run,
    place_model,
    read_examples,
)
from pairwright.tasks.training.freeze_rows import Refused, RefusedRowError
from pairwright.tasks.training.grpo.freeze_truths import open_truths
from pairwright.tasks.training.image_size import bound_pixels, grid_of
from pairwright.tasks.training.losses import measures_of, needs_of
from pairwright.tasks.training.objective import Ended, Job
from pairwright.tasks.training.ranks import Watcher, stoppable
from pairwright.tasks.training.save_checkpoints import Saving

log = logging.getLogger(__name__)
REWARD = "reward"
NAMES: Mapping[str, str] = {
    "loss": "loss",
    "reward": REWARD,
    "reward_std": "reward/deviation",
    "frac_reward_zero_std": "reward/equal groups",
    "completions/mean_length": "answer/tokens",
    "completions/clipped_ratio": "answer/cut off",
    "entropy": "answer/entropy",
    "kl": "kl",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
}
"""TRL's metrics that a run keeps, and their names there."""


@dataclass(frozen=True)
class PromptReader:
    """Reader of prompts with their images and truth, as TRL takes them, by the rows' numbers."""

    examples: Any  # ``ExampleRows``, or a part of them
    truths: Mapping[str, str]

    def __call__(self, batch: Mapping[str, Sequence[int]]) -> dict[str, list[Any]]:
        """Return the prompts of some rows, whose images are decoded now."""
        records: dict[str, list[Any]] = {"prompt": [], "images": [], "truth": []}
        for number in batch["row"]:
            item: Loaded | Refused = self.examples[number]
            if isinstance(item, Refused):
                raise RefusedRowError(item.reason, f"row {item.key} {item.detail}")
            records["prompt"].append(make_messages(item.example.turns, len(item.images)))
            records["images"].append(list(item.images))
            records["truth"].append(self.truths[item.example.key])
        return records


@dataclass(frozen=True, kw_only=True)
class GrpoSetup:
    """What the trainer needs beside TRL's settings."""

    run: runs.Run
    config: TrainConfig
    metrics: runs.MetricsFile
    truths: Mapping[str, str]
    watcher: Watcher | None = None


class ExactRewardTrainer(GRPOTrainer):
    """TRL's trainer, with a run's checkpoints, metrics and stops."""

    def __init__(self, setup: GrpoSetup, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.remove_callback(PrinterCallback)
        self.add_callback(GrpoEvents(self))
        self.setup = setup
        self.stopping = False
        self.answer_collator = Collator(self.processing_class, setup.config.model.max_length)

    def measure(self) -> None:
        """Average the reward of the model's greedy answers to held-out rows, once per step."""
        metrics = self.setup.metrics
        step = self.state.global_step
        if not cast("Any", self.eval_dataset) or metrics.is_logged(step, runs.HELD_OUT):
            return
        with contextlib.suppress(KeyboardInterrupt):  # the training is to stop
            samples = answer_held_out(cast("Any", self), most=None)
            rewards = [
                reward(sample.answer, self.setup.truths[sample.key])
                for sample in samples
                if sample.key in self.setup.truths
            ]
            if rewards:
                self.add_metrics(runs.HELD_OUT, {REWARD: sum(rewards) / len(rewards)})
        cast("Any", self.model).train()

    def add_metrics(self, split: str, values: Mapping[str, float]) -> None:
        """Add values of the present step to the run's metrics."""
        step = self.state.global_step
        self.setup.metrics.add_values(step, self.state.epoch or 0.0, split, values)
        if self.setup.watcher:
            self.setup.watcher.logged(step, split, values)

    @override
    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write none: the finished model has ours."""

    @override
    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint under a temporary name and rename it, with all metrics so far."""
        saving = Saving(self.setup.run, f"{runs.STEP}{self.state.global_step}")
        saving.agree(saving.create_folder)
        save = super()._save_checkpoint
        saving.agree(lambda: save(model, trial))

        def complete() -> None:
            self.setup.metrics.write_file()
            saving.publish_checkpoint(self.setup.config.output.save_total_limit)

        saving.agree(complete)


class GrpoEvents(TrainerCallback):
    """Actions at the start of the training, when metrics are logged, and after each step."""

    def __init__(self, trainer: ExactRewardTrainer) -> None:
        self.trainer = trainer

    @override
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        watcher = self.trainer.setup.watcher
        if watcher:
            watcher.begin(state.global_step, state.max_steps)
        if not state.global_step:
            self.trainer.measure()

    @override
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        values = {name: logs[key] for key, name in NAMES.items() if key in (logs or {})}
        if REWARD in values:
            self.trainer.add_metrics(runs.TRAIN, values)

    @override
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        watcher = self.trainer.setup.watcher
        if watcher:
            watcher.advance(state.global_step)
        eval_steps = self.trainer.setup.config.output.eval_steps
        if eval_steps and state.global_step % eval_steps == 0:
            self.trainer.measure()
        if self.trainer.stopping:
            control.should_save = True
            control.should_training_stop = True


def fit_grpo(job: Job) -> Ended:
    """Train to the end, or until a signal."""
    trainer = make_grpo_trainer(job)
    checkpoint = job.run.latest()
    with stoppable(trainer):
        try:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        except (PairwrightError, RefusedRowError, RuntimeError, MemoryError):
            with contextlib.suppress(StoreError):  # for the run's page
                trainer.setup.metrics.write_file()
            raise
        finished = not trainer.stopping
        if finished:
            trainer.measure()
            saving = Saving(job.run, job.run.model.name)
            saving.agree(lambda: finish_run(trainer, job))
    return Ended(
        step=trainer.state.global_step,
        steps=trainer.state.max_steps,
        measured=trainer.setup.metrics.last(runs.HELD_OUT),
        finished=finished,
    )


def make_grpo_trainer(job: Job) -> ExactRewardTrainer:
    """Return a run's trainer, its model loaded."""
    config = job.config
    run = job.run
    disable_progress_bar()  # of file reads and writes
    processor = load_model.load_processor(job.start, config.model.template_kwargs)
    processor.tokenizer.padding_side = "left"  # TRL needs it; the saved tokenizer is the start's
    bound_pixels(processor, config.model.max_pixels)
    grid = grid_of(processor)
    loaded = load_model.load_to_train(job.start, config)
    model = place_model(load_model.prepare_model(loaded, config))
    metrics = runs.MetricsFile(run.metrics)
    steps = run.steps()
    if steps:
        metrics.read_until(steps[-1])
    truths = open_truths(run.folder)
    setup = GrpoSetup(run=run, config=config, metrics=metrics, truths=truths, watcher=job.watcher)
    train_rows = read_examples(job, needs_of(config), grid=grid)
    with warnings.catch_warnings():
        # TRL warns of models that are passed with adapters, and of experimental features.
        warnings.simplefilter("ignore")
        trainer = ExactRewardTrainer(
            setup,
            model=model,
            args=make_grpo_arguments(run, config),
            reward_funcs=reward_completions,
            train_dataset=_read_prompts(train_rows, truths),
            processing_class=processor,
        )
    trainer.eval_dataset = read_examples(job, measures_of(config), grid=grid, held_out=True)
    return trainer


def _read_prompts(examples: Any, truths: Mapping[str, str]) -> Any:
    """Return the prompts as a dataset of TRL's kind, with images decoded when they are read."""
    from datasets import Dataset

    rows = Dataset.from_dict({"row": list(range(len(examples)))})
    rows.set_transform(PromptReader(examples, truths))
    return rows


def make_grpo_arguments(run: runs.Run, config: TrainConfig) -> GRPOConfig:
    """Return TRL's settings: a forward pass has the answers to one prompt."""
    values = argument_values(run, config, load_model.choose_precision(config))
    grpo = config.grpo
    rows = values["per_device_train_batch_size"] * values["gradient_accumulation_steps"]
    values |= {
        "per_device_train_batch_size": grpo.num_generations,
        "gradient_accumulation_steps": rows,
        "num_generations": grpo.num_generations,
        "max_completion_length": grpo.max_completion_length,
        "temperature": grpo.temperature,
        "beta": grpo.beta,
        "epsilon": grpo.epsilon,
        "loss_type": grpo.loss_type,
        "disable_dropout": True,
    }
    return GRPOConfig(**values)
