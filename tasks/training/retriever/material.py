"""Material of a run's retriever: frozen beside the rows, and opened by every process.

Reads the settled tables ``preferences``, ``differences`` (texts that state no change),
``embeddings`` and ``text_vectors``; only ``preferences`` is required, and for heads the vectors.
Writes into ``runs/NAME/retriever/``:

    entries.arrow          one row per preference: 150 bytes and its text
    images/, texts/        vectors, 2 bytes per number
    clip.json              CLIP4IDC's base; written by the caller

A resumed run reads these files, whatever has happened to the dataset. Vectors are memory-mapped and
shared by all processes of a machine: 300 MB for 100,000 images and texts of 768 numbers; the device
holds one batch. Needs no PyTorch.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.feather import read_table, write_feather

from pairwright.schemas.errors import ConfigError, StoreError
from pairwright.schemas.plain_text import plain_text
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.store.build import Build
from pairwright.tasks.store.snapshot import live_index, stream_live
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.store.vectors import Vectors, add_vectors, open_vectors, write_vectors
from pairwright.tasks.training.embed_chosen_texts import embed_chosen_texts, text_key
from pairwright.tasks.training.freeze_rows import FrozenRows
from pairwright.tasks.training.retriever.candidate_pool import (
    Places,
    Pool,
    PoolEntry,
    make_pool,
    may_say_no_change,
)

CLIP, ENTRIES = "clip.json", "entries.arrow"
COPIES = (
    "perceptual-hash"  # vector for finding copies; photographs of one scene have nearly the same
)
Tables = Mapping[str, Planned]  # a dataset's settled tables by name
Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Features:
    """Vectors of rows and texts, looked up by batch."""

    images: tuple[NDArray[np.float16], ...]  # per embedder ``(images, d)`` unit vectors
    shown: Places  # (n, 2) index into ``images`` of each row's first and last image
    texts: NDArray[np.float16]  # ``(vectors, d)`` unit vectors
    of_texts: Places  # (T,) index into ``texts`` of each text of the pool
    made_by: str  # names of the embedders, which trained heads depend on

    @property
    def sizes(self) -> tuple[int, int]:
        """Return the lengths of an image's and of a text's vector."""
        return sum(matrix.shape[1] for matrix in self.images), self.texts.shape[1]

    def pairs(self, places: Places) -> Floats:
        """Return ``(B, 2, d)`` unit vectors of both images; zeros for an image without features."""
        rows = self.shown[places]
        joined = np.concatenate([matrix[rows] for matrix in self.images], axis=-1).astype(
            np.float32
        )
        return joined / np.sqrt(np.float32(len(self.images)))

    def words(self, ids: Places) -> Floats:
        """Return ``(N, d)`` vectors of texts of the pool."""
        return self.texts[self.of_texts[ids]].astype(np.float32)


def map_features(
    entries: Sequence[PoolEntry],
    pool: Pool,
    *,
    images: Mapping[str, Vectors],
    texts: Mapping[str, Vectors],
) -> Features:
    """Look up the vectors of rows and of the texts of their pool."""
    used = {name: vectors for name, vectors in sorted(images.items()) if name != COPIES}
    if not used or not texts:
        raise ConfigError(
            f"adpo.encoder: heads: the dataset has no vectors of its {'texts' if used else 'images'}. Set "
            "adpo.encoder=clip4idc, or build the dataset with the table embeddings"
        )
    (name, words), *_ = sorted(texts.items())
    try:
        rows = [
            vectors.rows_of(key for entry in entries for key in entry.images)
            for vectors in used.values()
        ]
        of_texts = words.rows_of(map(text_key, pool.texts))
    except KeyError as error:
        raise ConfigError(
            "adpo.encoder: heads: a vector is missing: run `pairwright resume`"
        ) from error
    return Features(
        images=tuple(vectors.matrix for vectors in used.values()),
        shown=rows[0].reshape(-1, 2),
        texts=words.matrix,
        of_texts=of_texts,
        made_by=f"{'+'.join(used)} | {name} {words.matrix.shape[1]}",
    )


@dataclass(frozen=True, kw_only=True)
class Material:
    """Everything that a retriever reads."""

    entries: tuple[PoolEntry, ...]  # training and held-out rows
    pool: Pool
    places: Mapping[str, int]  # position of each row, by key
    features: Features | None  # ``None``: no vectors


def freeze_material(
    build: Build, tables: Tables, folder: Path, *, frozen: Sequence[FrozenRows], table: str
) -> None:
    """Write a retriever's material; the texts of the first of the ``frozen`` splits are the pool."""
    edited = {row.key: row for rows in frozen for row in rows.edited().values()}
    entries = list(read_entries(build, tables, frozen=frozen, edited=edited, table=table))
    write_entries(folder, entries)
    for name, place in (("embeddings", "images"), ("text_vectors", "texts")):
        if name in tables and not (folder / place).exists():
            staged = folder / f".{place}"
            shutil.rmtree(staged, ignore_errors=True)
            write_vectors(staged, live_index(build, tables[name]))
            if place == "texts":
                add_vectors(staged, embed_chosen_texts(list(edited.values()), tables[name].config))
            staged.rename(folder / place)


