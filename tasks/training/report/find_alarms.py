"""Say in words what looks wrong in a run's metrics (the rules are ours). Reads and writes nothing."""

from dataclasses import dataclass

from pairwright.tasks.training.report.draw_lines import smooth
from pairwright.tasks.training.report.run_charts import HELD_OUT, Metrics

LEAST = 10
"""Logged values before their course means something."""
RISE = 1.05
"""Times its lowest that the held-out loss may end at."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """Say what is wrong, and what to do."""

    name: str
    text: str


def find_alarms(metrics: Metrics) -> list[Alarm]:
    """Return what looks wrong, the gravest first."""
    rules = (_unbounded, _not_learning, _overfitting, _no_better_than_chance, _chosen_falls)
    return [alarm for alarm in (rule(metrics) for rule in rules) if alarm]


def _unbounded(metrics: Metrics) -> Alarm | None:
    lost = sorted({name for (_, name), points in metrics.points.items() if len(points.finite()) < len(points)})
    if not lost:
        return None
    return Alarm("Not a number", f"{', '.join(lost)} had values that are no finite numbers; charts leave them out.")


def _not_learning(metrics: Metrics) -> Alarm | None:
    points = metrics.of("loss").finite()
    if len(points) < LEAST:
        return None
    first, last = float(points.values[0]), float(smooth(points).values[-1])
    if last < first:
        return None
    return Alarm(
        "The loss does not fall",
        f"It was {first:.3g} at step {points.steps[0]:.0f} and is {last:.3g} at the end, smoothed. Look at the "
        "learning rate (optimiser.learning_rate), and at a few rows by eye.",
    )


def _overfitting(metrics: Metrics) -> Alarm | None:
    points = metrics.of("loss", HELD_OUT).finite()
    if len(points) < 3:
        return None
    best, last = int(points.values.argmin()), float(points.values[-1])
    lowest = float(points.values[best])
    if last <= lowest + (RISE - 1) * abs(lowest):
        return None
    return Alarm(
        "The held-out loss rises",
        f"It was lowest at step {points.steps[best]:.0f} with {lowest:.3g} and ends at {last:.3g}: what is learnt "
        "since then is the training split by heart. Fewer optimiser.num_train_epochs, or more rows.",
    )


def _no_better_than_chance(metrics: Metrics) -> Alarm | None:
    held_out = metrics.final("accuracy", HELD_OUT)
    if held_out is None or held_out > 0.5:
        return None
    return Alarm(
        "Held-out preferences are ranked no better than by chance",
        f"Of them, {held_out:.0%} have a larger reward for the chosen text than for the rejected one.",
    )


def _chosen_falls(metrics: Metrics) -> Alarm | None:
    points = metrics.of("reward/chosen").finite()
    if len(points) < LEAST or (last := float(smooth(points).values[-1])) >= 0:
        return None
    return Alarm(
        "The chosen texts become less likely",
        f"Their reward is {last:.3g} at the end: the margin grows because the rejected texts fall faster. That is "
        "common with DPO; mdpo.anchor_enabled, or a larger beta, holds them.",
    )
