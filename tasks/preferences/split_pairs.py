"""Assign pairs to train, validation and test so that no image, and no group of images, is in two splits.

Reads all ``PairRow`` at once, writes ``SplitRow``. Pairs that share an image or a group (a rendered
world, a video) are one connected component; a component's split is drawn from the hash of its
smallest image key and the seed, so that it does not depend on the rest of the collection. If the
sources name splits, a component keeps its own; one of several splits is held out: nothing that
shares an image with a published test is training data.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from pairwright.schemas.arrow import schema_of
from pairwright.schemas.config import PreferencesConfig
from pairwright.schemas.rows import ImageRow, PairRow, SplitRow, make_key
from pairwright.tasks.store.stage import Stage, Uses


def split_pairs(
    rows: Sequence[PairRow], config: PreferencesConfig, *, everything: pa.Table, images: pa.Table
) -> Iterator[SplitRow]:
    """Yield one split for each pair of the shard, decided from ``first``, ``second`` and ``split`` of all pairs."""
    components = find_components(everything, images)
    published = find_published(everything, components) if config.split == "published" else {}
    for pair in rows:
        component = components[pair.first]
        split = published.get(component) or draw_split(component, config)
        key = make_key(pair.key, component, split)
        yield SplitRow(
            key=key, source_key=pair.key, subject=pair.key, component=component, split=split
        )


def find_components(pairs: pa.Table, images: pa.Table) -> Mapping[str, str]:
    """Return, for every image of a pair, the smallest image key that it is connected to."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    first, second = (pairs.column(name).to_numpy().astype(str) for name in ("first", "second"))
    keys = np.unique(np.concatenate([first, second]))
    subjects, groups = (images.column(name).to_numpy().astype(str) for name in ("subject", "group"))
    grouped = (groups != "") & np.isin(subjects, keys)
    names = np.unique(groups[grouped])
    size = len(keys) + len(names)
    left = np.concatenate([np.searchsorted(keys, first), np.searchsorted(keys, subjects[grouped])])
    right = np.concatenate(
        [np.searchsorted(keys, second), len(keys) + np.searchsorted(names, groups[grouped])]
    )
    links = coo_matrix((np.ones(len(left), np.int8), (left, right)), shape=(size, size))
    _, labels = connected_components(links, directed=False)
    # Keys rise: the first of a label is its smallest.
    _, smallest, ranks = np.unique(labels[: len(keys)], return_index=True, return_inverse=True)
    return dict(zip(keys.tolist(), keys[smallest][ranks].tolist(), strict=True))


def find_published(pairs: pa.Table, components: Mapping[str, str]) -> dict[str, str]:
    """Return the components that sources put into a split; none where they name a single one."""
    named = zip(pairs.column("first").to_pylist(), pairs.column("split").to_pylist(), strict=True)
    found = {(components[first], split) for first, split in named if split}
    if len({split for _, split in found}) < 2:
        return {}
    return dict(sorted(found, key=lambda one: ORDER.index(one[1])))


ORDER = ("train", "validation", "test")  # of several splits of a component, the last counts


def draw_split(component: str, config: PreferencesConfig) -> str:
    """Return the split of a component: a draw that depends on its name and the seed alone."""
    draw = int(make_key("split", config.seed, component), 16) / 16**32
    if draw < config.test_share:
        return "test"
    return "validation" if draw < config.test_share + config.validation_share else "train"


PAIR_REST = tuple(
    name for name in schema_of(PairRow).names if name not in ("first", "second", "split")
)
IMAGE_REST = tuple(name for name in schema_of(ImageRow).names if name not in ("subject", "group"))

STAGE = Stage(
    name="splits",
    version=2,
    group="rejected",
    reads={"pairs": PairRow},
    writes=SplitRow,
    function=split_pairs,
    config=lambda profile: profile.complete(profile.preferences),
    whole=True,
    uses=(
        Uses(table="pairs", row=PairRow, kind="table", without=PAIR_REST, name="everything"),
        Uses(table="images", row=ImageRow, kind="table", without=IMAGE_REST),
    ),
    rows_per_shard=100_000,
)
