"""Write the folder of a training run by hand: settings, metrics that move, hostile texts."""

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
    "output": {"save_steps": 100, "logging_steps": 5},
}


def make_png(colour: str) -> bytes:
    return encode(Image.new("RGB", (64, 48), colour))


def make_samples() -> list[Sample]:
    both = (make_png("crimson"), make_png("navy"))
    common = {
        "key": "a" * 32,
        "prompt": f"What differs? {HOSTILE}",
        "reference": f"One is red, {HOSTILE}.",
    }
    return [
        Sample(
            **common,
            images=both,
            answer="One is red, the other one is blue.",
            rejected=f"None {HOSTILE}",
        ),
        Sample(**common, images=both[:1], answer="", rejected=LONG),
    ]


LOGGED = (
    *(
        "loss",
        "reward/chosen",
        "reward/rejected",
        "margin",
        "accuracy",
        "logp/chosen",
        "logp/rejected",
    ),
    *("retriever/entropy share", "retriever/effective", "retriever/candidates", "retriever/reward"),
    *("retriever/most common share", "retriever/scale"),
    *("learning_rate", "grad_norm", "rows per second", HOSTILE),
)


def curves(steps: Sequence[int]) -> dict[str, list[float]]:
    """Return what an ADPO run would log, each metric on its way from 2 to nearly 0."""
    random, share = np.random.default_rng(0), np.array(steps) / max(steps)
    return {name: list(2 - 1.9 * share + 0.1 * random.normal(size=len(steps))) for name in LOGGED}


def write_metrics(run: Run, steps: Sequence[int], *, measured: Sequence[int] = ()) -> None:
    metrics = MetricsFile(run.metrics)
    drawn, held = curves(steps), curves(measured) if measured else {}
    for place, step in enumerate(steps):
        metrics.add(
            step, step / 100, "train", {name: values[place] for name, values in drawn.items()}
        )
    for place, step in enumerate(measured):
        names = ("loss", "margin", "accuracy", "reward/chosen", "reward/rejected")
        found = {name: held[name][place] for name in names}
        metrics.add(step, step / 100, "held-out", {**found, "accuracy": 0.75, "accuracy/rows": 8.0})
    metrics.write()


def begin(folder: Path, refused: Sequence[Refused] = (), **settings: object) -> Run:
    """Write a run that has just begun."""
    run = Run(folder)
    run.folder.mkdir(parents=True, exist_ok=True)
    data = {
        "dataset": "/data/of/mine/scenes <b>",
        "snapshot": 3,
        "version": "version 3",
        "refused": {"too long": 2},
    }
    run.begin(TrainConfig.model_validate({**SETTINGS, **settings}), data, refused)
    return run


def make_run(folder: Path) -> Run:
    """Write a run that is finished, with everything that a page can show."""
    refused = [
        *(
            Refused(key=f"{number:032x}", reason="too long", detail=f"{9000 + number} tokens")
            for number in range(60)
        ),
        Refused(key="f" * 32, reason="image", detail=HOSTILE),
    ]
    run = begin(folder, refused)
    write_metrics(run, range(5, 1005, 5), measured=range(100, 1100, 100))
    write_samples(folder, make_samples())
    page = {
        "steps": 1000,
        "pool": 4321,
        "alarms": [{"name": "generic negatives", "text": f"one text is 12%: {HOSTILE}"}],
        "common": [
            {"text": HOSTILE, "count": 40, "pairs": 31},
            {"text": LONG, "count": 9, "pairs": 9},
        ],
    }
    (folder / "retriever").mkdir()
    (folder / "retriever" / "retriever.json").write_text(json.dumps(page))
    run.model.mkdir()
    return run


def entries(*rows: tuple[int, str, str, float]) -> list[Entry]:
    return [(step, step / 10, split, name, value) for step, split, name, value in rows]


def points(*values: float) -> Points:
    """Return values logged at the steps 1, 2, ..."""
    return np.stack([np.arange(1, 1 + len(values)), np.array(values, np.float64)], axis=1)
