"""The ledger: what is unfinished, and counts that add up, from the keys of the parts alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from pairwright.schemas.arrow import to_table
from pairwright.schemas.errors import StoreError, ValidationError
from pairwright.schemas.rows import CaptionRow, Dropped, Failed, ItemRow, PairRow, Row, make_key
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import COLLECTION, DUPLICATE, Ledger
from pairwright.tasks.store.open_tables import Build
from pairwright.tasks.store.part import Part, describe_part, encode_part, read_about
from pairwright.tasks.store.stage import Planned, Stage, Uses
from tests.fixtures.rows import row_of
from tests.tasks.store.toy import build_toy, settled_toy
from tests.tasks.store.toy import stage as make_stage

ITEMS = "tables/items/listed"
WORDS = make_stage("words", iter, {"items": ItemRow}, CaptionRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondRow(PairRow):
    """A pair that is about its second image alone."""

    ABOUT: ClassVar[tuple[str, ...]] = ("second",)


class Tables:
    """Write parts by hand, and ask a ledger about them."""

    def __init__(self, folder: Folder, ledger: Ledger) -> None:
        self.folder, self.ledger = folder, ledger

    def items(self, names: str) -> None:
        """List an item of each letter."""
        rows = [row_of(ItemRow, "item", name, source=key_of(name)) for name in names]
        part = f"part-{len(names)}.parquet"
        self._write(f"{ITEMS}/{part}", rows, ItemRow)
        self.ledger.set_items(ITEMS, [part])

    def part(self, number: int, *rows: Row | Dropped | Failed, stage: Stage = WORDS) -> None:
        self._write(f"{planned(stage).table_path}/part-{number}.parquet", rows, stage.writes)

    def _write(self, name: str, rows: Sequence[Row | Dropped | Failed], kind: type[Row]) -> None:
        table = to_table(rows, kind)
        self.folder.write(name, encode_part(table, describe_part(name, table, version=1)))

    def resolve(self, stage: Stage = WORDS) -> dict[str, object]:
        self.ledger.load_parts(planned(stage))
        self.ledger.resolve(planned(stage))
        return self.ledger.count_stage(planned(stage)).as_json()

    def unfinished(self, stage: Stage = WORDS, **options: str) -> list[tuple[str, int]]:
        rows = self.ledger.unfinished_rows(stage.name, 2, **options).read_all().to_pylist()
        return [(row["key"], row["shard"]) for row in rows]

    def sources(self, *stages: Stage) -> dict[str, str]:
        """Resolve stages, the words first; return the unfinished source keys of the last by key."""
        for stage in (WORDS, *stages):
            self.resolve(stage)
        rows = self.ledger.unfinished_rows(stages[-1].name, 10).read_all().to_pylist()
        return {row["key"]: row["source_key"] for row in rows}


def planned(stage: Stage) -> Planned:
    return Planned(stage=stage, config=None, inputs=stage.inputs(None), fingerprint="f1")


def key_of(name: str) -> str:
    return make_key("item", name)


def word(source: str, content: str, subject: str = "") -> CaptionRow:
    key = make_key("row", content)
    return row_of(CaptionRow, source=key_of(source), key=key, subject=subject or key)


def failed(source: str, reason: str) -> Failed:
    return Failed(source_key=key_of(source), reason=reason)


def dropped(source: str, reason: str) -> Dropped:
    return Dropped(source_key=key_of(source), reason=reason)


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    folder = Folder(str(tmp_path / "out"))
    with Ledger(folder, tmp_path / "spill") as ledger:
        yield Tables(folder, ledger)


def test_a_row_ends_in_the_best_way_of_any_part(tables: Tables) -> None:
    tables.items("abcde")
    tables.part(1, failed("a", "down"), word("b", "b"))
    tables.part(2, word("a", "a1"), word("a", "a2"), dropped("c", "dull"))
    tables.part(3, failed("c", "x"), failed("d", "down"))
    counts = {"in": 5, "ok": 2, "dropped": 1, "failed": 1, "pending": 1, "rows": 3}
    names = {"stage": "words", "fingerprint": "f1"}
    assert tables.resolve() == {**names, **counts, "reasons": {"down": 1, "dull": 1}}
    assert tables.unfinished() == [(key_of("d"), 1), (key_of("e"), 2)]
    assert tables.unfinished(reason="down") == [(key_of("d"), 1)]
    assert tables.unfinished(reason="dull") == []
    assert tables.ledger.live_parts("words") == {"part-1.parquet": 1, "part-2.parquet": 2}


def test_equal_keys_are_one_row_of_the_smallest_source(tables: Tables) -> None:
    first, second = sorted("ab", key=key_of)
    tables.items("ab")
    tables.part(1, word(second, "same"))
    tables.part(2, word(first, "same"))
    counts = tables.resolve()
    assert (counts["ok"], counts["dropped"], counts["rows"]) == (1, 1, 1)
    assert counts["reasons"] == {DUPLICATE: 1}
    assert tables.ledger.live_parts("words") == {"part-2.parquet": 1}
    assert tables.unfinished() == []


def test_rows_of_absent_items_are_stale(tables: Tables) -> None:
    tables.items("a")
    tables.part(1, word("a", "a"), word("gone", "g"), failed("gone2", "x"))
    counts = tables.resolve()
    assert [counts[name] for name in ("in", "ok", "failed", "rows")] == [1, 1, 0, 1]


def test_parts_that_come_or_are_replaced_later_are_taken_in(tables: Tables) -> None:
    tables.items("ab")
    tables.part(1, failed("a", "x"), failed("b", "x"))
    assert (tables.resolve()["failed"], len(tables.unfinished())) == (2, 2)
    tables.part(1, word("a", "a"), failed("b", "y"))
    assert (tables.resolve()["ok"], tables.resolve()["reasons"]) == (1, {"y": 1})
    places = tables.ledger.hash_positions("words")
    tables.part(0, word("b", "b"))
    assert (tables.resolve()["ok"], tables.unfinished()) == (2, [])
    assert tables.ledger.part_names("words") == ["part-1.parquet", "part-0.parquet"]
    assert tables.ledger.hash_positions("words") != places


def test_a_stage_by_source_owes_what_comes_of_another_source(tables: Tables) -> None:
    plain = replace(WORDS, name="plain", reads={"words": CaptionRow})
    careful = replace(plain, name="careful", by_source=True)
    x, y = make_key("row", "x"), make_key("row", "y")
    tables.items("abc")
    tables.part(1, word("a", "x"), word("b", "y"))
    before = tables.sources(careful)
    tables.part(2, word("c", "x"), word("b", "y"))  # c has the smaller key
    after = tables.sources(careful)
    assert before[y] == after[y]
    assert before[x] != after[x]
    assert tables.sources(plain) == {x: x, y: y}


def test_a_stage_by_source_owes_what_comes_of_another_table(tables: Tables) -> None:
    first = replace(WORDS, name="first", reads={"words": CaptionRow})
    second = replace(first, name="second")
    reads = {"first": CaptionRow, "second": CaptionRow}
    united = replace(WORDS, name="united", reads=reads, by_source=True)
    about, x, y = (make_key("row", name) for name in "wxy")
    same, other = (row_of(CaptionRow, "row", name, source=about, subject=about) for name in "xy")
    tables.items("a")
    tables.part(1, word("a", "w"))
    tables.part(1, same, other, stage=second)
    before = tables.sources(first, second, united)
    tables.part(1, same, stage=first)  # which counts
    after = tables.sources(first, second, united)
    assert tables.resolve(united)["in"] == 2
    assert before[y] == after[y]
    assert before[x] != after[x]


def test_a_whole_stage_owes_all_when_its_input_changes(tables: Tables) -> None:
    use = Uses(table="words", row=CaptionRow, kind="table")
    stage = replace(WORDS, name="all", reads={"words": CaptionRow}, uses=(use,))
    tables.items("ab")
    tables.part(1, word("a", "a"))
    before = tables.sources(stage)
    tables.part(2, word("b", "b"))
    after = tables.sources(stage)
    assert (len(before), len(after)) == (1, 2)
    assert set(before.values()).isdisjoint(after.values())


def test_rows_that_count_are_found_by_the_column_that_names_them(tables: Tables) -> None:
    pairs = replace(WORDS, name="pairs", writes=SecondRow)
    use = Uses(table="words", row=CaptionRow, on="about", counts=True)
    reader = replace(WORDS, name="uses", reads={"pairs": SecondRow}, uses=(use,))
    images = {"first": key_of("a"), "second": key_of("c"), "anchor": key_of("b")}
    pair = row_of(SecondRow, source=key_of("a"), key=key_of("p"), subject=key_of("p"), **images)
    tables.items("a")
    tables.part(1, pair, stage=pairs)
    unfinished = [tables.sources(pairs, reader)]
    for number, about in enumerate("pac"):  # the second image's alone counts
        tables.part(number, word("a", about, subject=key_of(about)))
        unfinished.append(tables.sources(pairs, reader))
    assert unfinished[0] == unfinished[1] == unfinished[2] != unfinished[3]


def test_a_row_is_owed_again_when_rows_that_count_change(tables: Tables) -> None:
    use = Uses(table="words", row=CaptionRow, counts=True)
    counting = replace(WORDS, name="uses", uses=(use,))
    other = replace(WORDS, name="uses", uses=(replace(use, counts=False),))
    tables.items("a")
    before = tables.sources(counting)
    tables.part(1, word("a", "text 1", subject=key_of("a")))
    assert tables.sources(counting) != before
    assert tables.sources(other) == {key_of("a"): key_of("a")}


def test_rows_made_from_an_input_count_by_their_source(tables: Tables) -> None:
    use = Uses(table="words", row=CaptionRow, kind="many", on="key", by="source_key", counts=True)
    stage = replace(WORDS, name="uses", uses=(use,))
    tables.items("ab")
    before = tables.sources(stage)
    tables.part(1, word("a", "text", subject=key_of("b")))
    after = tables.sources(stage)
    assert after[key_of("b")] == before[key_of("b")]
    assert after[key_of("a")] != before[key_of("a")], "it was made from a, though about b"


def test_rows_that_only_a_second_table_leads_to_count_too(tables: Tables) -> None:
    second = replace(WORDS, name="second")
    words = Uses(table="words", row=CaptionRow, kind="many")
    uses = (words, Uses(table="second", row=CaptionRow, on="key", of="words", counts=True))
    stage = replace(WORDS, name="uses", uses=uses)
    tables.items("ab")
    row = word("a", "word", subject=key_of("a"))
    tables.part(1, row)
    before = tables.sources(second, stage)
    tables.part(1, word("b", "elsewhere", subject=key_of("b")), stage=second)
    assert tables.sources(second, stage) == before
    tables.part(2, word("a", "vector", subject=row.key), stage=second)
    after = tables.sources(second, stage)
    assert after[key_of("b")] == before[key_of("b")]
    assert after[key_of("a")] != before[key_of("a")], "the item that the word is about"


@pytest.mark.parametrize(
    "about",
    [{"rows": "2"}, {"ok": "0"}, {"dropped": "1"}, {"stage": "x"}, {"fingerprint": "f2"}, {}],
)
def test_a_part_must_state_what_it_holds(tables: Tables, about: dict[str, str]) -> None:
    rows, name = to_table([word("a", "a")], CaptionRow), "tables/words/f1/part-1.parquet"
    stated = describe_part(name, rows, version=1) | about if about else {}
    tables.folder.write(name, encode_part(rows, stated))
    with pytest.raises(StoreError, match=r"part-1\.parquet"):
        tables.ledger.load_parts(planned(WORDS))


def test_a_full_scratch_folder_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, match=r"spill: has no room .*TMPDIR"),
        Build(Folder(str(tmp_path)), (), ()) as build,
    ):
        build.ledger.run_query(
            "SET memory_limit = '20MB'; SET max_temp_directory_size = '1MB'; "
            "SELECT count(DISTINCT md5(i::VARCHAR)) FROM range(1000000) t(i)"
        )


def test_counts_that_do_not_add_up_are_an_error(tables: Tables) -> None:
    tables.items("ab")
    tables.resolve()
    tables.ledger.run_query("DELETE FROM outcome_words WHERE seq = 0")
    with pytest.raises(ValidationError, match=r"words .*2 input rows, .*'pending': 1"):
        tables.ledger.count_stage(planned(WORDS))


@pytest.mark.parametrize(
    ("table", "names_it", "distinct"), [("neighbours", True, 2), ("pairs", False, 1)]
)
def test_parts_of_whole_inputs_say_which(
    tmp_path: Path, table: str, names_it: bool, distinct: int
) -> None:
    words = ["ant", "bee", "cat", "dog", "eel"]
    build_toy(tmp_path, words[:-1])
    build_toy(tmp_path, words)
    with settled_toy(tmp_path, words) as build:
        collection = build.ledger.collection(build.planned[1])
        (folder,) = (each.table_path for each in build.planned if each.stage.name == table)
        parts = [
            Part(build.folder, f"{folder}/{name}")
            for name in build.folder.names(folder, ".parquet")
        ]
        stated = [read_about(part).get(COLLECTION) for part in parts]
    assert (collection in stated, len(set(stated))) == (names_it, distinct)
