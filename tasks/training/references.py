"""What the policy is compared with: the model as the run found it.

Three ways to have its log-probabilities: the adapters switched off, a frozen copy, or a table made before. Memory
beside the policy's: none; the copy's weights (2 bytes per parameter where bfloat16 is computed in, else 4); of the
table 16 bytes and 8 per column for each row, some 40, in a file that all processes of a machine share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairwright.schemas.errors import ConfigError, StoreError, TrainingError
from pairwright.schemas.rows import make_key
from pairwright.schemas.scoring import ScoringConfig
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import live_index
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.training.load_model import choose_precision, choose_storage, load_model
from pairwright.tasks.training.losses.objectives import OBJECTIVES
from pairwright.tasks.training.losses.scored import Scored
from pairwright.tasks.training.pack_answers import Packed
from pairwright.tasks.training.runs import REFERENCE
from pairwright.tasks.training.score_answers import score_answers
from pairwright.tasks.training.tune_model import computing, freeze_model

FILE = REFERENCE
MARK = b"mark"
KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Asked:
    """Be a batch that is to be scored."""

    model: Any
    """The policy, perhaps wrapped (DDP, FSDP)."""
    packed: Packed
    keys: Sequence[str]
    """(B) the rows' keys."""


class Reference(Protocol):
    """Give the log-probabilities of the model that the run began with."""

    @property
    def models(self) -> tuple[Any, ...]:
        """Return the models of its own."""
        ...

    def score(self, asked: Asked) -> Scored:
        """Return what it gives the batch's answers, (B, A); without gradients."""
        ...


@dataclass(frozen=True)
class Adapters:
    """Be the policy with its adapters switched off."""

    @property
    def models(self) -> tuple[Any, ...]:
        """Return none: the policy is its own reference."""
        return ()

    def score(self, asked: Asked) -> Scored:
        """Run the model once more, without adapters."""
        inner = asked.model
        while not hasattr(inner, "disable_adapter"):  # DDP and its like
            inner = inner.module
        with torch.no_grad(), inner.disable_adapter():
            return score_answers(asked.model, asked.packed)


@dataclass(frozen=True)
class Copy:
    """Be a second model with the weights of the start."""

    model: Any
    dtype: torch.dtype = torch.float32
    """What is computed in."""

    @property
    def models(self) -> tuple[Any, ...]:
        """Return the second model."""
        return (self.model,)

    def score(self, asked: Asked) -> Scored:
        """Run the second model."""
        with torch.no_grad(), computing(self.model.device, self.dtype):
            return score_answers(self.model, asked.packed)


@dataclass(frozen=True)
class Table:
    """Be log-probabilities that were computed before, by row key."""

    keys: NDArray[np.bytes_]
    """(R,) of 16 bytes, rising."""
    logps: NDArray[np.float32]
    """(R, C) per column."""
    tokens: NDArray[np.int32]
    """(R, C)."""

    @property
    def models(self) -> tuple[Any, ...]:
        """Return none: nothing is computed."""
        return ()

    def score(self, asked: Asked) -> Scored:
        """Look the batch's rows up.

        Raises:
            TrainingError: one is not in the table, or its answers have other numbers of tokens there.
        """
        tokens = _count_tokens(asked.packed)
        wanted = np.array([bytes.fromhex(key) for key in asked.keys], dtype=f"S{KEY_BYTES}")
        places = np.minimum(np.searchsorted(self.keys, wanted), max(len(self.keys) - 1, 0))
        if not len(self.keys) or (self.keys[places] != wanted).any():
            strange = [key for key, place in zip(asked.keys, places, strict=True) if not self._has(place, key)]
            raise TrainingError(f"the table of the reference has no row {strange[0]}: start the run anew")
        width = min(tokens.shape[1], self.tokens.shape[1])
        stored = np.zeros(tuple(tokens.shape), dtype=np.int32)
        logps = np.zeros(tuple(tokens.shape), dtype=np.float32)
        stored[:, :width], logps[:, :width] = self.tokens[places, :width], self.logps[places, :width]
        asked_for = tokens.cpu().numpy()
        if (wrong := (asked_for > 0) & (stored != asked_for)).any():
            row, column = np.argwhere(wrong)[0].tolist()
            raise TrainingError(
                f"row {asked.keys[row]}: answer {column} has {asked_for[row, column]} tokens, and had "
                f"{stored[row, column]} when the reference was scored: another tokenizer or other rows"
            )
        found = torch.from_numpy(logps).to(tokens.device)
        return Scored(logps=found.where(tokens > 0, 0.0), tokens=tokens)

    def _has(self, place: int, key: str) -> bool:
        return len(self.keys) > 0 and self.keys[place] == bytes.fromhex(key)


