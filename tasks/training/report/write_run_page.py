"""Write a training run's page: static, opened from disk, without server and without network.

Reads RUN's ``config.yaml``, ``data.json``, ``refused.jsonl``, ``metrics.parquet``, ``retriever/`` and ``samples/``, and
of these what there is; the run may go on meanwhile. Writes

RUN/report/
  index.html               alarms, charts, samples, settings, what was refused
  report.css, run.css
  images/                  of the samples

Texts are shown, never interpreted: templates escape them, and the page forbids itself everything from elsewhere.
"""

from pathlib import Path

from pairwright.tasks.pages.environment import copy_looks, make_environment, write_page
from pairwright.tasks.store.replace import replacing
from pairwright.tasks.training.report import draw_lines
from pairwright.tasks.training.report.find_alarms import find_alarms
from pairwright.tasks.training.report.read_run import (
    read_data,
    read_refused,
    read_retriever,
    read_samples,
    read_settings,
)
from pairwright.tasks.training.report.run_charts import HELD_OUT, Metrics, draw_run, read_metrics
from pairwright.tasks.training.report.samples import FOLDER, Shown
from pairwright.tasks.training.runs import Run

HERE = Path(__file__).parent
IMAGES = "images"


def write_run_page(folder: Path) -> Path:
    """Write the page of a run's folder anew, and return it.

    Raises:
        ConfigError: the folder is no run.
        StoreError: a file of the run cannot be read, or the disk refuses.
    """
    run = Run(folder)
    config, settings = read_settings(run)
    metrics, retriever = read_metrics(run.metrics), read_retriever(run)
    samples = read_samples(run)
    sizes = {name: getattr(draw_lines, name) for name in ("WIDTH", "HEIGHT", "LEFT", "RIGHT", "BOTTOM")}
    page = make_environment(HERE, size=sizes).get_template("run.html.j2").render(
        subject={"name": folder.name},
        config=config,
        settings=settings,
        whole=(folder / "config.yaml").read_text(encoding="utf-8"),
        data=read_data(run),
        finished=run.is_finished,
        metrics=metrics,
        totals=_totals(metrics),
        alarms=[*find_alarms(metrics), *(retriever.alarms if retriever else ())],
        sections=draw_run(metrics),
        retriever=retriever,
        samples=samples,
        refused=read_refused(run),
    )  # fmt: skip
    with replacing(folder / "report") as new:
        _copy_images(folder / FOLDER, new / IMAGES, samples)
        copy_looks(new, [HERE / "run.css"])
        write_page(new / "index.html", page)
    return folder / "report" / "index.html"


def _totals(metrics: Metrics) -> list[tuple[str, str]]:
    """Return the numbers that are looked for first; those that are not known are left out."""
    show = draw_lines.show_value
    named = [("loss", metrics.final("loss"), False), ("held-out loss", metrics.final("loss", HELD_OUT), False)]
    named += [("held-out margin", metrics.final("margin", HELD_OUT), False)]
    named += [("held-out accuracy", metrics.final("accuracy", HELD_OUT), True)]
    steps = [("steps", f"{metrics.last:,}"), ("epochs", f"{metrics.epoch:.3g}")] if metrics.points else []
    return steps + [(name, show(value, percent=percent)) for name, value, percent in named if value is not None]


def _copy_images(source: Path, target: Path, samples: list[Shown]) -> None:
    target.mkdir()
    for name in {name for sample in samples for name in sample.images}:
        (target / name).write_bytes((source / name).read_bytes())
