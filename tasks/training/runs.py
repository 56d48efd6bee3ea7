"""Files of a training run: settings, rows, metrics, checkpoints.

    DIR/runs/NAME/
      config.yaml        settings
      data.json          dataset version, table, numbers of rows and of processes
      rows.arrow         frozen rows
      reference.npz      the initial model's log-probabilities, where they are the reference
      retriever/         material and results of ADPO's retriever
      mixed/             conversations of mixed-in files; deleted at the end
      places/            image features and codes for NAMC at the paper's size; deleted at the end
      words.json         NAMC's vocabulary
      refused.jsonl      rows that are not trained on, with reasons
      metrics.parquet    step, epoch, split, name, value
      checkpoints/       for resuming; deleted at the end, unless they are to be kept
      checkpoint/        the finished model for ``from_pretrained``; README.md is its card
      samples/           held-out rows with the finished model's answers
      answers/           all answers to held-out rows, and references: of NAMC, or with
                         ``output.write_answers``
      report/index.html  the run page

``DIR/references`` holds the reference's log-probabilities for further runs of the same model and
rows. Files appear under their names when complete and flushed, so that a process killed at any
moment leaves the previous ones; models and checkpoints have a manifest. Metrics are means over
logged windows. Needs no PyTorch.
"""

import json
import logging
import re
import shutil
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from filelock import FileLock, Timeout
from pydantic import ValidationError

from pairwright.schemas.errors import ConfigError, ModelError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.evaluations import FOLDER as EVALUATIONS
from pairwright.tasks.store.files import Folder, flush, naming
from pairwright.tasks.store.manifest import (
    RECORD,
    find_damage,
    list_changed,
    record_files,
    replace_file,
    write_manifest,
)
from pairwright.tasks.training.freeze_rows import FILE, MIXED, Refused

log = logging.getLogger(__name__)
STEP = "checkpoint-"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
RUNS = "runs"
TRUTHS = "truths.arrow"  # scene graphs of the rows' pairs, for GRPO
SAVING, FINISHING, LOCK = ".saving", ".finishing", ".lock"
REFERENCE, RETRIEVER = "reference.npz", "retriever"
PLACES, VOCABULARY = "places", "words.json"
FREE = ("data.dataloader_num_workers", "optimiser.gradient_checkpointing", "output.")
"""Settings without effect on results, which may change when a run resumes."""
TRAIN, HELD_OUT = "train", "held-out"  # splits of the metrics
RANKED, UNREADABLE = "accuracy/rows", "unreadable"
"""Held-out metrics: number of ranked rows, share of unreadable answers."""
SCHEMA = pa.schema(
    {
        "step": pa.int64(),
        "epoch": pa.float64(),
        "split": pa.string(),
        "name": pa.string(),
        "value": pa.float64(),
    }
)
Entry = tuple[int, float, str, str, float]  # step, epoch, split, name, value
Sums = dict[str, tuple[float, float]]  # per metric: weighted sum, sum of weights


