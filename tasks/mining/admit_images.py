"""Admit images that have vectors, pass the filters, and are not in a benchmark's test images.

The vectors of each excluded set are an Arrow file, made by ``write_references``. An image is
refused if its perceptual hash differs from an excluded one's in only a few bits, or if the two are
similar enough in every other space; it is dropped with the excluded image that it matches. Without
excluded sets, no vector is read.

Active filters (bounds on measures, quotas of groups, near-duplicates) read the measures of all
images, and for near-duplicates also their vectors.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pairwright.schemas.arrow import concat_parts, no_rows, schema_of
from pairwright.schemas.config import ExcludeConfig
from pairwright.schemas.filters import FiltersConfig, MeasureBound
from pairwright.schemas.rows import (
    AdmittedRow,
    Dropped,
    EmbeddingRow,
    ImageRow,
    QualityRow,
    make_key,
)
from pairwright.tasks.mining.find_copies import ROUNDING
from pairwright.tasks.models import perceptual_hash
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import Build
from pairwright.tasks.store.snapshot import find_live, stream_live
from pairwright.tasks.store.stage import Planned, Stage, Uses
from pairwright.tasks.store.vectors import KEY_TYPE, Vectors, to_units

Flags = NDArray[np.bool_]
BLOCK = 128
"""Images compared with an excluded set at a time."""
REASON = "near-duplicate of an excluded image"
NO_VECTOR = "no vector"
COLUMNS_AT_ONCE = 4096
"""Images compared with a shard's images at a time: 50 MB of products."""
CROWDED = "enough images of its group"
COPY = "near-duplicate"
EMPTY = no_rows(schema_of(EmbeddingRow)).select(["subject", "embedder", "vector"])


class Refusal(NamedTuple):
    """Image that is left out."""

    key: str
    reason: str
    detail: str


class ExcludedVectors(NamedTuple):
    """Excluded set of R images."""

    names: list[str]
    spaces: dict[str, NDArray[np.float32]]
    """``(R, d)`` unit vectors by embedder, in the order of ``names``."""


def admit_images(
    rows: Sequence[ImageRow],
    config: ExcludeConfig,
    *,
    vectors: Mapping[str, tuple[EmbeddingRow, ...]],
    qualities: pa.Table | None = None,
    spaces: Mapping[str, Vectors] | None = None,
) -> Iterator[AdmittedRow | Dropped]:
    """Yield the admitted images, given their vectors, and ``qualities`` if filters are on."""
    images = sorted(image for image, embeddings in vectors.items() if embeddings)
    refusals: dict[str, Refusal] = {}
    if qualities is not None:
        filtered = filter_images(
            images,
            config.filters,
            qualities=qualities,
            spaces=spaces or {},
        )
        for refusal in filtered:
            refusals[refusal.key] = refusal
    for file in config.files:
        references = _read_references(file)
        for refusal in _refuse(images, vectors, references, config=config):
            refusals[refusal.key] = refusal
    for row in rows:
        refusal = refusals.get(row.key)
        if refusal:
            yield Dropped(
                source_key=row.key,
                reason=refusal.reason,
                detail=refusal.detail,
            )
        elif not vectors.get(row.key):
            yield Dropped(source_key=row.key, reason=NO_VECTOR)
        else:
            yield AdmittedRow(
                key=row.key,
                source_key=row.key,
                subject=row.key,
            )


def _refuse(
    images: Sequence[str],
    vectors: Mapping[str, tuple[EmbeddingRow, ...]],
    references: ExcludedVectors,
    *,
    config: ExcludeConfig,
) -> Iterator[Refusal]:
    """Yield the images that are near-duplicates of an excluded set's."""
    if not references.names:
        return
    for start in range(0, len(images), BLOCK):
        block = images[start : start + BLOCK]
        cosines = _find_cosines(block, vectors, references)
        hash_cosines = cosines.pop(perceptual_hash.NAME)
        distances = (1 - hash_cosines) * perceptual_hash.BITS / 2
        bits = np.rint(distances).astype(np.int64)
        lowest = np.min(list(cosines.values()), axis=0)
        for image, differing, similarities in zip(block, bits, lowest, strict=True):
            detail = _compare(differing, similarities, references.names, config)
            if detail:
                yield Refusal(image, REASON, detail)


