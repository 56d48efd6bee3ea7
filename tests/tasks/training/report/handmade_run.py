"""Write the folder of a training run by hand: settings, metrics that move, hostile texts."""

import json

import numpy as np
from PIL import Image

from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.freeze_rows import Refused
from pairwright.tasks.training.report.write_run_page import Sample, write_samples
from pairwright.tasks.training.runs import MetricsFile, Run
from tests.fixtures.pictures import encode
from tests.fixtures.runs_to_train import merge

HOSTILE = "</title><script>alert(1)</script><img src=x onerror=alert(2)> \u202e{{ 7 * 7 }}"
LONG = "w" * 300
SETTINGS = {
    "objective": "adpo",
    "start": "sft",
    "model": {"tuning": "full"},
    "optimiser": {"per_device_train_batch_size": 2, "learning_rate": 3e-4},
    "output": {"save_steps": 100, "logging_steps": 5},
}
LOGGED = [
    "loss", "reward/chosen", "reward/rejected", "margin", "accuracy", "logp/chosen",
    "logp/rejected", "retriever/entropy share", "retriever/effective", "retriever/candidates",
    "retriever/reward", "retriever/most common share", "retriever/scale", "learning_rate",
    "grad_norm", "rows per second", HOSTILE,
]  # fmt: skip
HELD_OUT = ("loss", "margin", "reward/chosen", "reward/rejected")


def make_png(colour):
    return encode(Image.new("RGB", (64, 48), colour))


def make_samples():
    images = (make_png("crimson"), make_png("navy"))
    about = {"key": "a" * 32, "prompt": f"What differs? {HOSTILE}"}
    about["reference"] = f"One is red, {HOSTILE}."
    answer = "One is red, the other one is blue."
    return [
        Sample(**about, images=images, answer=answer, rejected=f"None {HOSTILE}"),
        Sample(**about, images=images[:1], answer="", rejected=LONG),
    ]


def curves(steps):
    """Return what an ADPO run would log, each metric on its way from 2 to nearly 0."""
    random, share = np.random.default_rng(0), np.array(steps) / max(steps)
    return {name: list(2 - 1.9 * share + 0.1 * random.normal(size=len(steps))) for name in LOGGED}


def write_metrics(run, steps, *, measured):
    metrics = MetricsFile(run.metrics)
    trained, held_out = curves(steps), curves(measured)
    for position, step in enumerate(steps):
        values = {name: curve[position] for name, curve in trained.items()}
        metrics.add_values(step, step / 100, "train", values)
    for position, step in enumerate(measured):
        values = {name: held_out[name][position] for name in HELD_OUT}
        values |= {"accuracy": 0.75, "accuracy/rows": 8.0}
        metrics.add_values(step, step / 100, "held-out", values)
    metrics.write_file()


def begin(folder, refused=(), **settings):
    """Write a run that has just begun."""
    run = Run(folder)
    run.folder.mkdir(parents=True, exist_ok=True)
    version = {"snapshot": 3, "version": "version 3"}
    data = {"dataset": "/data/of/mine/scenes <b>", "refused": {"too long": 2}, **version}
    run.record_start(TrainConfig.model_validate(merge(SETTINGS, settings)), data, refused)
    return run


def make_run(folder):
    """Write a run that is finished, with everything that a page can show."""
    refused = [
        Refused(key=f"{number:032x}", reason="too long", detail=f"{9000 + number} tokens")
        for number in range(60)
    ]
    run = begin(folder, [*refused, Refused(key="f" * 32, reason="image", detail=HOSTILE)])
    write_metrics(run, range(5, 1005, 5), measured=range(100, 1100, 100))
    write_samples(folder, make_samples())
    alarm = {"name": "generic negatives", "text": f"one text is 12%: {HOSTILE}"}
    common = [{"text": HOSTILE, "count": 40, "pairs": 31}, {"text": LONG, "count": 9, "pairs": 9}]
    page = {"steps": 1000, "pool": 4321, "alarms": [alarm], "common": common}
    (folder / "retriever").mkdir()
    (folder / "retriever" / "retriever.json").write_text(json.dumps(page))
    run.model.mkdir()
    return run


def entries(*rows):
    return [(step, step / 10, split, name, value) for step, split, name, value in rows]


def points(*values):
    """Return values logged at the steps 1, 2, ..."""
    return np.stack([np.arange(1, 1 + len(values)), np.array(values, np.float64)], axis=1)
