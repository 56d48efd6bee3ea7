"""Write a training run's page, RUN/report/: static, opened from disk, without server and network.

Reads ``config.yaml`` and, where present, ``data.json``, ``refused.jsonl``, ``metrics.parquet``,
``retriever/`` and ``samples/`` of RUN, even while it trains. Templates escape texts, and the page's
own policy forbids external content. Problems in the metrics are described in words (the rules are
ours).

Answers to held-out rows are kept beside the run: some for the page, or all for scoring.

    RUN/samples/samples.jsonl    rows: key, prompt, reference, answer, rejected, image names
    RUN/samples/*.png            the images, each once
    RUN/answers/*.jsonl          predictions and references by key, for ``evaluate captions``
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
from pairwright.schemas.plain_text import to_json_line
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
RETRIEVER = "retriever/retriever.json"
SAMPLES = "samples/samples.jsonl"
MOST_SIDE = 480  # longest side of an image, in pixels


def write_run_page(folder: Path) -> Path:
    """Rewrite the page of a run's folder, and return its path."""
    run = Run(folder)
    config = run.config()
    if config is None:
        raise ConfigError(f"{folder}: not a training run (no config.yaml)")
    metrics = arrange(MetricsFile(run.metrics).read_until().entries)
    retriever = _read_json(folder / RETRIEVER)
    alarms = list(find_alarms(metrics, config))
    for alarm in retriever.get("alarms", ()):
        alarms.append((f"The retriever: {alarm['name']}", alarm["text"]))
    samples = read_samples(folder)
    template = make_environment(HERE).get_template("run.html.j2")
    page = template.render(
        subject={"name": folder.name},
        config=config,
        settings=list(_list_settings(config)),
        whole=(folder / "config.yaml").read_text(encoding="utf-8"),
        data=_list_data(_read_json(folder / "data.json")),
        finished=run.is_finished,
        metrics=metrics,
        totals=list(list_totals(metrics)),
        alarms=alarms,
        sections=draw_run(metrics),
        retriever=retriever,
        samples=samples,
        refused=_count_refused(folder / "refused.jsonl"),
    )
    images = {name for sample in samples for name in sample["images"]}
    with replacing(folder / "report") as new:
        (new / "images").mkdir()
        for name in images:
            source = (folder / SAMPLES).with_name(name)
            (new / "images" / name).write_bytes(source.read_bytes())
        copy_looks(new, [HERE / "run.css"])
        write_page(new / "index.html", page)
    return folder / "report" / "index.html"


def _list_settings(config: TrainConfig) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and default of each setting that differs from the default."""
    defaults = TrainConfig(objective=config.objective)
    changes = find_changes(defaults.model_dump(mode="json"), config.model_dump(mode="json"))
    for name, default, value in changes:
        yield name, value, default


def list_totals(metrics: Metrics) -> Iterator[tuple[str, str]]:
    """Yield the final results in words."""
    if metrics.points:
        yield "steps", f"{metrics.last:,}"
        yield "epochs", f"{metrics.epoch:.3g}"
    loss = metrics.final("loss")
    if loss is not None:
        yield "loss", show_value(loss)
    for name in ("loss", "margin"):
        value = metrics.final(name, HELD_OUT)
        if value is not None:
            yield f"held-out {name}", show_value(value)
    ranked = held_out_accuracy(metrics)
    if ranked:
        yield "held-out accuracy", say_proportion(ranked)


def _list_data(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the plain fields of ``data.json`` with their names in words."""
    fields = list[tuple[str, str]]()
    for name, value in data.items():
        if not isinstance(value, str | int | float) or value == "":
            continue
        text = str(value)
        if name == "dataset" and isinstance(value, str):  # pages are shared: no local paths
            text = value.rstrip("/").rsplit("/", 1)[-1]
        fields.append((name.replace("_", " "), text))
    return fields


def _count_refused(path: Path) -> list[tuple[str, int]]:
    """Return the reasons of refused rows with their counts, the most common first."""
    if not path.is_file():
        return []
    reasons = Counter[str]()
    with _store_errors(path), path.open(encoding="utf-8") as lines:
        for line in lines:
            reasons[json.loads(line)["reason"]] += 1
    return reasons.most_common()


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
    file_name = Path(SAMPLES).name
    with replacing((run / SAMPLES).parent) as folder:
        lines = list[str]()
        for sample in samples:
            images = [_write_image(folder, image) for image in sample.images]
            row = {**asdict(sample), "images": images}
            lines.append(json.dumps(row) + "\n")
        (folder / file_name).write_text("".join(lines), encoding="utf-8")


def write_answers(folder: Path, rows: Iterable[tuple[str, str, str]]) -> None:
    """Replace the answers by rows of key, answer and reference."""
    predictions = list[str]()
    references = list[str]()
    for key, answer, reference in rows:
        predictions.append(_to_line(key, answer))
        references.append(_to_line(key, reference))
    with replacing(folder) as new:
        (new / "predictions.jsonl").write_text("".join(predictions), encoding="utf-8")
        (new / "references.jsonl").write_text("".join(references), encoding="utf-8")


def _to_line(key: str, text: str) -> str:
    return to_json_line({"id": key, "text": text}) + "\n"


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
        for row in rows:
            for name in row["images"]:
                if name != Path(name).name:
                    raise ValueError(f"image {name!r} is not in the same folder")
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
