"""What a training is given beside the model and the rows. Needs PyTorch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.collate import Answer
from pairwright.tasks.training.losses.objectives import Goal
from pairwright.tasks.training.metrics import MetricsFile
from pairwright.tasks.training.references import Reference
from pairwright.tasks.training.runs import Run

if TYPE_CHECKING:
    from torch import Tensor


class Adversary(Protocol):
    """Choose negatives for a batch, and learn which are hard (ADPO's retriever)."""

    def propose(self, keys: Sequence[str]) -> Sequence[Sequence[Answer]]:
        """Return m answers per row (fewer where there are no candidates), in columns from ``TEXTS`` on."""
        ...

    def learn(self, rewards: "Tensor", *, step: bool) -> Mapping[str, float]:
        """Learn from the (B, m) rewards of what was proposed last; step the optimiser where asked. Returns metrics."""
        ...

    def skip(self, *, step: bool) -> None:
        """Stand in for both where this rank has no rows."""
        ...

    def publish(self, folder: Path) -> None:
        """Write what is left of it when the run is finished."""
        ...

    def save(self, folder: Path) -> None:
        """Write its state beside a checkpoint's."""
        ...

    def load(self, folder: Path) -> None:
        """Read its state."""
        ...


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Hold what a training needs beside the model and the rows."""

    run: Run
    config: TrainConfig
    goal: Goal
    reference: Reference | None
    adversary: Adversary | None
    metrics: MetricsFile