def _count_tokens(packed: Packed) -> Tensor:
    """Return (B, A): how many tokens each of a batch's answers has."""
    tokens = torch.zeros(packed.examples, packed.width, dtype=torch.long, device=packed.targets.device)
    tokens[packed.owners, packed.columns] = torch.bincount(packed.numbers, minlength=len(packed.owners))
    return tokens


def choose_reference(config: TrainConfig) -> Literal["nothing", "adapters", "table", "copy"]:
    """Return what a run is compared with.

    Raises:
        ConfigError: it cannot be compared so.
    """
    by, tuning = config.reference.method, config.model.tuning
    if not OBJECTIVES[config.objective].needs_reference:
        return "nothing"
    if by == "auto":
        full = "copy" if config.objective == "adpo" else "table"
        return "adapters" if tuning == "lora" else full
    if by == "adapters" and tuning != "lora":
        raise ConfigError("reference.method: adapters: there are none with model.tuning=full; take table or copy")
    if by == "table" and config.objective == "adpo":
        raise ConfigError(
            "reference.method: table: ADPO's negatives are not known before; take copy, or adapters with LoRA"
        )
    return by


def open_reference(config: TrainConfig, start: Path, run: Path) -> Reference | None:
    """Return what a run is compared with; ``None``: nothing.

    Args:
        config: the run's.
        start: the model that it starts from.
        run: its folder, in which the table is.

    Raises:
        StoreError: the table cannot be read.
        ModelError: the copy cannot be loaded.
    """
    kind, dtype = choose_reference(config), choose_precision(config)
    if kind == "copy":
        model = freeze_model(load_model(start, config.model, dtype=choose_storage(config)), dtype)
        return Copy(model.to("cuda" if torch.cuda.is_available() else "cpu"), dtype)
    if kind == "table":
        return open_table(run / FILE)
    return Adapters() if kind == "adapters" else None


def mark_of(config: ScoringConfig) -> str:
    """Return what tells a reference from all others."""
    return make_key(config.model_dump_json(exclude=set(ScoringConfig.uncounted)))


def write_table(build: Build, planned: Planned, path: Path) -> None:
    """Write a settled table of ``ReferenceRow`` as one file in the order of its keys.

    Raises:
        StoreError: the disk refuses.
    """
    parts = list(live_index(build, planned).tables(["subject", "logps", "tokens"]))
    names = b"".join(bytes.fromhex(key) for part in parts for key in part.column("subject").to_pylist())
    keys = np.frombuffer(names, dtype=f"S{KEY_BYTES}")
    order = np.argsort(keys)
    stored = pa.py_buffer(keys[order].tobytes())
    table = pa.table(
        {
            "key": pa.FixedSizeBinaryArray.from_buffers(pa.binary(KEY_BYTES), len(keys), [None, stored]),
            "logps": _in_columns(_matrix(parts, "logps", np.float32)[order]),
            "tokens": _in_columns(_matrix(parts, "tokens", np.int32)[order]),
        }
    )
    table = table.replace_schema_metadata({MARK: mark_of(planned.config), b"table": planned.table.encode()})
    whole = pa.BufferOutputStream()
    with pa.ipc.new_file(whole, table.schema) as writer:
        writer.write_table(table)
    Folder(str(path.parent)).write(path.name, memoryview(whole.getvalue()))


def _matrix(parts: Sequence[pa.Table], name: str, kind: Any) -> NDArray[Any]:
    """Return a column of lists of one length as (R, C)."""
    rows = [np.array(part.column(name).to_pylist(), dtype=kind) for part in parts if len(part)]
    return np.concatenate(rows) if rows else np.empty((0, 1), dtype=kind)


def _in_columns(matrix: NDArray[Any]) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])


def has_table(path: Path, config: ScoringConfig) -> bool:
    """Say whether a run's table is there, and was made so."""
    return path.exists() and (_read(path).schema.metadata or {}).get(MARK) == mark_of(config).encode()


def open_table(path: Path) -> Table:
    """Open a run's table, mapped into memory.

    Raises:
        StoreError: it cannot be read.
    """
    table = _read(path).combine_chunks()
    key = table.column("key").combine_chunks()
    width = table.schema.field("logps").type.list_size

    def matrix(name: str) -> NDArray[Any]:
        return table.column(name).combine_chunks().flatten().to_numpy().reshape(-1, width)

    keys = np.frombuffer(key.buffers()[1] or b"", dtype=f"S{KEY_BYTES}", count=len(key))
    return Table(keys=keys, logps=matrix("logps"), tokens=matrix("tokens"))


def _read(path: Path) -> pa.Table:
    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(f"{path}: cannot be read: {error}. Delete it and give the same command again") from error
