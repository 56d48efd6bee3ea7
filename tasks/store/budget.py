"""Stop a build when its budget is used up: looked at before each round of one shard for every worker.

A part of a stage that asks a served model says how many answers it took and how many tokens they had. What a running
shard asks is seen when its part is written, so a build may pass its budget by what one round uses.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pairwright.schemas.bounds import BudgetConfig
from pairwright.tasks.store.answers import CALLS, TOKENS
from pairwright.tasks.store.dataset import table_folders
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.part import Part, read_about
from pairwright.tasks.store.pool import Outcome
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.stage import Planned

log = logging.getLogger(__name__)
RunShards = Callable[[Planned, Sequence[ShardRef]], Iterator[Outcome]]
HOUR = 3600.0
FIELD = "run.budget.max_"
OF_DATASET = ("calls", "tokens", "disk_gb")
"""Limits of what all builds of a dataset use together: the next one has no more of them."""


@dataclass(slots=True)
class Budget:
    """Budget of one build, and what it has used: calls, tokens and disk of all builds of its dataset, its own hours."""

    folder: Folder
    config: BudgetConfig
    workers: int
    """How many shards run at once."""
    gpus: Callable[[Planned], int]
    """How many GPUs of this machine a stage holds."""
    stopped: str = ""
    """Why the build has ended early; empty: it has not."""
    began: float = field(default_factory=time.monotonic)
    gpu_seconds: float = 0.0

    def limited(self, run_shards: RunShards) -> RunShards:
        """Return a way to run shards that stops giving them out when the budget is used up."""
        if not self.config.limits:
            return run_shards

        def run(planned: Planned, shards: Sequence[ShardRef]) -> Iterator[Outcome]:
            gpus = self.gpus(planned) if "gpu_hours" in self.config.limits else 0
            for start in range(0, len(shards), self.workers):
                if self._is_used_up(planned, gpus):
                    return
                began = time.monotonic()
                yield from run_shards(planned, shards[start : start + self.workers])
                self.gpu_seconds += (time.monotonic() - began) * gpus

        return run

    def _is_used_up(self, planned: Planned, gpus: int) -> bool:
        """Say whether a limit is reached that the stage uses: one that asks nothing runs when all calls are used."""
        uses = {"calls": planned.stage.remembers, "tokens": planned.stage.remembers, "gpu_hours": gpus > 0}
        for name, limit in self.config.limits.items():
            if not self.stopped and uses.get(name, True) and (used := self._used(name)) >= limit:
                more = f" --set {FIELD}{name}={2 * limit:g}" if name in OF_DATASET else ""
                self.stopped = (
                    f"Stopped by {FIELD}{name}: {_shown(used)} of {_shown(limit)} are used. What is finished is kept. "
                    f"Go on with: pairwright resume {self.folder.url}{more}"
                )
                log.warning("%s", self.stopped)
        return bool(self.stopped)

    def _used(self, name: str) -> float:
        match name:
            case "calls":
                return float(count_asked(self.folder)[CALLS])
            case "tokens":
                asked = count_asked(self.folder)
                return float(sum(asked[kind] for kind in TOKENS))
            case "disk_gb":
                return self.folder.size_bytes() / 1e9
            case "hours":
                return (time.monotonic() - self.began) / HOUR
            case _:
                return self.gpu_seconds / HOUR


def count_asked(folder: Folder) -> Counter[str]:
    """Return what the parts of a dataset say was asked for them, over all of its builds: calls, and tokens by kind."""
    total = Counter[str]()
    for table in table_folders(folder):
        for name in folder.names(table, ".parquet"):
            about = read_about(Part(folder, f"{table}/{name}"))
            if CALLS not in about:
                break  # no part of this table says what was asked
            total.update({kind: int(about.get(kind, 0)) for kind in (CALLS, *TOKENS)})
    return total


def _shown(amount: float) -> str:
    return f"{amount:,.0f}" if amount.is_integer() else f"{amount:.3g}"
