"""Train a model in rounds on its own texts: build, SFT, then rounds of a build, a training and an evaluation.

In a round's build the model of the previous round is served and writes rejected texts, comparisons
or descriptions; the profile's checks sort them. The state of a round is in the dataset: the run
NAME-K, its version, and ``truth.json`` beside its model. Finished parts are read, unfinished ones
continue.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pairwright.flows.building.make_request import make_request, request_of
from pairwright.flows.building.open_executor import open_executor
from pairwright.flows.building.progress import show_steps
from pairwright.flows.building.run_build import run_build
from pairwright.flows.pipeline.load_profile import change_profile, load_profile
from pairwright.flows.pipeline.pipeline import Pipeline, with_source
from pairwright.flows.training.evaluate_model import EvaluationConfig, evaluate_model
from pairwright.flows.training.make_train_config import count_processes, make_config
from pairwright.flows.training.show_training import watching_training
from pairwright.flows.training.train_model import train
from pairwright.flows.versions.version import open_present, open_version
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ConfigError, TrainingError
from pairwright.schemas.training import NAMC
from pairwright.tasks.evaluation.benchmarks.own_datasets import TRUE, UNREADABLE
from pairwright.tasks.models.devices import release
from pairwright.tasks.serving.launch import check_launch
from pairwright.tasks.store.build import RECORD, read_record
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import read_snapshot, snapshot_numbers
from pairwright.tasks.training.find_model import find_model
from pairwright.tasks.training.report.write_rounds_page import (
    HEADS,
    Round,
    keep_rounds,
    write_rounds_page,
)
from pairwright.tasks.training.runs import HELD_OUT, RUNS, MetricsFile, Run, check_name

POLICY, TRUTH, SAMPLES = "models.policy", "truth.json", 4
OWN = "preferences.rejected=own"
WRITES: Mapping[str, tuple[str, Sequence[str]]] = {
    "sampled_texts": (
        "sampled",
        ("sampled_texts.enabled=true", "sampled_texts.prompt=preference", OWN),
    ),
    "comparisons": ("comparisons", ("comparisons.writer=served", "comparisons.input=images")),
    "differences": ("described", ("differences.writer=served", OWN)),
}  # sections of texts that the trained model may write, with the table that they fill and the settings of a round
SHARE, LOSS = (
    "share of held-out answers that are true",
    "loss per token of the held-out chosen texts, less is better",
)


@dataclass(frozen=True, kw_only=True)
class IterateConfig:
    """Configuration of an iterated training."""

    rounds: int = 3  # rounds after SFT
    writes: Sequence[str] = ("sampled_texts",)
    """Texts that the trained model writes, by section of a profile: ``WRITES``."""
    objective: str = "dpo"  # objective of the rounds
    model: str = ""  # the base model; empty: that of the settings
    name: str = "iterate"  # name of the runs: NAME-0 (SFT), NAME-1, ...
    source: str | None = None
    profile: str = ""  # profile of a new dataset
    settings: Sequence[
        str
    ] = ()  # fields of the profile to set; `models.policy.launch.command` is the rounds' vLLM
    train_settings: Sequence[str] = ()  # fields of all trainings to set


@dataclass(frozen=True, kw_only=True)
class Iterated:
    """Outcome of an iterated training."""

    rounds: Sequence[Round]
    measure: str
    kept: Sequence[bool]  # whether each round is kept; the last kept one has the model
    page: str
    # whether nothing is left to do; otherwise a training was stopped, and the same command
    # continues
    finished: bool

    def cells(self) -> Iterator[Sequence[str]]:
        """Yield heads and rounds as a table."""
        yield HEADS
        yield from (finished.cells(is_kept=is_kept) for finished, is_kept in zip(self.rounds, self.kept, strict=True))

    @property
    def conclusion(self) -> str:
        """Return how it ended, in words."""
        best = next(
            one for one, kept in zip(self.rounds[::-1], self.kept[::-1], strict=True) if kept
        )
        ended = (
            "All rounds are done"
            if self.kept[-1]
            else f"{self.rounds[-1].run} is worse, and no round follows"
        )
        return f"{ended}. The model: {Path(self.page).parents[1] / best.run}/checkpoint"


@dataclass(frozen=True)
class Rounds:
    """Rounds of a dataset: reads finished ones, makes the others."""

    folder: Folder
    config: IterateConfig

    def iterate(self) -> Iterated:
        """Make the rounds, up to the first one that is worse than an earlier one."""
        rounds, kept, page, stopped = list[Round](), list[bool](), "", False
        for number in range(self.config.rounds + 1):
            found = self._read(number)
            if found is None:
                stopped = not self._make(number)
                found = self._read(number)
            if found is None:
                break
            rounds.append(found)
            kept = keep_rounds([one.worth for one in rounds])
            place = Path(self.folder.path(f"{RUNS}/{self.config.name}"))
            page = str(write_rounds_page(place, rounds, measure=self.measure))
            if not kept[-1]:
                break
        return Iterated(
            rounds=rounds, measure=self.measure, kept=kept, page=page, finished=not stopped
        )

    @cached_property
    def profile(self) -> Profile:
        """Return the dataset's profile without the rounds' settings."""
        if self._is_new:
            return with_source(load_profile(self.config.profile, self._own), self.config.source)
        return change_profile(read_record(self.folder).profile, self._own)

    @property
    def measure(self) -> str:
        """Return the name of the measure that compares rounds."""
        return SHARE if self.profile.source_kind == "scenes" else LOSS

    @property
    def _is_new(self) -> bool:
        return bool(self.config.profile) and not self.folder.exists(RECORD)

    @property
    def _own(self) -> list[str]:
        return [
            line for line in self.config.settings if not line.startswith(POLICY)
        ]  # nobody asks it yet

    def _run(self, number: int) -> Run:
        return Run(Path(self.folder.path(f"{RUNS}/{check_name(self.config.name)}-{number}")))

    def _make(self, number: int) -> bool:
        """Make a round; return whether its training finished."""
        run, asked = self._run(number), self.config
        self._check()
        version = run.data()["snapshot"] if run.config() else self._build(number)
        published = version in snapshot_numbers(self.folder)
        opened = open_version(self.folder, version if published else None)
        start = self._run(number - 1).folder.name if number else ""
        words = {"model": "" if number else asked.model, "start": start, "dataset": self.folder.url}
        config = make_config(asked.objective if number else "sft", asked.train_settings, **words)
        with watching_training() as watcher:
            trained = train(opened, config, name=run.folder.name, watcher=watcher)
        release()  # the GPU's memory is needed by the next process
        if trained.finished and self.measure == SHARE:
            place: dict[str, Any] = {
                "data": Path(self.folder.path("")),
                "version": version,
                "to": run.folder / TRUTH,
            }
            place |= {"model": str(run.folder), "max_pixels": config.model.max_pixels}
            evaluate_model(
                EvaluationConfig(benchmark="scene-differences", **place), watch=show_steps
            )
            release()
        return trained.finished

    def _check(self) -> None:
        """Refuse early what would fail after hours: wrong settings, a model that vLLM cannot serve, a missing vLLM."""
        asked = self.config
        if asked.rounds < 1 or count_processes() > 1:
            raise ConfigError(
                f"iterate: --rounds is {asked.rounds}; it must be at least 1, in one process"
            )
        if strange := [name for name in asked.writes if name not in WRITES]:
            raise ConfigError(f"--writes {strange[0]}: must be one of {', '.join(WRITES)}")
        for objective in ("sft", asked.objective):
            made = make_config(objective, asked.train_settings, model=asked.model)
            if (
                objective == NAMC
                or made.model.differential.enabled
                or not made.output.merge_adapters
            ):
                raise ConfigError(
                    "iterate: vLLM serves the model of a round: it must be merged (output.merge_adapters), without "
                    "differential perception, and not NAMC"
                )
        lines = self._lines(Path("checkpoint"), made.model.max_pixels)
        check_launch(change_profile(self.profile, lines).models["policy"], POLICY)

    def _lines(self, checkpoint: Path, max_pixels: int) -> list[str]:
        """Return the settings of a build in which the model writes."""
        values: dict[str, Any] = {
            f"{POLICY}.model": str(checkpoint),
            f"{POLICY}.revision": find_model(str(checkpoint)).revision
            if checkpoint.is_absolute()
            else "",
            f"{POLICY}.max_pixels": max_pixels,
            f"{POLICY}.launch.enabled": True,
            f"{POLICY}.launch.command": self.profile.served["chat"].launch.command,
            "sampled_texts.samples": max(SAMPLES, self.profile.sampled_texts.samples),
            **{f"{section}.model": "policy" for section in self.config.writes},
        }
        own = [line for section in self.config.writes for line in WRITES[section][1]]
        return [
            *(f"{name}={json.dumps(value)}" for name, value in values.items()),
            *own,
            *self.config.settings,
        ]

    def _build(self, number: int) -> int:
        """Run a round's build; return the version that it published."""
        before, lines = self._run(number - 1), self._own
        if number and (config := before.config()):
            lines = self._lines(before.model, config.model.max_pixels)
        if self._is_new:
            words: dict[str, Any] = {
                "profile": self.config.profile,
                "settings": lines,
                "limit": None,
                "until": "",
            }
            request = make_request(self.folder.url, self.config.source, **words)
        else:
            present = open_present(self.folder)
            pipeline = Pipeline(change_profile(present.profile, lines))
            request = request_of(pipeline, self.folder, limit=present.limit)
        with open_executor(request.version) as executor:
            report = run_build(request, executor)
        if not report.is_complete or not report.snapshot:
            status = report.status(self.folder.url)
            why = " ".join(
                [report.stopped, *status.owing, *status.held, *map(str, report.failures[:1])]
            ).strip()
            raise TrainingError(f"{self._run(number).folder}: waits for its build: {why}")
        return report.snapshot.number

    def _read(self, number: int) -> Round | None:
        """Return a round; ``None``: it is not finished, or not measured."""
        run, percent = self._run(number), self.measure == SHARE
        config, truth = run.config(), run.folder / TRUTH
        if config is None or not run.is_finished or (percent and not truth.exists()):
            return None
        data, unreadable = run.data(), None
        if percent:
            held = {one["name"]: one for one in json.loads(truth.read_text())["scores"]}
            value, items, unreadable = (
                held[TRUE]["value"],
                held[TRUE]["items"],
                held[UNREADABLE]["value"],
            )
        else:
            value = MetricsFile(run.metrics).resume().last(HELD_OUT).get("nll")
            items = min(
                data["rows"].get(config.data.eval_split, 0),
                config.data.max_eval_rows or sys.maxsize,
            )
        if value is None:
            raise ConfigError(
                f"{run.folder}: nothing was measured on held-out rows: set preferences.validation_share"
            )
        written, version = list[str](), data["snapshot"]
        if number and version in snapshot_numbers(self.folder):
            stages = read_snapshot(self.folder, version).content["stages"]
            for table in (WRITES[section][0] for section in self.config.writes):
                counts = stages[table]["counts"]
                refused = "".join(
                    f", {count:,} x {reason}" for reason, count in counts["reasons"].items()
                )
                written.append(f"{counts['rows']:,} {table} of {counts['in']:,}{refused}")
        return Round(
            run=run.folder.name,
            start=config.start,
            version=version,
            written="; ".join(written),
            value=value,
            items=items,
            unreadable=unreadable,
            percent=percent,
        )
