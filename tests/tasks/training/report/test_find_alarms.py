"""Alarms of runs: each rule on made-up metrics, and none on good runs."""

import re

import pytest

from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.report.draw_run import Metrics
from pairwright.tasks.training.report.find_alarms import (
    find_alarms,
    held_out_accuracy,
    say_proportion,
)
from pairwright.tasks.training.runs import HELD_OUT, TRAIN
from tests.tasks.training.report.handmade_run import points

ADPO, RANKED = TrainConfig(objective="adpo"), "held_accuracy__rows"
FALLING = [2 - number / 30 for number in range(30)]
FORGETS = "The model forgets the held-out chosen texts"


def metrics(**lines):
    """Name a line "loss", or "held_loss"; "__" is a slash."""
    named = {}
    for name, values in lines.items():
        split = HELD_OUT if name.startswith("held_") else TRAIN
        named[split, name.removeprefix("held_").replace("__", "/")] = points(*values)
    return Metrics(named, 30, 1.0)


def alarms_of(**lines):
    return dict(find_alarms(metrics(**lines), ADPO))


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ({"loss": (1, float("nan"))}, "Not a number"),
        ({"loss": FALLING[::-1]}, "The loss does not fall"),
        ({"held_loss": (2, 1, 1.06)}, "The held-out loss rises"),
        ({"held_accuracy": (0.5, 0.8), RANKED: (8, 8)}, "Held-out accuracy may be chance"),
        ({"held_nll": (0.4, 0.5, 0.9)}, FORGETS),
        ({"held_unreadable": (0.25, 0.0, 0.625)}, "Answers cannot be read"),
        ({"reward__chosen": [-value for value in FALLING]}, "The chosen texts become less likely"),
    ],
)
def test_each_rule_speaks(lines, name):
    assert list(alarms_of(**lines)) == [name]


GOOD = {
    "loss": FALLING,
    "held_loss": (2, 1.5, 1.2),
    "held_accuracy": (0.5, 0.8),
    RANKED: (256, 256),
    "held_nll": (0.4, 0.5, 0.6),
    "held_unreadable": (0.5, 0.625),
    "reward__chosen": [2 - value for value in FALLING],
}


@pytest.mark.parametrize(
    "lines",
    [
        GOOD,
        {"loss": (1, 2, 3)},
        {"held_loss": (1, 2)},
        {"held_loss": (2, 1, 1.04)},
        {"held_accuracy": (0.4, 0.51)},
        {"held_nll": (1.2, 2.2)},
        {"held_nll": (0.05, 0.2)},
        {"held_unreadable": (1.0, 1.0)},
        {"reward__chosen": (-1, -2)},
        {"reward__chosen": [number / 15 - 1 for number in range(30)]},
    ],
)
def test_no_rule_speaks_of_a_good_run_or_too_early(lines):
    assert alarms_of(**lines) == {}


def test_advice_names_settings_that_the_objective_reads():
    advice = alarms_of(held_nll=(0.4, 0.9))[FORGETS]
    names = re.findall(r"[a-z_.]+_weight|[a-z]+\.[a-z_]+", advice)
    assert names == ["sft_weight", "adpo.beta", "optimiser.learning_rate"]


def test_an_accuracy_stands_with_its_rows_and_wilsons_interval():
    # Of 8 of 8, Wilson's interval begins at 8 / (8 + 1.96^2) = 68 %.
    ranked = held_out_accuracy(metrics(held_accuracy=(0.5, 1.0), **{RANKED: (8, 8)}))
    assert say_proportion(ranked) == "100% of 8 (68% to 100%)"


RISING = [number / 30 for number in range(30)]


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ({"reward": RISING, "reward__equal groups": FALLING[::-1]}, ["Answers do not differ"]),
        ({"reward": FALLING, "reward__equal groups": [0.5] * 30}, ["The reward falls"]),
        ({"reward": RISING, "reward__equal groups": [0.5] * 30, "loss": RISING}, []),
    ],
)
def test_rewards_are_judged_and_not_the_loss_with_grpo(lines, names):
    alarms = [name for name, _ in find_alarms(metrics(**lines), TrainConfig(objective="grpo"))]
    assert [name[: len(start)] for name, start in zip(alarms, names, strict=True)] == names
