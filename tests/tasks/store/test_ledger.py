"""The ledger: what is owed, and counts that add up, from the keys of the parts alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from pairwright.schemas.arrow import to_table
from pairwright.schemas.errors import StoreError, ValidationError
from pairwright.schemas.rows import CaptionRow, Dropped, Failed, ItemRow, PairRow, Row, make_key
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import COLLECTION, DUPLICATE, Ledger
from pairwright.tasks.store.part import Part, describe_part, encode_part, read_about
from pairwright.tasks.store.stage import Planned, Stage, Uses
from tests.tasks.store.toy import build_toy, open_toy

ITEMS = "tables/items/listed"
STAGE = Stage(name="words", version=1, group="sources", reads={"items": ItemRow}, writes=CaptionRow,
              function=lambda rows, config: iter(()), config="toy")  # fmt: skip
WORDS = Planned(stage=STAGE, config=None, fingerprint="f1")
NAMES = ["a", "b", "c", "d", "e"]


class Table:
    """Write parts by hand."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def items(self, *names: str) -> None:
        rows = [ItemRow(key=_key(n), source_key=_key(n), subject=_key(n), name=n, locator=n) for n in names]
        self.part(f"{ITEMS}/part-{len(names)}.parquet", *rows, kind=ItemRow)

    def part(self, name: str, *rows: Row | Dropped | Failed, kind: type[Row] = CaptionRow) -> None:
        table = to_table(rows, kind)
        self.folder.write(name, encode_part(table, describe_part(name, table, version=1)))


def _key(name: str) -> str:
    return make_key("item", name)


def _row(source: str, content: str, subject: str = "") -> CaptionRow:
    key = make_key("row", content)
    subject = make_key("row", subject) if subject else key
    return CaptionRow(key=key, source_key=_key(source), subject=subject, text="", sentences=(), model="")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(Folder(str(tmp_path / "out")))


@pytest.fixture
def ledger(table: Table, tmp_path: Path):
    with Ledger(table.folder, tmp_path / "spill") as ledger:
        yield ledger


def _settle(ledger: Ledger, planned: Planned = WORDS) -> dict[str, object]:
    ledger.load(planned)
    ledger.settle(planned.stage)
    return ledger.count(planned).as_json()


def _owed(ledger: Ledger, stage: Stage = STAGE, **options: str) -> list[tuple[str, int]]:
    rows = ledger.owed(stage, 2, **options).read_all().to_pylist()
    return [(row["key"], row["shard"]) for row in rows]


def test_a_row_ends_in_the_best_way_of_any_part(table: Table, ledger: Ledger) -> None:
    table.items(*NAMES)
    table.part("tables/words/f1/part-1.parquet", Failed(source_key=_key("a"), reason="down"), _row("b", "b"))
    table.part(
        "tables/words/f1/part-2.parquet", _row("a", "a1"), _row("a", "a2"), Dropped(source_key=_key("c"), reason="dull")
    )
    table.part(
        "tables/words/f1/part-3.parquet",
        Failed(source_key=_key("c"), reason="x"),
        Failed(source_key=_key("d"), reason="down"),
    )
    ledger.set_items(ITEMS, ["part-5.parquet"])
    assert _settle(ledger) == {
        "stage": "words", "fingerprint": "f1", "in": 5, "ok": 2, "dropped": 1, "failed": 1, "pending": 1, "rows": 3,
        "reasons": {"down": 1, "dull": 1},
    }  # fmt: skip
    assert _owed(ledger) == [(_key("d"), 1), (_key("e"), 2)]
    assert _owed(ledger, reason="down") == [(_key("d"), 1)]
    assert _owed(ledger, reason="dull") == []
    assert dict(ledger.live_parts("words")) == {"part-1.parquet": 1, "part-2.parquet": 2}


def test_equal_keys_are_one_row_and_the_smallest_source_gives_it(table: Table, ledger: Ledger) -> None:
    first, second = sorted(["a", "b"], key=_key)
    table.items("a", "b")
    table.part("tables/words/f1/part-1.parquet", _row(second, "same"))
    table.part("tables/words/f1/part-2.parquet", _row(first, "same"))
    ledger.set_items(ITEMS, ["part-2.parquet"])
    count = _settle(ledger)
    assert (count["ok"], count["dropped"], count["rows"], count["reasons"]) == (1, 1, 1, {DUPLICATE: 1})
    assert dict(ledger.live_parts("words")) == {"part-2.parquet": 1}
    assert _owed(ledger) == []


def test_rows_of_absent_items_are_stale(table: Table, ledger: Ledger) -> None:
    table.items("a")
    table.part(
        "tables/words/f1/part-1.parquet",
        _row("a", "a"),
        _row("gone", "g"),
        Failed(source_key=_key("gone2"), reason="x"),
    )
    ledger.set_items(ITEMS, ["part-1.parquet"])
    count = _settle(ledger)
    assert (count["in"], count["ok"], count["failed"], count["rows"]) == (1, 1, 0, 1)


