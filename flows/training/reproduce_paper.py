"""Reproduce a paper's tables: build its datasets, train its arms, ask its benchmarks.

Each step is a build, a training or an evaluation like those of the command line, and continues
where it was stopped; so the whole is repeated by the same command. A folder holds one reproduction:

    DIR/reproduction.json   options that change results
    DIR/SET/                dataset, with a run per arm
    DIR/scores/SET/BENCHMARK/ARM.json
    DIR/index.html          the page
"""

import json
import logging
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pairwright.flows.building.progress import show_steps
from pairwright.flows.dataset import Dataset
from pairwright.flows.pipeline.load_profile import load_yaml, make_section
from pairwright.flows.training.evaluate_model import EvaluationConfig, evaluate_model
from pairwright.flows.training.show_training import watching_training
from pairwright.schemas.errors import ConfigError, TrainingError
from pairwright.schemas.reproduction import PaperTable, Reproduction, TrainingSet
from pairwright.schemas.suggest import suggest
from pairwright.tasks.models.devices import release
from pairwright.tasks.store.manifest import replace_file
from pairwright.tasks.training.report.write_reproduction_page import (
    ArmScores,
    ArmTraining,
    TableScores,
    write_reproduction_page,
)
from pairwright.tasks.training.runs import RUNS, Run

log = logging.getLogger(__name__)
FOLDER = Path(__file__).parents[1] / "reproductions"
RECORD = "reproduction.json"
SMALL, PAPER = "small", "paper"
TINY = (
    "optimiser.max_steps=4",
    "optimiser.per_device_train_batch_size=2",
    "output.logging_steps=1",
    "output.eval_steps=2",
    "data.max_eval_rows=4",
)
"""Settings of each training with ``--scale small``."""
ITEMS = 8  # items of a benchmark with ``--scale small``
NOT = "not:"
INTERRUPTED = 130  # exit code of a training that Ctrl-C stopped


@dataclass(frozen=True, kw_only=True)
class ReproductionConfig:
    """Configuration of a reproduction."""

    paper: str
    data: Path  # holds a folder per source and benchmark, named after it
    to: Path
    scale: str = SMALL  # small: a tiny model, a few steps and items, on a CPU; or paper
    model: str = ""  # start model; empty: the paper's, or a tiny one
    arms: Sequence[str] = ()  # empty: all but ablations
    settings: Sequence[str] = ()  # fields of all trainings to set
    build_settings: Sequence[str] = ()  # fields of all builds to set
    judge: str = ""  # server or profile of the judge; empty: tables that need one are left out
    launcher: str = ""  # command that starts a training's processes, such as torchrun's

    def recorded(self) -> dict[str, Any]:
        """Return the options that change results."""
        return {
            "paper": self.paper,
            "data": str(self.data.absolute()),
            "scale": self.scale,
            "model": self.model,
            "settings": [*self.settings],
            "build settings": [*self.build_settings],
        }


@dataclass(frozen=True, kw_only=True)
class Step:
    """Build, training or evaluation of a reproduction."""

    kind: str
    title: str
    run: Callable[[], None]
    arm: str = ""
    training_set: str = ""
    scores: Path | None = None  # file of an evaluation's scores


