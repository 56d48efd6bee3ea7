"""Find files beside a dataset's tables that hold something of some rows: pages, trainings, excluded sets.

A file is found by its name or its bytes, in which a key stands as 32 hexadecimal digits. Weights and states of models
are not read: what they have learnt of a row cannot be seen in them.
"""

import re
from collections.abc import Collection, Iterator
from typing import BinaryIO

from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.garbage import files_below
from pairwright.tasks.store.part import Part, read_columns

KEY = re.compile(rb"[0-9a-f]{32}")
OWN = ("tables", "snapshots", "takedowns", "decisions", "work", "journals", "cache")
MODELS = (".safetensors", ".pt", ".pth", ".bin")
READ_BYTES = 8 << 20


def find_copies(folder: Folder, keys: Collection[str]) -> Iterator[str]:
    """Yield the files, below the dataset's folder, that name one of the keys."""
    wanted = {key.encode() for key in keys}
    for name in folder.folders(""):
        for path in files_below(folder, name) if wanted and name not in OWN else ():
            if _holds(folder, path, wanted):
                yield path


def _holds(folder: Folder, path: str, wanted: set[bytes]) -> bool:
    if wanted.intersection(KEY.findall(path.encode())):
        return True
    if path.endswith(MODELS):
        return False
    if path.startswith("excluded/") and path.endswith(".parquet"):  # its keys are packed
        keys, _ = read_columns(Part(folder, path), ["key"])
        return any(key is not None and key.encode() in wanted for key in keys["key"].to_pylist())
    with folder.open(path) as file:
        return any(_has_one(data, wanted) for data in _pieces(file))


def _has_one(data: bytes, wanted: set[bytes]) -> bool:
    """Say whether one of the keys is in the bytes, wherever a run of digits begins."""
    for run in re.finditer(rb"[0-9a-f]{32,}", data):
        found = run.group()
        if any(found[start : start + 32] in wanted for start in range(len(found) - 31)):
            return True
    return False


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file's bytes, each piece with the end of the one before."""
    end = b""
    while data := file.read(READ_BYTES):
        piece = end + data
        yield piece
        end = piece[-31:]
