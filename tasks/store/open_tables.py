"""One build of a dataset: read and count its tables, cut shards, write indexes.

OUT/
  build.json                   what to resume: source, profile, limit
  tables/<stage>/<fingerprint>/part-<hash>.parquet
  snapshots/000001.json        a version: which tables and parts, counts, parent
  decisions/, takedowns/       decisions of people, removals on request
  work/, journals/             files of running builds; may be deleted
"""

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

from filelock import FileLock
from pydantic import ValidationError

from pairwright.schemas.arrow import to_table
from pairwright.schemas.config import BuildRecord
from pairwright.schemas.errors import ConfigError, StoreError
from pairwright.schemas.rows import ItemRow, make_key
from pairwright.tasks.store.files import TEMPORARY, Folder, make_folder, naming, read_sealed, seal
from pairwright.tasks.store.index import write_index
from pairwright.tasks.store.ledger import COLLECTION, Counts, Ledger
from pairwright.tasks.store.part import Part, describe_part, encode_part, read_positions
from pairwright.tasks.store.scratch import (
    copies_of,
    holding,
    own_temporary_folder,
    scratch_folder,
    scratch_locks,
)
from pairwright.tasks.store.shard import ShardRef, write_plan
from pairwright.tasks.store.stage import Planned, table_folder
from pairwright.tasks.store.takedowns import (
    MEND_MISSING,
    last_takedown,
    read_takedowns,
    removed_by,
)

RECORD = "build.json"
FINGERPRINT = re.compile("[0-9a-f]{16}|listed")
"""Name of a table's folder, for one configuration; that of the items is `listed`."""
MEND_RECORD = (
    "Run the `pairwright build` of this dataset again: it writes this file anew, and no row is lost"
)
ITEMS = table_folder("items", "listed")
ITEMS_PER_PART = 20_000
# lock held during a cleanup, and for a moment by each process that begins to work on the dataset
GATE = ".gate"


def check_new(folder: Folder) -> None:
    """Raise ``ConfigError`` for a folder with files that is no dataset.

    A dataset whose record is missing has tables: it is built again from these.
    """
    if folder.exists(RECORD) or _holds_tables(folder):
        return
    foreign = sorted({*folder.folders(""), *folder.names("")} - {"work"})
    if foreign:
        raise ConfigError(
            f"{folder.url}: is neither empty nor a dataset (it holds {', '.join(foreign[:3])}); "
            "give a new folder with --out"
        )


def _holds_tables(folder: Folder) -> bool:
    """Return whether a folder has tables, and all of them are named as ours."""
    fingerprints = [path.rpartition("/")[2] for path in table_folders(folder)]
    return bool(fingerprints) and all(map(FINGERPRINT.fullmatch, fingerprints))


def write_record(folder: Folder, record: BuildRecord) -> None:
    """Write the settings of a build, so that ``resume`` and ``status`` need only the folder."""
    folder.write(RECORD, seal(record.model_dump(mode="json")))


def read_record(folder: Folder) -> BuildRecord:
    """Return the settings of the last build; ``ConfigError`` if the folder holds no dataset."""
    if not folder.exists(RECORD):
        if folder.folders("tables"):
            raise StoreError(f"{folder.path(RECORD)}: is missing. {MEND_RECORD}")
        raise ConfigError(
            f"{folder.url}: holds no dataset (no {RECORD}): build one with `pairwright build --out`"
        )
    content = read_sealed(folder, RECORD, mend=MEND_RECORD)
    try:
        return BuildRecord.model_validate(content)
    except ValidationError as error:
        faults: list[str] = []
        for fault in error.errors(include_url=False)[:3]:
            field_path = ".".join(map(str, fault["loc"]))
            faults.append(f"{field_path}: {fault['msg']}")
        raise StoreError(
            f"{folder.path(RECORD)}: written by another release, cannot be read by this one: "
            f"{'; '.join(faults)}. {MEND_RECORD}"
        ) from error


