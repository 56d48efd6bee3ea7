"""Read the tensors of a checkpoint that a stranger wrote, and never run what it brings.

Reads safetensors, and what ``torch.save`` writes (zip files by memory map, and the older form), as dictionaries of
tensors. Needs PyTorch. Three walls: the pickle is looked at before it is read (``scan_pickle``), ``torch.load`` reads
with ``weights_only``, and what comes out must be plain tensors no larger than the file.
"""

import stat
import warnings
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.scan_pickle import TRUST, RefusedError, scan_pickle

if TYPE_CHECKING:
    from torch import Tensor

ZIP, TAR, TAR_AT = b"PK\x03\x04", b"ustar", 257
MAX_PICKLE_BYTES = 64 << 20
"""Of a zip checkpoint's ``data.pkl``, which names the tensors and holds none of their values (ours)."""
LEGACY_PICKLES = 5
"""The older form: a number, the version, the system, the object, the names of the storages; then raw values."""


class _Idle:
    """Stand for a class that a checkpoint names without need; nothing is ever made of it."""

    def __new__(cls) -> Self:
        raise RefusedError(f"it makes more than tensors. {TRUST}")


def read_checkpoint(path: Path, *, field: str, under: str = "", idle: Collection[str] = ()) -> dict[str, "Tensor"]:
    """Return a checkpoint's tensors by name, on the CPU; those under the key ``under`` where the file has it.

    Args:
        path: safetensors by its ending, anything else as ``torch.save`` wrote it.
        field: the field of the profile that names the file, for messages.
        under: the key of a training state that holds the weights, such as ``model``.
        idle: names of classes that a training state may have beside the weights, say as keys; they stay names.

    Raises:
        ModelError: it is no file, is broken, wants more than tensors, or holds something else; the message says why.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise RefusedError("it is no file")
        loaded = _read_safetensors(path) if path.suffix.lower() == ".safetensors" else _read_pickle(path, idle)
        return _only_tensors(loaded, under, path.stat().st_size)
    except RefusedError as error:
        raise ModelError(f"{field}: {path} is not loaded: {error}") from error
    except FileNotFoundError as error:
        raise ModelError(f"{field}: {path}: no such file") from error
    except Exception as error:  # torch, safetensors, zipfile and the system raise errors of many kinds
        raise ModelError(f"{field}: {path} cannot be read as a checkpoint: {_short(error)}") from error


def _short(error: Exception) -> str:
    """Return the first line; PyTorch's errors go on to advise to load pickles without care."""
    lines = str(error).strip().splitlines()
    said = lines[0].partition("This file can still be loaded")[0].partition("Re-running")[0] if lines else ""
    return f"{type(error).__name__}: {said.strip()[:200]}".rstrip(": ")


def _read_safetensors(path: Path) -> dict[str, "Tensor"]:
    from safetensors.torch import load_file

    return load_file(path, device="cpu")


def _read_pickle(path: Path, idle: Collection[str]) -> Any:
    import torch

    with path.open("rb") as stream:
        head = stream.read(TAR_AT + len(TAR))
    is_zip = head.startswith(ZIP)
    if not head:
        raise RefusedError("it is empty")
    if head[TAR_AT:] == TAR:
        raise RefusedError(f"it is a tar, PyTorch's form before 2018, which cannot be read safely. {TRUST}")
    if is_zip:
        _check_archive(path, idle)
    else:
        _check_legacy(path, idle)
    with warnings.catch_warnings(), torch.serialization.safe_globals([(_Idle, name) for name in idle]):
        warnings.simplefilter("ignore")
        return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)


def _check_archive(path: Path, idle: Collection[str]) -> None:
    """Refuse a zip that is no checkpoint, that unpacks to more than it is, or whose pickle wants more than tensors."""
    size = path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if any(member.filename.endswith("/constants.pkl") for member in members):
            raise RefusedError("it is a TorchScript program, not a checkpoint")
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise RefusedError("its members are compressed, which PyTorch never does")
        if sum(member.file_size for member in members) > size:
            raise RefusedError(f"its members say that they are larger than the file ({size:,} bytes)")
        pickles = [member for member in members if member.filename.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise RefusedError(f"it holds {len(pickles)} files named data.pkl, where a checkpoint has one")
        if pickles[0].file_size > MAX_PICKLE_BYTES:
            raise RefusedError(f"its data.pkl is larger than {MAX_PICKLE_BYTES >> 20} MB")
        with archive.open(pickles[0]) as stream:
            scan_pickle(stream, idle=idle)


def _check_legacy(path: Path, idle: Collection[str]) -> None:
    with path.open("rb") as stream:
        for _ in range(LEGACY_PICKLES):
            scan_pickle(stream, idle=idle)


def _only_tensors(loaded: object, under: str, size_bytes: int) -> dict[str, "Tensor"]:
    """Return the tensors of what was loaded, the strangers among them refused."""
    import torch

    values: Any = loaded
    if under and isinstance(values, Mapping) and under in values:
        values = values[under]
    if not isinstance(values, Mapping) or not values:
        raise RefusedError(f"it holds {'nothing' if not values else f'a {type(values).__name__}'}, not named tensors")
    tensors: dict[str, Tensor] = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise RefusedError(f"'{str(name)[:80]}' is a {type(value).__name__}, named by a {type(name).__name__}")
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise RefusedError(f"{name[:80]!r} is a {type(value).__name__}, not a tensor")
        tensors[name] = value.detach()
        _check_tensor(name, value, size_bytes)
    return tensors


def _check_tensor(name: str, value: "Tensor", size_bytes: int) -> None:
    import torch

    if value.layout != torch.strided or value.device.type != "cpu" or value.is_quantized:
        raise RefusedError(f"{name[:80]!r} is not a plain tensor")
    if value.numel() * value.element_size() > size_bytes:
        raise RefusedError(f"{name[:80]!r} says that it is larger than the file: {tuple(value.shape)}")
