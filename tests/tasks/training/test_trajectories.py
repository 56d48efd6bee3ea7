"""The first 20 steps of each objective are those that were stored; PAIRWRIGHT_STORE=1 stores them
anew."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from pairwright.tasks.training import fit_preferences
from tests.fixtures.retrievers_to_train import LIVELY, write_adpo_run
from tests.fixtures.runs_to_train import curve, preferences, settings, write_run

pytestmark = pytest.mark.usefixtures("no_samples")
TRAJECTORIES = Path(__file__).parent / "trajectories"
SHORT = {"sft_weight": 0, "data": {"eval_split": ""}, "output": {"save_steps": 100}}
LONG = {"max_steps": 20, "per_device_train_batch_size": 4}
RETRIEVED = ("loss", "margin", "retriever/loss", "retriever/entropy", "retriever/effective")


@pytest.mark.parametrize("objective", ["sft", "dpo", "mdpo", "adavip"])
def test_objectives_of_given_answers(objective, qwen, tmp_path):
    job = write_run(tmp_path, settings(objective, qwen, optimiser=LONG, **SHORT))
    fit_preferences.fit_preferences(job)
    compare({"loss": curve(job.run)}, objective)


def test_symmpo_compares_the_texts_of_both_orders(qwen, tmp_path):
    rows = [replace(row, rejected_maker="swapped") for row in preferences()]
    job = write_run(tmp_path, settings("symmpo", qwen, optimiser=LONG, **SHORT), rows=rows)
    fit_preferences.fit_preferences(job)
    compare({name: curve(job.run, name) for name in ("loss", "margin/exchanged")}, "symmpo")


@pytest.mark.parametrize("samples", [1, 2])
def test_adpo_and_its_retriever(samples, qwen, tmp_path):
    """The running baseline is that of one sample, the mean of the others that of two."""
    optimiser = LONG | {"learning_rate": 5e-3}
    job = write_adpo_run(
        tmp_path,
        settings("adpo", qwen, optimiser=optimiser, adpo=LIVELY | {"samples": samples}, **SHORT),
    )
    fit_preferences.fit_preferences(job)
    compare({name: curve(job.run, name) for name in RETRIEVED}, f"adpo-{samples}")


def compare(actual, name):
    """Compare curves with the stored ones, and look whether the loss falls."""
    path = TRAJECTORIES / f"{name}.json"
    if os.environ.get("PAIRWRIGHT_STORE"):
        rounded = {
            metric: [round(value, 5) for value in values] for metric, values in actual.items()
        }
        path.write_text(json.dumps(rounded, indent=0) + "\n")
    stored = json.loads(path.read_text())
    assert actual.keys() == stored.keys()
    for metric, values in actual.items():
        assert values == pytest.approx(stored[metric], rel=5e-3, abs=1e-4), metric
    assert sum(actual["loss"][-5:]) < sum(actual["loss"][:5]), "it learns"
