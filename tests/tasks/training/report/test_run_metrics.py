"""How metrics are read, and alarms: each rule speaks when it should, and only then."""

import re
from collections.abc import Sequence

import pytest

from pairwright.tasks.training.report.run_metrics import Metrics, Points, arrange, find_alarms, smooth
from pairwright.tasks.training.runs import HELD_OUT, TRAIN
from tests.tasks.training.report.handmade_run import entries, points

FALLING = [2 - number / 30 for number in range(30)]


def metrics(**lines: Sequence[float]) -> Metrics:
    """Name a line "loss", or "held_loss"; "__" is a slash."""
    found: dict[tuple[str, str], Points] = {}
    for name, values in lines.items():
        split = HELD_OUT if name.startswith("held_") else TRAIN
        found[split, name.removeprefix("held_").replace("__", "/")] = points(*values)
    return Metrics(found, 30, 1.0)


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


def test_points_are_in_the_order_of_steps_and_a_step_logged_again_counts_once() -> None:
    metrics = arrange(entries((20, "train", "loss", 2.0), (10, "train", "loss", 3.0), (20, "train", "loss", 1.0)))
    loss = metrics.of("loss")
    assert (loss.steps.tolist(), loss.values.tolist()) == ([10, 20], [3, 1])
    assert (metrics.last, metrics.epoch) == (20, 2.0)


def test_the_last_value_that_is_a_number_is_the_final_one() -> None:
    metrics = arrange(entries((1, "train", "loss", 2.0), (2, "train", "loss", float("nan"))))
    assert metrics.final("loss") == 2.0
    assert metrics.final("loss", HELD_OUT) is None


def test_few_points_are_not_smoothed_and_many_are_by_hand() -> None:
    few = points(*range(20))
    assert smooth(few) is few
    # 40 points look back over 2: each mean is half the value and half the mean before, by the weights so far.
    smoothed = smooth(points(1.0, 0.0, *([0.0] * 38)))
    assert smoothed.values[:3] == pytest.approx([1.0, (0.25 * 1) / 0.75, 0.125 / 0.875])
