"""Packages are compared with what the project asks for, and PyTorch for its GPUs."""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import torch

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models import check_packages as look
from pairwright.tasks.models.check_packages import (
    check_gpus,
    check_packages,
    faiss_extra,
    require_faiss,
)


def test_what_is_installed_fits():
    core, models = check_packages(["models"])
    assert (core.name, core.state, models.name, models.state) == ("core", "ok", "models", "ok")
    assert f"pyarrow {version('pyarrow')}" in core.found
    assert "torch" in models.found
    assert "torch" not in core.found
    assert faiss_extra() in ("cpu", "gpu")


def test_what_is_not_here_or_too_old_is_said(monkeypatch):
    requirements = ["no-such-package-here>=1", "pyarrow<1", "numpy"]
    monkeypatch.setattr(look, "requires", lambda _: requirements)
    (core,) = check_packages([])
    assert core.state == "missing"
    assert core.mend == "python -m pip install -c constraints.txt -e '.[cpu]'"
    here = f"no-such-package-here is not installed, pyarrow {version('pyarrow')}"
    assert core.found == f"{here}; needed: no-such-package-here>=1, pyarrow<1"


def test_without_faiss_both_builds_are_named(monkeypatch):
    require_faiss()
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ModelError, match=r"\[cpu\].*\[gpu\]"):
        require_faiss()


@pytest.mark.parametrize(("needed", "state"), [(False, "ok"), (True, "warning")])
def test_a_machine_without_a_driver_needs_no_pytorch(monkeypatch, needed, state):
    monkeypatch.setattr(look, "DRIVERS", ())
    (check,) = check_gpus(needed=needed)
    assert check.state == state
    assert "CPU" in check.found


@pytest.mark.parametrize(
    ("gpus", "state", "words"), [(0, "warning", "finds none"), (1, "ok", "H200, 150 GB (PyTorch ")]
)
def test_pytorch_says_what_it_finds(gpus, state, words, tmp_path, monkeypatch):
    monkeypatch.setattr(look, "DRIVERS", (str(tmp_path),))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    device = SimpleNamespace(name="H200", total_memory=150_000_000_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: device)
    driver, check = check_gpus(needed=True)
    assert (driver.state, check.state) == ("ok", state)
    assert words in check.found


def test_a_pytorch_that_does_not_load_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(look, "DRIVERS", (str(tmp_path),))
    monkeypatch.setitem(sys.modules, "torch", None)
    _, check = check_gpus(needed=True)
    assert check.state == "warning"
    assert "PyTorch" in check.found
