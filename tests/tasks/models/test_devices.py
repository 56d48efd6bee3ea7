"""The device of a process: one GPU each, by the worker's number, or the CPU."""

import pytest
import torch

from pairwright.tasks.models import devices
from pairwright.tasks.store.pool import PLACE


def test_without_a_driver_nothing_is_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "DRIVERS", (str(tmp_path / "none"),))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("asked"))
    assert devices.count_gpus() == 0
    assert devices.choose_device() == torch.device("cpu")


def test_workers_take_turns(monkeypatch, tmp_path):
    # A machine with GPUs is not to be had here: PyTorch's answers are set.
    monkeypatch.setattr(devices, "DRIVERS", (str(tmp_path),))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert devices.count_gpus() == 2
    chosen = []
    for place in ("0", "1", "2"):
        monkeypatch.setenv(PLACE, place)
        chosen.append(devices.choose_device())
    assert chosen == [torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cuda", 0)]
