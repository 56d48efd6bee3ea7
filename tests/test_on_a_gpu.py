"""What runs on GPUs, on one that computes nothing (``on_a_gpu/``); the tests of a real one
(``gpu/``), on the CPU."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures import stand_in_vllm

ROOT = Path(__file__).parents[1]
GPU = ROOT / "tests/gpu"


def run_pytest(*words: object, cwd: Path = ROOT, **environment: str) -> str:
    """Run tests in a process of their own; return what it prints."""
    settings = ("-c", ROOT / "pyproject.toml", "--rootdir", ROOT)
    command = [sys.executable, *("-m", "pytest", "-q", "-n", "0"), *settings, *words]
    own = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("name", ["training", pytest.param("models", marks=pytest.mark.slow)])
def test_models_and_training_compute_on_the_gpu_alone(name):
    """A process has that GPU for good."""
    checks = ("-o", "python_files=check_*.py", ROOT / f"tests/on_a_gpu/check_{name}.py")
    assert " passed" in run_pytest("-W", "ignore", *checks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "passed"), [(("embedding", "serving"), 4), (("search", "training"), 10)]
)
def test_the_tests_of_a_gpu_run_on_the_cpu(files, passed, tmp_path):
    """What they compare are then two results of the CPU: that they can be run at all is tried, and
    their table."""
    vllm = tmp_path / "vllm"
    command = [sys.executable, stand_in_vllm.__file__, "--diary", str(tmp_path / "diary")]
    vllm.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    vllm.chmod(0o700)
    run_pytest(
        "-m",
        "gpu",
        *(GPU / f"test_{name}.py" for name in files),
        "--dry-run",
        cwd=tmp_path,
        PAIRWRIGHT_VLLM=vllm,
    )
    head, _, machine, *lines = (tmp_path / "gpu-test.md").read_text().splitlines()
    assert head == "| test | result | figure | seconds |"
    assert machine.startswith("| machine | dry run on the CPU")
    assert "faiss-cpu" in machine
    assert "vLLM 0.32.0+cpu" in machine
    assert [line.split(" | ")[1] for line in lines].count("passed") == passed
    assert all(line.count(" | ") == 3 and line.split(" | ")[2] for line in lines), lines


@pytest.mark.slow
def test_without_a_gpu_the_table_says_so(tmp_path):
    run_pytest("-m", "gpu", GPU / "test_embedding.py", cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    lines = (tmp_path / "gpu-test.md").read_text().splitlines()[3:]
    assert len(lines) == 3
    assert all(" | skipped | no GPU that PyTorch can use | " in line for line in lines)
