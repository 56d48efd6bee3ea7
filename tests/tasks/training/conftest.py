"""Tiny checkpoints for all tests that only read them, and trainings without samples."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from pairwright.tasks.training import fit_preferences
from tests.fixtures.families_of_models import PACKED, write_gemma3

FAMILIES = {**PACKED, "gemma3": write_gemma3}


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what gives a family's checkpoint, in a folder that is called as the family is."""
    root = tmp_path_factory.mktemp("families")
    return cache(lambda family: FAMILIES[family](root / family))


@pytest.fixture(scope="session")
def qwen(checkpoint: Callable[[str], Path]) -> Path:
    return checkpoint("qwen2_vl")


@pytest.fixture(scope="session", params=FAMILIES)
def family(request: pytest.FixtureRequest, checkpoint: Callable[[str], Path]) -> Path:
    return checkpoint(request.param)


@pytest.fixture(scope="session", params=["qwen2_vl", "llava_onevision"])
def start(request: pytest.FixtureRequest, checkpoint: Callable[[str], Path]) -> Path:
    return checkpoint(request.param)


@pytest.fixture
def no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare what takes half of a training's time."""
    monkeypatch.setattr(fit_preferences, "sample_answers", lambda trainer, folder: None)
    monkeypatch.setattr(fit_preferences, "measure_unreadable", lambda trainer: {})
