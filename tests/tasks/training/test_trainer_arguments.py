"""The Trainer's settings."""

import logging
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainingArguments

from tasks.training.runs import Run
from tasks.training.trainer_arguments import make_arguments
from tests.fixtures.runs_to_train import settings


def test_of_several_gpus_one_is_used(tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The Trainer would put torch.nn.DataParallel around the model. Four GPUs are not to be had."""

    def count(arguments: TrainingArguments) -> torch.device:
        arguments._n_gpu = 4
        return torch.device("cpu")

    four = cached_property(count)
    four.__set_name__(TrainingArguments, "_setup_devices")
    monkeypatch.setattr(TrainingArguments, "_setup_devices", four)
    caplog.set_level(logging.WARNING)
    arguments = make_arguments(Run(tmp_path), settings("dpo", tmp_path), torch.float32)
    assert (arguments.n_gpu, arguments.train_batch_size) == (1, 2)
    assert "one of 4 GPUs is used" in caplog.text
