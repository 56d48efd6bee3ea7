"""The dataset: the object that users open.

Its methods are in separate files, loaded on first use.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pairwright.flows.building.make_request import (
    Request,
    make_request,
    request_of,
    resume_request,
)
from pairwright.flows.building.open_executor import OpenExecutor, open_executor
from pairwright.flows.building.plan_build import Plan, plan_build, version_to_plan
from pairwright.flows.building.progress import say_nothing, show_steps
from pairwright.flows.building.run_build import Report, run_build
from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.flows.training.show_training import RunSummary, list_runs
from pairwright.flows.versions.collect_garbage import Collected, collect_garbage
from pairwright.flows.versions.list_versions import (
    VersionDifference,
    VersionSummary,
    diff_versions,
    list_versions,
)
from pairwright.flows.versions.refilter_dataset import (
    Refiltered,
    change_thresholds,
    refilter_dataset,
)
from pairwright.flows.versions.remove_images import Removal, list_removed, remove_images
from pairwright.flows.versions.show_status import Status, list_refused, look_at_status, show_stages
from pairwright.flows.versions.table import Table
from pairwright.flows.versions.trace_lineage import Lineage, trace_lineage
from pairwright.flows.versions.version import (
    Version,
    open_present,
    open_version,
    publish_anyway,
)
from pairwright.schemas.config import Profile
from pairwright.schemas.decisions import Decisions
from pairwright.tasks.store.decision_table import (
    Sorted,
    describe_decisions,
    read_decision_file,
    read_decisions,
    sort_decisions,
    write_decisions,
)
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.gates import Verdict
from pairwright.tasks.store.open_tables import RECORD, read_record

if TYPE_CHECKING:  # each is needed by one method only, and takes 0.05 to 0.1 s to load
    from pairwright.flows.building.audit_dataset import Audited
    from pairwright.flows.training.evaluate_model import Evaluated
    from pairwright.flows.training.iterate_rounds import Iterated
    from pairwright.flows.training.train_model import Trained
    from pairwright.flows.versions.export_dataset import ExportConfig
    from pairwright.flows.versions.report_dataset import ReportPages
    from pairwright.tasks.export.tally_rows import Tally
    from pairwright.tasks.training.ranks import Watcher as TrainingWatcher  # needs PyTorch

Settings = Mapping[str, Any] | Sequence[str]
"""Fields of a profile or of a training: ``{"mining.min_similarity": 0.8}`` or
``["mining.min_similarity=0.8"]``."""
Sources = str | Path | Sequence[str | Path] | None
"""A source, several, or none: the profile's own."""
Watch = Callable[[int, int], None]  # called with the rows or steps done so far, and their total