def paper_names() -> list[str]:
    """Return the names of the papers that can be reproduced."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_reproduction(paper: str) -> Reproduction:
    """Return the tables of a paper by its name."""
    path = FOLDER / f"{paper}.yaml"
    if paper not in paper_names():
        raise ConfigError(f"{paper}: no such paper; {suggest(paper, paper_names())}")
    return make_section(Reproduction, load_yaml(path.read_text("utf-8")), where=str(path))


@dataclass(frozen=True)
class Reproducer:
    """Steps of a reproduction."""

    config: ReproductionConfig
    needs_data: bool = True
    """Whether tables are left out whose data is missing; a plan shows all."""
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    """Reasons by table."""

    @cached_property
    def paper(self) -> Reproduction:
        """Return the paper's tables."""
        return load_reproduction(self.config.paper)

    @cached_property
    def tables(self) -> list[PaperTable]:
        """Return the tables whose data is there; ``ConfigError`` for none."""
        tables = list[PaperTable]()
        for table in self.paper.tables:
            reason = self._find_reason(table)
            if reason:
                self.left_out[table.name] = reason
            if not (reason and self.needs_data):
                tables.append(table)
        if not tables:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.left_out.items())
            raise ConfigError(f"--data {self.config.data}: no table can be made: {reasons}")
        return tables

    def _find_reason(self, table: PaperTable) -> str:
        """Return why a table is left out; empty: it is made."""
        training_sets = {table.training_set: None}
        for arm in self._arms_of(table):
            lineage = self._lineage(arm, self._training_set_of(arm, table))
            training_sets |= dict.fromkeys(set_name for _, set_name in lineage)
        folders = [folder for name in training_sets for folder in self.training_set(name).folders]
        folders.append(table.benchmark)
        for name in dict.fromkeys(folders):
            if not (self.config.data / name).is_dir():
                return f"no folder {name}"
        if table.judged and not self.config.judge:
            return "needs --judge"
        return ""

    def training_set(self, name: str) -> TrainingSet:
        """Return a dataset to build, or what stands for it at small scale."""
        training_set = self.paper.training_sets[name]
        if self.config.scale == SMALL and training_set.small:
            return training_set.small
        return training_set

    @cached_property
    def arms(self) -> list[str]:
        """Return the arms of the tables, in the paper's order."""
        unknown = [name for name in self.config.arms if name not in self.paper.arms]
        if unknown:
            raise ConfigError(
                f"--arms {unknown[0]}: no such arm; {suggest(unknown[0], self.paper.arms)}"
            )
        if self.config.arms:
            return [name for name in self.paper.arms if name in self.config.arms]
        return [name for name, arm in self.paper.arms.items() if not arm.is_ablation]

    def _arms_of(self, table: PaperTable) -> list[str]:
        """Return the rows of a table: those that the paper prints, and asked-for ablations."""
        rows = list[str]()
        for name in self.arms:
            if name in table.numbers or self.paper.arms[name].is_ablation:
                rows.append(name)
        return rows

    def _training_set_of(self, arm: str, table: PaperTable) -> str:
        return self.paper.arms[arm].training_set or table.training_set

    def steps(self) -> list[Step]:
        """Return all steps in order: builds, trainings, evaluations."""
        if self.config.scale not in (SMALL, PAPER):
            raise ConfigError(f"--scale {self.config.scale}: must be {SMALL} or {PAPER}")
        builds: dict[str, Step] = {}
        trainings: dict[tuple[str, str], Step] = {}
        evaluations: dict[Path, Step] = {}
        for table in self.tables:
            for arm in self._arms_of(table):
                training_set = self._training_set_of(arm, table)
                builds.setdefault(training_set, self._build_step(training_set))
                for needed, set_name in self._lineage(arm, training_set):
                    builds.setdefault(set_name, self._build_step(set_name))
                    trainings.setdefault((needed, set_name), self._train_step(needed, set_name))
                evaluation = self._evaluate_step(arm, table)
                evaluations.setdefault(self.scores_path(arm, table), evaluation)
        return [*builds.values(), *trainings.values(), *evaluations.values()]

    def _lineage(self, arm: str, training_set: str) -> list[tuple[str, str]]:
        """Return an arm's trainings with their datasets, first ones first.

        The start model itself is evaluated as the start of another training.
        """
        lineage = list[tuple[str, str]]()
        name = arm
        set_name = training_set
        while name:
            row = self.paper.arms[name]
            if row.objective:
                lineage.insert(0, (name, set_name))
            name = row.start
            if name:
                set_name = self.paper.arms[name].training_set or set_name
        if not lineage and self.config.scale == SMALL:
            lineage.append((self._first_root(), training_set))
        return lineage

    def _first_root(self) -> str:
        """Return the first arm that starts from the start model."""
        for name, arm in self.paper.arms.items():
            if arm.objective and not arm.start:
                return name
        raise ConfigError(f"{self.config.paper}: no arm starts from the model")

    def _build_step(self, name: str) -> Step:
        training_set = self.training_set(name)
        title = f"build {name}"
        return Step(
            kind="build",
            title=title,
            run=partial(self._build, name, training_set),
            training_set=name,
        )

    def _train_step(self, arm: str, training_set: str) -> Step:
        run = partial(self._train, arm, training_set)
        return Step(
            kind="train",
            title=f"train {arm} on {training_set}",
            run=run,
            arm=arm,
            training_set=training_set,
        )

    def _evaluate_step(self, arm: str, table: PaperTable) -> Step:
        run = partial(self._evaluate, arm, table)
        title = f"evaluate {arm} on {table.benchmark}"
        return Step(
            kind="evaluate",
            title=title,
            run=run,
            arm=arm,
            training_set=self._training_set_of(arm, table),
            scores=self.scores_path(arm, table),
        )

    def check(self) -> None:
        """Record the options; ``ConfigError`` for a folder with another reproduction's."""
        path = self.config.to / RECORD
        recorded = self.config.recorded()
        if path.exists():
            before = json.loads(path.read_text())
            changed = [name for name in recorded if before.get(name) != recorded[name]]
            if changed:
                raise ConfigError(
                    f"{self.config.to}: holds a reproduction with another {', '.join(changed)}: "
                    "give another --out"
                )
            return
        self.config.to.mkdir(parents=True, exist_ok=True)
        replace_file(self.config.to, RECORD, json.dumps(recorded, indent=1).encode())

    def _dataset(self, training_set: str) -> Path:
        return self.config.to / training_set

    def run_of(self, arm: str, training_set: str) -> Run:
        """Return the run of an arm on a dataset."""
        return Run(self._dataset(training_set) / RUNS / arm)

    def _build(self, name: str, training_set: TrainingSet) -> None:
        data = str(self.config.data)
        settings = [setting.replace("{data}", data) for setting in training_set.settings]
        built = Dataset.build(
            [self._locate(source) for source in training_set.sources],
            out=self._dataset(name),
            profile=training_set.profile,
            until=training_set.until,
            settings=[*settings, *self.config.build_settings],
        )
        status = built.status()
        if status.unfinished or status.held:
            reasons = " ".join([*status.unfinished_lines, *status.held])
            raise TrainingError(f"{self._dataset(name)}: waits for its build: {reasons}")

    def _locate(self, source: str) -> str:
        """Return a source of a training set as `build` takes it."""
        kind, _, folder = source.partition(":")
        if source.endswith(":"):
            return source
        return f"{kind}:{self.config.data / (folder or kind)}"

    def train_options(self, arm: str, training_set: str) -> dict[str, Any]:
        """Return the keyword arguments of an arm's training (``Dataset.train``)."""
        row = self.paper.arms[arm]
        is_small = self.config.scale == SMALL
        options: dict[str, Any] = {
            "name": arm,
            "settings": [*(TINY if is_small else ()), *row.settings, *self.config.settings],
            "differential": row.differential,
            "table": row.table,
            "recipe": "" if is_small else row.recipe,
        }
        if row.start:
            set_name = self.paper.arms[row.start].training_set or training_set
            start = row.start
            if set_name != training_set:
                start = str(self.run_of(start, set_name).folder)
            return {**options, "start": start}
        model = self.config.model or ("tiny" if is_small else self.paper.model)
        return {**options, "model": "" if row.objective == "namc" else model}

    def _train(self, arm: str, training_set: str) -> None:
        options = self.train_options(arm, training_set)
        objective = self.paper.arms[arm].objective
        if self.config.launcher:
            self._launch(objective, training_set, options)
            return
        with watching_training() as watcher:
            dataset = Dataset.open(self._dataset(training_set))
            trained = dataset.train(objective, watcher=watcher, **options)
        release()  # the next step needs the GPU's memory
        if not trained.finished:
            raise KeyboardInterrupt

    def _launch(self, objective: str, training_set: str, options: Mapping[str, Any]) -> None:
        """Train in the processes of the user's launcher."""
        command = [*shlex.split(self.config.launcher), "-m", "pairwright", "train"]
        command += [str(self._dataset(training_set)), "--objective", objective]
        for name in ("name", "recipe", "model", "table"):
            if options.get(name):
                command += [f"--{name}", options[name]]
        if options.get("start"):
            command += ["--from", options["start"]]
        if options["differential"]:
            command.append("--differential")
        for setting in options["settings"]:
            command += ["--set", setting]
        ended = subprocess.run(command, check=False).returncode  # noqa: S603 (the user's own)
        if ended == INTERRUPTED:
            raise KeyboardInterrupt
        if ended:
            raise TrainingError(f"{shlex.join(command)}: ended with {ended}")

    def _model_of(self, arm: str, training_set: str) -> str:
        """Return the model that an arm is evaluated by."""
        if self.paper.arms[arm].objective:
            return str(self.run_of(arm, training_set).folder)
        start = self.run_of(self._first_root(), training_set).data().get("start", {})
        return start.get("folder") or self.config.model or self.paper.model

    def scores_path(self, arm: str, table: PaperTable) -> Path:
        """Return the file of an arm's scores on a table's benchmark."""
        training_set = self._training_set_of(arm, table)
        return self.config.to / "scores" / training_set / table.benchmark / f"{arm}.json"

    def _evaluate(self, arm: str, table: PaperTable) -> None:
        to = self.scores_path(arm, table)
        to.parent.mkdir(parents=True, exist_ok=True)
        config = EvaluationConfig(
            model=self._model_of(arm, self._training_set_of(arm, table)),
            benchmark=table.benchmark,
            data=self.config.data / table.benchmark,
            to=to,
            limit=ITEMS if self.config.scale == SMALL else None,
            judge=self.config.judge if table.judged else "",
        )
        evaluated = evaluate_model(config, watch=show_steps)
        release()
        if evaluated.results.pending:
            raise TrainingError(
                f"{to}: {evaluated.results.pending:,} questions were not answered; "
                "the same command asks them again"
            )

    def read_table(self, table: PaperTable) -> TableScores:
        """Return a table with the scores so far beside the paper's numbers."""
        rows = list[ArmScores]()
        notes: dict[str, None] = {}
        for name in self._arms_of(table):
            scores: dict[str, float | None] = {}
            path = self.scores_path(name, table)
            if path.exists():
                content = json.loads(path.read_text())
                notes |= dict.fromkeys(content["notes"])
                scores = _read_scores(content["scores"])
            ours = [_find_score(scores, score) for score in table.columns.values()]
            theirs = table.numbers.get(name, (None,) * len(table.columns))
            about = self.paper.arms[name].about
            rows.append(ArmScores(arm=name, about=about, ours=ours, theirs=theirs))
        return TableScores(name=table.name, columns=[*table.columns], rows=rows, notes=[*notes])

    def write_page(self) -> Path:
        """Rewrite the page with what there is so far, and return its path."""
        trainings = list[ArmTraining]()
        for step in self.steps():
            if step.kind == "train":
                name = step.title.removeprefix("train ")
                run = self.run_of(step.arm, step.training_set)
                rate = self.paper.rates.get(step.arm)
                trainings.append(ArmTraining(name=name, run=run, paper_rate=rate))
        return write_reproduction_page(
            self.config.to,
            title=self.paper.title,
            options=self.config.recorded(),
            outcomes=[self.read_table(table) for table in self.tables],
            left_out=self.left_out,
            differences=self.paper.differences,
            trainings=trainings,
            rates_table=self.paper.rates_table,
        )


def _read_scores(scores: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return scores by name, after their category and a colon; shares times 100."""
    values: dict[str, float | None] = {}
    for score in scores:
        name = f"{score['category']}:{score['name']}" if score["category"] else score["name"]
        value = score["value"]
        if value is not None and score["percent"]:
            value *= 100
        values[name] = value
    return values


def _find_score(scores: Mapping[str, float | None], name: str) -> float | None:
    """Return a column's score; after "not:", 100 less it."""
    value = scores.get(name.removeprefix(NOT))
    if value is not None and name.startswith(NOT):
        return 100 - value
    return value


def reproduce(
    reproducer: Reproducer, run_step: Callable[[Step], None] | None = None
) -> Iterator[Step]:
    """Run the steps in order, and yield each that is done; the page follows each evaluation."""
    steps = reproducer.steps()
    reproducer.check()
    for number, step in enumerate(steps, 1):
        log.info("step %d of %d: %s", number, len(steps), step.title)
        if run_step:
            run_step(step)
        else:
            step.run()
        if step.kind == "evaluate":
            reproducer.write_page()
        yield step
