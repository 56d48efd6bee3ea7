"""Write the folder of a training run by hand: settings, metrics that move as those of a real one, hostile texts."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.freeze_rows import Refused
from pairwright.tasks.training.report.draw_run import Points
from pairwright.tasks.training.report.write_run_page import Sample, write_samples
from pairwright.tasks.training.runs import Entry, MetricsFile, Run
from tests.fixtures.pictures import encode

HOSTILE = "</title><script>alert(1)</script><img src=x onerror=alert(2)> \u202e{{ 7 * 7 }}"
LONG = "w" * 300
SETTINGS = {
    "objective": "adpo",
    "start": "sft",
    "model": {"tuning": "full"},
    "optimiser": {"per_device_train_batch_size": 2, "learning_rate": 3e-4},
    "output": {"report_to": ["tensorboard"], "logging_steps": 5},
}


def make_png(colour: str) -> bytes:
    return encode(Image.new("RGB", (64, 48), colour))


def make_samples() -> list[Sample]:
    both = (make_png("crimson"), make_png("navy"))
    common = {"key": "a" * 32, "prompt": f"What differs? {HOSTILE}", "reference": f"One is red, {HOSTILE}."}
    return [
        Sample(**common, images=both, answer="One is red, the other one is blue.", rejected=f"None {HOSTILE}"),
        Sample(**common, images=both[:1], answer="", rejected=LONG),
    ]


def curves(steps: Sequence[int]) -> dict[str, list[float]]:
    """Return what an ADPO run would log: a loss that falls, rewards that part, a retriever that narrows its choice."""
    random, share = np.random.default_rng(0), np.array(steps) / max(steps)
    noise = random.normal(size=(8, len(steps)))
    margin = 2.2 * share**0.8 + 0.35 * noise[0]
    return {
        "loss": list(np.logaddexp(0, -margin)),
        "reward/chosen": list(0.4 * share - 0.5 * share**3 + 0.15 * noise[1]),
        "reward/rejected": list(0.4 * share - 0.5 * share**3 + 0.15 * noise[1] - margin),
        "margin": list(margin),
        "accuracy": list(np.clip(0.5 + 0.45 * share + 0.12 * noise[2], 0, 1)),
        "logp/chosen": list(-60 + 4 * share + 2 * noise[3]),
        "logp/rejected": list(-60 - 18 * share + 2 * noise[4]),
        "retriever/entropy share": list(np.clip(1 - 0.6 * share + 0.03 * noise[5], 0, 1)),
        "retriever/effective": list(128 ** np.clip(1 - 0.6 * share, 0, 1)),
        "retriever/candidates": [128.0] * len(steps),
        "retriever/reward": list(0.7 + 0.2 * noise[6]),
        "retriever/true share": list(0.04 + 0.08 * share + 0.01 * noise[7]),
        "retriever/most common share": list(0.02 + 0.1 * share),
        "retriever/scale": [100.0] * len(steps),
        "learning_rate": list(3e-4 * (0.5 + 0.5 * np.cos(np.pi * share))),
        "grad_norm": list(1 + np.abs(noise[0]) + 40 * (np.arange(len(steps)) == len(steps) // 2)),
        "rows per second": list(20 + noise[1]),
        HOSTILE: list(share),
    }


def write_metrics(run: Run, steps: Sequence[int], *, measured: Sequence[int] = ()) -> None:
    metrics = MetricsFile(run.metrics)
    drawn, held = curves(steps), curves(measured) if measured else {}
    for place, step in enumerate(steps):
        metrics.add(step, step / 100, "train", {name: values[place] for name, values in drawn.items()})
    for place, step in enumerate(measured):
        names = ("loss", "margin", "accuracy", "reward/chosen", "reward/rejected")
        metrics.add(step, step / 100, "held-out", {name: held[name][place] for name in names})
    metrics.write()


def begin(folder: Path, refused: Sequence[Refused] = (), **settings: object) -> Run:
    """Write a run that has just begun."""
    run = Run(folder)
    run.folder.mkdir(parents=True, exist_ok=True)
    data = {"dataset": "/data/of/mine/scenes <b>", "snapshot": 3, "version": "version 3", "refused": {"too long": 2}}
    run.begin(TrainConfig.model_validate({**SETTINGS, **settings}), data, refused)
    return run


def make_run(folder: Path) -> Run:
    """Write a run that is finished, with everything that a page can show."""
    refused = [
        *(Refused(key=f"{number:032x}", reason="too long", detail=f"{9000 + number} tokens") for number in range(60)),
        Refused(key="f" * 32, reason="image", detail=HOSTILE),
    ]
    run = begin(folder, refused)
    write_metrics(run, range(5, 1005, 5), measured=range(100, 1100, 100))
    write_samples(folder, make_samples())
    page = {
        "steps": 1000,
        "pool": 4321,
        "metrics": {},
        "alarms": [{"name": "true negatives", "text": f"12% are true: {HOSTILE}"}],
        "common": [{"text": HOSTILE, "count": 40, "pairs": 31}, {"text": LONG, "count": 9, "pairs": 9}],
    }
    (folder / "retriever").mkdir()
    (folder / "retriever" / "retriever.json").write_text(json.dumps(page))
    run.model.mkdir()
    return run


def entries(*rows: tuple[int, str, str, float]) -> list[Entry]:
    return [(step, step / 10, split, name, value) for step, split, name, value in rows]


def points(*values: float) -> Points:
    """Return values logged at the steps 1, 2, ..."""
    return Points(np.arange(1, 1 + len(values), dtype=np.float64), np.array(values, np.float64))
