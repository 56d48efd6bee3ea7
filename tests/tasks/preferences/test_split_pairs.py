"""Tests of splits: components by an independent walk, no image in two splits, shares, stability."""

from collections import defaultdict

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.config import PreferencesConfig
from pairwright.schemas.rows import PairRow, make_key
from pairwright.tasks.preferences.split_pairs import draw_split, find_components, split_pairs

KEYS = [make_key("image", number) for number in range(30)]
EDGES = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(KEYS)).filter(lambda e: e[0] != e[1]),
    min_size=1,
)
DEFAULT = PreferencesConfig()
GROUPS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["", "kitchen", "street"]))


def pair(first: str, second: str) -> PairRow:
    key = make_key(first, second)
    return PairRow(
        key=key,
        source_key=key,
        subject=key,
        first=first,
        second=second,
        origin="given",
        anchor="",
        cluster=-1,
    )


def tables(edges: list[tuple[str, str]], groups: dict[str, str]) -> tuple[pa.Table, pa.Table]:
    pairs = {
        "first": [first for first, _ in edges],
        "second": [second for _, second in edges],
        "split": [""] * len(edges),
    }
    images = {"subject": list(groups), "group": list(groups.values())}
    text = pa.string()
    return pa.table(pairs), pa.table(
        {name: pa.array(values, text) for name, values in images.items()}
    )


def walk(edges: list[tuple[str, str]], groups: dict[str, str]) -> dict[str, str]:
    """Find components by following neighbours: another way than the one tested."""
    near: dict[str, set[str]] = defaultdict(set)
    for first, second in edges:
        near[first].add(second)
        near[second].add(first)
    for one in list(near):
        for other in list(near):
            if groups.get(one) and groups.get(one) == groups.get(other):
                near[one].add(other)
    found: dict[str, str] = {}
    for start in sorted(near):
        waiting = [start]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = start
                waiting += near[name]
    return found


@given(edges=EDGES, groups=GROUPS)
def test_components_are_those_of_a_walk(
    edges: list[tuple[str, str]], groups: dict[str, str]
) -> None:
    assert find_components(*tables(edges, groups)) == walk(edges, groups)


@given(edges=EDGES, groups=GROUPS, seed=st.integers(0, 5))
def test_no_image_is_in_two_splits(
    edges: list[tuple[str, str]], groups: dict[str, str], seed: int
) -> None:
    everything, images = tables(edges, groups)
    pairs = [pair(*edge) for edge in edges]
    config = PreferencesConfig(seed=seed, validation_share=0.3, test_share=0.3)
    splits: dict[str, set[str]] = defaultdict(set)
    for row, split in zip(
        pairs, split_pairs(pairs, config, everything=everything, images=images), strict=True
    ):
        assert (split.source_key, split.subject) == (row.key, row.key)
        for image in (row.first, row.second):
            splits[image].add(split.split)
            splits[groups.get(image, "") or image].add(split.split)
    assert all(len(found) == 1 for found in splits.values())


def test_shares_are_those_asked_for() -> None:
    config = PreferencesConfig(validation_share=0.2, test_share=0.1)
    drawn = [draw_split(make_key(number), config) for number in range(20_000)]
    shares = {split: drawn.count(split) / len(drawn) for split in ("train", "validation", "test")}
    assert abs(shares["train"] - 0.7) < 0.02
    assert abs(shares["validation"] - 0.2) < 0.02
    assert abs(shares["test"] - 0.1) < 0.02


def test_a_component_keeps_its_split_when_others_come() -> None:
    few, more = [(KEYS[0], KEYS[1])], [(KEYS[0], KEYS[1]), (KEYS[2], KEYS[3]), (KEYS[4], KEYS[5])]
    config = PreferencesConfig()

    def splits(edges: list[tuple[str, str]]) -> dict[str, str]:
        everything, images = tables(edges, {})
        rows = split_pairs(
            [pair(*edge) for edge in edges], config, everything=everything, images=images
        )
        return {row.subject: row.split for row in rows}

    assert splits(few).items() <= splits(more).items()


def published(named: dict[tuple[str, str], str], config: PreferencesConfig = DEFAULT) -> list[str]:
    everything, images = tables(list(named), {})
    everything = everything.set_column(2, "split", pa.array(list(named.values()), pa.string()))
    rows = split_pairs(
        [pair(*edge) for edge in named], config, everything=everything, images=images
    )
    return [row.split for row in rows]


def test_published_splits_are_kept_and_test_images_never_train() -> None:
    apart = {
        (KEYS[2 * n], KEYS[2 * n + 1]): split
        for n, split in enumerate(("train", "validation", "test", "train"))
    }
    assert published(apart) == ["train", "validation", "test", "train"]
    shared = {**apart, (KEYS[0], KEYS[5]): "validation"}
    assert published(shared) == ["test", "validation", "test", "train", "test"]
    drawn = PreferencesConfig(split="drawn", validation_share=0.0, test_share=0.0)
    assert published(apart, drawn) == ["train"] * 4


def test_what_no_source_puts_into_a_split_is_drawn() -> None:
    held_out = PreferencesConfig(validation_share=0.99, test_share=0.0)
    named = {(KEYS[2 * n], KEYS[2 * n + 1]): "" for n in range(10)}
    mixed = {**named, (KEYS[20], KEYS[21]): "train", (KEYS[22], KEYS[23]): "test"}
    assert published(mixed, held_out) == [*published(named, held_out), "train", "test"]
    assert "validation" in published(named, held_out)
    single = dict.fromkeys(named, "train")
    assert published(single, held_out) == published(named, held_out)
