"""Filter images by bounds on their measures, by quotas of groups, and by near-duplicates."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairwright.schemas.filters import FiltersConfig
from pairwright.tasks.models import perceptual_hash
from pairwright.tasks.store.vectors import KEY_TYPE, Vectors

COLUMNS_AT_ONCE = 4096
"""Images compared with a shard's images at a time: 50 MB of products."""
CROWDED, COPY = "enough images of its group", "near-duplicate"
Refused = Iterator[tuple[str, str, str]]
"""Key, reason and detail of an image."""


def filter_images(
    images: Sequence[str], config: FiltersConfig, *, qualities: pa.Table, spaces: Mapping[str, Vectors]
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
                yield keys[at].decode(), f"{CROWDED} (filters.max_images_per_group={limit})", groups[at]
    if config.max_similarity < 1:
        names = table.column("name").take(np.flatnonzero(left)).to_pylist()
        yield from _near_duplicates(keys[left], own[left], names, spaces=spaces, bound=config.max_similarity)


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
    mine = [space.matrix[at[wanted]].astype(np.float32) for space, at in zip(used, rows, strict=True)]
    for start in range(0, int(wanted.max(initial=0)), COLUMNS_AT_ONCE):
        some = slice(start, start + COLUMNS_AT_ONCE)
        alike = np.arange(len(there))[some] < wanted[:, None]
        for space, at, vectors in zip(used, rows, mine, strict=True):
            alike &= vectors @ space.matrix[at[some]].astype(np.float32).T >= bound
        found = alike.any(axis=1)
        likest = there[alike.argmax(axis=1)[found] + start].tolist()
        for place, other in zip(there[wanted[found]].tolist(), likest, strict=True):
            yield bytes(keys[place]).decode(), f"{COPY} (filters.max_similarity={bound:g})", f"of {names[other]}"
        wanted, mine = wanted[~found], [vectors[~found] for vectors in mine]
