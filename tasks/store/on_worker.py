"""Run one shard in a worker of a cluster, if that worker is fit for it.

A worker may be on another machine: it may have other code, or not see a folder that is on this one's disk. Such a shard
fails, with what is wrong, instead of giving other rows.
"""

import gc
import hashlib
import os
import socket
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pairwright.tasks.store.pool import PLACE, Outcome, Run, ShardFailed, attempt_apart, limit_threads, loads_models
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.stage import Planned

ROOT = Path(__file__).parent.parent.parent
CODE = ("prompts", "schemas", "tasks")
ENDINGS = (".py", ".j2")
_ALONE = threading.Lock()
"""Held by the shard that runs: a worker of several threads does one at a time, whose models have the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Say where the workers are."""

    address: str = ""
    """Of a scheduler; empty: workers are started on this machine."""
    workers: int = 0
    """How many are started, or used at once; 0: one per core, or all there are."""
    gpus: int = 0
    """How many GPUs this machine has for them."""
    memory_gb_of: Mapping[str, float]
    """What a shard of a stage takes, by the stage's name; for clusters whose workers say what they have."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Say what a worker must have to give the rows that a worker of this machine gives."""

    code: str
    """Hash of the code; empty: it is that of this machine."""
    paths: tuple[str, ...]
    """Files and folders of a disk that all machines share."""

    def lack(self) -> str:
        """Return what this process lacks; empty: nothing."""
        if self.code and self.code != code_mark():
            return (
                f"worker on {socket.gethostname()}: it has other code of Pairwright than the machine that builds: "
                "install the same commit there, and start the worker anew"
            )
        missing = next((path for path in self.paths if not Path(path).exists()), "")
        if missing:
            return (
                f"worker on {socket.gethostname()}: it does not see {missing}: workers of other machines need it on a "
                "disk that all share, or on an object store"
            )
        return ""


def needs_of(paths: Iterable[str], *, elsewhere: bool) -> Needs:
    """Return what a worker must have: this code, if it was started elsewhere, and to see these paths."""
    return Needs(code_mark() if elsewhere else "", tuple(dict.fromkeys(str(Path(path).absolute()) for path in paths)))


@lru_cache(maxsize=1)
def code_mark() -> str:
    """Return the hash of the code that decides what rows are: some 2 MB, read once per process."""
    hashed = hashlib.sha256()
    for path in sorted(path for top in CODE for path in (ROOT / top).rglob("*") if path.suffix in ENDINGS):
        hashed.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return hashed.hexdigest()[:16]


def run_here(run: Run, planned: Planned, shard: ShardRef, needs: Needs) -> Outcome:
    """Run one shard in this process, one at a time; its faults become a record."""
    with _ALONE:
        limit_threads()
        os.environ.setdefault(PLACE, "0")
        if lack := needs.lack():
            return Outcome(shard=shard, result=ShardFailed(name=shard.name, error=lack), seconds=0.0)
        _Loaded.make_room(planned)
        return attempt_apart(run, planned, shard)


class _Loaded:
    """Remember for which stage this process has loaded models."""

    stage = ""

    @classmethod
    def make_room(cls, planned: Planned) -> None:
        """Forget the models of another stage before this one's are loaded: a device holds those of one stage."""
        if not loads_models(planned) or cls.stage == planned.stage.name:
            return
        if cls.stage:
            forget_models()
        cls.stage = planned.stage.name


def forget_models() -> None:
    """Let go of what stages keep loaded: models are values of cached functions."""
    kept = ("pairwright.tasks.store.", "pairwright.tasks.serving.")
    for name, module in list(sys.modules.items()):
        if name.startswith("pairwright.tasks.") and not name.startswith(kept):
            for value in list(vars(module).values()):
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()
    gc.collect()
    if (torch := sys.modules.get("torch")) and torch.cuda.is_available():
        torch.cuda.empty_cache()
