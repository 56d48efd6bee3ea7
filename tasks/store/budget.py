"""Hand out a build's shards in rounds, so that it stops before its budget is passed.

The first round of a stage is one shard for each worker. What that used says how much a row costs; the rounds after it
are as large as fits into half of what is left, so that there are few, and the last ones go shard by shard. Calls and
tokens are moreover paid one by one out of a purse that all workers share, and are never passed.
"""

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

from pairwright.schemas.budget import BudgetConfig
from pairwright.tasks.store.asked import AskedOf
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.pool import Outcome, ShardFailed
from pairwright.tasks.store.purse import Purse
from pairwright.tasks.store.scratch import own_temporary_folder, scratch_folder
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.stage import Planned

log = logging.getLogger(__name__)
RunShards = Callable[[Planned, Sequence[ShardRef]], Iterator[Outcome]]
HOUR = 3600.0
FIELD = "run.budget.max_"
OF_DATASET = ("calls", "tokens", "disk_gb")
"""Limits of what all builds of a dataset use together: the next one has no more of them."""


@dataclass(slots=True)
class Meter:
    """Measure what a build has used: calls, tokens and disk of all builds of its dataset, hours of this one."""

    folder: Folder
    budget: BudgetConfig
    asked: AskedOf
    purse: Purse | None
    """Where answers are paid for; it knows of those that cost something and are in no part."""
    began: float = field(default_factory=time.monotonic)
    gpu_seconds: float = 0.0

    def read(self) -> dict[str, float]:
        """Return what is used of each limit that is set."""
        return {name: self._of(name) for name in self.budget.limits}

    def _of(self, name: str) -> float:
        if name in ("calls", "tokens"):
            asked = self.asked.count()
            paid = self.purse.spent if self.purse else (0, 0)
            return float(max(asked.calls, paid[0]) if name == "calls" else max(asked.tokens, paid[1]))
        if name == "disk_gb":
            return self.folder.size_bytes() / 1e9
        return (time.monotonic() - self.began if name == "hours" else self.gpu_seconds) / HOUR


@dataclass(slots=True)
class Keeper:
    """Keep a build within its budget."""

    meter: Meter
    workers: int
    """How many shards run at once."""
    gpus: Callable[[Planned], int]
    """How many GPUs of this machine a stage holds."""
    stopped: str = ""
    """Why the build has ended early; empty: it has not."""

    def limited(self, run_shards: RunShards) -> RunShards:
        """Return a way to run shards that stops giving them out where the budget would be passed."""
        if not self.meter.budget.limits:
            return run_shards

        def run(planned: Planned, shards: Sequence[ShardRef]) -> Iterator[Outcome]:
            rest, costs, limits = list(shards), dict[str, float](), self._limits(planned)
            gpus = self.gpus(planned) if self.meter.budget.max_gpu_hours else 0
            while rest and not self.stopped:
                before = self.meter.read()
                count, scarce = self._affordable(rest, {name: limits[name] - before[name] for name in limits}, costs)
                if not count:
                    self._stop(scarce, before)
                    return
                now = [replace(shard, purse=self.meter.purse) for shard in rest[:count]]
                began = time.monotonic()
                for outcome in run_shards(planned, now):
                    self._look_at(outcome)
                    yield outcome
                self.meter.gpu_seconds += (time.monotonic() - began) * gpus
                after, rows = self.meter.read(), sum(map(_rows, now))
                costs = {name: max(costs.get(name, 0.0), (after[name] - before[name]) / rows) for name in limits}
                rest = rest[count:]

        return run

    def _limits(self, planned: Planned) -> dict[str, float]:
        """Return the limits that a stage can pass: one that asks nothing runs also when all calls are used."""
        used = {"hours", "disk_gb", *(("calls", "tokens") if planned.stage.remembers else ())}
        if self.meter.budget.max_gpu_hours and self.gpus(planned):
            used.add("gpu_hours")  # asked last: it loads PyTorch where there is a GPU
        return {name: limit for name, limit in self.meter.budget.limits.items() if name in used}

    def _affordable(self, rest: Sequence[ShardRef], left: dict[str, float], costs: dict[str, float]) -> tuple[int, str]:
        """Return how many of the shards may be given out now; where none may, also the limit that forbids it."""
        for name, amount in left.items():
            if amount <= 0:
                return 0, name
        if not costs:
            return (self.workers if left else len(rest)), ""
        rows = {name: left[name] / cost for name, cost in costs.items() if cost > 0}
        scarce = min(rows, key=rows.__getitem__, default="")
        if not scarce:
            return len(rest), ""
        sizes = list(accumulate(map(_rows, rest)))
        surely = sum(size <= rows[scarce] / 2 for size in sizes)
        return max(surely, min(self.workers, sum(size <= rows[scarce] for size in sizes))), scarce

    def _look_at(self, outcome: Outcome) -> None:
        """Stop after this round where a worker could not pay for its questions."""
        result = outcome.result
        if isinstance(result, ShardFailed) and result.error.startswith(FIELD) and not self.stopped:
            self._stop(result.error.removeprefix(FIELD).partition(":")[0], self.meter.read())

    def _stop(self, name: str, used: dict[str, float]) -> None:
        limit, url = self.meter.budget.limits[name], self.meter.folder.url
        more = f" --set {FIELD}{name}={2 * limit:g}" if name in OF_DATASET else ""
        self.stopped = (
            f"Stopped before {FIELD}{name} would be passed: {_shown(used[name])} of {_shown(limit)} are used, and what "
            f"is next may need more. What is finished is kept. Go on with: pairwright resume {url}{more}"
        )
        log.warning("%s", self.stopped)


def _shown(amount: float) -> str:
    return f"{amount:,.0f}" if amount.is_integer() else f"{amount:.3g}"


def _rows(shard: ShardRef) -> int:
    return shard.stop - shard.start


@contextmanager
def keeping(
    folder: Folder, budget: BudgetConfig, journals: Path, *, workers: int, gpus: Callable[[Planned], int]
) -> Generator[Keeper]:
    """Give who keeps a build within its budget; what was used before it counts, where the budget says so.

    Args:
        folder: the dataset's.
        budget: what may be used.
        journals: this machine's folder of unfinished shards.
        workers: how many shards run at once.
        gpus: how many GPUs of this machine a stage holds.
    """
    asked = AskedOf(folder, journals)
    if not (budget.max_calls or budget.max_tokens):
        yield Keeper(Meter(folder, budget, asked, None), workers, gpus)
        return
    parent = Path(folder.path("work")) if folder.is_local else own_temporary_folder()
    with scratch_folder(parent) as place:
        purse = Purse(str(place), budget.max_calls, budget.max_tokens)
        before = asked.count()
        purse.spend(before.calls, before.tokens)
        yield Keeper(Meter(folder, budget, asked, purse), workers, gpus)