def test_parts_that_come_or_are_replaced_later_are_taken_in(table: Table, ledger: Ledger) -> None:
    table.items("a", "b")
    table.part(
        "tables/words/f1/part-1.parquet",
        Failed(source_key=_key("a"), reason="x"),
        Failed(source_key=_key("b"), reason="x"),
    )
    ledger.set_items(ITEMS, ["part-2.parquet"])
    assert (_settle(ledger)["failed"], len(_owed(ledger))) == (2, 2)
    table.part("tables/words/f1/part-1.parquet", _row("a", "a"), Failed(source_key=_key("b"), reason="y"))
    assert (_settle(ledger)["ok"], _settle(ledger)["reasons"]) == (1, {"y": 1})
    table.part("tables/words/f1/part-0.parquet", _row("b", "b"))
    assert (_settle(ledger)["ok"], _owed(ledger)) == (2, [])
    assert ledger.part_names("words") == ["part-1.parquet", "part-0.parquet"]


def test_the_index_rises_by_subject(table: Table, ledger: Ledger) -> None:
    table.items(*NAMES)
    table.part(
        "tables/words/f1/part-1.parquet", *(_row(name, name, subject=str(n % 2)) for n, name in enumerate(NAMES))
    )
    ledger.set_items(ITEMS, ["part-5.parquet"])
    _settle(ledger)
    subjects = ledger.index("words").read_all().column("subject").to_pylist()
    assert subjects == sorted(subjects)
    assert [s.hex() for s in subjects].count(make_key("row", "0")) == 3


def test_a_stage_by_source_owes_what_was_made_from_something_else(table: Table, ledger: Ledger) -> None:
    plain = replace(STAGE, name="plain", reads={"words": CaptionRow})
    careful = replace(plain, name="careful", by_source=True)
    names: list[dict[str, tuple[str, ...]]] = []
    for source in ("a", "c"):  # both give the row "x", and c has the smaller key
        table.items("a", "b", "c")
        rows = {"x": source, "y": "b"}
        table.part(f"{WORDS.table}/part-{source}.parquet", *(_row(rows[word], word) for word in rows))
        ledger.set_items(ITEMS, ["part-3.parquet"])
        _settle(ledger)
        owed = {}
        for stage in (plain, careful):
            planned = Planned(stage=stage, config=None, fingerprint="f2")
            _settle(ledger, planned)
            columns = ledger.owed(stage, 10).read_all()
            owed[stage.name] = dict(
                zip(columns.column("key").to_pylist(), columns.column("source_key").to_pylist(), strict=True)
            )
        names.append(owed)
    before, after = names
    assert before["plain"] == after["plain"] == {make_key("row", word): make_key("row", word) for word in "xy"}
    assert before["careful"][make_key("row", "y")] == after["careful"][make_key("row", "y")]
    assert before["careful"][make_key("row", "x")] != after["careful"][make_key("row", "x")]


def test_a_whole_stage_owes_everything_when_its_input_changes(table: Table, ledger: Ledger) -> None:
    stage = replace(STAGE, name="all", reads={"words": CaptionRow}, whole=True)
    planned = Planned(stage=stage, config=None, fingerprint="f2")
    table.items("a", "b")
    table.part("tables/words/f1/part-1.parquet", _row("a", "a"))
    ledger.set_items(ITEMS, ["part-2.parquet"])
    _settle(ledger)
    _settle(ledger, planned)
    before = ledger.owed(stage, 10).read_all().column("source_key").to_pylist()
    table.part("tables/words/f1/part-2.parquet", _row("b", "b"))
    _settle(ledger)
    _settle(ledger, planned)
    after = ledger.owed(stage, 10).read_all().column("source_key").to_pylist()
    assert (len(before), len(after)) == (1, 2)
    assert not set(before) & set(after)


def test_rows_that_count_are_found_by_the_column_that_names_them(table: Table, ledger: Ledger) -> None:
    pairs = Planned(stage=replace(STAGE, name="pairs", writes=PairRow), config=None, fingerprint="f2")
    reader = replace(
        STAGE,
        name="uses",
        reads={"pairs": PairRow},
        uses=(Uses(table="words", row=CaptionRow, on="anchor", counts=True),),
    )
    names = {"first": _key("a"), "second": _key("b"), "anchor": _key("c")}
    pair = PairRow(key=_key("p"), source_key=_key("a"), subject=_key("p"), origin="mined", cluster=0, **names)
    table.items("a")
    ledger.set_items(ITEMS, ["part-1.parquet"])
    table.part("tables/pairs/f2/part-1.parquet", pair, kind=PairRow)
    found: list[str] = []
    for number, about in enumerate(["", "p", "a", "c"]):  # the anchor's alone counts
        if about:
            table.part(f"tables/words/f1/part-{number}.parquet", replace(_row("a", about), subject=_key(about)))
        _settle(ledger)
        _settle(ledger, pairs)
        ledger.load(Planned(stage=reader, config=None, fingerprint="f3"))
        ledger.settle(reader)
        found += ledger.owed(reader, 10).read_all().column("source_key").to_pylist()
    assert found[0] == found[1] == found[2] != found[3]


