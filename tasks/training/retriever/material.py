"""What the retriever of a run needs to know of its rows: frozen beside the rows, and opened again by every process.

Reads the settled tables ``preferences``, ``differences`` (which texts say that nothing changed, and what they claim),
``embeddings`` and ``text_vectors``, and the graphs of ``images``; the tables that a dataset does not have are done
without, but for vectors, which the heads need. Writes into ``runs/NAME/retriever/``:

    entries.arrow          one row per preference: 150 bytes and its text
    images/, texts/        vectors, 2 bytes per number
    claims.arrow, graphs.arrow   where the truth is known, of 20,000 rows at the most
    clip.json              which CLIP the encoder CLIP4IDC starts from; written by whoever chooses it

No images are read but by CLIP4IDC. A resumed run reads these files, whatever has become of the dataset.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.snapshot import live_index, stream_live
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.store.vectors import Vectors, open_vectors, write_vectors
from pairwright.tasks.training.retriever.features import Features, map_features
from pairwright.tasks.training.retriever.known_truth import KnownTruth, know_truth, without_masks
from pairwright.tasks.training.retriever.pool import Entry, Pool, make_pool
from pairwright.tasks.training.retriever.unchanged import may_say_no_change
from pairwright.tasks.training.runs import RETRIEVER

FOLDER, CLIP = RETRIEVER, "clip.json"
PREFERENCES = "preferences"
MOST_KNOWN = 20_000
"""Rows whose truth is known at the most; the share of true negatives is measured on them."""
ENTRIES = pa.schema(
    [
        *[(name, pa.string()) for name in ("key", "pair", "chosen", "first", "last")],
        *[(name, pa.bool_()) for name in ("in_pool", "no_change")],
    ]
)
CLAIMS = pa.schema([("text", pa.string()), ("claims", pa.string())])
GRAPHS = pa.schema([("image", pa.string()), ("graph", pa.string())])
Tables = Mapping[str, Planned]
"""A dataset's settled tables by name."""


@dataclass(frozen=True, kw_only=True)
class Material:
    """Be what a retriever knows."""

    entries: tuple[Entry, ...]
    """Rows that are trained or measured on, by their place."""
    pool: Pool
    places: Mapping[str, int]
    """The place of each row, by its key."""
    features: Features | None
    """``None`` where the dataset has no vectors."""
    truth: KnownTruth | None
    """``None`` where no truth is known."""


def freeze_material(
    build: Build, tables: Tables, folder: Path, *, splits: Mapping[str, str], train: str, table: str = PREFERENCES
) -> None:
    """Write what a run's retriever needs.

    Args:
        build: the opened dataset.
        tables: its settled tables.
        folder: where it is written.
        splits: the split of each row of the run, by its key.
        train: the split whose texts are the pool.
        table: the one that the rows are of.
    """
    entries = list(read_entries(build, tables, splits=splits, train=train, table=table))
    write_entries(folder, entries)
    for name, place in (("embeddings", "images"), ("text_vectors", "texts")):
        if name in tables and not (folder / place).exists():
            staged = folder / f".{place}"
            shutil.rmtree(staged, ignore_errors=True)
            write_vectors(staged, live_index(build, tables[name]))
            staged.rename(folder / place)
    if {"differences", "images"} <= tables.keys():
        known = entries[:MOST_KNOWN]
        _write(folder / "claims.arrow", CLAIMS, list(_claims(build, tables["differences"])))
        wanted = {key for entry in known for key in entry.images}
        _write(folder / "graphs.arrow", GRAPHS, list(_graphs(build, tables["images"], wanted)))


def write_entries(folder: Path, entries: Sequence[Entry]) -> None:
    """Write what is known of the rows themselves."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "entries.arrow", ENTRIES, [_flat(entry) for entry in entries])


def open_material(folder: Path) -> Material:
    """Open what was frozen.

    Raises:
        StoreError: it is not there, or damaged.
        ConfigError: a row or a text has no vector.
    """
    entries = tuple(_entry(row) for row in _read(folder / "entries.arrow"))
    pool = make_pool(entries)
    images, texts = (_vectors(folder / name) for name in ("images", "texts"))
    claims = [(row["text"], row["claims"]) for row in _read_if_there(folder / "claims.arrow")]
    graphs = {row["image"]: row["graph"] for row in _read_if_there(folder / "graphs.arrow")}
    return Material(
        entries=entries,
        pool=pool,
        places={entry.key: place for place, entry in enumerate(entries)},
        features=map_features(entries, pool, images=images, texts=texts) if images and texts else None,
        truth=know_truth(entries, pool, claims=claims, graphs=graphs) if claims and graphs else None,
    )


def read_entries(
    build: Build, tables: Tables, *, splits: Mapping[str, str], train: str, table: str = PREFERENCES
) -> Iterator[Entry]:
    """Yield the rows of a run as the retriever knows them, in the order of the table."""
    said = dict(_no_change(build, tables["differences"])) if "differences" in tables else {}
    for some in stream_live(build, tables[table], ["key", "subject", "chosen", "image_keys"]):
        for row in some.to_pylist():
            if row["key"] in splits:
                exact = said.get((row["subject"], row["chosen"]))
                yield make_entry(row, in_pool=splits[row["key"]] == train, no_change=exact)


def make_entry(row: Mapping[str, Any], *, in_pool: bool, no_change: bool | None) -> Entry:
    """Return a preference's columns as the retriever knows them.

    ``no_change`` says whether the chosen text was written to say so; ``None``: read that from its words.
    """
    chosen, images = row["chosen"], row["image_keys"]
    return Entry(
        key=row["key"],
        pair=row["subject"],
        chosen=chosen,
        images=(images[0], images[-1]),
        in_pool=in_pool,
        no_change=may_say_no_change(chosen) if no_change is None else no_change,
    )


def _no_change(build: Build, planned: Planned) -> Iterator[tuple[tuple[str, str], bool]]:
    for table in stream_live(build, planned, ["subject", "text", "no_change"]):
        for row in table.to_pylist():
            yield (row["subject"], row["text"]), bool(row["no_change"])


def _claims(build: Build, planned: Planned) -> Iterator[dict[str, str]]:
    for table in stream_live(build, planned, list(CLAIMS.names)):
        yield from (row for row in table.to_pylist() if row["claims"] not in ("", "[]"))


def _graphs(build: Build, planned: Planned, wanted: set[str]) -> Iterator[dict[str, str]]:
    for table in stream_live(build, planned, ["subject", "graph"]):
        for row in table.filter(table.column("graph").is_valid()).to_pylist():
            if row["subject"] in wanted:
                yield {"image": row["subject"], "graph": without_masks(row["graph"])}


def _flat(entry: Entry) -> dict[str, Any]:
    first, last = entry.images
    return {name: value for name, value in asdict(entry).items() if name != "images"} | {"first": first, "last": last}


def _entry(row: Mapping[str, Any]) -> Entry:
    named = {name: row[name] for name in ("key", "pair", "chosen", "in_pool", "no_change")}
    return Entry(**named, images=(row["first"], row["last"]))


def _vectors(folder: Path) -> Mapping[str, Vectors]:
    return open_vectors(folder) if folder.exists() else {}


def _write(path: Path, schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> None:
    with pa.ipc.new_file(str(path), schema) as writer:
        writer.write_table(pa.Table.from_pylist(list(rows), schema=schema))


def _read_if_there(path: Path) -> list[dict[str, Any]]:
    return _read(path) if path.exists() else []


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_file(source).read_all().to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path}: cannot be read: {error}. Start the run anew under another --name") from error