def _find_cosines(
    images: Sequence[str],
    vectors: Mapping[str, tuple[EmbeddingRow, ...]],
    references: ExcludedVectors,
) -> dict[str, NDArray[np.float32]]:
    """Return the cosines ``(images, R)`` of images with an excluded set's, by embedder."""
    embeddings: list[EmbeddingRow] = []
    for image in images:
        embeddings.extend(vectors[image])
    cosines: dict[str, NDArray[np.float32]] = {}
    for name, matrix in references.spaces.items():
        space = [row.vector for row in embeddings if row.embedder == name]
        queries = np.array(space, dtype=np.float32)
        cosines[name] = queries @ matrix.T
    return cosines


def _compare(
    differing: NDArray[np.int64],
    similarities: NDArray[np.float32],
    names: Sequence[str],
    config: ExcludeConfig,
) -> str:
    """Return which excluded image an image matches, and why; empty: none."""
    nearest = int(differing.argmin())
    bits = differing[nearest]
    if bits <= config.max_hash_distance:
        return f"{names[nearest]}: {bits} bits of the perceptual hash differ"
    nearest = int(similarities.argmax())
    similarity = similarities[nearest]
    if similarity >= config.min_similarity:
        return f"{names[nearest]}: similarity {similarity:.4f} in every space"
    return ""


def filter_images(
    images: Sequence[str],
    config: FiltersConfig,
    *,
    qualities: pa.Table,
    spaces: Mapping[str, Vectors],
) -> Iterator[Refusal]:
    """Yield the images left out; ``qualities`` and ``spaces`` are those of all images."""
    table = qualities.sort_by("subject")
    keys = np.array(table.column("subject").to_pylist(), dtype=KEY_TYPE)
    shard_keys = np.array(images, dtype=KEY_TYPE)
    measured = MeasuredImages(
        table=table,
        keys=keys,
        in_shard=np.isin(keys, shard_keys),
        passing=np.ones(len(keys), dtype=bool),
    )
    for check, bound in config.checks:
        yield from measured.check_bound(check, bound)
    if config.max_images_per_group:
        yield from measured.limit_groups(config.max_images_per_group)
    if config.max_similarity < 1:
        yield from measured.find_duplicates(spaces, config.max_similarity)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredImages:
    """Images with measures, sorted by key; each filter takes those that fail it out."""

    table: pa.Table
    """Measures of all images."""
    keys: NDArray[np.bytes_]
    in_shard: Flags
    """Whether an image is in the shard, whose refusals are yielded."""
    passing: Flags
    """Whether an image has passed all filters so far; changed in place."""

    def check_bound(self, check: MeasureBound, bound: float) -> Iterator[Refusal]:
        """Yield the images with a measure beyond its bound."""
        values = self.table.column(check.column).to_numpy()
        is_outside = values < bound if check.is_least else values > bound
        reason = f"{check.reason} (filters.{check.field}={bound:g})"
        for position in self._refuse(is_outside):
            detail = f"{check.column} {values[position]:.4g}"
            yield Refusal(self._key(position), reason, detail)

    def limit_groups(self, limit: int) -> Iterator[Refusal]:
        """Yield the images after the first ``limit`` of their groups."""
        groups = self.table.column("group").to_pylist()
        crowded = _find_crowded(groups, self.passing, limit)
        reason = f"{CROWDED} (filters.max_images_per_group={limit})"
        for position in self._refuse(crowded):
            yield Refusal(self._key(position), reason, groups[position])

    def find_duplicates(
        self,
        spaces: Mapping[str, Vectors],
        bound: float,
    ) -> Iterator[Refusal]:
        """Yield the near-duplicates."""
        positions = np.flatnonzero(self.passing)
        names = self.table.column("name").take(positions).to_pylist()
        search = DuplicateSearch(self.keys[positions], spaces, bound)
        yield from search.search_shard(self.in_shard[positions], names)

    def _refuse(self, failing: Flags) -> list[int]:
        """Take images out; return the positions of those in the shard that had passed so far."""
        refused = self.passing & failing
        self.passing[refused] = False
        return np.flatnonzero(refused & self.in_shard).tolist()

    def _key(self, position: int) -> str:
        return bytes(self.keys[position]).decode()


