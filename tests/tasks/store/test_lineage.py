"""Following rows of a toy dataset, and comparing two of its versions: every number by hand.

Of the words a, b, c: each has an image, a rank and a link; a and b are a pair, b and c are one,
each with a note.
"""

from pathlib import Path

import pytest

from pairwright.schemas.rows import make_key
from pairwright.tasks.store.lineage import (
    Link,
    Turned,
    count_reached,
    diff_stage,
    find_keys,
    follow,
    read_cells,
)
from tests.tasks.store.toy import ToyConfig, build_toy, toy_version
from tests.tasks.store.toy import key_of as image


def pair(first: str, second: str) -> str:
    return make_key(*sorted([image(first), image(second)]))


def rank(word: str, *after: str) -> str:
    return make_key("rank", image(word), *map(image, after))


@pytest.fixture(scope="module")
def abc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("abc")
    build_toy(root, ["a", "b", "c"])
    return root


def test_rows_are_followed_down_and_up(abc: Path) -> None:
    start, note = ("images", image("c")), ("notes", pair("a", "b"))
    with toy_version(abc, 1) as build:
        links = follow(build, [start], "made of it")
        back = follow(build, [note], "made from")
    pairs = ("pairs", pair("b", "c"))
    assert {(link.table, link.key): (link.of_table, link.of_key) for link in links} == {
        ("neighbours", rank("c")): start,
        ("links", make_key("link", image("c"), "")): start,
        pairs: start,  # b's search found it, and it names c
        ("notes", pair("b", "c")): pairs,
    }
    counts = {"images": 1, "neighbours": 1, "links": 1, "pairs": 1, "notes": 1}
    assert count_reached(links, [start]) == counts
    images = {("images", image("a")), ("images", image("b"))}
    items = {("items", make_key("word", "a")), ("items", make_key("word", "b"))}
    rows = {("pairs", pair("a", "b")), ("neighbours", rank("a", "b"))}
    assert {(link.table, link.key) for link in back} == rows | images | items
    assert back[0] == Link(table="pairs", key=pair("a", "b"), of_table="notes", of_key=note[1])


def test_keys_are_found_by_their_beginning(abc: Path) -> None:
    a_b = pair("a", "b")
    with toy_version(abc, 1) as build:
        assert find_keys(build, image("a")[:12]) == [("images", image("a"))]
        assert find_keys(build, a_b) == [("pairs", a_b), ("notes", a_b)]
        assert find_keys(build, "nothing") == []
        cells = read_cells(build, build.planned[0], [image("b"), image("a")], ["name"])
    assert cells == {image("a"): {"name": "a"}, image("b"): {"name": "b"}}


def test_two_versions_stage_by_stage(tmp_path: Path) -> None:
    """Without b, a's neighbour is c: its rank, link and pair change; b's pair with c goes."""
    config = ToyConfig(trouble=str(tmp_path / "trouble"))
    build_toy(tmp_path / "out", ["a", "b", "c", "failing"], config)
    (tmp_path / "trouble").touch()
    build_toy(tmp_path / "out", ["a", "c", "failing", "failing/too", "bad"], config)
    with toy_version(tmp_path / "out", 1) as old, toy_version(tmp_path / "out", 2) as new:
        names = [planned.stage.name for planned in new.planned]
        diffs = {name: diff_stage(old, new, name) for name in names}
        back = diff_stage(new, old, "images")
    changes = {name: (diff.rows, diff.came, diff.went) for name, diff in diffs.items()}
    assert changes["images"] == ((4, 3), 0, 1)
    assert (back.came, back.went) == (1, 0)
    assert changes["pairs"] == ((3, 2), 1, 2)
    assert changes["links"][1:] == (1, 2)
    assert not any(diff.turned for diff in diffs.values())
    assert diffs["images"].fingerprints[0] == diffs["images"].fingerprints[1] != ""


def test_inputs_that_end_otherwise_are_counted_with_their_reasons(tmp_path: Path) -> None:
    config = ToyConfig(trouble=str(tmp_path / "trouble"))
    (tmp_path / "trouble").touch()
    build_toy(tmp_path / "out", ["a", "failing1", "failing2"], config)
    (tmp_path / "trouble").unlink()
    build_toy(tmp_path / "out", ["a", "failing1", "failing2"], config)
    with toy_version(tmp_path / "out", 1) as old, toy_version(tmp_path / "out", 2) as new:
        images = diff_stage(old, new, "images")
        links = diff_stage(old, new, "links")
        neighbours = diff_stage(old, new, "neighbours")
    assert images.turned == (Turned(before="failed: trouble", after="ok", count=2),)
    assert (images.came, images.went) == (2, 0)
    assert (links.came, links.went, links.turned) == (3, 1, ())
    assert (neighbours.came, neighbours.went) == (3, 1)
