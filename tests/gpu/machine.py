"""What the tests of a GPU run on, in one line; nothing that is missing raises an error."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "torch",
    "transformers",
    "accelerate",
    "peft",
    "trl",
    "open_clip_torch",
    "faiss-gpu",
    "faiss-cpu",
)


def find_vllm() -> str:
    """Return the vllm to start: what ``PAIRWRIGHT_VLLM`` names, else the one on the PATH; empty:
    there is none."""
    return shutil.which(os.environ.get("PAIRWRIGHT_VLLM", "vllm")) or ""


def describe_machine() -> str:
    vllm = find_vllm()
    parts = (
        _gpus(),
        f"Python {platform.python_version()}",
        *(f"{name} {found}" for name in PACKAGES if (found := _version(name))),
        f"vLLM {_said(vllm, '--version', seconds=120)}" if vllm else "no vLLM",
        f"commit {_said('git', '-C', str(ROOT), 'rev-parse', '--short', 'HEAD')}",
    )
    return ", ".join(parts)


def _gpus() -> str:
    import torch

    if not torch.cuda.is_available():
        return f"no GPU, {os.cpu_count()} CPU cores"
    found = [
        torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())
    ]
    cards = ", ".join(
        f"{one.name} ({one.total_memory / 2**30:.0f} GiB, {one.major}.{one.minor})" for one in found
    )
    driver = _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return f"{cards}, driver {driver}, CUDA {torch.version.cuda or torch.version.hip}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _said(*command: str, seconds: float = 20) -> str:
    """Return the last word of what a command prints."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return (done.stdout.split() or ["unknown"])[-1]
