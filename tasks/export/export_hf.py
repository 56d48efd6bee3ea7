"""Export the preferences of a dataset to a folder that ``datasets.load_dataset`` reads.

Reads live ``PreferenceRow``, writes ``data/*.parquet``, ``README.md`` and a marker by which a later export knows that
it may replace the folder. Rows pass by one row group at a time, in the order of the parts. Needs a local disk.
"""

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from schemas.arrow import from_table, schema_of
from schemas.errors import ConfigError
from schemas.rows import PreferenceRow
from tasks.export.hf_schema import to_record
from tasks.export.select_rows import UNSTATED, Selection
from tasks.export.write_card import SPLITS, About, Tally, write_card
from tasks.export.write_shards import BYTES_PER_FILE, SplitWriter
from tasks.store.dataset import Build
from tasks.store.replace import replacing
from tasks.store.snapshot import stream_live
from tasks.store.stage import Planned

EVERYTHING = Selection()
MARKER = ".pairwright-export.json"
OWN = {"data", "README.md", MARKER}


def export_hf(
    build: Build,
    preferences: Planned,
    *,
    about: About,
    target: Path,
    selection: Selection = EVERYTHING,
    bytes_per_file: int = BYTES_PER_FILE,
) -> Tally:
    """Write the settled preferences, or those selected; the folder has them all under its final name, or is as it was.

    Raises:
        ConfigError: the target holds something else, or there are no such preferences.
        StoreError: a file cannot be read or written.
    """
    check_target(target)
    with replacing(target) as folder:
        tally = _write_splits(
            build, preferences, folder=folder / "data", selection=selection, bytes_per_file=bytes_per_file
        )
        if not tally.rows:
            raise ConfigError(f"{build.folder.url}: {_nothing(tally)}")
        (folder / "README.md").write_text(write_card(about, tally), encoding="utf-8")
        marker = {"made_by": "pairwright", "format": "hf", "version": about.version, "rows": tally.rows}
        (folder / MARKER).write_text(json.dumps(marker) + "\n", encoding="utf-8")
    return tally


def check_target(target: Path) -> None:
    """Refuse a target that is not a folder of ours, an empty one, or a free name."""
    if not target.exists():
        return
    if not target.is_dir():
        raise ConfigError(f"{target}: is not a folder; give a new name with --to")
    names = {path.name for path in target.iterdir()}
    if names and (MARKER not in names or names - OWN):
        other = sorted(names - OWN)[:3] or sorted(names)[:3]
        raise ConfigError(
            f"{target}: is not empty and no earlier export (it holds {', '.join(other)}); give a new name with --to"
        )


def _nothing(tally: Tally) -> str:
    if not tally.left_out:
        return "holds no preferences, so there is nothing to export"
    there = {"licences": tally.left_out_licences, "sources": tally.left_out_sources}
    named = "; ".join(
        f"{what}: {', '.join(sorted(name or UNSTATED for name in names))}" for what, names in there.items()
    )
    return f"none of its {tally.left_out:,} preferences has images of these licences and sources. It has {named}"


def _write_splits(
    build: Build, preferences: Planned, *, folder: Path, selection: Selection, bytes_per_file: int
) -> Tally:
    tally = Tally()
    with ExitStack() as stack:
        writers = {
            split: stack.enter_context(SplitWriter(folder, split, bytes_per_file=bytes_per_file)) for split in SPLITS
        }
        for table in stream_live(build, preferences, schema_of(PreferenceRow).names):
            for row in from_table(table, PreferenceRow):
                if not selection.keeps(row):
                    tally.leave_out(row)
                    continue
                writers[row.split].add(to_record(row))
                tally.add(row)
    sizes = {split: (writer.rows, writer.size_bytes) for split, writer in writers.items() if writer.rows}
    return replace(tally, sizes=sizes)