def write_entries(folder: Path, entries: Sequence[PoolEntry]) -> None:
    """Write the rows' entries."""
    folder.mkdir(parents=True, exist_ok=True)
    write_feather(
        pa.Table.from_pylist(list(map(asdict, entries))),
        str(folder / ENTRIES),
        compression="uncompressed",
    )


def open_material(folder: Path) -> Material:
    """Open frozen material."""
    try:
        rows: list[dict[str, Any]] = read_table(folder / ENTRIES, memory_map=True).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{folder / ENTRIES}: cannot be read: {error}. Start over with another --name"
        ) from error
    for row in rows:
        row["images"] = tuple(row["images"])
    entries = tuple(PoolEntry(**row) for row in rows)
    pool = make_pool(entries)
    images, texts = (
        open_vectors(folder / name) if (folder / name).exists() else {}
        for name in ("images", "texts")
    )
    return Material(
        entries=entries,
        pool=pool,
        places={entry.key: place for place, entry in enumerate(entries)},
        features=map_features(entries, pool, images=images, texts=texts)
        if images and texts
        else None,
    )


def read_entries(
    build: Build,
    tables: Tables,
    *,
    frozen: Sequence[FrozenRows],
    edited: Mapping[str, PreferenceRow],
    table: str,
) -> Iterator[PoolEntry]:
    """Yield the entries of a run's rows, in the order of the table."""
    train, splits = frozen[0].split, dict[str, str]()
    for some in frozen:
        splits |= dict.fromkeys(some.keys(), some.split)
    said: dict[tuple[str, str], bool] = {}
    if "differences" in tables:
        rows = _stream(build, tables["differences"], "subject", "text", "no_change")
        said = {(row["subject"], row["text"]): bool(row["no_change"]) for row in rows}
    columns = ("key", "subject", "split", "chosen", "description", "image_keys")

    def stream() -> Iterator[dict[str, Any]]:
        for row in _stream(build, tables[table], *columns):
            own = edited.get(row["key"])
            yield {**row, "chosen": own.chosen, "description": own.description} if own else row

    # Texts of other splits must not become negatives.
    held = {plain_text(row["chosen"]) for row in stream() if row["split"] != train}
    for row in stream():
        if row["key"] in splits:
            exact = said.get((row["subject"], row["description"] or row["chosen"]))
            in_pool = splits[row["key"]] == train and plain_text(row["chosen"]) not in held
            yield make_entry(row, in_pool=in_pool, no_change=exact)


def _stream(build: Build, planned: Planned, *columns: str) -> Iterator[dict[str, Any]]:
    for table in stream_live(build, planned, list(columns)):
        yield from table.to_pylist()


def make_entry(row: Mapping[str, Any], *, in_pool: bool, no_change: bool | None) -> PoolEntry:
    """Return a preference's entry; ``no_change``: whether its text states no change, ``None``: read from its words."""
    chosen, images = row["chosen"], row["image_keys"]
    return PoolEntry(
        key=row["key"],
        pair=row["subject"],
        chosen=chosen,
        images=(images[0], images[-1]),
        in_pool=in_pool,
        no_change=may_say_no_change(chosen) if no_change is None else no_change,
    )
