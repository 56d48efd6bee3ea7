"""Stop a build when its budget is used up: checked before each round of one shard per worker.

A part of a stage that asks a served model states its answers and tokens. A running shard counts
when its part is written, so a build may exceed its budget by one round.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pairwright.schemas.bounds import BudgetConfig
from pairwright.tasks.store.answers import CALLS, TOKENS
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import table_folders
from pairwright.tasks.store.part import Part, read_about
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.stage import Planned

log = logging.getLogger(__name__)
FIELD = "run.budget.max_"
HOURS = "hours"  # limit of one build; the others are of all builds of a dataset


@dataclass(slots=True)
class Budget:
    """Budget of one build, and its use.

    Calls and tokens of all builds of the dataset, hours of this one.
    """

    folder: Folder
    config: BudgetConfig
    workers: int  # number of shards that run at once
    stopped: str = ""  # why the build ended early; empty: it did not
    began: float = field(default_factory=time.monotonic)

    def rounds(self, planned: Planned, shards: Sequence[ShardRef]) -> Iterator[Sequence[ShardRef]]:
        """Yield the shards of a stage in rounds until the budget is used up.

        Without limits, in one.
        """
        if not self.config.limits:
            yield shards
            return
        for start in range(0, len(shards), self.workers):
            if self._is_used_up(planned):
                return
            yield shards[start : start + self.workers]

    def _is_used_up(self, planned: Planned) -> bool:
        """Return whether a limit that applies to the stage is reached.

        Only hours apply to one that asks no model.
        """
        for name, limit in self.config.limits.items():
            if self.stopped:
                break
            if name != HOURS and not planned.keeps_answers:
                continue
            used = self._used(name)
            if used < limit:
                continue
            # the next build of the dataset starts with what is left of its calls and tokens
            hint = "" if name == HOURS else f" --set {FIELD}{name}={2 * limit:g}"
            self.stopped = (
                f"Stopped by {FIELD}{name}: {_format_amount(used)} of {_format_amount(limit)} are "
                "used. Finished rows are kept. Go on with: pairwright resume "
                f"{self.folder.url}{hint}"
            )
            log.warning("%s", self.stopped)
        return bool(self.stopped)

    def _used(self, name: str) -> float:
        if name == HOURS:
            return (time.monotonic() - self.began) / 3600
        asked = count_asked(self.folder)
        kinds = TOKENS if name == "tokens" else (CALLS,)
        return float(sum(asked[kind] for kind in kinds))


def count_asked(folder: Folder) -> Counter[str]:
    """Return the calls, and the tokens by kind, of all builds of a dataset."""
    total = Counter[str]()
    for table in table_folders(folder):
        for name in folder.names(table, ".parquet"):
            about = read_about(Part(folder, f"{table}/{name}"))
            if CALLS not in about:
                break  # no part of this table states answers
            total.update({kind: int(about.get(kind, 0)) for kind in (CALLS, *TOKENS)})
    return total


def _format_amount(amount: float) -> str:
    return f"{amount:,.0f}" if amount.is_integer() else f"{amount:.3g}"
