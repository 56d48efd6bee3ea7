"""Memory of this machine's GPUs and size of a model's weights, before anything is loaded.

Reads ``config.json`` and the index of the weights, and runs ``nvidia-smi``. Needs only the standard
library.
"""

import csv
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

GB = 1e9
MARGIN = 3 * 10**9
"""Bytes of each GPU for CUDA's context and graphs, activations of a full batch, and its images."""
UNCHECKED = "memory not checked: "
INDEX = "model.safetensors.index.json"
ASK = ("nvidia-smi", "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits")
ASK_SECONDS = 20


def read_model(folder: Path) -> tuple[Mapping[str, Any], int]:
    """Return a model's ``config.json`` and the bytes of its weights.

    Raises ``ValueError`` where they are unreadable.
    """
    try:
        config = json.loads((folder / "config.json").read_bytes())
        weights = _count_weights(folder)
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"{folder}: invalid JSON ({error})") from error
    if not weights or not isinstance(config, Mapping):
        raise ValueError(f"{folder} has no safetensors weights")
    return cast("Mapping[str, Any]", config), weights


def _count_weights(folder: Path) -> int:
    index = folder / INDEX
    if index.is_file():
        return int(json.loads(index.read_bytes())["metadata"]["total_size"])
    return sum(path.stat().st_size for path in folder.glob("model*.safetensors"))


def gpu_memory() -> tuple[int, ...]:
    """Return the bytes of each GPU in ``CUDA_VISIBLE_DEVICES``, by default of all."""
    gpus = _read_gpus()
    every_index = ",".join(index for index, _, _ in gpus)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", every_index)
    sizes: list[int] = []
    for part in visible.split(","):
        name = part.strip()
        if not name:
            continue
        for index, uuid, size in gpus:
            if name == index or uuid.startswith(name):
                sizes.append(size)
    return tuple(sizes)


def _read_gpus() -> list[tuple[str, str, int]]:
    """Return index, UUID and bytes of each GPU; none without a driver, or a number ("[N/A]")."""
    try:
        completed = subprocess.run(  # noqa: S603 - our own command
            ASK,
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS,
            check=True,
        )
        gpus: list[tuple[str, str, int]] = []
        for index, uuid, mebibytes, *_ in csv.reader(completed.stdout.splitlines()):
            gpus.append((index.strip(), uuid.strip(), int(mebibytes) << 20))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return []
    return gpus
