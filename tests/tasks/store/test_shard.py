"""Shards: what a stage's function is given, and what is made of what it yields."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from pairwright.schemas.rows import (
    CaptionRow,
    Dropped,
    Failed,
    ImageRow,
    NeighbourRow,
    PairRow,
    Row,
    make_key,
)
from pairwright.tasks.store.executor import Outcome, ShardFailed
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.shard import NOTHING, read_plan, run_shard, write_plan
from pairwright.tasks.store.stage import Uses
from tests.fixtures.rows import row_of
from tests.tasks.store.faults import Killed
from tests.tasks.store.toy import STAGES, ToyConfig, build_toy, open_toy, read_toy, stage

WORDS = ["a", "b", "c", "d"]
Results = Iterator[CaptionRow | Dropped | Failed]


def run(root: Path, function: Callable[..., Results], *uses: Uses, **options: Any) -> Outcome:
    """Build the toy stages and one more, and return what the only shard of that one did."""
    fields = {"reads": {"images": ImageRow}, **options}
    custom = stage("custom", function, fields.pop("reads"), CaptionRow, *uses, **fields)
    _, outcomes = build_toy(root, WORDS, stages=(*STAGES, custom), rows_per_shard=100)
    (outcome,) = (each for each in outcomes if each.shard.name.startswith("custom"))
    return outcome


def caption(row: Row, text: str) -> CaptionRow:
    return row_of(CaptionRow, row.key, text, source=row.key, text=text)


def rows_of_part(root: Path) -> list[dict[str, Any]]:
    (path,) = root.glob("tables/custom/*/part-*.parquet")
    return pa.parquet.read_table(path).to_pylist()


def test_results_are_put_in_the_order_of_their_inputs(tmp_path: Path) -> None:
    keys: list[str] = []

    def shuffled(rows: Sequence[ImageRow], config: ToyConfig) -> Results:
        assert {row.image for row in rows} == {b""}, "a column that the stage leaves out"
        keys.extend(row.key for row in rows)
        for text in ("first", "second"):
            yield from (caption(row, text) for row in reversed(rows))

    assert run(tmp_path, shuffled, without=("image",)).result.counts == {"ok": 8}
    rows = rows_of_part(tmp_path)
    assert [row["source_key"] for row in rows[::2]] == keys
    assert [row["source_key"] for row in rows[1::2]] == keys
    assert [row["text"] for row in rows] == ["first", "second"] * 4


def test_every_input_ends_in_one_way(tmp_path: Path) -> None:
    def mixed(rows: Sequence[ImageRow], config: ToyConfig) -> Results:
        by_name = {row.name: row for row in rows}
        yield Dropped(source_key=by_name["a"].key, reason="first candidate")
        yield Dropped(source_key=by_name["a"].key, reason="second candidate")
        yield caption(by_name["b"], "fine")
        yield Dropped(source_key=by_name["b"].key, reason="one of two")
        yield caption(by_name["c"], "fine")
        yield Failed(source_key=by_name["c"].key, reason="down", detail="after 3 attempts")

    assert run(tmp_path, mixed).result.counts == {"dropped": 2, "ok": 1, "failed": 1}
    ends = {
        row["source_key"]: (row["status"], row["reason"], row["detail"])
        for row in rows_of_part(tmp_path)
    }
    assert {row.name: ends[row.key] for row in read_toy(tmp_path, WORDS)["images"]} == {
        "a": ("dropped", "first candidate", ""),
        "b": ("ok", "", ""),
        "c": ("failed", "down", "after 3 attempts"),
        "d": ("dropped", NOTHING, ""),
    }


@pytest.mark.parametrize("journal", ["none", "results"])
def test_a_result_for_an_unknown_input_fails_the_shard(tmp_path: Path, journal: str) -> None:
    def strange(rows: Sequence[ImageRow], config: ToyConfig) -> Results:
        yield replace(caption(rows[0], "x"), source_key=make_key("elsewhere"))

    for _ in range(2):
        result = run(tmp_path, strange, journal=journal).result
        assert isinstance(result, ShardFailed)
        assert result.error.startswith("custom-00000: ")


@pytest.mark.parametrize("workers", [1, 2])
def test_finished_work_of_any_process_is_not_repeated(tmp_path: Path, workers: int) -> None:
    """A worker of a killed build goes on to its end; that of the next waits for its journal."""
    config = ToyConfig(calls=str(tmp_path / "calls"))
    with open_toy(tmp_path / "out", WORDS, config) as build:
        build.resolve(build.planned[0])
        (shard,) = build.shards(build.planned[0])
        with ThreadPoolExecutor(workers) as threads:
            done = [threads.submit(run_shard, build.planned[0], shard) for _ in range(2)]
    assert done[0].result() == done[1].result()
    assert Path(config.calls).read_text().count("item") == len(WORDS)
    assert not list(tmp_path.rglob("*.journal"))


def test_a_stopped_shard_goes_on_where_it_was(tmp_path: Path) -> None:
    seen: list[str] = []

    def stopping(rows: Sequence[ImageRow], config: ToyConfig) -> Results:
        for row in rows:
            seen.append(row.name)
            if len(seen) == 4:
                raise Killed
            failed = Failed(source_key=row.key, reason="down")
            yield failed if len(seen) == 1 else caption(row, "fine")

    with pytest.raises(Killed):
        run(tmp_path, stopping, journal="results")
    first, second, third, last = seen
    assert run(tmp_path, stopping, journal="results").result.counts == {"ok": 4}
    # The first failed and the third was the last one written: both are done again.
    assert seen == [first, second, third, last, first, third, last]
    assert not list(tmp_path.rglob("*.journal"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRow(PairRow):
    """A pair that is about its first image alone."""

    ABOUT: ClassVar[tuple[str, ...]] = ("first",)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamelessRow(PairRow):
    """A pair whose column names nothing."""

    ABOUT: ClassVar[tuple[str, ...]] = ("instruction",)


def test_used_tables_come_in_the_form_asked_for(tmp_path: Path) -> None:
    used: dict[str, Any] = {}

    def take(rows: Sequence[PairRow], config: ToyConfig, **tables: Any) -> Results:
        used.update(tables)
        yield from (caption(row, "x") for row in rows)

    uses = (
        Uses(table="notes", row=CaptionRow),
        Uses(table="images", row=ImageRow, on="about", without=("image",)),
        Uses(table="neighbours", row=NeighbourRow, kind="many", on="about"),
        Uses(table="links", row=CaptionRow, kind="many"),
        Uses(table="images", row=ImageRow, kind="table", without=("image", "graph"), name="flat"),
        Uses(table="pairs", row=PairRow, name="same"),
        Uses(table="neighbours", row=NeighbourRow, on="about", of="same", name="theirs"),
        Uses(
            table="pairs",
            row=PairRow,
            kind="many",
            on="key",
            of="theirs",
            by="source_key",
            name="made",
        ),
        Uses(table="pairs", row=FirstRow, name="by_first"),
        Uses(table="neighbours", row=NeighbourRow, on="about", of="by_first", name="firsts"),
        Uses(table="pairs", row=NamelessRow, name="nameless"),
        Uses(table="images", row=ImageRow, on="about", of="nameless", name="none"),
    )
    assert run(tmp_path, take, *uses, reads={"pairs": PairRow}).result.counts == {"ok": 3}
    live = read_toy(tmp_path, WORDS)
    pairs = {row.key: row for row in live["pairs"]}
    neighbours = {row.subject: row for row in live["neighbours"]}
    assert used["notes"] == {row.subject: row for row in live["notes"]}
    assert used["same"] == pairs
    assert used["images"] == {row.key: replace(row, image=b"") for row in live["images"]}
    assert used["neighbours"] == {key: (row,) for key, row in neighbours.items()}
    made = {row.source_key: (row,) for row in pairs.values()}
    assert used["made"] == {row.key: made.get(row.key, ()) for row in used["theirs"].values()}
    assert any(used["made"].values())
    assert used["links"] == dict.fromkeys(pairs, ())
    assert sorted(used["flat"].column("name").to_pylist()) == WORDS
    assert {"image", "graph", "status"}.isdisjoint(used["flat"].column_names)
    assert used["firsts"] == {row.first: neighbours[row.first] for row in pairs.values()} != {}
    assert used["none"] == {}
    assert used["theirs"] == neighbours


def test_a_plan_is_cut_where_the_shards_change(tmp_path: Path) -> None:
    names = ("key", "source_key", "part", "row", "shard")
    batches = [
        pa.record_batch([["a", "b"], ["a", "b"], [0, 0], [0, 1], [0, 0]], names=names),
        pa.record_batch([["c", "e"], ["c", "e"], [0, 1], [2, 0], [0, 2]], names=names),
    ]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    assert write_plan(tmp_path / "plan", reader, ["part-x", "part-y"]) == [(0, 0, 3), (2, 3, 4)]
    with open_toy(tmp_path / "out", WORDS) as build:
        build.resolve(build.planned[0])
        (shard,) = build.shards(build.planned[0])
    plan = read_plan(replace(shard, folder=Folder(str(tmp_path)), plan="plan", start=2, stop=4))
    assert plan.column("key").to_pylist() == ["c", "e"]
