"""Run one shard: read its unfinished rows, call the stage's function, write one part.

A shard is a slice of a plan file; nothing else is passed between processes. The part's name is the
hash of its inputs, so a shard that runs twice writes the same file.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, groupby
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pairwright.prompts import use_prompts
from pairwright.schemas.arrow import concat_parts, from_table, schema_of, to_table
from pairwright.schemas.errors import ValidationError
from pairwright.schemas.rows import Dropped, Failed, Row, make_key
from pairwright.tasks.store.answers import Answers, describe_asked
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.index import PARTS, columns_without, open_index
from pairwright.tasks.store.part import (
    Part,
    count_statuses,
    describe_part,
    encode_part,
    read_about,
    read_positions,
)
from pairwright.tasks.store.scratch import copy_of
from pairwright.tasks.store.stage import Planned, Uses, table_of
from pairwright.tasks.store.takedowns import bury_rows
from pairwright.tasks.store.vectors import open_vectors, place_vectors

NOTHING = "gave nothing"
ABOUT, REMOVED = b"about", b"removed"  # metadata of a plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRef:
    """Reference to the work of a shard; a few hundred bytes, however many rows."""

    folder: Folder
    name: str  # stage and number of the slice: "captions-00012"
    plan: str  # plan file, below the dataset's folder
    start: int  # first row of the shard in the plan
    stop: int
    indexes: tuple[
        tuple[str, str, str], ...
    ]  # per argument: its name, the index file, the table's folder
    journals: str  # local folder for journals


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardDone:
    """Counts of a shard that wrote its part."""

    name: str
    part: str
    counts: dict[str, int]  # rows by status
    failures: dict[str, int] = field(default_factory=dict[str, int])  # failed rows by reason


def run_shard(planned: Planned, shard: ShardRef) -> ShardDone:
    """Do a shard's work and write its part; afterwards all of its rows or none are in the table."""
    plan = read_plan(shard)
    sources: dict[str, str] = dict(
        zip(plan.column("key").to_pylist(), plan.column("source_key").to_pylist(), strict=True)
    )
    name = f"{planned.table_path}/part-{make_key(*sources.values())}.parquet"
    file = (
        Path(shard.journals)
        / Path(name).with_suffix(".journal" if planned.keeps_results else ".answers").name
    )
    with Answers(file) if planned.keeps_results or planned.keeps_answers else nullcontext() as kept:
        if done := _done_before(shard, name):  # perhaps while this waited for the file
            if kept is not None:
                kept.delete()
            return done
        inputs = list(_input_rows(planned, shard, plan))
        with use_prompts(planned.prompts):
            table = _results(planned, shard, inputs, kept)
        if unknown := set(table.column("source_key").to_pylist()) - sources.keys():
            raise ValidationError(
                f"{shard.name}: the stage's results name inputs outside the shard: {min(unknown)}"
            )
        table = _in_order(table, list(sources), planned.stage.writes)
        names = pa.array(
            [sources[key] for key in table.column("source_key").to_pylist()], pa.string()
        )
        table = table.set_column(
            table.schema.get_field_index("source_key"), "source_key", names
        ).combine_chunks()
        table = bury_rows(table, frozenset(json.loads(plan.schema.metadata[REMOVED])))
        about = describe_part(name, table, version=planned.stage.version) | json.loads(
            plan.schema.metadata[ABOUT]
        )
        if kept is not None and planned.keeps_answers:
            about |= describe_asked(kept)
        shard.folder.write(name, encode_part(table, about))
        if kept is not None:
            kept.delete()
    reasons = table.filter(pc.field("status") == "failed").column("reason").to_pylist()
    return ShardDone(
        name=shard.name, part=name, counts=count_statuses(table), failures=dict(Counter(reasons))
    )


def _done_before(shard: ShardRef, name: str) -> ShardDone | None:
    """Return the counts of an existing part of these inputs.

    ``None`` if there is none, or a row of it failed.

    A cluster may repeat a shard after its worker died, although it was done, and on an object store
    another build may have written the part meanwhile.
    """
    if not shard.folder.exists(name):
        return None
    about = read_about(Part(shard.folder, name))
    counts = {
        status: int(about[status]) for status in ("ok", "dropped", "failed") if about[status] != "0"
    }
    return None if "failed" in counts else ShardDone(name=shard.name, part=name, counts=counts)


def write_plan(
    path: Path,
    unfinished: pa.RecordBatchReader,
    names: Sequence[str],
    *,
    about: Mapping[str, str] = MappingProxyType({}),
    removed: Sequence[str] = (),
) -> list[tuple[int, int, int]]:
    """Write a plan file.

    Return number, first and last row (exclusive) of each shard with unfinished rows.

    ``names`` are the parts of the input below the dataset's folder, by number; ``about`` is
    metadata of the shards' parts beside the counts; ``removed`` has the keys of removed images and
    of rows about them.
    """
    metadata = {
        PARTS: "\n".join(names),
        ABOUT: json.dumps(dict(about)),
        REMOVED: json.dumps(removed),
    }
    schema = pa.schema(
        [field for field in unfinished.schema if field.name != "shard"], metadata=metadata
    )
    rows = Counter[int]()
    with pa.ipc.new_file(str(path), schema) as writer:
        for batch in unfinished:
            writer.write_batch(batch.select(schema.names).replace_schema_metadata(schema.metadata))
            rows.update(batch.column("shard").to_pylist())
    ends = accumulate(rows.values())
    return [(number, end - rows[number], end) for number, end in zip(rows, ends, strict=True)]


