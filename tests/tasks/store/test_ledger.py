"""The ledger: what is owed, and counts that add up, from the keys of the parts alone."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from pairwright.schemas.arrow import to_table
from pairwright.schemas.errors import StoreError, ValidationError
from pairwright.schemas.rows import CaptionRow, Dropped, Failed, ItemRow, PairRow, Row, make_key
from pairwright.schemas.section import Section
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import COLLECTION, DUPLICATE, Ledger
from pairwright.tasks.store.open_tables import Build
from pairwright.tasks.store.part import Part, describe_part, encode_part, read_about
from pairwright.tasks.store.stage import Planned, Stage, Uses
from tests.fixtures.rows import row_of
from tests.tasks.store.toy import build_toy, open_toy

ITEMS = "tables/items/listed"
STAGE = Stage(
    name="words",
    version=1,
    group="sources",
    reads={"items": ItemRow},
    writes=CaptionRow,
    function=lambda rows, config: iter(()),
    config=Section,
)
NAMES = ["a", "b", "c", "d", "e"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondRow(PairRow):
    """A pair that is about its second image alone."""

    ABOUT: ClassVar[tuple[str, ...]] = ("second",)


class Tables:
    """Write parts by hand, and ask a ledger about them."""

    def __init__(self, folder: Folder, ledger: Ledger) -> None:
        self.folder, self.ledger = folder, ledger

    def items(self, *names: str) -> None:
        rows = [row_of(ItemRow, "item", name, source=_key(name)) for name in names]
        name = f"part-{len(names)}.parquet"
        self._write(f"{ITEMS}/{name}", rows, ItemRow)
        self.ledger.set_items(ITEMS, [name])

    def part(self, number: int, *rows: Row | Dropped | Failed, stage: Stage = STAGE) -> None:
        self._write(f"{planned(stage).table}/part-{number}.parquet", rows, stage.writes)

    def _write(
        self, name: str, rows: list[Row] | tuple[Row | Dropped | Failed, ...], kind: type[Row]
    ) -> None:
        table = to_table(rows, kind)
        self.folder.write(name, encode_part(table, describe_part(name, table, version=1)))

    def settle(self, stage: Stage = STAGE) -> dict[str, object]:
        self.ledger.load(planned(stage))
        self.ledger.settle(planned(stage))
        return self.ledger.count(planned(stage)).as_json()

    def owed(self, stage: Stage = STAGE, **options: str) -> list[tuple[str, int]]:
        rows = self.ledger.owed(stage.name, 2, **options).read_all().to_pylist()
        return [(row["key"], row["shard"]) for row in rows]

    def names(self, *stages: Stage) -> dict[str, str]:
        """Settle stages, the words first; return what the last one owes: the names of its inputs by
        their keys."""
        for stage in (STAGE, *stages):
            self.settle(stage)
        rows = self.ledger.owed(stages[-1].name, 10).read_all().to_pylist()
        return {row["key"]: row["source_key"] for row in rows}


def planned(stage: Stage) -> Planned:
    return Planned(stage=stage, config=None, inputs=stage.inputs(None), fingerprint="f1")


def _key(name: str) -> str:
    return make_key("item", name)


def _row(source: str, content: str, subject: str = "") -> CaptionRow:
    return row_of(
        CaptionRow, "row", content, source=_key(source), subject=subject or make_key("row", content)
    )


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    folder = Folder(str(tmp_path / "out"))
    with Ledger(folder, tmp_path / "spill") as ledger:
        yield Tables(folder, ledger)


def test_a_row_ends_in_the_best_way_of_any_part(tables: Tables) -> None:
    tables.items(*NAMES)
    tables.part(1, Failed(source_key=_key("a"), reason="down"), _row("b", "b"))
    tables.part(2, _row("a", "a1"), _row("a", "a2"), Dropped(source_key=_key("c"), reason="dull"))
    tables.part(
        3, Failed(source_key=_key("c"), reason="x"), Failed(source_key=_key("d"), reason="down")
    )
    assert tables.settle() == {
        "stage": "words",
        "fingerprint": "f1",
        "in": 5,
        "ok": 2,
        "dropped": 1,
        "failed": 1,
        "pending": 1,
        "rows": 3,
        "reasons": {"down": 1, "dull": 1},
    }
    assert tables.owed() == [(_key("d"), 1), (_key("e"), 2)]
    assert tables.owed(reason="down") == [(_key("d"), 1)]
    assert tables.owed(reason="dull") == []
    assert tables.ledger.live_parts("words") == {"part-1.parquet": 1, "part-2.parquet": 2}


def test_equal_keys_are_one_row_and_the_smallest_source_gives_it(tables: Tables) -> None:
    first, second = sorted(["a", "b"], key=_key)
    tables.items("a", "b")
    tables.part(1, _row(second, "same"))
    tables.part(2, _row(first, "same"))
    count = tables.settle()
    assert (count["ok"], count["dropped"], count["rows"], count["reasons"]) == (
        1,
        1,
        1,
        {DUPLICATE: 1},
    )
    assert tables.ledger.live_parts("words") == {"part-2.parquet": 1}
    assert tables.owed() == []


def test_rows_of_absent_items_are_stale(tables: Tables) -> None:
    tables.items("a")
    tables.part(1, _row("a", "a"), _row("gone", "g"), Failed(source_key=_key("gone2"), reason="x"))
    count = tables.settle()
    assert (count["in"], count["ok"], count["failed"], count["rows"]) == (1, 1, 0, 1)


def test_parts_that_come_or_are_replaced_later_are_taken_in(tables: Tables) -> None:
    tables.items("a", "b")
    tables.part(1, *(Failed(source_key=_key(name), reason="x") for name in "ab"))
    assert (tables.settle()["failed"], len(tables.owed())) == (2, 2)
    tables.part(1, _row("a", "a"), Failed(source_key=_key("b"), reason="y"))
    assert (tables.settle()["ok"], tables.settle()["reasons"]) == (1, {"y": 1})
    tables.part(0, _row("b", "b"))
    assert (tables.settle()["ok"], tables.owed()) == (2, [])
    assert tables.ledger.part_names("words") == ["part-1.parquet", "part-0.parquet"]


def test_places_are_those_of_the_last_settling(tables: Tables) -> None:
    tables.items("a", "b")
    tables.part(1, _row("a", "a"))
    tables.settle()
    before = tables.ledger.places("words")
    tables.part(2, _row("b", "b"))
    tables.settle()
    assert tables.ledger.places("words") != before


def test_a_stage_by_source_owes_what_was_made_from_something_else(tables: Tables) -> None:
    plain = replace(STAGE, name="plain", reads={"words": CaptionRow})
    careful = replace(plain, name="careful", by_source=True)
    x, y = make_key("row", "x"), make_key("row", "y")
    tables.items("a", "b", "c")
    tables.part(1, _row("a", "x"), _row("b", "y"))
    before = tables.names(careful)
    tables.part(2, _row("c", "x"), _row("b", "y"))  # c has the smaller key
    after = tables.names(careful)
    assert before[y] == after[y]
    assert before[x] != after[x]
    assert tables.names(plain) == {x: x, y: y}


def test_a_stage_by_source_owes_what_was_made_from_another_table(tables: Tables) -> None:
    first, second = (
        replace(STAGE, name=name, reads={"words": CaptionRow}) for name in ("first", "second")
    )
    united = replace(
        STAGE, name="united", reads={"first": CaptionRow, "second": CaptionRow}, by_source=True
    )
    word, x, y = (make_key("row", name) for name in "wxy")
    same, other = (row_of(CaptionRow, "row", name, source=word, subject=word) for name in "xy")
    tables.items("a")
    tables.part(1, _row("a", "w"))
    tables.part(1, same, other, stage=second)
    before = tables.names(first, second, united)
    tables.part(1, same, stage=first)  # which counts
    after = tables.names(first, second, united)
    assert tables.settle(united)["in"] == 2
    assert before[y] == after[y]
    assert before[x] != after[x]


def test_a_whole_stage_owes_everything_when_its_input_changes(tables: Tables) -> None:
    use = Uses(table="words", row=CaptionRow, kind="table")
    stage = replace(STAGE, name="all", reads={"words": CaptionRow}, uses=(use,))
    tables.items("a", "b")
    tables.part(1, _row("a", "a"))
    before = tables.names(stage)
    tables.part(2, _row("b", "b"))
    after = tables.names(stage)
    assert (len(before), len(after)) == (1, 2)
    assert not {*before.values()} & {*after.values()}


def test_rows_that_count_are_found_by_the_column_that_names_them(tables: Tables) -> None:
    pairs = replace(STAGE, name="pairs", writes=SecondRow)
    use = Uses(table="words", row=CaptionRow, on="about", counts=True)
    reader = replace(STAGE, name="uses", reads={"pairs": SecondRow}, uses=(use,))
    names = {"first": _key("a"), "second": _key("c"), "anchor": _key("b")}
    pair = SecondRow(
        key=_key("p"), source_key=_key("a"), subject=_key("p"), origin="mined", cluster=0, **names
    )
    tables.items("a")
    tables.part(1, pair, stage=pairs)
    found = [tables.names(pairs, reader)]
    for number, about in enumerate(["p", "a", "c"]):  # the second image's alone counts
        tables.part(number, _row("a", about, subject=_key(about)))
        found.append(tables.names(pairs, reader))
    assert found[0] == found[1] == found[2] != found[3]


def test_a_row_is_owed_again_when_the_rows_that_count_change(tables: Tables) -> None:
    use = Uses(table="words", row=CaptionRow, counts=True)
    counting, other = (
        replace(STAGE, name="uses", uses=(replace(use, counts=counts),)) for counts in (True, False)
    )
    tables.items("a")
    before = tables.names(counting)
    tables.part(1, _row("a", "text 1", subject=_key("a")))
    assert tables.names(counting) != before
    assert tables.names(other) == {_key("a"): _key("a")}


def test_rows_that_are_used_of_others_count_too(tables: Tables) -> None:
    """A row is owed again when a third table changes that only a second one leads to."""
    second = replace(STAGE, name="second")
    words = Uses(table="words", row=CaptionRow, kind="many")
    uses = (words, Uses(table="second", row=CaptionRow, on="key", of="words", counts=True))
    stage = replace(STAGE, name="uses", uses=uses)
    tables.items("a", "b")
    word = _row("a", "word", subject=_key("a"))
    tables.part(1, word)
    before = tables.names(second, stage)
    tables.part(1, _row("b", "elsewhere", subject=_key("b")), stage=second)
    assert tables.names(second, stage) == before
    tables.part(2, _row("a", "vector", subject=word.key), stage=second)
    after = tables.names(second, stage)
    assert after[_key("b")] == before[_key("b")]
    assert after[_key("a")] != before[_key("a")], "the item that the word is about"


@pytest.mark.parametrize(
    "about",
    [{"rows": "2"}, {"ok": "0"}, {"dropped": "1"}, {"stage": "x"}, {"fingerprint": "f2"}, {}],
)
def test_a_part_must_state_what_it_holds(tables: Tables, about: dict[str, str]) -> None:
    rows, name = to_table([_row("a", "a")], CaptionRow), "tables/words/f1/part-1.parquet"
    stated = describe_part(name, rows, version=1) | about if about else {}
    tables.folder.write(name, encode_part(rows, stated))
    with pytest.raises(StoreError, match=r"part-1\.parquet"):
        tables.ledger.load(planned(STAGE))


def test_a_full_disk_of_the_scratch_folder_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, match=r"spill: has no room .*TMPDIR"),
        Build(Folder(str(tmp_path)), (), ()) as build,
    ):
        build.ledger.run(
            "SET memory_limit = '20MB'; SET max_temp_directory_size = '1MB'; "
            "SELECT count(DISTINCT md5(i::VARCHAR)) FROM range(1000000) t(i)"
        )


def test_counts_that_do_not_add_up_are_an_error(tables: Tables) -> None:
    tables.items("a", "b")
    tables.settle()
    tables.ledger.run("DELETE FROM outcome_words WHERE seq = 0")
    with pytest.raises(ValidationError, match=r"words .*2 input rows, .*'pending': 1"):
        tables.ledger.count(planned(STAGE))


@pytest.mark.parametrize("table", ["neighbours", "pairs"])
def test_parts_of_whole_inputs_say_which(tmp_path: Path, table: str) -> None:
    words = ["ant", "bee", "cat", "dog"]
    build_toy(tmp_path, words)
    build_toy(tmp_path, [*words, "eel"])
    with open_toy(tmp_path, [*words, "eel"]) as build:
        for one in build.planned:
            build.settle(one)
        here = build.ledger.collection(build.planned[1])
        folder = next(one.table for one in build.planned if one.stage.name == table)
        names = build.folder.names(folder, ".parquet")
        said = [
            read_about(Part(build.folder, f"{folder}/{name}")).get(COLLECTION) for name in names
        ]
    assert (here in said, len(set(said))) == ((True, 2) if table == "neighbours" else (False, 1))
