"""What runs on GPUs, on one that computes nothing (``on_a_gpu/fake_gpu.py``), which a process has for good."""

import subprocess
import sys
from pathlib import Path

CHECKS = Path(__file__).with_name("on_a_gpu")


def test_models_and_training_compute_on_the_gpu_alone():
    words = ["-q", "-n", "0", "-W", "ignore", "-p", "no:cacheprovider", "-o", "python_files=check_*.py", str(CHECKS)]
    done = subprocess.run([sys.executable, "-m", "pytest", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