def _find_crowded(
    groups: Sequence[str],
    passing: Flags,
    limit: int,
) -> Flags:
    """Return which passing images come after the first ``limit`` of their groups."""
    counts: Counter[str] = Counter()
    crowded = np.zeros(len(passing), dtype=bool)
    for position in np.flatnonzero(passing).tolist():
        group = groups[position]
        counts[group] += 1
        crowded[position] = counts[group] > limit
    return crowded


class DuplicateSearch:
    """Search for images that are too similar, in every space, to one with a lower key."""

    def __init__(
        self,
        keys: NDArray[np.bytes_],
        spaces: Mapping[str, Vectors],
        bound: float,
    ) -> None:
        self._bound = bound
        self._least = min(bound, 1 - ROUNDING)
        self._keys = keys
        used = [space for name, space in spaces.items() if name != perceptual_hash.NAME]
        is_in_space = [np.isin(keys, space.keys) for space in used]
        embedded = np.logical_and.reduce(is_in_space)
        self._positions = np.flatnonzero(embedded)
        """Positions of the embedded images among the keys; all others here are among these."""
        embedded_keys = keys[self._positions]
        self._matrices = [space.matrix for space in used]
        self._rows = [np.searchsorted(space.keys, embedded_keys) for space in used]

    def search_shard(self, in_shard: Flags, names: Sequence[str]) -> Iterator[Refusal]:
        """Yield the duplicates in the shard."""
        reason = f"{COPY} (filters.max_similarity={self._bound:g})"
        pending = np.flatnonzero(in_shard[self._positions])
        queries = self._vectors(pending)
        for start in range(0, int(pending.max(initial=0)), COLUMNS_AT_ONCE):
            is_similar = self._compare(queries, pending, start)
            is_copy = is_similar.any(axis=1)
            copies = self._positions[pending[is_copy]]
            first_similar = is_similar.argmax(axis=1)
            originals = self._positions[first_similar[is_copy] + start]
            for copy, original in zip(copies.tolist(), originals.tolist(), strict=True):
                yield Refusal(self._key(copy), reason, f"of {names[original]}")
            pending = pending[~is_copy]
            queries = [vectors[~is_copy] for vectors in queries]

    def _key(self, position: int) -> str:
        return bytes(self._keys[position]).decode()

    def _vectors(self, images: NDArray[np.int64] | slice) -> list[NDArray[np.float32]]:
        """Return the vectors of images in each space."""
        vectors: list[NDArray[np.float32]] = []
        for matrix, rows in zip(self._matrices, self._rows, strict=True):
            units = to_units(matrix[rows[images]])
            vectors.append(units.astype(np.float32))
        return vectors

    def _compare(
        self,
        queries: list[NDArray[np.float32]],
        pending: NDArray[np.int64],
        start: int,
    ) -> Flags:
        """Return which images of the block from ``start`` on each pending one is too similar to."""
        block = slice(start, start + COLUMNS_AT_ONCE)
        columns = np.arange(len(self._positions))[block]
        is_similar = columns < pending[:, None]
        for vectors, others in zip(queries, self._vectors(block), strict=True):
            is_similar &= vectors @ others.T >= self._least
        return is_similar


