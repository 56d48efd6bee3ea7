"""What runs on GPUs, on one that computes nothing (``on_a_gpu/fake_gpu.py``), which a process has for good."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).with_name("on_a_gpu")


@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_models_and_training_compute_on_the_gpu_alone(which):
    words = [
        "-q",
        "-m",
        which,
        "-n",
        "0",
        "-W",
        "ignore",
        "-p",
        "no:cacheprovider",
        "-o",
        "python_files=check_*.py",
        str(CHECKS),
    ]
    done = subprocess.run([sys.executable, "-m", "pytest", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
