"""Read what a run's page shows beside its charts: settings, data, refused rows, samples, the retriever's own words.

Reads ``config.yaml``, ``data.json``, ``refused.jsonl``, ``samples/`` and ``retriever/retriever.json``. Of these only
the settings must be there: a page can be written of a run that has just begun.
"""

import json
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ConfigError, StoreError
from pairwright.schemas.section import Section
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.report.find_alarms import Alarm
from pairwright.tasks.training.report.samples import FILE, FOLDER, Shown
from pairwright.tasks.training.runs import Run

RETRIEVER = "retriever/retriever.json"
MOST_LISTED = 50
"""Refused rows that are listed one by one."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Be a setting that is not what it would be without being set."""

    field: str
    value: str
    default: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Say how many rows were refused for one reason."""

    words: str
    count: int
    share: float
    """Of all that were refused."""


@dataclass(frozen=True, kw_only=True)
class RefusedRows:
    """Say what was not trained on."""

    total: int
    reasons: tuple[Reason, ...]
    """The most frequent first."""
    listed: tuple[tuple[str, str, str], ...]
    """Key, reason and detail of the first ones."""


@dataclass(frozen=True, kw_only=True)
class RetrieverPage:
    """Say what the retriever proposes most, at the end."""

    facts: tuple[tuple[str, str], ...]
    common: tuple[tuple[str, int, int], ...]
    """Text, how often of late, for how many different rows."""
    alarms: tuple[Alarm, ...]


def read_settings(run: Run) -> tuple[TrainConfig, list[Setting]]:
    """Return a run's settings, and those of them that were set.

    Raises:
        ConfigError: there are none, or they cannot be read.
    """
    config = run.config()
    if config is None:
        raise ConfigError(f"{run.folder}: is no training run: it has no config.yaml")
    return config, list(_changed(config, TrainConfig(objective=config.objective)))


def _changed(own: Section, default: Section, prefix: str = "") -> Iterator[Setting]:
    for name, value in own:
        usual = getattr(default, name)
        if isinstance(value, Section) and isinstance(usual, Section):
            yield from _changed(value, usual, f"{prefix}{name}.")
        elif value != usual:
            yield Setting(f"{prefix}{name}", _shown(value), _shown(usual))


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value) or "none"


def read_data(run: Run) -> list[tuple[str, str]]:
    """Return what the run says of its data, as names and words.

    Raises:
        StoreError: the file cannot be read.
    """
    data = _read_json(run.folder / "data.json")
    plain = {name: value for name, value in data.items() if isinstance(value, str | int | float) and value != ""}
    if isinstance(path := plain.get("dataset"), str):  # pages are passed on, paths are nobody's business
        plain["dataset"] = path.rstrip("/").rsplit("/", 1)[-1]
    return [(name.replace("_", " "), str(value)) for name, value in plain.items()]


def read_refused(run: Run) -> RefusedRows:
    """Return what was not trained on.

    Raises:
        StoreError: the file cannot be read.
    """
    counts: Counter[str] = Counter()
    listed: list[tuple[str, str, str]] = []
    path = run.folder / "refused.jsonl"
    if path.is_file():
        with _naming(path), path.open(encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                counts[row["reason"]] += 1
                if len(listed) < MOST_LISTED:
                    listed.append((row["key"], row["reason"], row.get("detail", "")))
    total = counts.total()
    reasons = (Reason(words=words, count=count, share=count / total) for words, count in counts.most_common())
    return RefusedRows(total=total, reasons=tuple(reasons), listed=tuple(listed))


def read_retriever(run: Run) -> RetrieverPage | None:
    """Return what the retriever says of itself at the end; ``None``: there is none, or it goes on.

    Raises:
        StoreError: the file cannot be read.
    """
    path = run.folder / RETRIEVER
    if not (said := _read_json(path)):
        return None
    with _naming(path):
        return RetrieverPage(
            facts=(("steps", f"{said['steps']:,}"), ("texts to choose from", f"{said['pool']:,}")),
            common=tuple((one["text"], one["count"], one["pairs"]) for one in said["common"]),
            alarms=tuple(Alarm(f"The retriever: {one['name']}", one["text"]) for one in said["alarms"]),
        )


def read_samples(run: Run) -> list[Shown]:
    """Return the samples beside a run; none where none were kept.

    Raises:
        StoreError: the file cannot be read, or names an image that is not beside it.
    """
    path = run.folder / FOLDER / FILE
    if not path.is_file():
        return []
    with _naming(path):
        return [_sample(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _sample(given: dict[str, Any]) -> Shown:
    names = tuple(given.pop("images"))
    if wrong := [name for name in names if name != Path(name).name]:
        raise ValueError(f"{wrong[0]!r} is not beside it")
    return Shown(**given, images=names)


def _read_json(path: Path) -> Mapping[str, Any]:
    """Return a file's content; no file gives nothing."""
    if not path.is_file():
        return {}
    with _naming(path):
        return dict(json.loads(path.read_text(encoding="utf-8")))


@contextmanager
def _naming(path: Path) -> Generator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path}: cannot be read: {type(error).__name__}: {error}") from error
