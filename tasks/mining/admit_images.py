"""Admit the images that have vectors, pass the filters, and are no near-duplicates of a benchmark's test images.

The vectors of each excluded set are an Arrow file, made by ``write_references``. An image is
refused if its perceptual hash differs from an excluded one's in only a few bits, or if the two are
similar enough in every other space; it is dropped with the excluded image that it matches. Without
excluded sets, no vector is read.

Active filters (bounds on measures, quotas of groups, near-duplicates) read the measures of all
images, and for near-duplicates also their vectors.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairwright.schemas.arrow import no_rows, schema_of
from pairwright.schemas.config import ExcludeConfig
from pairwright.schemas.filters import FiltersConfig
from pairwright.schemas.rows import (
    AdmittedRow,
    Dropped,
    EmbeddingRow,
    ImageRow,
    QualityRow,
    make_key,
)
from pairwright.tasks.models import perceptual_hash
from pairwright.tasks.store.build import Build
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import find_live, stream_live
from pairwright.tasks.store.stage import Planned, Stage, Uses
from pairwright.tasks.store.vectors import KEY_TYPE, Vectors

BLOCK = 128
"""Images compared with an excluded set at a time."""
REASON, NO_VECTOR = "near-duplicate of an excluded image", "no vector"
COLUMNS_AT_ONCE = 4096
"""Images compared with a shard's images at a time: 50 MB of products."""
CROWDED, COPY = "enough images of its group", "near-duplicate"
Refused = Iterator[tuple[str, str, str]]
"""Key, reason and detail of an image."""
EMPTY = no_rows(schema_of(EmbeddingRow)).select(["subject", "embedder", "vector"])


def admit_images(
    rows: Sequence[ImageRow],
    config: ExcludeConfig,
    *,
    vectors: Mapping[str, tuple[EmbeddingRow, ...]],
    qualities: pa.Table | None = None,
    spaces: Mapping[str, Vectors] | None = None,
) -> Iterator[AdmittedRow | Dropped]:
    """Yield the admitted images of the rows, given their vectors, and ``qualities`` if filters are on."""
    images = sorted(image for image, own in vectors.items() if own)
    refused: dict[str, tuple[str, str]] = {}
    if qualities is not None:
        found = filter_images(images, config.filters, qualities=qualities, spaces=spaces or {})
        refused = {image: (reason, detail) for image, reason, detail in found}
    for place in config.files:
        found = _refuse(images, vectors, *_read_references(place), config=config)
        refused |= {image: (REASON, detail) for image, detail in found}
    for row in rows:
        if row.key in refused:
            reason, detail = refused[row.key]
            yield Dropped(source_key=row.key, reason=reason, detail=detail)
        elif not vectors.get(row.key):
            yield Dropped(source_key=row.key, reason=NO_VECTOR)
        else:
            yield AdmittedRow(key=row.key, source_key=row.key, subject=row.key)


def _refuse(
    images: Sequence[str],
    vectors: Mapping[str, tuple[EmbeddingRow, ...]],
    names: Sequence[str],
    spaces: Mapping[str, NDArray[np.float32]],
    *,
    config: ExcludeConfig,
) -> Iterator[tuple[str, str]]:
    """Yield the keys of refused images, with the reason."""
    for start in range(0, len(images) if names else 0, BLOCK):
        block = images[start : start + BLOCK]
        cosines: dict[str, NDArray[np.float32]] = {}
        for name, matrix in spaces.items():
            own = [row.vector for image in block for row in vectors[image] if row.embedder == name]
            cosines[name] = np.array(own, dtype=np.float32) @ matrix.T
        bits = np.rint((1 - cosines.pop(perceptual_hash.NAME)) * perceptual_hash.BITS / 2).astype(
            np.int64
        )
        similar = np.min(list(cosines.values()), axis=0)
        for image, differing, likeness in zip(block, bits, similar, strict=True):
            nearest, likest = int(differing.argmin()), int(likeness.argmax())
            if differing[nearest] <= config.max_hash_distance:
                yield (
                    image,
                    f"{names[nearest]}: {differing[nearest]} bits of the perceptual hash differ",
                )
            elif likeness[likest] >= config.min_similarity:
                yield image, f"{names[likest]}: similarity {likeness[likest]:.4f} in every space"


def filter_images(
    images: Sequence[str],
    config: FiltersConfig,
    *,
    qualities: pa.Table,
    spaces: Mapping[str, Vectors],
) -> Refused:
    """Yield the images that are left out; ``qualities`` and ``spaces`` are those of all images."""
    table = qualities.sort_by("subject")
    keys = np.array(table.column("subject").to_pylist(), dtype=KEY_TYPE)
    own = np.isin(keys, np.array(images, dtype=KEY_TYPE))
    left = np.ones(len(keys), dtype=bool)
    for check, bound in config.checks:
        values = table.column(check.column).to_numpy()
        broken = left & (values < bound if check.is_least else values > bound)
        left &= ~broken
        reason = f"{check.reason} (filters.{check.field}={bound:g})"
        for at in np.flatnonzero(broken & own).tolist():
            yield keys[at].decode(), reason, f"{check.column} {values[at]:.4g}"
    if limit := config.max_images_per_group:
        count: Counter[str] = Counter()
        groups = table.column("group").to_pylist()
        for at in np.flatnonzero(left).tolist():
            count[groups[at]] += 1
            left[at] = count[groups[at]] <= limit
            if own[at] and not left[at]:
                yield (
                    keys[at].decode(),
                    f"{CROWDED} (filters.max_images_per_group={limit})",
                    groups[at],
                )
    if config.max_similarity < 1:
        names = table.column("name").take(np.flatnonzero(left)).to_pylist()
        yield from _near_duplicates(
            keys[left], own[left], names, spaces=spaces, bound=config.max_similarity
        )