def write_items(folder: Folder, items: Iterable[ItemRow]) -> tuple[str, ...]:
    """Write a source's listing as parts of the items table; return their names.

    Equal listings give equal parts.
    """
    rest = iter(items)
    names: list[str] = []
    while rows := list(islice(rest, ITEMS_PER_PART)):
        key = make_key(*[row.key for row in rows])
        name = f"{ITEMS}/part-{key}.parquet"
        names.append(name)
        with hold(folder, ITEMS):
            if folder.exists(name):
                continue
            table = to_table(rows, ItemRow)
            metadata = describe_part(name, table, version=1)
            folder.write(name, encode_part(table, metadata))
    return tuple(names)


def table_folders(folder: Folder) -> Iterator[str]:
    """Yield the folders of all tables, of every configuration."""
    for name in folder.folders("tables"):
        for fingerprint in folder.folders(f"tables/{name}"):
            yield f"tables/{name}/{fingerprint}"


def journals_of(folder: Folder) -> Path:
    """Return this machine's folder of the journals of a dataset's unfinished shards."""
    if folder.is_local:
        return Path(folder.path("journals"))
    return own_temporary_folder() / f"journals-{make_key(folder.url)}"


@contextlib.contextmanager
def hold(folder: Folder, table: str, on_wait: Callable[[], None] | None = None) -> Generator[None]:
    """Lock a table, and delete the half-written files of killed processes.

    Other processes cannot work on it meanwhile. The lock ends with its process. An object store
    has no locks: two builds there may do work twice, never wrongly, since a part is named by its
    inputs.
    """
    if not folder.is_local:
        yield
        return
    lock = Path(folder.path(table)) / ".lock"
    with naming(str(lock), "locked"):
        make_folder(lock.parent)
    with holding(lock, on_wait=on_wait):
        for name in folder.names(table):
            if TEMPORARY in name:
                folder.delete(f"{table}/{name}")
        yield


@contextlib.contextmanager
def alone(folder: Folder) -> Generator[None]:
    """Lock a whole dataset; ``StoreError`` if a process reads rows or builds.

    New processes wait meanwhile. On an object store there is no lock.
    """
    if not folder.is_local:
        yield
        return
    work = Path(folder.path("work"))
    with naming(str(work), "locked"):
        work.mkdir(exist_ok=True)
    starting = f"{folder.url}: another process is starting to read or clean it. Try again"
    with holding(work / GATE, fault=starting):
        for lock in scratch_locks(work):
            running = (
                f"{folder.url}: a build, or another process that reads its rows, is running "
                f"(it holds {lock}). Wait for it to end"
            )
            with holding(lock, fault=running):
                pass
        yield


@contextlib.contextmanager
def in_use(folder: Folder) -> Generator[str]:
    """Make a folder for work files, "work/ID", whose lock tells ``alone`` of this process."""
    if not folder.is_local:
        name = f"work/{uuid.uuid4().hex}"
        try:
            yield name
        finally:
            for file in folder.names(name):
                folder.delete(f"{name}/{file}")
            shutil.rmtree(copies_of(folder, name), ignore_errors=True)
        return
    work = Path(folder.path("work"))
    existing = work if work.exists() else work.parent
    if existing.exists() and not os.access(existing, os.W_OK):
        # A reader of a dataset that it cannot write to: it has its files elsewhere.
        with scratch_folder(own_temporary_folder()) as path:
            yield os.path.relpath(path, os.path.realpath(work.parent))
        return
    with contextlib.ExitStack() as stack:
        with naming(str(work), "written"):
            work.mkdir(parents=True, exist_ok=True)
            with FileLock(work / GATE):
                path = stack.enter_context(scratch_folder(work))
        yield f"work/{path.name}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a dataset: its number and its JSON."""

    number: int
    content: dict[str, Any]

    @property
    def takedowns(self) -> int:
        """Return the number of the last removal of images when it was published."""
        return self.content.get("takedowns", 0)