class Dataset:
    """Dataset: a folder or URL with tables and versions.

    album = Dataset.open("album")                       # the newest version; version=3 for another
    album.status()                                      # rows done, dropped, failed, pending
    album["pairs"].to_pandas()                          # or .rows(), .to_arrow(), .where(...)
    album.export("trl", "album-trl", split="train")
    run = album.train("adpo", start="sft")
    """

    # report of the last build that this object ran; ``None``: it ran none
    outcome: Report | None = None

    def __init__(self, folder: Folder, number: int | None = None) -> None:
        """Store a dataset's folder and the number of a version.

        ``open`` and ``build`` check them first.
        """
        self.folder = folder
        self._number = number
        self._version: Version | None = None

    @classmethod
    def open(cls, url: str | Path, version: int | None = None) -> Self:
        """Open one version of the dataset in a folder or at a URL.

        ``Dataset.open("s3://bucket/album", version=3)``. Without a number, the newest version is
        read, or the current tables if there is none yet.
        """
        dataset = cls(Folder(str(url)), version)
        if version is None:
            read_record(dataset.folder)
        else:
            dataset._version = dataset.version
        return dataset

    @classmethod
    def build(
        cls,
        source: Sources = None,
        *,
        out: str | Path,
        profile: str = "scenes",
        settings: Settings = (),
        limit: int | None = None,
        until: str = "",
        exclude: Sequence[str] = (),
        planted: int = 0,
        executor: OpenExecutor | None = None,
    ) -> Self:
        """Build a dataset, or continue an earlier build of it, and open it.

        ``outcome`` is the build's report.

        ``Dataset.build("photos/", out="album", profile="laptop", until="mining")``

        Args:
            source: a folder of images, kind:path, or several of these; none: the profile's own.
            out: the dataset's folder or URL.
            profile: name of a profile, or a .yaml file.
            settings: fields to set over the profile.
            limit: only the first N images of each source.
            until: the last stage, or the last group of stages; empty: all.
            exclude: sources of images to exclude, together with near-duplicates of them.
            planted: number of the source's photographs to plant things into, too: pairs whose
                differences are known.
            executor: opens the executor of the build's shards; none: this machine's processes,
                and bars or lines.
        """
        request = make_request(
            str(out),
            _source_texts(source),
            profile=profile,
            settings=_settings_lines(settings),
            limit=limit,
            until=until,
            exclude=exclude,
            planted=planted,
        )
        dataset = cls(request.version.folder)
        dataset._run(request, executor)
        return dataset

    @classmethod
    def plan(
        cls,
        source: Sources = None,
        *,
        out: str | Path = "",
        profile: str = "",
        settings: Settings = (),
        limit: int | None = None,
        until: str = "",
        planted: int = 0,
        trial: int = 0,
    ) -> Plan:
        """Return, per stage, what a build would do: rows, calls, tokens, time, disk.

        Builds only the trial.

        ``Dataset.plan("photos/", profile="laptop", trial=50).totals["seconds"]``
        """
        version = version_to_plan(
            str(out),
            _source_texts(source),
            profile=profile,
            settings=_settings_lines(settings),
            limit=limit,
            until=until,
            planted=planted,
        )
        is_new = not out or not version.folder.exists(RECORD)
        return plan_build(version, is_new=is_new, trial=trial)

    @property
    def url(self) -> str:
        """Return its folder or URL."""
        return self.folder.url

    @property
    def version(self) -> Version:
        """Return the version that is read: the requested one, or the newest at first use."""
        if self._version is None:
            self._version = open_version(self.folder, self._number)
        return self._version

    @property
    def number(self) -> int:
        """Return the number of the version that is read; 0: there is none yet."""
        return self.version.number

    @property
    def profile(self) -> Profile:
        """Return the profile that this version was built with."""
        return self.version.profile

    @property
    def tables(self) -> list[str]:
        """Return the names of its tables, in the order of the stages."""
        return [planned.stage.name for planned in self.version.planned]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __getitem__(self, table: str) -> Table[Any]:
        """Return a table of the version: ``album["pairs"]``."""
        return Table(self.version, table)

    def status(self, *, verify: bool = False) -> Status:
        """Count rows done, dropped, failed and pending now, per stage; a notebook shows a table."""
        return look_at_status(self.folder, verify=verify)

    def refused(self, table: str) -> Iterator[tuple[str, str, str]]:
        """Yield status, reason and detail of each refused input, or of one with a remark.

        ``list(album.refused("images"))``
        """
        yield from list_refused(self.folder, table)

    def resume(
        self,
        *,
        stage: str = "",
        reason: str = "",
        settings: Settings = (),
        rescan: bool = False,
        executor: OpenExecutor | None = None,
    ) -> Report:
        """List the source again, finish its rows, and publish a version; return the report.

        ``rescan`` reads all bytes of the source again, also of files of equal size and time.

        ``album.resume(stage="captioning", reason="no answer in time")`` retries only rows that
        failed for this reason. The settings are fields of ``run``, ``gates`` and ``health``, which
        change no row.
        """
        request = resume_request(
            open_present(self.folder),
            stage=stage,
            reason=reason,
            settings=_settings_lines(settings),
            rescan=rescan,
        )
        return self._run(request, executor)

    def run(self, pipeline: Pipeline) -> Report:
        """Finish the rows of a pipeline's stages, and publish a version; return the report.

        ``album.run(Pipeline(album.profile, until="captioning"))``
        """
        return self._run(request_of(pipeline, self.folder))

    def report(self, *, pairs: int = 60) -> "ReportPages":
        """Write pages that show this version; ``page`` is the first, which opens from disk."""
        from pairwright.flows.versions.report_dataset import report_dataset

        return report_dataset(self.version, pairs=pairs)

    def export(
        self,
        form: str,
        to: str | Path,
        *,
        split: str | Sequence[str] = (),
        config: "ExportConfig | None" = None,
        watch: Watch | None = None,
    ) -> "Tally":
        """Export this version in the format of another program; return what was written.

        ``album.export("trl", "album-trl", split="train")``

        Args:
            form: "hf", "trl", "llamafactory", ... (``pairwright formats``).
            to: a new folder, or an earlier export.
            split: only this split, or these; none: all.
            config: further options, such as the selection of rows.
            watch: called with the rows read so far, and their total.
        """
        from pairwright.flows.versions.export_dataset import ExportConfig, export_dataset

        config = config or ExportConfig()
        if split:
            splits = (split,) if isinstance(split, str) else tuple(split)
            config = replace(config, selection=replace(config.selection, splits=splits))
        return export_dataset(
            self.version, str(to), form=form, config=config, watch=watch or say_nothing
        )

    def train(
        self,
        objective: str = "",
        *,
        recipe: str = "",
        model: str = "",
        start: str = "",
        size: str = "",
        differential: bool = False,
        table: str = "",
        mix: Sequence[str] = (),
        name: str = "",
        settings: Settings = (),
        watcher: "TrainingWatcher | None" = None,
    ) -> "Trained":
        """Train a model on this version's preferences, or continue a stopped run.

        Return the result. A stopped run continues with the version that it began with. The keyword
        arguments are the options of ``pairwright train``.

        ``album.train("sft")``, then ``album.train("adpo", start="sft",
        settings={"optimiser.num_train_epochs": 2})``
        """
        from pairwright.flows.pipeline.load_profile import choose_objective
        from pairwright.flows.training.make_train_config import make_config, warn_of_batch
        from pairwright.flows.training.train_model import train

        objective = choose_objective(objective, recipe)
        lines = _settings_lines(settings)
        config = make_config(
            objective,
            lines,
            dataset=self.url,
            recipe=recipe,
            model=model,
            start=start,
            size=size,
            differential=differential,
            table=table,
            mix=mix,
        )
        if recipe:
            warn_of_batch(config, recipe, lines)
        return train(
            self.version,
            config,
            name=name or objective,
            is_chosen=self._number is not None,
            watcher=watcher,
        )

    @classmethod
    def iterate(cls, url: str | Path, **choices: Any) -> "Iterated":
        """Train in rounds on the model's own texts; builds the dataset if there is none yet.

        ``Dataset.iterate("album", rounds=3, model="Qwen/Qwen2.5-VL-3B-Instruct")``; choices:
        ``IterateConfig``.
        """
        from pairwright.flows.training.iterate_rounds import IterateConfig, Rounds

        return Rounds(Folder(str(url)), IterateConfig(**choices)).iterate()

    def runs(self) -> list[RunSummary]:
        """List the trainings: objective, progress, last measurement."""
        return list_runs(self.folder)

    def evaluate(self, model: str, benchmark: str = "scenes", **choices: Any) -> "Evaluated":
        """Ask a model the questions of a benchmark made from this version, and score its answers.

        ``album.evaluate(run.folder, "scenes", limit=50)``
        """
        from pairwright.flows.training.evaluate_model import EvaluationConfig, evaluate_model

        config = EvaluationConfig(
            model=model,
            benchmark=benchmark,
            data=Path(self.folder.path("")),
            version=self._number,
            **choices,
        )
        return evaluate_model(config, watch=show_steps, opened=self.version)

    def audit(self, *, pairs: int = 200, executor: OpenExecutor | None = None) -> "Audited":
        """Measure how far to trust the texts about the photographs of this version.

        Plants known changes into some of them, and holds the texts of the dataset's own writer and
        the verdicts of its own checks against the truth. An audit that was stopped is resumed.

        ``album.audit(pairs=100).worth.chosen``
        """
        from pairwright.flows.building.audit_dataset import prepare_audit, run_audit

        return run_audit(prepare_audit(self.version, pairs), executor)

    def plan_audit(self, *, pairs: int = 200, trial: int = 0) -> Plan:
        """Return, per stage, what an audit would do. Builds only the trial."""
        from pairwright.flows.building.audit_dataset import plan_audit, prepare_audit

        return plan_audit(prepare_audit(self.version, pairs), trial=trial)

    def publish(self) -> Verdict:
        """Publish the current state as the newest version, whatever its profile's gates."""
        self._version = None
        return publish_anyway(self.folder)

    def refilter(self, settings: Settings, *, keep: bool = False) -> Refiltered:
        """Try other mining thresholds on the stored similarities.

        Return the pairs that come and go.

        ``album.refilter({"mining.min_similarity": 0.8})``
        """
        present = open_present(self.folder)
        changed = change_thresholds(present, _settings_lines(settings))
        with open_executor(changed) as executor:
            return refilter_dataset(present, changed, executor, keep=keep)

    def decide(self, file: str | Path) -> Sorted:
        """Store which rows of this version people accepted, rejected or edited.

        Exports and trainings follow.
        """
        decisions = read_decision_file(Path(file))
        with self.version.resolved() as (build, _):
            decided = sort_decisions(build, decisions)
            described = describe_decisions(build, decided.known)
        write_decisions(self.folder, described)
        return decided

    def decisions(self) -> Decisions:
        """Return the decisions of people about its rows."""
        return read_decisions(self.folder)

    def view(
        self,
        *,
        port: int,
        ready: Callable[[str, str], None],
        annotator: str = "",
        watch: Watch | None = None,
    ) -> bool:
        """Serve this version's pages on this machine until Ctrl-C.

        Return whether a thread was still running. Once pages are served, ``ready`` is called with
        their address, and with an address for a single visit. Decisions made there are stored under
        the annotator's name.
        """
        from pairwright.flows.versions.report_dataset import view_dataset

        return view_dataset(
            self.version, port=port, annotator=annotator, ready=ready, watch=watch or say_nothing
        )

    def versions(self) -> list[VersionSummary]:
        """List the versions, the oldest first: time, rows, changed settings."""
        return list_versions(self.folder)

    def diff(self, before: int, after: int, *, stage: str = "") -> VersionDifference:
        """Compare two versions: rows, inputs with another outcome and why, settings."""
        return diff_versions(
            open_version(self.folder, before), open_version(self.folder, after), stage=stage
        )

    def lineage(self, key: str) -> Lineage:
        """Return everything made from a row, and everything it was made from."""
        return trace_lineage(self.version, key)

    def remove(
        self, keys: Sequence[str] = (), *, names: Sequence[str] = (), reason: str = ""
    ) -> Removal:
        """Remove images on request: they and everything made from them leave all versions at once.

        ``album.remove(names=["holiday/beach.jpg"], reason="asked by mail")``; ``album.gc()`` erases
        them from the files.
        """
        return remove_images(open_version(self.folder), keys, names=names, reason=reason)

    def removed(self) -> list[tuple[str, str, str]]:
        """Return the images that are removed now: time, key, reason."""
        return list_removed(self.folder)

    def gc(
        self, *, keep: int | None = None, dry_run: bool = False, watch: Watch | None = None
    ) -> Collected:
        """Delete files that neither a kept version nor the current state needs.

        Return what was deleted.
        """
        return collect_garbage(self.folder, keep=keep, dry_run=dry_run, watch=watch)

    def _run(self, request: Request, executor: OpenExecutor | None = None) -> Report:
        open_one = executor or open_executor
        with open_one(request.version) as opened:
            self.outcome = run_build(request, opened)
        self._number = None
        self._version = None
        return self.outcome

    def __repr__(self) -> str:
        version = f", version {self.number}" if self.number else ""
        return f"<dataset {self.url}{version}: {', '.join(self.tables)}>"

    def _repr_html_(self) -> str:
        return show_stages(self.url, self.number, self.version.stage_counts())


def _source_texts(sources: Sources) -> list[str]:
    """Return the sources as texts."""
    if sources is None:
        return []
    if isinstance(sources, str | Path):
        return [str(sources)]
    return [str(source) for source in sources]


def _settings_lines(settings: Settings) -> list[str]:
    if isinstance(settings, Mapping):
        return [f"{name}={json.dumps(value)}" for name, value in settings.items()]
    return list(settings)
