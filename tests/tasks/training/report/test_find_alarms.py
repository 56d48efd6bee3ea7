"""Alarms: each rule speaks when it should, and only then."""

import re
from collections.abc import Sequence

import numpy as np
import pytest

from pairwright.tasks.training.report.draw_lines import Points
from pairwright.tasks.training.report.find_alarms import find_alarms
from pairwright.tasks.training.report.run_charts import HELD_OUT, TRAIN, Metrics

FALLING = [2 - number / 30 for number in range(30)]


def metrics(**lines: Sequence[float]) -> Metrics:
    """Name a line "loss", or "held_loss"; "__" is a slash."""
    points: dict[tuple[str, str], Points] = {}
    for name, values in lines.items():
        split = HELD_OUT if name.startswith("held_") else TRAIN
        steps = np.arange(1, len(values) + 1, dtype=np.float64)
        points[split, name.removeprefix("held_").replace("__", "/")] = Points(steps, np.array(values, np.float64))
    return Metrics(points, 30, 1.0)


def names(**lines: Sequence[float]) -> list[str]:
    return [alarm.name for alarm in find_alarms(metrics(**lines))]


def test_a_good_run_has_none() -> None:
    good = {
        "loss": FALLING,
        "held_loss": (2, 1.5, 1.2),
        "held_accuracy": (0.6,),
        "reward__chosen": [2 - value for value in FALLING],
    }
    assert names(**good) == []


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ({"loss": (1, float("nan"))}, "Not a number"),
        ({"loss": FALLING[::-1]}, "The loss does not fall"),
        ({"held_loss": (2, 1, 1.06)}, "The held-out loss rises"),
        ({"held_accuracy": (0.7, 0.5)}, "Held-out preferences are ranked no better than by chance"),
        ({"reward__chosen": [-value for value in FALLING]}, "The chosen texts become less likely"),
    ],
)
def test_each_rule_speaks(lines: dict[str, Sequence[float]], name: str) -> None:
    assert names(**lines) == [name]


@pytest.mark.parametrize(
    "lines",
    [
        {"loss": (1, 2, 3)},
        {"held_loss": (1, 2)},
        {"held_loss": (2, 1, 1.04)},
        {"held_accuracy": (0.4, 0.51)},
        {"reward__chosen": (-1, -2)},
        {"reward__chosen": [number / 15 - 1 for number in range(30)]},
    ],
)
def test_no_rule_speaks_too_early(lines: dict[str, Sequence[float]]) -> None:
    assert names(**lines) == []


def test_the_numbers_are_in_the_words() -> None:
    (alarm,) = find_alarms(metrics(held_loss=(2, 1, 1.5)))
    assert re.search(r"step 2 .*\b1\b.* 1\.5\b", alarm.text)