def write_references(build: Build, embeddings: Planned, images: Planned) -> str:
    """Write the excluded set that a finished build embedded; return the file's name.

    The name is a hash of the content. It stays when images are removed on request, so that nothing
    is built again.
    """
    live = find_live(build, images, ImageRow, without=("image", "graph"))
    names = {row.key: row.name for row in live}
    tables = [EMPTY, *stream_live(build, embeddings, EMPTY.column_names)]
    order = [("embedder", "ascending"), ("subject", "ascending")]
    table = concat_parts(tables).sort_by(order)
    subjects = table.column("subject").to_pylist()
    column = pa.array([names[key] for key in subjects], pa.string())
    named = table.append_column("name", column).combine_chunks()
    removed = build.ledger.removed_keys
    for name in build.folder.names("", ".arrow") if removed else ():
        erased = _erase_images(_read_table(build.folder, name), removed)
        if erased.filter(pc.field("name") != "").combine_chunks().equals(named):
            build.folder.write(name, _to_arrow(erased))
            return name
    data = _to_arrow(named)
    name = f"references-{make_key(data)[:16]}.arrow"
    build.folder.write(name, data)
    return name


def erase_references(folder: Folder, removed: Collection[str]) -> None:
    """Erase removed images from the excluded sets in a folder."""
    for name in folder.names("", ".arrow"):
        erased = _erase_images(_read_table(folder, name), removed)
        folder.write(name, _to_arrow(erased))


def _erase_images(table: pa.Table, removed: Collection[str]) -> pa.Table:
    """Return an excluded set with neither name nor vector of some images."""
    is_removed = np.isin(table.column("subject").to_pylist(), list(removed))
    erased: dict[str, pa.Array] = {}
    for name in ("name", "vector"):
        field = table.schema.field(name)
        values = table.column(name).to_pylist()
        for position in np.flatnonzero(is_removed).tolist():
            values[position] = "" if name == "name" else [0] * len(values[position])
        erased[name] = pa.array(values, field.type)
    for name, column in erased.items():
        index = table.schema.get_field_index(name)
        table = table.set_column(index, table.schema.field(index), column)
    return table


def _read_table(folder: Folder, name: str) -> pa.Table:
    return pa.ipc.open_file(pa.BufferReader(folder.read(name))).read_all()


def _to_arrow(table: pa.Table) -> bytes:
    """Return the bytes of an Arrow file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@lru_cache(maxsize=8)
def _read_references(path: str) -> ExcludedVectors:
    """Return an excluded set; every image has every embedder, in the same order."""
    folder, _, file = path.rpartition("/")
    table = _read_table(Folder(folder), file).filter(pc.field("name") != "")
    embedders = table.column("embedder").to_numpy()
    spaces: dict[str, NDArray[np.float32]] = {}
    names: list[str] = []
    for embedder in np.unique(embedders).tolist():
        rows = table.filter(pa.array(embedders == embedder))
        column = rows.column("vector").combine_chunks()
        vectors = column.flatten().to_numpy().astype(np.float32)
        spaces[embedder] = vectors.reshape(len(rows), -1)
        names = rows.column("name").to_pylist()
    return ExcludedVectors(names, spaces)


def _excludes(config: ExcludeConfig) -> bool:
    return bool(config.sources)


def _excludes_nothing(config: ExcludeConfig) -> bool:
    return not config.sources


def _leaves_out_copies(config: ExcludeConfig) -> bool:
    return config.filters.max_similarity < 1


VECTORS = Uses(
    table="embeddings",
    row=EmbeddingRow,
    kind="many",
    counts=True,
    name="vectors",
    when=_excludes,
)
# without excluded sets the stage only checks which images have vectors
EMBEDDED = replace(VECTORS, without=("vector", "norm"), when=_excludes_nothing)
QUALITIES = Uses(
    table="qualities",
    row=QualityRow,
    kind="table",
    without=("key", "source_key"),
    when=attrgetter("filters.is_on"),
)
SPACES = Uses(
    table="embeddings", row=EmbeddingRow, kind="vectors", name="spaces", when=_leaves_out_copies
)
STAGE = Stage(
    name="admitted",
    group="mining",
    reads={"images": ImageRow},
    writes=AdmittedRow,
    function=admit_images,
    config=lambda profile: profile.exclude.fill(filters=profile.filters.filtering),
    without=("image", "graph", "captions"),
    uses=(VECTORS, EMBEDDED, QUALITIES, SPACES),
    rows_per_shard=3000,
)
