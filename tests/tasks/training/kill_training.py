"""Train in a process that tests kill; imported by the server process that they are forked from."""

import peft  # noqa: F401  (what a training imports later is imported once, before the processes are forked)
import torch
from transformers import Qwen2VLForConditionalGeneration, Qwen2VLProcessor  # noqa: F401

from pairwright.tasks.training import fit_preferences

TRAINING = ".training"


def train_deaf(job):
    """Train, and leave a file when the steps begin."""
    torch.set_num_threads(1)
    fit_preferences.sample_answers = lambda trainer, folder: None
    fit_preferences.measure_unreadable = lambda trainer: {}
    job.run.clean()
    fit_preferences.fit_preferences(fit_preferences.Job(**{**vars(job), "watcher": Beginning(job)}))


class Beginning:
    """Write a file when a training begins."""

    def __init__(self, job):
        self.job = job

    def begin(self, step, steps):
        (self.job.run.folder / TRAINING).touch()

    def advance(self, step):
        pass

    def logged(self, step, split, values):
        pass