def read_plan(shard: ShardRef) -> pa.Table:
    """Return the shard's slice of its plan."""
    source = pa.memory_map(str(copy_of(shard.folder, shard.plan)))
    return pa.ipc.open_file(source).read_all().slice(shard.start, shard.stop - shard.start)


def _input_rows(planned: Planned, shard: ShardRef, plan: pa.Table) -> Iterator[Row]:
    """Yield the input rows in the plan's order; each row group is read once."""
    names = plan.schema.metadata[PARTS].decode().split("\n")
    found: dict[str, Row] = {}
    places = sorted(
        zip(plan.column("part").to_pylist(), plan.column("row").to_pylist(), strict=True)
    )
    for number, group in groupby(places, key=lambda place: place[0]):
        kind = planned.inputs.reads[table_of(names[number])]
        columns = columns_without(kind, planned.inputs.without)
        table = read_positions(
            Part(shard.folder, names[number]), [row for _, row in group], columns
        )
        found |= {row.key: row for row in from_table(table, kind)}
    for key in plan.column("key").to_pylist():
        yield found[key]


def _results(
    planned: Planned, shard: ShardRef, inputs: Sequence[Row], kept: Answers | None
) -> pa.Table:
    """Return the stage's results for the inputs.

    With a journal, results of a killed process are reused.
    """
    stage = planned.stage

    def run_function(unfinished: Sequence[Row]) -> Iterator[Row | Dropped | Failed]:
        uses: dict[str, Any] = dict(_open_uses(planned, shard, unfinished)) | (
            {"answers": kept} if planned.keeps_answers else {}
        )
        return stage.function(unfinished, planned.config, **uses) if unfinished else iter(())

    if not planned.keeps_results or kept is None:
        return to_table(list(run_function(inputs)), stage.writes)
    schema = schema_of(stage.writes)
    form = (
        schema.serialize().to_pybytes()
    )  # in the keys, so that rows of another schema are not found
    tables: list[pa.Table] = [schema.empty_table()]
    unfinished: list[Row] = []
    for row in inputs:
        if (found := kept.get(make_key(form, row.key))) is None:
            unfinished.append(row)
        else:
            tables.append(
                pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(found), schema)])
            )
    for key, group in groupby(run_function(unfinished), key=attrgetter("source_key")):
        tables.append(to_table(list(group), stage.writes))
        if "failed" not in count_statuses(tables[-1]):
            kept.store_value(
                make_key(form, key), tables[-1].to_batches()[0].serialize().to_pybytes()
            )
    return concat_parts(tables)


def _in_order(table: pa.Table, keys: Sequence[str], row_type: type[Row]) -> pa.Table:
    """Order results like their inputs.

    Keep one failed row of each input, else its ok rows, else one dropped row.
    """
    by_source: dict[str, list[int]] = {key: [] for key in keys}
    sources, statuses = table.column("source_key").to_pylist(), table.column("status").to_pylist()
    for position, source in enumerate(sources):
        by_source[source].append(position)
    chosen: list[int] = []
    silent: list[Dropped] = []
    for key, positions in by_source.items():
        best = next(
            (s for s in ("failed", "ok", "dropped") if any(statuses[p] == s for p in positions)), ""
        )
        kept = [p for p in positions if statuses[p] == best]
        if not kept:
            kept = [len(table) + len(silent)]
            silent.append(Dropped(source_key=key, reason=NOTHING))
        chosen += kept if best == "ok" else kept[:1]
    if chosen == list(range(len(table))):
        return table  # saves a copy of the shard's images
    return concat_parts([table, to_table(silent, row_type)]).take(chosen)


def _open_uses(planned: Planned, shard: ShardRef, rows: Sequence[Row]) -> Iterator[tuple[str, Any]]:
    """Yield each used table in the declared form, with the rows that this shard needs."""
    opened: dict[str, Sequence[Row]] = {"": rows}
    places = {name: (file, folder) for name, file, folder in shard.indexes}
    for use in planned.inputs.uses:
        file, folder = places[use.argument]
        if use.kind == "vectors":
            yield use.argument, open_vectors(place_vectors(shard.folder, file, table=folder))
        elif use.kind == "table":
            yield use.argument, _whole_table(shard.folder, file, folder, use)
        else:
            found = _rows_about(
                shard.folder, file, folder, use=use, wanted=list(_wanted(use, opened[use.of]))
            )
            opened[use.argument] = list(found.values())
            yield use.argument, found


def _wanted(use: Uses, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the subjects of the rows that are used with some rows.

    ``LINKS`` in the ledger's terms.
    """
    for row in rows:
        if use.on == "about":
            yield from row.about_keys
        else:
            yield row.key if use.on == "key" else row.subject


def _rows_about(
    folder: Folder, file: str, table: str, *, use: Uses, wanted: Sequence[str]
) -> dict[str, Any]:
    index = open_index(folder, file, table)
    columns = columns_without(use.row, use.without)
    rows = sorted(
        index.rows_at(index.find_positions(wanted), use.row, columns), key=lambda row: row.key
    )
    if use.kind == "one":
        return {getattr(row, use.by): row for row in reversed(rows)}
    grouped: dict[str, tuple[Row, ...]] = dict.fromkeys(wanted, ())
    for row in rows:
        grouped[getattr(row, use.by)] += (row,)
    return grouped


@lru_cache(maxsize=4)
def _whole_table(folder: Folder, file: str, table: str, use: Uses) -> pa.Table:
    """Read the requested columns of a whole table, once per process; in any order."""
    index = open_index(folder, file, table)
    columns = columns_without(use.row, use.without)
    empty = schema_of(use.row).empty_table().select(columns)
    return concat_parts([empty, *index.part_tables(columns)])
