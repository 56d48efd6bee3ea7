"""Arrange a run's metrics, and say in words what looks wrong in them (the rules are ours)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.training.runs import HELD_OUT, TRAIN, Entry

SMOOTHED_OVER = 20
"""The smoothed line looks back over the points' number divided by this."""
MOST = 1e15
"""Larger values are as good as infinite: they would hide all others."""
LEAST = 10
"""Logged values before their course means something."""
RISE = 1.05
"""Times its lowest that the held-out loss may end at."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Points:
    """Values at steps, both ``(n,)``, in the order of the steps; a value may be NaN or infinite."""

    steps: Floats
    values: Floats

    def __len__(self) -> int:
        return len(self.steps)

    def at(self, places: Sequence[int] | NDArray[np.bool_]) -> "Points":
        """Return some of them."""
        return Points(self.steps[places], self.values[places])

    def finite(self) -> "Points":
        """Return those that can be drawn."""
        return self.at(np.abs(self.values) < MOST)


NOTHING = Points(np.zeros(0), np.zeros(0))


@dataclass(frozen=True, eq=False)
class Metrics:
    """What a run logged."""

    points: Mapping[tuple[str, str], Points]
    """By split and name."""
    last: int
    """The last step."""
    epoch: float

    def of(self, name: str, split: str = TRAIN) -> Points:
        """Return a metric's points; none gives an empty one."""
        return self.points.get((split, name), NOTHING)

    def final(self, name: str, split: str = TRAIN) -> float | None:
        """Return a metric's last value that is a number."""
        values = self.of(name, split).finite().values
        return float(values[-1]) if len(values) else None


def arrange(entries: Iterable[Entry]) -> Metrics:
    """Return what a run logged, each metric in the order of its steps; of a step logged twice, the later."""
    logged: dict[tuple[str, str], dict[int, float]] = {}
    last, reached = 0, 0.0
    for step, epoch, split, name, value in entries:
        logged.setdefault((split, name), {})[step] = value
        last, reached = max(last, step), max(reached, epoch)
    points = {
        key: Points(np.array(sorted(values), np.float64), np.array([values[step] for step in sorted(values)]))
        for key, values in logged.items()
    }
    return Metrics(points, last, reached)


def smooth(points: Points) -> Points:
    """Return exponential means that look back over a part of the points, unbiased at their start; few stay as are."""
    window = len(points) / SMOOTHED_OVER
    if window <= 1:
        return points
    keep, mean, means = 1 - 1 / window, 0.0, np.empty(len(points))
    for number, value in enumerate(points.values.tolist()):
        mean = keep * mean + (1 - keep) * value
        means[number] = mean / (1 - keep ** (number + 1))
    return Points(points.steps, means)


@dataclass(frozen=True, slots=True)
class Alarm:
    """What is wrong, and what to do."""

    name: str
    text: str


def find_alarms(metrics: Metrics) -> list[Alarm]:
    """Return what looks wrong, the gravest first."""
    rules: dict[str, Callable[[Metrics], str]] = {
        "Not a number": _unbounded,
        "The loss does not fall": _not_learning,
        "The held-out loss rises": _overfitting,
        "Held-out preferences are ranked no better than by chance": _no_better_than_chance,
        "The chosen texts become less likely": _chosen_falls,
    }
    return [Alarm(name, text) for name, rule in rules.items() if (text := rule(metrics))]


def _unbounded(metrics: Metrics) -> str:
    lost = sorted({name for (_, name), points in metrics.points.items() if len(points.finite()) < len(points)})
    return f"{', '.join(lost)} had values that are no finite numbers; charts leave them out." if lost else ""


def _not_learning(metrics: Metrics) -> str:
    points = metrics.of("loss").finite()
    if len(points) < LEAST or (last := float(smooth(points).values[-1])) < (first := float(points.values[0])):
        return ""
    return (
        f"It was {first:.3g} at step {points.steps[0]:.0f} and is {last:.3g} at the end, smoothed. Look at the "
        "learning rate (optimiser.learning_rate), and at a few rows by eye."
    )


def _overfitting(metrics: Metrics) -> str:
    points = metrics.of("loss", HELD_OUT).finite()
    if len(points) < 3:
        return ""
    best, last = int(points.values.argmin()), float(points.values[-1])
    lowest = float(points.values[best])
    if last <= lowest + (RISE - 1) * abs(lowest):
        return ""
    return (
        f"It was lowest at step {points.steps[best]:.0f} with {lowest:.3g} and ends at {last:.3g}: what is learnt "
        "since then is the training split by heart. Fewer optimiser.num_train_epochs, or more rows."
    )


def _no_better_than_chance(metrics: Metrics) -> str:
    held_out = metrics.final("accuracy", HELD_OUT)
    if held_out is None or held_out > 0.5:
        return ""
    return f"Of them, {held_out:.0%} have a larger reward for the chosen text than for the rejected one."


def _chosen_falls(metrics: Metrics) -> str:
    points = metrics.of("reward/chosen").finite()
    if len(points) < LEAST or (last := float(smooth(points).values[-1])) >= 0:
        return ""
    return (
        f"Their reward is {last:.3g} at the end: the margin grows because the rejected texts fall faster. That is "
        "common with DPO; mdpo.anchor_enabled, or a larger beta, holds them."
    )
