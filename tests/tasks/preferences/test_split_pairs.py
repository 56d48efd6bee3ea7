"""Splits: components by an independent walk, no image in two splits, shares, stability."""

from collections import defaultdict

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.config import PreferencesConfig
from pairwright.schemas.rows import make_key
from pairwright.tasks.preferences.split_pairs import draw_split, find_components, split_pairs
from tests.fixtures.graphs import pair_row

KEYS = [make_key("image", number) for number in range(30)]
EDGES = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(KEYS)).filter(lambda e: e[0] != e[1]),
    min_size=1,
)
DEFAULT = PreferencesConfig()
GROUPS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["", "kitchen", "street"]))


def tables(edges, groups=None, splits=None, kinds=None):
    """Return the tables of pairs, with the splits that their source names, and of images."""
    groups = groups or dict.fromkeys(kinds or (), "")
    first, second = ([edge[side] for edge in edges] for side in (0, 1))
    pairs = {"first": first, "second": second, "split": splits or [""] * len(edges)}
    images = {
        "subject": list(groups),
        "group": list(groups.values()),
        "source": [(kinds or {}).get(image, "folder") for image in groups],
    }
    return tuple(
        pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
        for columns in (pairs, images)
    )


def split(edges, config=DEFAULT, groups=None, splits=None, kinds=None):
    everything, images = tables(edges, groups, splits, kinds)
    pairs = [pair_row(*edge) for edge in edges]
    rows = list(split_pairs(pairs, config, everything=everything, images=images))
    assert [(row.source_key, row.subject) for row in rows] == [
        (pair.key, pair.key) for pair in pairs
    ]
    return [row.split for row in rows]


def walk(edges, groups):
    """Find components by following neighbours: another way than the one tested."""
    near = defaultdict(set)
    for first, second in edges:
        near[first].add(second)
        near[second].add(first)
    for key in list(near):
        near[key].update(
            other for other in near if groups.get(key) and groups[key] == groups.get(other)
        )
    starts = {}
    for start in sorted(near):
        waiting = [start]
        while waiting:
            key = waiting.pop()
            if key not in starts:
                starts[key] = start
                waiting += near[key]
    return starts


@given(edges=EDGES, groups=GROUPS)
def test_components_are_those_of_a_walk(edges, groups):
    assert find_components(*tables(edges, groups)) == walk(edges, groups)


@given(edges=EDGES, groups=GROUPS, seed=st.integers(0, 5))
def test_no_image_is_in_two_splits(edges, groups, seed):
    config = PreferencesConfig(seed=seed, validation_share=0.3, test_share=0.3)
    splits = defaultdict(set)
    for edge, drawn in zip(edges, split(edges, config, groups), strict=True):
        for key in edge:
            splits[key].add(drawn)
            splits[groups.get(key) or key].add(drawn)
    assert all(len(drawn) == 1 for drawn in splits.values())


def test_a_photograph_is_in_the_split_of_what_is_planted_into_it() -> None:
    photograph, other, planted, changed = KEYS[:4]
    groups = {photograph: "", other: "", planted: photograph, changed: photograph}
    components = find_components(*tables([(photograph, other), (planted, changed)], groups))
    assert len(set(components.values())) == 1


def test_shares_are_those_asked_for():
    config = PreferencesConfig(validation_share=0.2, test_share=0.1)
    drawn = [draw_split(make_key(number), config) for number in range(20_000)]
    for name, share in {"train": 0.7, "validation": 0.2, "test": 0.1}.items():
        assert abs(drawn.count(name) / len(drawn) - share) < 0.02


APART = [(KEYS[2 * n], KEYS[2 * n + 1]) for n in range(10)]


def test_a_component_keeps_its_split_when_others_come():
    assert split(APART[:1]) == split(APART[:3])[:1]


def test_published_splits_are_kept_and_test_images_never_train():
    named = ["train", "validation", "test", "train"]
    assert split(APART[:4], splits=named) == named
    shared = [*APART[:4], (KEYS[0], KEYS[5])]
    expected = ["test", "validation", "test", "train", "test"]
    assert split(shared, splits=[*named, "validation"]) == expected
    drawn = PreferencesConfig(split="drawn", validation_share=0.0, test_share=0.0)
    assert split(APART[:4], drawn, splits=named) == ["train"] * 4


def test_what_no_source_puts_into_a_split_is_drawn():
    held_out = PreferencesConfig(validation_share=0.99, test_share=0.0)
    alone = split(APART, held_out)
    assert "validation" in alone
    mixed = [*APART, (KEYS[20], KEYS[21]), (KEYS[22], KEYS[23])]
    named = [""] * 10 + ["train", "test"]
    assert split(mixed, held_out, splits=named) == [*alone, "train", "test"]
    assert split(APART, held_out, splits=["train"] * 10) == alone


def test_a_rule_of_a_source_comes_first():
    edges = [*APART[:4], (KEYS[0], KEYS[9])]
    kinds = dict.fromkeys(KEYS[:2], "golden") | dict.fromkeys(KEYS[2:4], "video")
    kinds |= dict.fromkeys(KEYS[4:6], "jsonl-pairs") | dict.fromkeys(
        (*KEYS[6:8], KEYS[9]), "scenes"
    )
    named = ["train", "train", "validation", "validation", ""]
    drawn = {"split": "drawn", "validation_share": 0.0, "test_share": 0.0}
    rules = {"golden": "test", "video": "validation", "jsonl-pairs": "published", "scenes": "drawn"}
    expected = ["test", "validation", "validation", "train", "test"]
    config = PreferencesConfig(**drawn).fill(split_of=rules)
    assert split(edges, config, splits=named, kinds=kinds) == expected
