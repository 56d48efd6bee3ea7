"""Keep a retriever: beside a checkpoint, so that a run goes on with it, and as a file that others mine with.

Reads and writes ``retriever.pt`` (weights, moments, numbers, what was seen; read with ``weights_only``) and
``retriever.safetensors`` (weights, and in its metadata what makes the network). Needs PyTorch and safetensors.
"""

import hashlib
import json
import pickle
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from pairwright.schemas.errors import ModelError, TrainingError

if TYPE_CHECKING:
    from torch import Tensor

STATE, NETWORK = "retriever.pt", "retriever.safetensors"
FORMAT, ABOUT = "pairwright retriever 1", "about"


def save_state(folder: Path, state: dict[str, Any]) -> None:
    """Write a state beside a checkpoint's files."""
    torch.save(state, folder / STATE)


def load_state(folder: Path) -> dict[str, Any]:
    """Read it.

    Raises:
        TrainingError: it is not there, or damaged.
    """
    path = folder / STATE
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise TrainingError(f"{path}: the retriever's state cannot be read: {error}") from error
    if not isinstance(state, dict) or not {"retriever", "watch"} <= state.keys():
        raise TrainingError(f"{path}: holds no retriever's state")
    return state


def save_network(path: Path, weights: "dict[str, Tensor]", about: dict[str, str]) -> None:
    """Write the weights, with what is needed to make their network."""
    held = {name: weight.detach().cpu().contiguous().clone() for name, weight in weights.items()}
    # Under one name: safetensors writes several in an order that differs from time to time, and the file is hashed.
    save_file(held, path, metadata={ABOUT: json.dumps({"format": FORMAT, **about}, sort_keys=True)})


def load_network(path: Path) -> "tuple[dict[str, Tensor], dict[str, str]]":
    """Return the weights, on the CPU, and what is needed to make their network.

    Raises:
        ModelError: there is no such file, or it is not a retriever's.
    """
    about = read_about(path)
    with _reading(path), safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118 - it is no mapping


def read_about(path: Path) -> dict[str, str]:
    """Return what the file says of its network, without its weights.

    Raises:
        ModelError: there is no such file, or it is not a retriever's.
    """
    with _reading(path), safe_open(path, framework="pt") as file:
        about: Any = json.loads((file.metadata() or {}).get(ABOUT, "{}"))
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ModelError(f"mined.retriever: {path}: is no file that an ADPO run wrote ({NETWORK})")
    return {str(name): str(value) for name, value in about.items()}


@contextmanager
def _reading(path: Path) -> Generator[None]:
    try:
        yield
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelError(f"mined.retriever: {path}: cannot be read: {error}") from error


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file.

    Raises:
        ModelError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"mined.retriever: {path}: cannot be read: {error.strerror or error}") from error
