"""A tiny Qwen2-VL for all tests that only read it, and trainings without samples."""

from pathlib import Path

import pytest

from pairwright.tasks.training import train_model
from tests.fixtures.families_of_models import write_qwen2_vl


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_qwen2_vl(tmp_path_factory.mktemp("models") / "qwen")


@pytest.fixture
def no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare what takes half of a training's time."""
    monkeypatch.setattr(train_model, "sample_answers", lambda trainer, folder: None)
