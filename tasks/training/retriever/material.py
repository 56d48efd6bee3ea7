"""Material of a run's retriever: frozen with the rows, and opened by every process.

Reads the resolved tables ``preferences``, ``differences`` (texts that state no change),
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
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.feather import read_table, write_feather

from pairwright.schemas.errors import ConfigError, StoreError
from pairwright.schemas.plain_text import plain_text
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.store.open_tables import Build
from pairwright.tasks.store.snapshot import live_index, stream_live
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.store.vectors import Vectors, add_vectors, open_vectors, write_vectors
from pairwright.tasks.texts.common_texts import find_common, may_say_no_change
from pairwright.tasks.training.embed_chosen_texts import embed_chosen_texts, text_key
from pairwright.tasks.training.freeze_rows import FrozenRows
from pairwright.tasks.training.retriever.candidate_pool import (
    Places,
    Pool,
    PoolEntry,
    make_pool,
)

CLIP, ENTRIES = "clip.json", "entries.arrow"
# Embedder for finding copies; photographs of one scene have nearly the same vector.
COPIES = "perceptual-hash"
Tables = Mapping[str, Planned]  # a dataset's resolved tables by name
Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Features:
    """Vectors of rows and texts, looked up by batch."""

    images: tuple[NDArray[np.float16], ...]  # per embedder ``(images, d)`` unit vectors
    of_images: Places  # (n, 2) index into ``images`` of each row's first and last image
    texts: NDArray[np.float16]  # ``(vectors, d)`` unit vectors
    of_texts: Places  # (T,) index into ``texts`` of each text of the pool
    made_by: str  # names of the embedders, which trained heads depend on

    @property
    def vector_lengths(self) -> tuple[int, int]:
        """Return the lengths of an image's and of a text's vector."""
        return sum(matrix.shape[1] for matrix in self.images), self.texts.shape[1]

    def pair_vectors(self, places: Places) -> Floats:
        """Return ``(B, 2, d)`` unit vectors of both images; zeros for an image without features."""
        rows = self.of_images[places]
        joined = np.concatenate([matrix[rows] for matrix in self.images], axis=-1)
        return joined.astype(np.float32) / np.sqrt(np.float32(len(self.images)))

    def text_vectors(self, ids: Places) -> Floats:
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
    embedders = {name: vectors for name, vectors in sorted(images.items()) if name != COPIES}
    if not embedders or not texts:
        missing = "texts" if embedders else "images"
        raise ConfigError(
            f"adpo.encoder: heads: the dataset has no vectors of its {missing}. Set "
            "adpo.encoder=clip4idc, or build the dataset with the table embeddings"
        )
    text_embedder, text_vectors = min(texts.items())
    image_keys = list(chain.from_iterable(entry.images for entry in entries))
    try:
        image_rows = [vectors.rows_of(image_keys) for vectors in embedders.values()]
        of_texts = text_vectors.rows_of(map(text_key, pool.texts))
    except KeyError as error:
        raise ConfigError(
            "adpo.encoder: heads: a vector is missing: run `pairwright resume`"
        ) from error
    text_size = text_vectors.matrix.shape[1]
    return Features(
        images=tuple(vectors.matrix for vectors in embedders.values()),
        of_images=image_rows[0].reshape(-1, 2),
        texts=text_vectors.matrix,
        of_texts=of_texts,
        made_by=f"{'+'.join(embedders)} | {text_embedder} {text_size}",
    )


@dataclass(frozen=True, kw_only=True)
class Material:
    """Everything that a retriever reads."""

    entries: tuple[PoolEntry, ...]  # training and held-out rows
    pool: Pool
    places: Mapping[str, int]  # position of each row, by key
    features: Features | None  # ``None``: no vectors


def freeze_material(
    build: Build,
    tables: Tables,
    folder: Path,
    *,
    frozen: Sequence[FrozenRows],
    table: str,
    own_makers: Sequence[str] = (),
) -> None:
    """Write a retriever's material; the texts of the first ``frozen`` split are the pool.

    ``own_makers``: makers whose rejected texts of a row are its candidates, too.
    """
    rejected = _read_own(frozen[0], own_makers) if own_makers else []
    edited = {row.key: row for rows in frozen for row in rows.edited().values()}
    entries = list(
        read_entries(
            build,
            tables,
            frozen=frozen,
            edited=edited,
            table=table,
            rejected=rejected,
        )
    )
    write_entries(folder, entries)
    for name, subfolder in (("embeddings", "images"), ("text_vectors", "texts")):
        if name in tables and not (folder / subfolder).exists():
            staged = folder / f".{subfolder}"
            shutil.rmtree(staged, ignore_errors=True)
            write_vectors(staged, live_index(build, tables[name]))
            if subfolder == "texts":
                added = [*edited.values(), *rejected]
                add_vectors(staged, embed_chosen_texts(added, tables[name].config))
            staged.rename(folder / subfolder)


def write_entries(folder: Path, entries: Sequence[PoolEntry]) -> None:
    """Write the rows' entries."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(list(map(asdict, entries)))
    write_feather(table, str(folder / ENTRIES), compression="uncompressed")


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
        row["rejected"] = tuple(row.get("rejected", ()))
    entries = tuple(PoolEntry(**row) for row in rows)
    pool = make_pool(entries)
    images = _open_vectors(folder / "images")
    texts = _open_vectors(folder / "texts")
    features = None
    if images and texts:
        features = map_features(entries, pool, images=images, texts=texts)
    return Material(
        entries=entries,
        pool=pool,
        places={entry.key: position for position, entry in enumerate(entries)},
        features=features,
    )


