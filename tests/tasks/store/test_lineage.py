"""Following rows of a toy dataset, and comparing two of its versions: every number by hand.

Of the words a, b, c: each has an image, a rank and a link; a and b are a pair, b and c are one,
each with a note.
"""

from pathlib import Path

from pairwright.schemas.rows import make_key
from pairwright.tasks.store.lineage import (
    Link,
    Turned,
    count_rows,
    diff_stage,
    find_keys,
    follow,
    read_cells,
)
from tests.tasks.store.test_pinned import toy_version
from tests.tasks.store.toy import ToyConfig, build_toy
from tests.tasks.store.toy import key_of as image


def pair(one: str, other: str) -> str:
    return make_key(*sorted([image(one), image(other)]))


def rank(word: str, after: str) -> str:
    return make_key("rank", image(word), *([image(after)] if after else []))


def link(word: str, after: str) -> str:
    return make_key("link", image(word), image(after) if after else "")


def test_down_from_an_image(tmp_path: Path) -> None:
    build_toy(tmp_path, ["a", "b", "c"])
    with toy_version(tmp_path, 1) as build:
        found = follow(build, [("images", image("c"))], "made of it")
    pairs = ("pairs", pair("b", "c"))
    assert {(one.table, one.key): (one.of_table, one.of_key) for one in found} == {
        ("neighbours", rank("c", "")): ("images", image("c")),
        ("links", link("c", "")): ("images", image("c")),
        pairs: ("images", image("c")),  # b's search found it, and it names c
        ("notes", pair("b", "c")): pairs,
    }
    tables = ("images", "neighbours", "links", "pairs", "notes")
    assert count_rows(found, [("images", image("c"))]) == dict.fromkeys(tables, 1)


def test_up_from_a_note(tmp_path: Path) -> None:
    build_toy(tmp_path, ["a", "b", "c"])
    with toy_version(tmp_path, 1) as build:
        found = follow(build, [("notes", pair("a", "b"))], "made from")
    both = {
        row for word in "ab" for row in (("images", image(word)), ("items", make_key("word", word)))
    }
    made = {("pairs", pair("a", "b")), ("neighbours", rank("a", "b"))}
    assert {(one.table, one.key) for one in found} == made | both
    assert found[0] == Link(
        table="pairs", key=pair("a", "b"), of_table="notes", of_key=pair("a", "b")
    )


def test_keys_are_found_by_their_beginning(tmp_path: Path) -> None:
    build_toy(tmp_path, ["a", "b"])
    with toy_version(tmp_path, 1) as build:
        assert find_keys(build, image("a")[:12]) == [("images", image("a"))]
        assert find_keys(build, pair("a", "b")) == [
            ("pairs", pair("a", "b")),
            ("notes", pair("a", "b")),
        ]
        assert find_keys(build, "nothing") == []
        cells = read_cells(build, build.planned[0], [image("b"), image("a")], ["name"])
    assert cells == {image(word): {"name": word} for word in "ab"}


def test_two_versions_stage_by_stage(tmp_path: Path) -> None:
    """Without b, a's neighbour is c: its rank, its link and the pair are others; b's pair with c is
    gone."""
    config = ToyConfig(trouble=str(tmp_path / "trouble"))
    build_toy(tmp_path / "out", ["a", "b", "c", "failing"], config)
    (tmp_path / "trouble").touch()
    build_toy(tmp_path / "out", ["a", "c", "failing", "failing/too", "bad"], config)
    with toy_version(tmp_path / "out", 1) as old, toy_version(tmp_path / "out", 2) as new:
        names = [planned.stage.name for planned in new.planned]
        found = {name: diff_stage(old, new, name) for name in names}
        back = diff_stage(new, old, "images")
    images = found["images"]
    assert (images.rows, images.came, images.went) == ((4, 3), 0, 1)
    assert (images.came, images.went) == (0, 1)
    assert (back.came, back.went) == (1, 0)
    assert (found["pairs"].rows, found["pairs"].came, found["pairs"].went) == ((3, 2), 1, 2)
    assert (found["links"].came, found["links"].went) == (1, 2)
    assert not any(one.turned for one in found.values())
    assert images.fingerprints[0] == images.fingerprints[1] != ""


def test_inputs_that_end_otherwise_are_counted_with_their_reasons(tmp_path: Path) -> None:
    config = ToyConfig(trouble=str(tmp_path / "trouble"))
    (tmp_path / "trouble").touch()
    build_toy(tmp_path / "out", ["a", "failing1", "failing2"], config)
    (tmp_path / "trouble").unlink()
    build_toy(tmp_path / "out", ["a", "failing1", "failing2"], config)
    with toy_version(tmp_path / "out", 1) as old, toy_version(tmp_path / "out", 2) as new:
        images = diff_stage(old, new, "images")
        links = diff_stage(old, new, "links")
        nothing = diff_stage(old, new, "neighbours")
    assert images.turned == (Turned(before="failed: trouble", after="ok", count=2),)
    assert (images.came, images.went) == (2, 0)
    assert (links.came, links.went, links.turned) == (3, 1, ())
    assert (nothing.came, nothing.went) == (3, 1)