class Run:
    """Folder of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = folder / FILE
        self.checkpoints = folder / "checkpoints"
        self.model = folder / "checkpoint"
        self.answers = folder / "answers"
        self.metrics = folder / "metrics.parquet"
        self.refused = folder / "refused.jsonl"

    @property
    def is_finished(self) -> bool:
        """Return whether the finished model exists."""
        return self.model.is_dir()

    def steps(self) -> list[int]:
        """Return the steps of its checkpoints, in order."""
        names = [path.name.removeprefix(STEP) for path in self.checkpoints.glob(f"{STEP}*")]
        return sorted(int(name) for name in names if name.isdecimal())

    def checkpoint(self, step: int) -> Path:
        """Return the folder of the checkpoint at a step."""
        return self.checkpoints / f"{STEP}{step}"

    def latest(self) -> Path | None:
        """Return its latest checkpoint; ``None`` without any."""
        steps = self.steps()
        return self.checkpoint(steps[-1]) if steps else None

    def check_latest(self) -> None:
        """Raise ``ModelError`` where a file of the latest checkpoint is missing or changed."""
        latest = self.latest()
        damage = find_damage(latest) if latest else ""
        if not damage:
            return
        remedy = "start over: there is no previous one"
        if len(self.steps()) > 1:
            remedy = "resume from the previous one"
        raise ModelError(f"{damage}. Delete {latest} to {remedy}, or give another --name")

    def check_files(self) -> None:
        """Raise ``ModelError`` where a file of an unfinished run is missing or changed."""
        damaged = list_changed(self.folder)
        if damaged:
            raise ModelError(
                f"{damaged[0]}. Restore it from a copy, or start over with another --name"
            )

    def config(self) -> TrainConfig | None:
        """Return its settings; ``None`` before it begins."""
        path = self.folder / "config.yaml"
        try:
            # Settings of earlier releases are ignored, so that their finished runs can be read.
            return TrainConfig.model_validate(yaml.safe_load(path.read_text()), extra="ignore")
        except FileNotFoundError:
            return None
        except (ValidationError, yaml.YAMLError, UnicodeDecodeError, OSError) as error:
            raise ConfigError(f"{path}: invalid settings: {error}. Give another --name") from error

    def data(self) -> dict[str, Any]:
        """Return the description of its data."""
        path = self.folder / "data.json"
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}. Give another --name") from error

    def record_start(
        self, config: TrainConfig, data: dict[str, Any], refused: Sequence[Refused]
    ) -> None:
        """Write the data and, last, the settings."""
        with naming(str(self.folder), "begun"):
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        record_files(self.folder, [self.rows.name])
        _write(self.folder / "data.json", json.dumps(data, indent=1))
        append_refused(self.refused, refused)
        self.write_config(config)

    def write_config(self, config: TrainConfig) -> None:
        """Write its settings."""
        text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
        _write(self.folder / "config.yaml", text)

    def forget(self) -> None:
        """Delete everything derived from its rows, scores included, for a new start."""
        if self.folder.parent.name == RUNS:
            dataset = self.folder.parent.parent
            shutil.rmtree(dataset / EVALUATIONS / self.folder.name, ignore_errors=True)
        own = (RECORD, self.rows.name, self.metrics.name, self.refused.name)
        for name in ("config.yaml", *own, REFERENCE, VOCABULARY, TRUTHS):
            (self.folder / name).unlink(missing_ok=True)
        for name in (RETRIEVER, PLACES, MIXED):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def clean(self) -> None:
        """Delete temporary folders, and those of a finished run that only training needs."""
        names = [SAVING, FINISHING]
        if self.is_finished:
            names += [PLACES, MIXED]
            config = self.config()
            if config and not config.output.keep_checkpoints:
                names.append(self.checkpoints.name)
        paths = [self.folder / name for name in names]
        paths += self.checkpoints.glob(".*")
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def lock_run(self) -> Generator[None]:
        """Lock the run against other processes; the lock ends with this one."""
        with naming(str(self.folder), "begun"):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / LOCK)
            try:
                lock.acquire(timeout=0.05)
            except Timeout as error:
                raise ConfigError(
                    f"{self.folder}: another process trains this run; give another --name"
                ) from error
        try:
            yield
        finally:
            if [path.name for path in self.folder.iterdir()] == [LOCK]:  # the request was refused
                (self.folder / LOCK).unlink()
                self.folder.rmdir()
            lock.release()


def find_run(dataset: Folder, name: str) -> Run:
    """Return a finished run, by its name in the dataset or its folder."""
    runs = Path(dataset.path(RUNS))
    why = f"no such run in {runs}"
    for folder in (runs / name, Path(name).expanduser()):
        if (folder / "config.yaml").exists():
            run = Run(folder)
            if run.is_finished:
                return run
            why = f"{run.folder} is not finished: repeat its command"
            break
    finished = list[str]()
    if runs.is_dir():
        finished = sorted(folder.name for folder in runs.glob("*") if Run(folder).is_finished)
    raise ConfigError(f"--from {name}: {why}. Finished there: {', '.join(finished) or 'none'}")


def check_run_name(name: str) -> str:
    """Return a valid run name; refuse others."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"--name {name!r}: use letters, digits, '.', '_' and '-', "
            "and begin with a letter or digit"
        )
    return name


