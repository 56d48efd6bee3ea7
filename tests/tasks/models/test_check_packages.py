"""Packages are compared with what the project asks for, and PyTorch is asked in a process of its own."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models import check_packages as look
from pairwright.tasks.models.check_packages import check_gpus, check_packages, faiss_extra, require_faiss


def test_what_is_installed_fits() -> None:
    core, models = check_packages(["models"])
    assert (core.name, core.state) == ("core", "ok")
    assert f"pyarrow {version('pyarrow')}" in core.found
    assert (models.name, models.state) == ("models", "ok")
    assert "torch" in models.found
    assert "torch" not in core.found
    assert faiss_extra() in ("cpu", "gpu")


def test_what_is_not_here_or_too_old_is_said() -> None:
    assert look._fault(Requirement("no-such-package-here>=1")).startswith("no-such-package-here ")
    assert re.match(f"pyarrow .*{version('pyarrow')}.*<1", look._fault(Requirement("pyarrow<1")))
    assert look._fault(Requirement("pyarrow>=1")) == ""
    assert look._install(["cpu", "models"]) == "python -m pip install -c constraints.txt -e '.[cpu,models]'"


def test_without_faiss_both_builds_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    require_faiss()
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ModelError, match=r"\[cpu\].*\[gpu\]"):
        require_faiss()


def test_a_machine_without_a_driver_needs_no_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "DRIVERS", ())
    (plain,) = check_gpus(needed=False)
    (needed,) = check_gpus(needed=True)
    assert (plain.state, needed.state) == ("ok", "warning")
    assert "CPU" in plain.found


def stand_in(folder: Path, text: str) -> str:
    """Write a Python that says something else when it is asked for PyTorch."""
    program = folder / "python"
    program.write_text(f"#!{sys.executable}\n{text}\n")
    program.chmod(0o755)
    assert subprocess.run([program], capture_output=True, check=False).returncode in (0, 1, -11, 139)
    return str(program)


SAID = """print('{"version": "2.15", "cuda": "%s", "gpus": [%s]}')"""


@pytest.mark.parametrize(
    ("text", "state", "words"),
    [
        ("import os; os.kill(os.getpid(), 11)", "missing", "-11"),
        ("raise SystemExit('libcudart.so.13: not found')", "missing", "libcudart.so.13: not found"),
        (SAID % ("", ""), "warning", "PyTorch 2.15 "),
        (SAID % ("13", '{"name": "H200", "memory": 150000000000}'), "ok", "H200, 150 GB (PyTorch 2.15 for CUDA 13)"),
    ],
)
def test_pytorch_is_asked_in_its_own_process(
    text: str, state: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "DRIVERS", (str(tmp_path),))
    monkeypatch.setattr(sys, "executable", stand_in(tmp_path, text))
    driver, check = check_gpus(needed=True)
    assert driver.state == "ok"
    assert check.state == state
    assert words in check.found