def test_a_row_is_owed_again_when_the_rows_that_count_change(table: Table, ledger: Ledger) -> None:
    use = Uses(table="words", row=CaptionRow, counts=True)
    readers = [
        replace(STAGE, name="uses", uses=(use,)),
        replace(STAGE, name="uses", uses=(replace(use, counts=False),)),
    ]
    table.items("a")
    ledger.set_items(ITEMS, ["part-1.parquet"])
    _settle(ledger)

    def names() -> list[str]:
        found: list[str] = []
        for stage in readers:
            ledger.load(Planned(stage=stage, config=None, fingerprint="f3"))
            ledger.settle(stage)
            found += ledger.owed(stage, 10).read_all().column("source_key").to_pylist()
        return found

    before = names()
    about_a = replace(_row("a", "text 1"), subject=_key("a"))
    table.part("tables/words/f1/part-1.parquet", about_a)
    _settle(ledger)
    after = names()
    assert before[0] != after[0]
    assert before[1] == after[1] == _key("a")


def test_rows_that_are_used_of_others_count_too(table: Table, ledger: Ledger) -> None:
    """A row is owed again when a third table changes that only a second one leads to."""
    words = Uses(table="words", row=CaptionRow, kind="many")
    second = Planned(stage=replace(STAGE, name="second"), config=None, fingerprint="f1")
    uses = (words, Uses(table="second", row=CaptionRow, on="key", of="words", counts=True))
    stage = replace(STAGE, name="uses", uses=uses)
    table.items("a", "b")
    ledger.set_items(ITEMS, ["part-2.parquet"])
    word = replace(_row("a", "word"), subject=_key("a"))
    table.part("tables/words/f1/part-1.parquet", word)

    def names() -> set[str]:
        _settle(ledger)
        _settle(ledger, second)
        ledger.load(Planned(stage=stage, config=None, fingerprint="f3"))
        ledger.settle(stage)
        return set(ledger.owed(stage, 10).read_all().column("source_key").to_pylist())

    before = names()
    table.part("tables/second/f1/part-1.parquet", replace(_row("b", "elsewhere"), subject=_key("b")))
    assert names() == before
    table.part("tables/second/f1/part-2.parquet", replace(_row("a", "vector"), subject=word.key))
    assert len(names() & before) == 1, "only the item that the word is about"


@pytest.mark.parametrize(
    "about", [{"rows": "2"}, {"ok": "0"}, {"dropped": "1"}, {"stage": "x"}, {"fingerprint": "f2"}, {}]
)
def test_a_part_must_state_what_it_holds(table: Table, ledger: Ledger, about: dict[str, str]) -> None:
    rows, name = to_table([_row("a", "a")], CaptionRow), "tables/words/f1/part-1.parquet"
    stated = describe_part(name, rows, version=1) | about if about else {}
    table.folder.write(name, encode_part(rows, stated))
    with pytest.raises(StoreError, match=r"part-1\.parquet"):
        ledger.load(WORDS)


def test_counts_that_do_not_add_up_are_an_error(table: Table, ledger: Ledger) -> None:
    table.items("a", "b")
    ledger.set_items(ITEMS, ["part-2.parquet"])
    _settle(ledger)
    ledger.run("DELETE FROM outcome_words WHERE seq = 0")
    with pytest.raises(ValidationError, match=r"words .*2 input rows, .*'pending': 1"):
        ledger.count(WORDS)


FEW, MORE = ["ant", "bee", "cat", "dog"], ["ant", "bee", "cat", "dog", "eel"]


@pytest.mark.parametrize("table", ["neighbours", "pairs"])
def test_parts_of_whole_inputs_say_which(tmp_path: Path, table: str) -> None:
    build_toy(tmp_path, FEW)
    build_toy(tmp_path, MORE)
    with open_toy(tmp_path, MORE) as build:
        for planned in build.planned:
            build.settle(planned)
        here = build.ledger.collection(build.planned[1].stage)
        folder = next(planned.table for planned in build.planned if planned.stage.name == table)
        said = [
            read_about(Part(build.folder, f"{folder}/{name}")).get(COLLECTION) for name in build.folder.names(folder)
            if name.endswith(".parquet")
        ]  # fmt: skip
    assert (here in said, len(set(said))) == ((True, 2) if table == "neighbours" else (False, 1))