def _open_vectors(folder: Path) -> Mapping[str, Vectors]:
    return open_vectors(folder) if folder.exists() else {}


def read_entries(
    build: Build,
    tables: Tables,
    *,
    frozen: Sequence[FrozenRows],
    edited: Mapping[str, PreferenceRow],
    table: str,
    rejected: Sequence[PreferenceRow] = (),
) -> Iterator[PoolEntry]:
    """Yield the entries of a run's rows, in the order of the table.

    ``rejected``: rows with one of their rejected texts in place of the chosen one.
    """
    own_texts: dict[str, list[str]] = {}
    for row in rejected:
        own_texts.setdefault(row.key, []).append(row.chosen)
    train = frozen[0].split
    splits: dict[str, str] = {}
    for rows in frozen:
        splits |= dict.fromkeys(rows.keys(), rows.split)
    no_change = _read_no_change(build, tables)
    # Texts of other splits must not become negatives, unless they are common sentences.
    excluded: set[str] = set()
    located: list[tuple[str, str, str]] = []
    for row in _stream_edited(build, tables[table], edited):
        located.append((row["split"], row["subject"], row["chosen"]))
        if row["split"] != train:
            excluded.add(plain_text(row["chosen"]))
    excluded -= find_common(located, train)
    for row in _stream_edited(build, tables[table], edited):
        if row["key"] not in splits:
            continue
        is_excluded = plain_text(row["chosen"]) in excluded
        in_pool = splits[row["key"]] == train and not is_excluded
        text = row["description"] or row["chosen"]
        stated = no_change.get((row["subject"], text))
        entry = make_entry(row, in_pool=in_pool, no_change=stated)
        texts = own_texts.get(row["key"], ())
        allowed = tuple(text for text in texts if plain_text(text) not in excluded)
        yield replace(entry, rejected=allowed)


def _read_own(rows: FrozenRows, makers: Sequence[str]) -> list[PreferenceRow]:
    """Return each rejected text of some makers as the chosen text of its row."""
    rejected: list[PreferenceRow] = []
    for row in rows.read_texts():
        texts = [(row.rejected_maker, row.rejected)]
        texts += [(negative.maker, negative.text) for negative in row.negatives]
        for maker, text in texts:
            if maker in makers and text.strip():
                rejected.append(replace(row, chosen=text))
    return rejected


def _stream_edited(
    build: Build, planned: Planned, edited: Mapping[str, PreferenceRow]
) -> Iterator[dict[str, Any]]:
    """Yield a table's preferences with the edits of their texts."""
    columns = ("key", "subject", "split", "chosen", "description", "image_keys")
    for row in _stream(build, planned, *columns):
        edit = edited.get(row["key"])
        if edit:
            row |= {"chosen": edit.chosen, "description": edit.description}
        yield row


def _read_no_change(build: Build, tables: Tables) -> dict[tuple[str, str], bool]:
    """Return for each subject and text of ``differences`` whether it states no change."""
    if "differences" not in tables:
        return {}
    rows = _stream(build, tables["differences"], "subject", "text", "no_change")
    return {(row["subject"], row["text"]): bool(row["no_change"]) for row in rows}


def _stream(
    build: Build,
    planned: Planned,
    *columns: str,
) -> Iterator[dict[str, Any]]:
    for table in stream_live(build, planned, list(columns)):
        yield from table.to_pylist()


def make_entry(
    row: Mapping[str, Any],
    *,
    in_pool: bool,
    no_change: bool | None,
) -> PoolEntry:
    """Return a preference's entry.

    ``no_change``: whether its text states no change; ``None``: that is read from the text.
    """
    chosen = row["chosen"]
    images = row["image_keys"]
    if no_change is None:
        no_change = may_say_no_change(chosen)
    return PoolEntry(
        key=row["key"],
        pair=row["subject"],
        chosen=chosen,
        images=(images[0], images[-1]),
        in_pool=in_pool,
        no_change=no_change,
    )
