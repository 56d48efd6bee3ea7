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
MARGIN = (
    3 * 10**9
)  # bytes of each GPU for CUDA's context and graphs, activations of a full batch, and its images
UNCHECKED = "memory not checked: "
INDEX = "model.safetensors.index.json"
ASK = ("nvidia-smi", "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits")
ASK_SECONDS = 20


def read_model(folder: Path) -> tuple[Mapping[str, Any], int]:
    """Return a model's ``config.json`` and the bytes of its weights; ``ValueError`` where they are unreadable."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
        if (folder / INDEX).is_file():
            weights = int(json.loads((folder / INDEX).read_bytes())["metadata"]["total_size"])
        else:
            weights = sum(path.stat().st_size for path in folder.glob("model*.safetensors"))
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"{folder}: invalid JSON ({error})") from error
    if not weights or not isinstance(config, Mapping):
        raise ValueError(f"{folder} has no safetensors weights")
    return cast("Mapping[str, Any]", config), weights


def gpu_memory() -> tuple[int, ...]:
    """Return the bytes of each GPU in ``CUDA_VISIBLE_DEVICES``, by default of all."""
    try:
        said = subprocess.run(  # noqa: S603  (ours)
            ASK, capture_output=True, text=True, timeout=ASK_SECONDS, check=True
        ).stdout
        rows = [
            (row[0].strip(), row[1].strip(), int(row[2]) << 20)
            for row in csv.reader(said.splitlines())
        ]
    except (
        OSError,
        subprocess.SubprocessError,
        ValueError,
        IndexError,
    ):  # no driver, or no number: "[N/A]"
        return ()
    names = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(index for index, _, _ in rows)).split(
        ","
    )
    named = [name.strip() for name in names if name.strip()]
    return tuple(
        size
        for name in named
        for index, uuid, size in rows
        if name == index or uuid.startswith(name)
    )