def _near_duplicates(
    keys: NDArray[np.bytes_],
    own: NDArray[np.bool_],
    names: Sequence[str],
    *,
    spaces: Mapping[str, Vectors],
    bound: float,
) -> Refused:
    """Yield those of the ``own`` images that are too similar, in every space, to an image with a lower key."""
    used = [space for name, space in spaces.items() if name != perceptual_hash.NAME]
    there = np.flatnonzero(np.logical_and.reduce([np.isin(keys, space.keys) for space in used]))
    rows = [np.searchsorted(space.keys, keys[there]) for space in used]
    wanted = np.flatnonzero(own[there])
    mine = [
        space.matrix[at[wanted]].astype(np.float32) for space, at in zip(used, rows, strict=True)
    ]
    for start in range(0, int(wanted.max(initial=0)), COLUMNS_AT_ONCE):
        some = slice(start, start + COLUMNS_AT_ONCE)
        alike = np.arange(len(there))[some] < wanted[:, None]
        for space, at, vectors in zip(used, rows, mine, strict=True):
            alike &= vectors @ space.matrix[at[some]].astype(np.float32).T >= bound
        found = alike.any(axis=1)
        likest = there[alike.argmax(axis=1)[found] + start].tolist()
        for place, other in zip(there[wanted[found]].tolist(), likest, strict=True):
            yield (
                bytes(keys[place]).decode(),
                f"{COPY} (filters.max_similarity={bound:g})",
                f"of {names[other]}",
            )
        wanted, mine = wanted[~found], [vectors[~found] for vectors in mine]


def write_references(build: Build, embeddings: Planned, images: Planned) -> str:
    """Write the excluded set that a settled build has embedded; return the file's name, a hash of its content."""
    names = {
        row.key: row.name for row in find_live(build, images, ImageRow, without=("image", "graph"))
    }
    tables = [EMPTY, *stream_live(build, embeddings, EMPTY.column_names)]
    table = pa.concat_tables(tables).sort_by([("embedder", "ascending"), ("subject", "ascending")])
    column = pa.array([names[key] for key in table.column("subject").to_pylist()], pa.string())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema.append(pa.field("name", pa.string()))) as writer:
        writer.write_table(table.append_column("name", column).combine_chunks())
    data = sink.getvalue().to_pybytes()
    name = f"references-{make_key(data)[:16]}.arrow"
    build.folder.write(name, data)
    return name


@lru_cache(maxsize=8)
def _read_references(place: str) -> tuple[list[str], dict[str, NDArray[np.float32]]]:
    """Return the readable names of the R images of an excluded set, and their (R, d) unit vectors by embedder."""
    folder, _, name = place.rpartition("/")
    table = pa.ipc.open_file(pa.BufferReader(Folder(folder).read(name))).read_all()
    embedders = table.column("embedder").to_numpy()
    spaces: dict[str, NDArray[np.float32]] = {}
    names: list[str] = []
    for embedder in np.unique(embedders).tolist():
        chosen = table.filter(pa.array(embedders == embedder))
        column = chosen.column("vector").combine_chunks()
        spaces[embedder] = column.flatten().to_numpy().astype(np.float32).reshape(len(chosen), -1)
        names = chosen.column(
            "name"
        ).to_pylist()  # every image has every embedder, in the same order
    return names, spaces


def fit_stage(stage: Stage, config: ExcludeConfig) -> Stage:
    """Return the stage for a configuration: without excluded sets it only checks which images have vectors."""
    vectors = VECTORS if config.sources else replace(VECTORS, without=("vector", "norm"))
    on = config.filters.is_on
    spaces = (SPACES,) if config.filters.max_similarity < 1 else ()
    return replace(stage, uses=(vectors, *((QUALITIES,) if on else ()), *spaces), whole=on)


VECTORS = Uses(table="embeddings", row=EmbeddingRow, kind="many", counts=True, name="vectors")
QUALITIES = Uses(table="qualities", row=QualityRow, kind="table", without=("key", "source_key"))
SPACES = Uses(table="embeddings", row=EmbeddingRow, kind="vectors", name="spaces")
STAGE = Stage(
    name="admitted",
    group="mining",
    reads={"images": ImageRow},
    writes=AdmittedRow,
    function=admit_images,
    config=lambda profile: profile.exclude.fill(filters=profile.filters.filtering),
    without=("image", "graph", "captions"),
    uses=(VECTORS, QUALITIES, SPACES),
    fit=fit_stage,
    rows_per_shard=3000,
)
