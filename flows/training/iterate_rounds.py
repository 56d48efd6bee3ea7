"""Train a model in rounds on its own texts: build, SFT, then rounds.

A round is a build, a training and an evaluation. In its build the model of the previous round is
served and writes rejected texts, comparisons or descriptions; the profile's checks sort them. The
state of a round is in the dataset: the run NAME-K, its version, and ``truth.json`` beside its
model. Finished parts are read, unfinished ones continue.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pairwright.flows.building.make_request import Request, make_request, request_of
from pairwright.flows.building.open_executor import open_executor
from pairwright.flows.building.progress import show_steps
from pairwright.flows.building.run_build import run_build
from pairwright.flows.pipeline.load_profile import change_profile, load_profile
from pairwright.flows.pipeline.pipeline import Pipeline, with_source
from pairwright.flows.training.evaluate_model import EvaluationConfig, evaluate_model
from pairwright.flows.training.make_train_config import make_config
from pairwright.flows.training.show_training import watching_training
from pairwright.flows.training.train_model import train
from pairwright.flows.versions.version import open_present, open_version
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ConfigError, TrainingError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.evaluation.benchmarks.own_datasets import TRUE, UNREADABLE
from pairwright.tasks.models.devices import release
from pairwright.tasks.serving.launch import check_launch
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import RECORD, read_record
from pairwright.tasks.store.snapshot import read_snapshot, snapshot_numbers
from pairwright.tasks.training.check_environment import count_launched
from pairwright.tasks.training.find_model import find_model
from pairwright.tasks.training.objective_list import OBJECTIVES
from pairwright.tasks.training.report.write_rounds_page import (
    HEADS,
    Round,
    keep_rounds,
    write_rounds_page,
)
from pairwright.tasks.training.runs import HELD_OUT, RUNS, MetricsFile, Run, check_run_name

POLICY, TRUTH, SAMPLES = "models.policy", "truth.json", 4
OWN = "preferences.rejected=own"


class WrittenTable(NamedTuple):
    """What the trained model writes in a round."""

    section: str  # of the profile
    table: str  # that it fills
    settings: Sequence[str]


WRITES: Mapping[str, WrittenTable] = {
    "sampled_texts": WrittenTable(
        "sampled_texts",
        "sampled",
        ("sampled_texts.enabled=true", "sampled_texts.prompt=preference", OWN),
    ),
    "blind": WrittenTable(
        "sampled_texts",
        "blind",
        ("sampled_texts.blind=[blank]", "sampled_texts.prompt=preference", OWN),
    ),
    "comparisons": WrittenTable(
        "comparisons", "comparisons", ("comparisons.writer=served", "comparisons.input=images")
    ),
    "differences": WrittenTable("differences", "described", ("differences.writer=served", OWN)),
}
"""Texts that the trained model may write, by their names in ``--writes``."""
SHARE = "share of held-out answers that are true"
LOSS = "loss per token of the held-out chosen texts, less is better"


@dataclass(frozen=True, kw_only=True)
class IterateConfig:
    """Configuration of an iterated training."""

    rounds: int = 3  # rounds after SFT
    writes: Sequence[str] = ("sampled_texts",)
    """Texts that the trained model writes, by their names in ``WRITES``."""
    objective: str = "dpo"  # objective of the rounds
    model: str = ""  # the base model; empty: that of the settings
    name: str = "iterate"  # name of the runs: NAME-0 (SFT), NAME-1, ...
    source: str | None = None
    profile: str = ""  # profile of a new dataset
    # fields of the profile to set; `models.policy.launch.command` is the rounds' vLLM
    settings: Sequence[str] = ()
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

    def table_lines(self) -> Iterator[Sequence[str]]:
        """Yield heads and rounds as a table."""
        yield HEADS
        for row, is_kept in zip(self.rounds, self.kept, strict=True):
            yield row.cells(is_kept=is_kept)

    @property
    def conclusion(self) -> str:
        """Return how it ended, in words."""
        kept_rounds = [row for row, kept in zip(self.rounds, self.kept, strict=True) if kept]
        ended = "All rounds are done"
        if not self.kept[-1]:
            ended = f"{self.rounds[-1].run} is worse, and no round follows"
        runs = Path(self.page).parents[1]
        return f"{ended}. The model: {runs / kept_rounds[-1].run}/checkpoint"


@dataclass(frozen=True)
class Rounds:
    """Rounds of a dataset: reads finished ones, makes the others."""

    folder: Folder
    config: IterateConfig

    def iterate(self) -> Iterated:
        """Make the rounds, up to the first one that is worse than an earlier one."""
        rounds = list[Round]()
        kept = list[bool]()
        page = ""
        stopped = False
        for number in range(self.config.rounds + 1):
            finished_round = self._read(number)
            if finished_round is None:
                stopped = not self._make(number)
                finished_round = self._read(number)
            if finished_round is None:
                break
            rounds.append(finished_round)
            kept = keep_rounds([row.worth for row in rounds])
            folder = Path(self.folder.path(f"{RUNS}/{self.config.name}"))
            page = str(write_rounds_page(folder, rounds, measure=self.measure_name))
            if not kept[-1]:
                break
        return Iterated(
            rounds=rounds, measure=self.measure_name, kept=kept, page=page, finished=not stopped
        )

    @cached_property
    def base_profile(self) -> Profile:
        """Return the dataset's profile without the rounds' settings."""
        if self._is_new:
            return with_source(load_profile(self.config.profile, self._own), self._sources)
        return change_profile(read_record(self.folder).profile, self._own)

    @property
    def _sources(self) -> list[str]:
        """Return the source of a new dataset, unless it is the profile's."""
        return [self.config.source] if self.config.source else []

    @property
    def measure_name(self) -> str:
        """Return the name of the measure that compares rounds."""
        return SHARE if self.base_profile.source_kind == "scenes" else LOSS

    @property
    def _is_new(self) -> bool:
        return bool(self.config.profile) and not self.folder.exists(RECORD)

    @property
    def _own(self) -> list[str]:
        """Return the settings of the first build, in which no trained model writes yet."""
        return [line for line in self.config.settings if not line.startswith(POLICY)]

    def _run(self, number: int) -> Run:
        return Run(Path(self.folder.path(f"{RUNS}/{check_run_name(self.config.name)}-{number}")))

    def _make(self, number: int) -> bool:
        """Make a round; return whether its training finished."""
        run = self._run(number)
        options = self.config
        self._check()
        version = run.data()["snapshot"] if run.config() else self._build(number)
        published = version in snapshot_numbers(self.folder)
        opened = open_version(self.folder, version if published else None)
        config = make_config(
            options.objective if number else "sft",
            options.train_settings,
            dataset=self.folder.url,
            model="" if number else options.model,
            start=self._run(number - 1).folder.name if number else "",
        )
        with watching_training() as watcher:
            trained = train(opened, config, name=run.folder.name, watcher=watcher)
        release()  # the GPU's memory is needed by the next process
        if trained.finished and self.measure_name == SHARE:
            evaluation = EvaluationConfig(
                benchmark="scene-differences",
                data=Path(self.folder.path("")),
                version=version,
                to=run.folder / TRUTH,
                model=str(run.folder),
                max_pixels=config.model.max_pixels,
            )
            evaluate_model(evaluation, watch=show_steps)
            release()
        return trained.finished

    def _check(self) -> None:
        """Refuse early what would fail after hours: settings, a model that vLLM cannot serve."""
        options = self.config
        if options.rounds < 1 or count_launched() > 1:
            raise ConfigError(
                f"iterate: --rounds is {options.rounds}; it must be at least 1, in one process"
            )
        for name in options.writes:
            if name not in WRITES:
                raise ConfigError(f"--writes {name}: must be one of {', '.join(WRITES)}")
        max_pixels = 0
        for objective in ("sft", options.objective):
            config = make_config(objective, options.train_settings, model=options.model)
            if not OBJECTIVES[config.objective].can_be_served(config):
                raise ConfigError(
                    "iterate: vLLM serves the model of a round: it must be merged "
                    "(output.merge_adapters), without differential perception, and not NAMC"
                )
            max_pixels = config.model.max_pixels
        settings = self._settings_of_round(Path("checkpoint"), max_pixels)
        check_launch(change_profile(self.base_profile, settings).models["policy"], POLICY)

    def _settings_of_round(self, checkpoint: Path, max_pixels: int) -> list[str]:
        """Return the settings of a build in which the model writes."""
        revision = ""
        if checkpoint.is_absolute():
            revision = find_model(str(checkpoint)).revision
        values: dict[str, Any] = {
            f"{POLICY}.model": str(checkpoint),
            f"{POLICY}.revision": revision,
            f"{POLICY}.max_pixels": max_pixels,
            f"{POLICY}.launch.enabled": True,
            f"{POLICY}.launch.command": self.base_profile.chat_models["chat"].launch.command,
            "sampled_texts.samples": max(SAMPLES, self.base_profile.sampled_texts.samples),
        }
        for name in self.config.writes:
            values[f"{WRITES[name].section}.model"] = "policy"
        lines = [f"{name}={json.dumps(value)}" for name, value in values.items()]
        for name in self.config.writes:
            lines += WRITES[name].settings
        return [*lines, *self.config.settings]

    def _build(self, number: int) -> int:
        """Run a round's build; return the version that it published."""
        settings = self._own
        before = self._run(number - 1)
        config = before.config() if number else None
        if config:
            settings = self._settings_of_round(before.model, config.model.max_pixels)
        request = self._make_request(settings)
        with open_executor(request.version) as executor:
            report = run_build(request, executor)
        if not report.is_complete or not report.snapshot:
            status = report.status(self.folder.url)
            failures = [str(failure) for failure in report.failures[:1]]
            why = " ".join(
                [report.stopped, *status.unfinished_lines, *status.held, *failures]
            ).strip()
            raise TrainingError(f"{self._run(number).folder}: waits for its build: {why}")
        return report.snapshot.number

    def _make_request(self, settings: Sequence[str]) -> Request:
        """Return the request of a new dataset's build, or of another build with these settings."""
        if self._is_new:
            return make_request(
                self.folder.url,
                self._sources,
                profile=self.config.profile,
                settings=settings,
                limit=None,
                until="",
            )
        present = open_present(self.folder)
        pipeline = Pipeline(change_profile(present.profile, settings))
        return request_of(pipeline, self.folder, limit=present.limit)

    def _read(self, number: int) -> Round | None:
        """Return a round; ``None``: it is not finished, or not measured."""
        run = self._run(number)
        is_share = self.measure_name == SHARE
        config = run.config()
        truth = run.folder / TRUTH
        if config is None or not run.is_finished:
            return None
        if is_share and not truth.exists():
            return None
        if is_share:
            value, items, unreadable = _read_truth(truth)
        else:
            value, items = _read_loss(run, config)
            unreadable = None
        if value is None:
            raise ConfigError(
                f"{run.folder}: nothing was measured on held-out rows: "
                "set preferences.validation_share"
            )
        version = run.data()["snapshot"]
        return Round(
            run=run.folder.name,
            start=config.start,
            version=version,
            written=self._describe_written(version) if number else "",
            value=value,
            items=items,
            unreadable=unreadable,
            percent=is_share,
        )

    def _describe_written(self, version: int) -> str:
        """Return the numbers of texts that were kept and refused in a round's build, in words."""
        if version not in snapshot_numbers(self.folder):
            return ""
        stages = read_snapshot(self.folder, version).content["stages"]
        parts = list[str]()
        for name in self.config.writes:
            table = WRITES[name].table
            counts = stages[table]["counts"]
            part = f"{counts['rows']:,} {table} of {counts['in']:,}"
            for reason, count in counts["reasons"].items():
                part += f", {count:,} x {reason}"
            parts.append(part)
        return "; ".join(parts)


def _read_truth(path: Path) -> tuple[float | None, int, float | None]:
    """Return the share of true answers, the number of answers, and the unreadable share."""
    scores = {score["name"]: score for score in json.loads(path.read_text())["scores"]}
    return scores[TRUE]["value"], scores[TRUE]["items"], scores[UNREADABLE]["value"]


def _read_loss(run: Run, config: TrainConfig) -> tuple[float | None, int]:
    """Return the held-out loss, and the number of rows that it is of."""
    value = MetricsFile(run.metrics).read_until().last(HELD_OUT).get("nll")
    rows = run.data()["rows"].get(config.data.eval_split, 0)
    return value, min(rows, config.data.max_eval_rows or sys.maxsize)