def publish_folder(staged: Path, final: Path) -> None:
    """Write a finished folder's manifest, flush it and rename it, replacing the existing one.

    A process killed at any moment leaves the old folder, the new one, or the old one aside
    (``.old``).
    """
    write_manifest(staged)
    for path in [staged, *staged.rglob("*")]:
        flush(path)
    if final.exists():
        drop_folder(final)
    staged.rename(final)
    flush(final.parent)


def drop_folder(path: Path) -> None:
    """Delete a folder so that it never exists in part under its name."""
    aside = path.with_name(f".{path.name}.old")
    shutil.rmtree(aside, ignore_errors=True)
    path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def append_refused(path: Path, refused: Sequence[Refused]) -> list[Refused]:
    """Add refused rows to a file, each key once; return the new ones."""
    if not refused:
        return []
    with naming(str(path), "read"):
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    written = {json.loads(line)["key"] for line in text.splitlines()}
    new = {row.key: row for row in refused if row.key not in written}
    if new:  # each epoch repeats the written ones
        lines = [json.dumps(asdict(row)) + "\n" for row in new.values()]
        _write(path, text + "".join(lines))
    return list(new.values())


def _write(path: Path, text: str) -> None:
    replace_file(path.parent, path.name, text.encode())


@dataclass
class Window:
    """Metrics of batches until they are logged."""

    sums: Sums = field(default_factory=dict[str, tuple[float, float]])

    def add_batch(
        self, values: Mapping[str, float], weight: float, counts: Mapping[str, float] = {}
    ) -> None:
        """Add a batch's means with their weight, or that of ``counts``."""
        sums: Sums = {}
        for name, value in values.items():
            own_weight = counts.get(name, weight)
            sums[name] = (value * own_weight, own_weight)
        self.add_sums(sums)

    def add_sums(self, sums: Mapping[str, Sequence[float]]) -> None:
        """Add the sums of another window."""
        for name, (total, weight) in sums.items():
            old_total, old_weight = self.sums.get(name, (0.0, 0.0))
            self.sums[name] = (old_total + total, old_weight + weight)

    def take_sums(self) -> Sums:
        """Return the sums and reset."""
        sums = self.sums
        self.sums = {}
        return sums

    def take_means(self) -> dict[str, float]:
        """Return the means and reset."""
        sums = self.take_sums()
        return {name: total / weight for name, (total, weight) in sums.items() if weight}


@dataclass
class MetricsFile:
    """Metrics of a run, some hundred bytes per logged step."""

    path: Path
    entries: list[Entry] = field(default_factory=list[Entry])

    def read_until(self, step: int = sys.maxsize) -> Self:
        """Read the entries up to a step, if there are any; later ones will be logged again."""
        try:
            rows = pq.read_table(self.path).to_pylist() if self.path.exists() else []
            self.entries = [tuple(row.values()) for row in rows if row["step"] <= step]
        except (OSError, pa.ArrowInvalid) as error:
            log.warning("%s: cannot be read: %s. Earlier metrics are lost", self.path, error)
        return self

    def is_logged(self, step: int, split: str) -> bool:
        """Return whether a step was logged."""
        return any(entry[0] == step and entry[2] == split for entry in reversed(self.entries))

    def last(self, split: str) -> dict[str, float]:
        """Return the last logged values."""
        steps = [step for step, _, own_split, _, _ in self.entries if own_split == split]
        last_step = max(steps, default=None)
        return {
            name: value
            for step, _, own_split, name, value in self.entries
            if step == last_step and own_split == split
        }

    def add_values(self, step: int, epoch: float, split: str, values: Mapping[str, float]) -> None:
        """Add the values of a step."""
        self.entries += [
            (step, epoch, split, name, float(value)) for name, value in sorted(values.items())
        ]

    def write_file(self) -> None:
        """Write the file."""
        rows = [dict(zip(SCHEMA.names, entry, strict=True)) for entry in self.entries]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), sink)
        replace_file(self.path.parent, self.path.name, sink.getvalue().to_pybytes())
