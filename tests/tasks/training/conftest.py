"""Tiny checkpoints for all tests that only read them, and trainings without samples."""

import shutil
from pathlib import Path

import pytest

from pairwright.tasks.training import fit_preferences
from tests.fixtures.families_of_models import FAMILIES


@pytest.fixture(scope="session", params=FAMILIES)
def family(request, checkpoint):
    return checkpoint(request.param)


@pytest.fixture(scope="session", params=["qwen2_vl", "llava_onevision"])
def start(request, checkpoint):
    return checkpoint(request.param)


@pytest.fixture
def folder(qwen, tmp_path):
    """Return a copy of a checkpoint that a test may change."""
    return Path(shutil.copytree(qwen, tmp_path / "qwen"))


@pytest.fixture
def no_samples(monkeypatch):
    """Spare what takes half of a training's time."""
    monkeypatch.setattr(fit_preferences, "sample_answers", lambda trainer, folder: None)
    monkeypatch.setattr(fit_preferences, "measure_unreadable", lambda trainer: {})