@dataclass
class Build:
    """State of a dataset that is built or read; a context manager."""

    folder: Folder
    planned: Sequence[Planned]
    items: Sequence[str]  # parts of the items table, in the order of the source
    rows_per_shard: int = 200
    rows_per_shard_of: dict[str, int] = field(default_factory=dict)
    pinned: Snapshot | None = None  # the version to read; none: the tables as they are now
    without: Collection[str] = ()  # parts that are not read, below the dataset's folder

    def __enter__(self) -> Self:
        self._work = ""
        with contextlib.ExitStack() as stack:
            self._scratch = stack.enter_context(scratch_folder(own_temporary_folder()))
            self.ledger = stack.enter_context(Ledger(self.folder, self._scratch / "spill"))
            entries = read_takedowns(self.folder)
            self.takedowns = entries[-1].number if entries else 0
            if self.pinned and self.pinned.takedowns > self.takedowns:
                missing = f"takedowns/{self.pinned.takedowns:06d}.json"
                raise StoreError(f"{self.folder.path(missing)}: is missing. {MEND_MISSING}")
            self.ledger.remove_images(removed_by(entries))
            item_names = [name.rpartition("/")[2] for name in self.items]
            self.ledger.set_items(ITEMS, item_names)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:  # noqa: PYI036  (ExitStack wants its types)
        self._stack.__exit__(*error)

    def resolve(self, planned: Planned) -> Counts:
        """Read and count a stage's table as it is now; earlier stages must be resolved."""
        published = None
        if self.pinned:
            published = self.pinned.content["stages"].get(planned.stage.name)
        if published and published["fingerprint"] == planned.fingerprint:
            self.ledger.load_only(planned, list(published["parts"]), published["refused"])
        else:
            self.ledger.load_parts(planned, without=self.without)
        self.ledger.resolve(planned)
        return self.ledger.count_stage(planned)

    def read_columns(
        self, planned: Planned, positions: Iterable[tuple[Any, ...]], columns: Sequence[str]
    ) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Yield each position (part, row, then anything) with some columns of its row.

        Positions are sorted by part and row.
        """
        for name, group in groupby(positions, key=itemgetter(0)):
            of_part = list(group)
            part = Part(self.folder, f"{planned.table_path}/{name}")
            row_numbers = [position[1] for position in of_part]
            table = read_positions(part, row_numbers, columns)
            yield from zip(of_part, table.to_pylist(), strict=True)

    def check_removals(self) -> None:
        """Raise ``StoreError`` if images were removed on request since this build was opened."""
        if last_takedown(self.folder) != self.takedowns:
            raise StoreError(
                f"{self.folder.url}: images were removed from it since this began, so nothing is "
                "written or shown. Run the same command again"
            )

    def refused(self, planned: Planned) -> Iterator[tuple[str, str, str, str]]:
        """Yield status, reason, detail and subject of each dropped or failed input of a stage.

        Then those of the rows that it kept with a reason, as status "kept". Duplicates are not
        refused. The stage must be resolved.
        """
        columns = ["status", "reason", "detail"]
        for remarked in (False, True):
            positions = self.ledger.refused(planned.stage.name, remarked=remarked)
            for (_, _, subject), row in self.read_columns(planned, positions, columns):
                status = "kept" if remarked else row["status"]
                yield status, row["reason"], row["detail"], subject

    def duplicates(self, planned: Planned, column: str) -> Iterator[tuple[str, str]]:
        """Yield a column's value for each duplicate input of a resolved stage and its original."""
        positions = self.ledger.duplicates(planned.stage.name)
        for (*_, part, row), duplicate in self.read_columns(planned, positions, [column]):
            ((_, original),) = self.read_columns(planned, [(part, row)], [column])
            yield duplicate[column], original[column]

    @contextlib.contextmanager
    def lock_stage(
        self, planned: Planned, on_wait: Callable[[Planned], None] | None = None
    ) -> Generator[None]:
        """Lock a stage's table; another build of the same table waits here."""
        self._workspace()  # marks the dataset as in use, before anything is counted
        with hold(self.folder, planned.table_path, on_wait and partial(on_wait, planned)):
            yield

    def shards(self, planned: Planned, *, reason: str = "") -> list[ShardRef]:
        """Cut the pending rows of a resolved stage into shards, and write their workers' files."""
        stage = planned.stage
        # Before the pending rows: another query on the connection would end their reader.
        removed = self.ledger.removed_keys if planned.reads_source else []
        metadata: dict[str, str] = {}
        if planned.inputs.is_whole:
            metadata[COLLECTION] = self.ledger.collection(planned)
        plan = f"{self._workspace()}/plan-{stage.name}-{uuid.uuid4().hex}.arrow"
        names = self._input_parts(planned)
        size = self._shard_size(planned)
        with self._new_file(plan) as path:
            slices = write_plan(
                path,
                self.ledger.unfinished_rows(stage.name, size, reason=reason),
                names,
                about=metadata,
                removed=removed,
            )
        if not slices:
            return []
        shard = partial(
            ShardRef,
            folder=self.folder,
            plan=plan,
            indexes=self._input_indexes(planned),
            journals=str(self._journals(planned)),
        )
        return [
            shard(name=f"{stage.name}-{number:05d}", start=start, stop=stop)
            for number, start, stop in slices
        ]

    def _shard_size(self, planned: Planned) -> int:
        stage = planned.stage
        configured = self.rows_per_shard_of.get(stage.name)
        return configured or stage.shard_size(planned.config) or self.rows_per_shard

    def _input_parts(self, planned: Planned) -> list[str]:
        """Return the parts of the tables that a stage reads."""
        names: list[str] = []
        for table in planned.inputs.reads:
            folder = self._folder_of(table)
            names.extend(f"{folder}/{name}" for name in self.ledger.part_names(table))
        return names

    def _input_indexes(self, planned: Planned) -> tuple[tuple[str, str, str], ...]:
        """Write the indexes that a stage uses; return argument, index and table folder of each."""
        indexes: list[tuple[str, str, str]] = []
        for use in planned.inputs.uses:
            index = self.write_index(use.table, only_in=use.only_in, by=use.by, extended=True)
            indexes.append((use.argument, index, self._folder_of(use.table)))
        return tuple(indexes)

    @contextlib.contextmanager
    def _new_file(self, name: str) -> Generator[Path]:
        """Yield a local path to write a work file to, and upload it to an object store.

        Work files need no flush.
        """
        if self.folder.is_local:
            path = Path(self.folder.path(name))
        else:
            path = self._scratch / uuid.uuid4().hex
        with naming(str(path), "written"):
            yield path
        if not self.folder.is_local:
            self.folder.write(name, path.read_bytes())
            path.unlink()

    def _folder_of(self, table: str) -> str:
        for planned in self.planned:
            if planned.stage.name == table:
                return planned.table_path
        return ITEMS

    def drop_journals(self, planned: Planned) -> None:
        """Delete the journals of a stage when all of its shards are done; its lock must be held."""
        shutil.rmtree(self._journals(planned), ignore_errors=True)

    def _journals(self, planned: Planned) -> Path:
        return journals_of(self.folder) / f"{planned.stage.name}-{planned.fingerprint}"

    def _workspace(self) -> str:
        """Return this build's folder for files that workers read; deleted at its end."""
        self._work = self._work or self._stack.enter_context(in_use(self.folder))
        return self._work

    def write_index(
        self, table: str, *, only_in: str = "", by: str = "subject", extended: bool = False
    ) -> str:
        """Write the index of a resolved table's live rows, once per build; return its name.

        With ``only_in``, only of rows about a subject of that table; ``by`` as in ``Uses``;
        ``extended``: of the tables that extend it, too.
        """
        names = self.ledger.part_names(table)
        tables = [table]
        for planned in self._extensions(table) if extended else ():
            tables.append(planned.stage.name)
            parts = self.ledger.part_names(planned.stage.name)
            names += [f"{planned.table_path}/{part}" for part in parts]
        marked = [*tables, only_in] if only_in else tables
        positions = " ".join(self.ledger.hash_positions(name) for name in marked)
        file = f"{self._workspace()}/index-{table}-{make_key(positions, by)[:12]}.arrow"
        if not self.folder.exists(file):
            with self._new_file(file) as path:
                write_index(path, self.ledger.index(tables, only_in=only_in, by=by), names)
        return file

    def _extensions(self, table: str) -> list[Planned]:
        """Return the resolved stages whose tables extend a table."""
        extensions: list[Planned] = []
        for planned in self.planned:
            if planned.stage.extends == table and planned.stage.name in self.ledger.resolved:
                extensions.append(planned)
        return extensions
