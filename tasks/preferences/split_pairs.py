"""Assign pairs to train, validation and test; no image and no group of images is in two splits.

Reads all ``PairRow`` at once, writes ``SplitRow``. Pairs that share an image or a group (a rendered
world, a video) are one connected component; a component's split is drawn from the hash of its
smallest image key and the seed, so that it does not depend on the rest of the collection. If the
sources name splits, a component keeps the one that they name; of several, the last of ``ORDER``
counts: nothing that shares an image with a published test is training data. A rule for one kind of
source (``per_source``) comes first.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairwright.schemas.arrow import schema_of
from pairwright.schemas.config import PreferencesConfig
from pairwright.schemas.rows import ImageRow, PairRow, SplitRow, make_key
from pairwright.tasks.store.stage import Stage, Uses

Strings = NDArray[np.str_]
Numbers = NDArray[np.int64]


def split_pairs(
    rows: Sequence[PairRow],
    config: PreferencesConfig,
    *,
    everything: pa.Table,
    images: pa.Table,
) -> Iterator[SplitRow]:
    """Yield one split for each pair of the shard.

    It is decided from ``first``, ``second`` and ``split`` of all pairs.
    """
    components = find_components(everything, images)
    rules = find_rules(images, components, config.split_of)
    published: Mapping[str, str] = {}
    if "published" in (config.split, *rules.values()):
        published = named_splits(everything, components)
    for pair in rows:
        component = components[pair.first]
        split = rules.get(component, config.split)
        if split == "published":
            split = published.get(component, "")
        if split not in ORDER:
            split = draw_split(component, config)
        key = make_key(pair.key, component, split)
        yield SplitRow(
            key=key,
            source_key=pair.key,
            subject=pair.key,
            component=component,
            split=split,
        )


def find_components(pairs: pa.Table, images: pa.Table) -> Mapping[str, str]:
    """Return, for every image of a pair, the smallest image key that it is connected to."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    endpoints = np.concatenate([_read_keys(pairs, "first"), _read_keys(pairs, "second")])
    keys = np.unique(endpoints)
    left, right, size = _find_edges(pairs, images, keys)
    weights = np.ones(len(left), np.int8)
    edges = coo_matrix((weights, (left, right)), shape=(size, size))
    _, labels = connected_components(edges, directed=False)
    # Keys rise: the first of a label is its smallest.
    _, smallest, ranks = np.unique(labels[: len(keys)], return_index=True, return_inverse=True)
    return dict(zip(keys.tolist(), keys[smallest][ranks].tolist(), strict=True))


def _find_edges(pairs: pa.Table, images: pa.Table, keys: Strings) -> tuple[Numbers, Numbers, int]:
    """Return the nodes that each edge joins, and the number of nodes.

    The nodes are the images of ``keys``, then the groups; an edge joins two images, or an image and
    its group. An image without a group is in the group of its own name, as are photographs that
    things were planted into.
    """
    first, second = _read_keys(pairs, "first"), _read_keys(pairs, "second")
    subjects, groups = _read_keys(images, "subject"), _read_keys(images, "group")
    groups = np.where(groups == "", subjects, groups)
    is_paired = np.isin(subjects, keys)
    names, group_ranks = np.unique(groups[is_paired], return_inverse=True)
    left = np.searchsorted(keys, np.concatenate([first, subjects[is_paired]]))
    right = np.concatenate([np.searchsorted(keys, second), len(keys) + group_ranks])
    return left, right, len(keys) + len(names)


def _read_keys(table: pa.Table, name: str) -> Strings:
    return table.column(name).to_numpy().astype(str)


def named_splits(pairs: pa.Table, components: Mapping[str, str]) -> dict[str, str]:
    """Return the splits of components that sources name; none where they name a single split."""
    firsts = pairs.column("first").to_pylist()
    splits = pairs.column("split").to_pylist()
    named = {
        (components[first], split) for first, split in zip(firsts, splits, strict=True) if split
    }
    if len({split for _, split in named}) < 2:
        return {}
    return dict(sorted(named, key=lambda item: ORDER.index(item[1])))


ORDER = ("train", "validation", "test")  # of several splits of a component, the last counts
RULES = ("drawn", "published", *ORDER)  # likewise of several rules


def find_rules(
    images: pa.Table, components: Mapping[str, str], split_of: Mapping[str, str]
) -> dict[str, str]:
    """Return the rule of each component with images of a kind of source that has one."""
    rules: dict[str, str] = {}
    if not split_of:
        return rules
    columns = (images.column(name).to_pylist() for name in ("subject", "source"))
    for image, kind in zip(*columns, strict=True):
        rule = split_of.get(kind, "")
        component = components.get(image, "")
        if rule and component:
            known = rules.get(component, rule)
            rules[component] = max(rule, known, key=RULES.index)
    return rules


def draw_split(component: str, config: PreferencesConfig) -> str:
    """Return the split of a component: a draw that depends on its name and the seed alone."""
    draw = int(make_key("split", config.seed, component), 16) / 16**32
    if draw < config.test_share:
        return "test"
    if draw < config.test_share + config.validation_share:
        return "validation"
    return "train"


PAIR_REST = tuple(
    name for name in schema_of(PairRow).names if name not in ("first", "second", "split")
)
IMAGE_REST = tuple(
    name for name in schema_of(ImageRow).names if name not in ("subject", "group", "source")
)

STAGE = Stage(
    name="splits",
    version=2,
    group="rejected",
    reads={"pairs": PairRow},
    writes=SplitRow,
    function=split_pairs,
    config=lambda profile: profile.splitting,
    uses=(
        Uses(table="pairs", row=PairRow, kind="table", without=PAIR_REST, name="everything"),
        Uses(table="images", row=ImageRow, kind="table", without=IMAGE_REST),
    ),
    rows_per_shard=100_000,
)
