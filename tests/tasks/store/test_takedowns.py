"""Images removed on request: what of the tables counts from then on."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from pairwright.schemas.arrow import to_table
from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import ABOUT_COLUMNS, CaptionRow, ItemRow, PairRow, Row, make_key
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import DUPLICATE
from pairwright.tasks.store.snapshot import latest_snapshot
from pairwright.tasks.store.takedowns import (
    REMOVED,
    bury_rows,
    last_unswept,
    read_takedowns,
    removed_by,
    write_swept,
    write_takedown,
)
from tests.fixtures.rows import row_of
from tests.tasks.store.toy import (
    ToyConfig,
    build_toy,
    check_rows,
    key_of,
    live_rows,
    read_toy,
    stage,
    take_calls,
    toy_version,
)

WORDS = ["a1", "a2", "b1", "b1/again", "c1", "bad"]


def names_key(row: Row, key: str) -> bool:
    """Return whether a row is about an image of the toy line."""
    return key in (row.key, *(getattr(row, column, "") for column in ABOUT_COLUMNS))


def without_b1(rows: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Return the rows that stay when b1 is removed: notes have the keys of their pairs."""
    removed = {key_of("b1")}
    removed |= {row.key for row in rows["pairs"] if names_key(row, key_of("b1"))}
    return {
        name: [row for row in stage_rows if not any(names_key(row, key) for key in removed)]
        for name, stage_rows in rows.items()
    }


def test_a_removed_image_leaves_at_once_and_all_other_rows_stay(tmp_path: Path) -> None:
    out, config = tmp_path / "out", ToyConfig(calls=str(tmp_path / "calls"))
    build_toy(out, WORDS, config)
    before = read_toy(out, WORDS)
    take_calls(config)
    left = without_b1(before)
    assert [len(before[name]) - len(left[name]) for name in before] == [1, 1, 1, 2, 2]

    write_takedown(Folder(str(out)), [key_of("b1")], reason="asked")
    with toy_version(out, 1) as build:
        assert live_rows(build) == left, "the version loses the image without a build"
    assert read_toy(out, WORDS) == left
    (images, *later), outcomes = build_toy(out, WORDS, config)
    assert (outcomes, take_calls(config)) == ([], []), "nothing is made again"
    assert images.reasons == {REMOVED: 1, DUPLICATE: 1, "bad word": 1}
    assert (images.of, images.ok, images.dropped) == (6, 3, 3)
    assert [(count.pending, count.failed) for count in later] == [(0, 0)] * 4
    assert read_toy(out, WORDS) == left
    snapshot = latest_snapshot(Folder(str(out)))
    assert snapshot
    assert snapshot.takedowns == 1


def test_new_images_after_a_removal_are_paired_with_those_left(tmp_path: Path) -> None:
    build_toy(tmp_path, ["a1", "b1", "c1"])
    write_takedown(Folder(str(tmp_path)), [key_of("b1")], reason="")
    build_toy(tmp_path, ["a1", "b1", "c1", "d1"])
    check_rows(read_toy(tmp_path, ["a1", "b1", "c1", "d1"]), ["a1", "c1", "d1"])


def test_it_stays_out_when_it_comes_again_and_is_not_written(tmp_path: Path) -> None:
    build_toy(tmp_path, ["a1"])
    write_takedown(Folder(str(tmp_path)), [key_of("b1")], reason="")
    counts, _ = build_toy(tmp_path, ["a1", "b1/new", "c1"])
    check_rows(read_toy(tmp_path, ["a1", "b1/new", "c1"]), ["a1", "c1"])
    assert (counts[0].ok, counts[0].dropped) == (2, 1)
    assert not [path for path in tmp_path.rglob("part-*") if b"b1b1" in path.read_bytes()]


def test_the_list_is_only_added_to_and_damage_stops_a_build(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    first = write_takedown(folder, ["1", "2"], reason="asked by mail")
    data = folder.read("takedowns/000001.json")
    write_takedown(folder, ["3"], reason="")
    assert folder.read("takedowns/000001.json") == data
    entries = read_takedowns(folder)
    assert entries[0] == first
    assert [entry.number for entry in entries] == [1, 2]
    assert removed_by(entries[:0]) == set()
    assert removed_by(entries[:1]) == {"1", "2"}
    assert removed_by(entries) == {"1", "2", "3"}
    assert last_unswept(folder, entries) == 2
    write_swept(folder, 2)
    assert last_unswept(folder, entries) == 0
    folder.write("takedowns/000001.json", json.dumps({"keys": ["1"]}).encode())
    with pytest.raises(StoreError, match=r"000001\.json"):
        build_toy(tmp_path, ["a1"])


def pair(first: str, second: str, item: str) -> PairRow:
    images = {"first": first, "second": second}
    subject = make_key(first, second)
    return row_of(PairRow, first, second, source=item, subject=subject, **images)


def text(pair: PairRow, item: str) -> CaptionRow:
    return row_of(CaptionRow, "text", pair.key, source=item, subject=pair.key)


def test_a_tombstone_holds_keys_alone() -> None:
    pairs = [pair("a", "b", "item1"), pair("a", "c", "item2")]
    table = to_table(pairs, PairRow)
    tombstone, other = bury_rows(table, {"b"}).to_pylist()
    assert other == table.to_pylist()[1]
    assert {name: value for name, value in tombstone.items() if value is not None} == {
        "key": pairs[0].key,
        "source_key": "item1",
        "subject": pairs[0].subject,
        "first": "a",
        "second": "b",
        "anchor": "",
        "facts": "",
        "status": "dropped",
        "reason": REMOVED,
        "detail": "",
    }
    texts = to_table([text(each, each.source_key) for each in pairs], CaptionRow)
    assert bury_rows(texts, {pairs[0].key})["status"].to_pylist() == ["dropped", "ok"]


def read_pairs(rows: Sequence[ItemRow], config: ToyConfig) -> Iterator[PairRow]:
    """Yield a pair that each item brings: "a b" is of the images a and b."""
    for row in rows:
        yield pair(*row.name.split(" "), row.key)


def read_texts(rows: Sequence[ItemRow], config: ToyConfig) -> Iterator[CaptionRow]:
    """Yield the text of the pair that each item brings."""
    for row in rows:
        yield text(pair(*row.name.split(" "), row.key), row.key)


GIVEN = (
    stage("given_pairs", read_pairs, {"items": ItemRow}, PairRow),
    stage("given_texts", read_texts, {"items": ItemRow}, CaptionRow),
)


def test_what_a_source_brought_about_a_pair_goes_with_its_image(tmp_path: Path) -> None:
    """Pairs and texts are read from the items themselves: nothing else would make them stale."""
    words = ["a b", "a c"]
    build_toy(tmp_path, words, stages=GIVEN)
    write_takedown(Folder(str(tmp_path)), ["b"], reason="")
    counts, outcomes = build_toy(tmp_path, words, stages=GIVEN)
    assert [(count.of, count.ok, count.pending) for count in counts] == [(2, 1, 0)] * 2
    assert outcomes == []
    assert build_toy(tmp_path, words, stages=GIVEN)[1] == [], "nothing is unfinished"
