"""Where a training run keeps what: its settings, its rows, its metrics, its checkpoints.

    DIR/runs/NAME/
      config.yaml        what was asked for
      data.json          which version of the dataset, which table, how many rows
      rows.arrow         which rows, frozen
      refused.jsonl      rows that are not trained on, with reasons
      metrics.parquet    step, epoch, split, name, value
      checkpoints/       what a killed run goes on from
      checkpoint/        the finished model: ``from_pretrained`` loads it
      report/index.html  the page to look at

Needs no PyTorch.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from schemas.errors import ConfigError
from schemas.section import Section
from schemas.training import TrainConfig
from tasks.training.freeze_rows import FILE, Refused

STEP = "checkpoint-"


@dataclass(frozen=True, slots=True)
class Run:
    """Be a run's folder."""

    folder: Path

    @property
    def rows(self) -> Path:
        """Return the file of its frozen rows."""
        return self.folder / FILE

    @property
    def checkpoints(self) -> Path:
        """Return the folder of its checkpoints."""
        return self.folder / "checkpoints"

    @property
    def model(self) -> Path:
        """Return the folder of its finished model."""
        return self.folder / "checkpoint"

    @property
    def metrics(self) -> Path:
        """Return the file of its metrics."""
        return self.folder / "metrics.parquet"

    @property
    def is_finished(self) -> bool:
        """Say whether it has a finished model."""
        return self.model.is_dir()

    def latest(self) -> Path | None:
        """Return its latest checkpoint; ``None``: there is none."""
        found = sorted(self.checkpoints.glob(f"{STEP}*"), key=lambda path: int(path.name.removeprefix(STEP)))
        return found[-1] if found else None

    def config(self) -> TrainConfig | None:
        """Return its settings; ``None``: it has not begun.

        Raises:
            ConfigError: they cannot be read.
        """
        path = self.folder / "config.yaml"
        try:
            return TrainConfig.model_validate(yaml.safe_load(path.read_text()))
        except FileNotFoundError:
            return None
        except (ValidationError, yaml.YAMLError, UnicodeDecodeError, OSError) as error:
            raise ConfigError(f"{path}: cannot be read as a run's settings: {error}") from error

    def begin(self, config: TrainConfig, data: dict[str, Any], refused: Iterable[Refused]) -> None:
        """Write what it trains on, the settings last."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / "data.json", json.dumps(data, indent=1))
        lines = "".join(json.dumps(asdict(one)) + "\n" for one in refused)
        write_whole(self.folder / "refused.jsonl", lines)
        write_whole(self.folder / "config.yaml", yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))


def write_whole(path: Path, text: str) -> None:
    """Write a file under another name, flush it, and give it its name."""
    new = path.with_name(f".{path.name}.new")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def publish_folder(staged: Path, final: Path) -> None:
    """Give a finished folder its name, its files on the disk first; what has that name goes.

    A process killed at any moment leaves the old folder, or the new one, or the old one aside (``.old``).
    """
    for path in [path for path in staged.rglob("*") if path.is_file()]:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    if final.exists():
        aside = final.with_name(f".{final.name}.old")
        shutil.rmtree(aside, ignore_errors=True)
        final.rename(aside)
        staged.rename(final)
        shutil.rmtree(aside, ignore_errors=True)
    else:
        staged.rename(final)


def differences(old: Section, new: Section, prefix: str = "") -> Iterator[str]:
    """Yield in words where two settings differ."""
    for name, value in new:
        before = getattr(old, name)
        if isinstance(value, Section) and isinstance(before, Section):
            yield from differences(before, value, f"{prefix}{name}.")
        elif before != value:
            yield f"{prefix}{name} was {before}, is {value}"
