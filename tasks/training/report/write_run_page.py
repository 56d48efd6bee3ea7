"""Write a training run's page, RUN/report/: static, opened from disk, without server and network.

Reads ``config.yaml`` and, where present, ``data.json``, ``refused.jsonl``, ``metrics.parquet``,
``retriever/`` and ``samples/`` of RUN, even while it trains. Templates escape texts, and the page's
own policy forbids external content. Problems in the metrics are described in words (the rules are
ours).

Answers to held-out rows are kept beside the run: some for the page, or all for scoring.

    RUN/samples/samples.jsonl    one row per line: key, prompt, reference, answer, rejected, names of its images
    RUN/samples/*.png            the images, each once
    RUN/answers/*.jsonl          predictions and references by key, for ``pairwright evaluate captions``
"""

import json
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pairwright.schemas.errors import ConfigError, StoreError
from pairwright.schemas.rows import make_key
from pairwright.schemas.section import find_changes
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.images.decode import decode_rgb, encode_png
from pairwright.tasks.pages.environment import copy_looks, make_environment, write_page
from pairwright.tasks.store.scratch import replacing
from pairwright.tasks.training.report.draw_run import Metrics, arrange, draw_run, show_value
from pairwright.tasks.training.report.find_alarms import (
    find_alarms,
    held_out_accuracy,
    say_proportion,
)
from pairwright.tasks.training.runs import HELD_OUT, MetricsFile, Run

HERE = Path(__file__).parent
RETRIEVER, SAMPLES = "retriever/retriever.json", "samples/samples.jsonl"
MOST_SIDE = 480  # longest side of an image, in pixels


def write_run_page(folder: Path) -> Path:
    """Rewrite the page of a run's folder, and return its path."""
    run = Run(folder)
    config = run.config()
    if config is None:
        raise ConfigError(f"{folder}: not a training run (no config.yaml)")
    metrics, retriever = (
        arrange(MetricsFile(run.metrics).resume().entries),
        _read_json(folder / RETRIEVER),
    )
    samples = read_samples(folder)
    alarms = [(f"The retriever: {one['name']}", one["text"]) for one in retriever.get("alarms", ())]
    defaults = TrainConfig(objective=config.objective)
    changes = find_changes(defaults.model_dump(mode="json"), config.model_dump(mode="json"))
    page = make_environment(HERE).get_template("run.html.j2").render(
        subject={"name": folder.name},
        config=config,
        settings=[(name, own, usual) for name, usual, own in changes],
        whole=(folder / "config.yaml").read_text(encoding="utf-8"),
        data=_list_data(_read_json(folder / "data.json")),
        finished=run.is_finished,
        metrics=metrics,
        totals=list(list_totals(metrics)),
        alarms=[*find_alarms(metrics, config), *alarms],
        sections=draw_run(metrics),
        retriever=retriever,
        samples=samples,
        refused=_count_refused(folder / "refused.jsonl"),
    )  # fmt: skip
    with replacing(folder / "report") as new:
        (new / "images").mkdir()
        for name in {name for sample in samples for name in sample["images"]}:
            (new / "images" / name).write_bytes((folder / SAMPLES).with_name(name).read_bytes())
        copy_looks(new, [HERE / "run.css"])
        write_page(new / "index.html", page)
    return folder / "report" / "index.html"


def list_totals(metrics: Metrics) -> Iterator[tuple[str, str]]:
    """Yield the final results in words."""
    if metrics.points:
        yield from (("steps", f"{metrics.last:,}"), ("epochs", f"{metrics.epoch:.3g}"))
    if (loss := metrics.final("loss")) is not None:
        yield "loss", show_value(loss)
    for name in ("loss", "margin"):
        if (value := metrics.final(name, HELD_OUT)) is not None:
            yield f"held-out {name}", show_value(value)
    if ranked := held_out_accuracy(metrics):
        yield "held-out accuracy", say_proportion(ranked)


def _list_data(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    plain = {
        name: value
        for name, value in data.items()
        if isinstance(value, str | int | float) and value != ""
    }
    if isinstance(path := plain.get("dataset"), str):  # pages are shared: no local paths
        plain["dataset"] = path.rstrip("/").rsplit("/", 1)[-1]
    return [(name.replace("_", " "), str(value)) for name, value in plain.items()]


def _count_refused(path: Path) -> list[tuple[str, int]]:
    if not path.is_file():
        return []
    with _store_errors(path), path.open(encoding="utf-8") as lines:
        return Counter(row["reason"] for row in map(json.loads, lines)).most_common()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Held-out row with the model's answer."""

    key: str
    prompt: str
    images: tuple[bytes, ...]  # encoded files
    reference: str
    answer: str
    rejected: str = ""
    cut: bool = False  # whether the answer reached the token limit


def write_samples(run: Path, samples: Iterable[Sample]) -> None:
    """Replace the samples of a run."""
    with replacing((run / SAMPLES).parent) as folder:
        rows = [
            {**asdict(one), "images": [_write_image(folder, image) for image in one.images]}
            for one in samples
        ]
        (folder / Path(SAMPLES).name).write_text(
            "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
        )


def write_answers(folder: Path, rows: Iterable[tuple[str, str, str]]) -> None:
    """Replace the answers by rows of key, answer and reference."""
    kept = list(rows)
    with replacing(folder) as place:
        for side, name in enumerate(("predictions", "references"), start=1):
            lines = (
                json.dumps({"id": row[0], "text": row[side]}, ensure_ascii=False) + "\n"
                for row in kept
            )
            (place / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


def _write_image(folder: Path, image: bytes) -> str:
    name = f"{make_key(image)}.png"
    if not (folder / name).exists():
        pixels = Image.fromarray(decode_rgb(image))
        pixels.thumbnail((MOST_SIDE, MOST_SIDE), Image.Resampling.LANCZOS)
        (folder / name).write_bytes(encode_png(np.asarray(pixels)))
    return name


def read_samples(run: Path) -> list[dict[str, Any]]:
    """Return the samples of a run, with the names of their images."""
    path = run / SAMPLES
    if not path.is_file():
        return []
    with _store_errors(path):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if wrong := [name for row in rows for name in row["images"] if name != Path(name).name]:
            raise ValueError(f"image {wrong[0]!r} is not in the same folder")
        return rows


def _read_json(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    with _store_errors(path):
        return dict(json.loads(path.read_text(encoding="utf-8")))


@contextmanager
def _store_errors(path: Path) -> Generator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path}: cannot be read: {type(error).__name__}: {error}") from error
