"""Train in a process that tests kill; imported by the server process that they are forked from."""

import peft  # noqa: F401  (what a training imports later is imported once, before the processes are forked)
import torch
from transformers import Qwen2VLForConditionalGeneration, Qwen2VLProcessor  # noqa: F401

from pairwright.tasks.training import fit_preferences
from pairwright.tasks.training.objective import Job

TRAINING = ".training"


def train_deaf(job: Job) -> None:
    """Train, and leave a file when the steps begin."""
    torch.set_num_threads(1)
    fit_preferences.sample_answers = lambda trainer, folder: None
    fit_preferences.measure_unreadable = lambda trainer: {}
    job.run.clean()
    fit_preferences.fit_preferences(fit_preferences.Job(**{**vars(job), "watcher": Beginning(job)}))


class Beginning:
    """Write a file when a training begins."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def begin(self, step: int, steps: int) -> None:
        (self.job.run.folder / TRAINING).touch()

    def advance(self, step: int) -> None:
        pass

    def logged(self, step: int, split: str, values: object) -> None:
        pass
