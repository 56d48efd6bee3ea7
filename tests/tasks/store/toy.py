"""A small line of stages over text items, for tests of the store.

items -> images (one item gives an image, is dropped, or fails) -> neighbours (whole) -> links
(unfinished again when the neighbour changes) -> pairs -> notes (uses both images). ``expect``
says what they must give, without the store.
"""

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from pairwright.schemas.config import BuildRecord, Profile, RunConfig, Section, add_findings
from pairwright.schemas.rows import (
    CaptionRow,
    Dropped,
    Failed,
    ImageRow,
    ItemRow,
    NeighbourRow,
    PairRow,
    Row,
    make_key,
)
from pairwright.tasks.store.executor import Executor, Outcome, ShardFailed
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.open_tables import Build, write_items
from pairwright.tasks.store.pool import Workers
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.snapshot import find_live, read_snapshot, write_snapshot
from pairwright.tasks.store.stage import Planned, Stage, Uses, plan_stage
from tests.fixtures.rows import row_of


class ToyConfig(Section):
    """Settings of the toy stages."""

    trouble: str = ""
    """A file; while it exists, items named "failing..." fail."""
    seconds_per_row: float = 0.0
    """Time that each item, link and note takes."""
    calls: str = ""
    """A file to which a line is added for every item read, and every link and note made."""

    def work(self, *words: str) -> None:
        """Take the time of one row, and record that it was worked on."""
        time.sleep(self.seconds_per_row)
        if self.calls:
            with Path(self.calls).open("a") as calls:
                calls.write(" ".join(words) + "\n")


def list_words(words: Sequence[str]) -> list[ItemRow]:
    """Return one item per word; the place and the number of words do not matter."""
    return [
        row_of(ItemRow, "word", word, source=make_key("word", word), name=word) for word in words
    ]


def read_words(rows: Sequence[ItemRow], config: ToyConfig) -> Iterator[ImageRow | Dropped | Failed]:
    """Yield an "image" per item: its bytes are the word up to a slash (a/1 and a/2 are equal)."""
    for row in rows:
        config.work("item", row.name)
        if row.name.startswith("bad"):
            yield Dropped(source_key=row.key, reason="bad word", detail=row.name)
        elif row.name.startswith("failing") and config.trouble and Path(config.trouble).exists():
            yield Failed(source_key=row.key, reason="trouble", detail=row.name)
        else:
            yield _image(row)


def _image(row: ItemRow) -> ImageRow:
    data = row.name.partition("/")[0].encode() * 50
    key = make_key(data)
    return row_of(ImageRow, data, source=row.key, subject=key, image=data, name=row.name)


def rank_words(
    rows: Sequence[ImageRow], config: ToyConfig, *, everything: pa.Table
) -> Iterator[NeighbourRow]:
    """Yield the next word in alphabetical order as the only neighbour (the last has none)."""
    names = sorted((row["name"].partition("/")[0], row["key"]) for row in everything.to_pylist())
    for row in rows:
        after = [key for name, key in names if name > row.name.partition("/")[0]][:1]
        yield row_of(
            NeighbourRow, "rank", row.key, *after, source=row.key, neighbours=(tuple(after),)
        )


def link_words(
    rows: Sequence[ImageRow], config: ToyConfig, *, neighbours: Mapping[str, NeighbourRow]
) -> Iterator[CaptionRow | Dropped]:
    """Yield which image comes after each; an unknown one leaves the row unfinished."""
    for row in rows:
        config.work("link", row.key)
        if row.subject not in neighbours:
            yield Dropped(source_key=row.key, reason="no neighbours yet")
            continue
        text = " ".join(neighbours[row.subject].neighbours[0])
        yield row_of(CaptionRow, "link", row.key, text, source=row.key, text=text)


def pair_words(rows: Sequence[NeighbourRow], config: ToyConfig) -> Iterator[PairRow | Dropped]:
    """Yield each word with its neighbour."""
    for row in rows:
        if not row.neighbours[0]:
            yield Dropped(source_key=row.key, reason="no neighbour")
            continue
        first, second = sorted([row.subject, row.neighbours[0][0]])
        named = {"subject": make_key(first, second), "anchor": row.subject}
        yield row_of(PairRow, first, second, source=row.key, first=first, second=second, **named)


def note_pairs(
    rows: Sequence[PairRow], config: ToyConfig, *, images: Mapping[str, ImageRow]
) -> Iterator[CaptionRow]:
    """Yield both contents of a pair as a text."""
    for row in rows:
        config.work("note", row.key)
        text = b" ".join(_content(images[key]) for key in (row.first, row.second)).decode()
        yield row_of(CaptionRow, source=row.key, key=row.key, text=text)


def _content(row: ImageRow) -> bytes:
    return row.image[: len(row.image) // 50]


def stage(
    name: str,
    function: Callable[..., Any],
    reads: Mapping[str, type[Row]],
    writes: type[Row],
    *uses: Uses,
    **options: Any,
) -> Stage:
    """Return a stage of which only what matters is given."""
    fields = {"version": 1, "group": "mining", "config": Section, **options}
    return Stage(name=name, function=function, reads=reads, writes=writes, uses=uses, **fields)


IMAGES = {"images": ImageRow}
STAGES = (
    stage("images", read_words, {"items": ItemRow}, ImageRow, group="sources", journal="results"),
    stage(
        "neighbours",
        rank_words,
        IMAGES,
        NeighbourRow,
        Uses(table="images", row=ImageRow, kind="table", name="everything"),
    ),
    stage(
        "links",
        link_words,
        IMAGES,
        CaptionRow,
        Uses(table="neighbours", row=NeighbourRow, counts=True),
        without=("image",),
        journal="results",
    ),
    stage("pairs", pair_words, {"neighbours": NeighbourRow}, PairRow),
    stage(
        "notes",
        note_pairs,
        {"pairs": PairRow},
        CaptionRow,
        Uses(table="images", row=ImageRow, on="about"),
        group="captioning",
    ),
)


class Quiet(Section):
    """Identity of the toy stages: time and trouble do not change their rows."""


def plan_toy(config: ToyConfig, stages: Sequence[Stage] = STAGES) -> list[Planned]:
    """Return the toy stages, ready to run."""
    tables: dict[str, str] = {}
    planned: list[Planned] = []
    for toy in stages:
        step = plan_stage(toy, Quiet(), inputs=toy.inputs(config), tables=tables)
        tables[toy.name] = step.fingerprint
        planned.append(replace(step, config=config))
    return planned


def record_of(rows_per_shard: int = 10, limit: int | None = None) -> BuildRecord:
    """Return what a toy build was asked for."""
    return BuildRecord(
        items=(),
        profile=add_findings(Profile(run=RunConfig(rows_per_shard=rows_per_shard)), {}),
        limit=limit,
        until="",
    )


def build_toy(
    root: Path | str,
    words: Sequence[str],
    config: ToyConfig | None = None,
    *,
    rows_per_shard: int = 10,
    workers: int | Executor = 1,
    stages: Sequence[Stage] = STAGES,
) -> tuple[list[Counts], list[Outcome]]:
    """Build the toy dataset; return the counts per stage and what every shard did."""
    running = Workers(workers) if isinstance(workers, int) else nullcontext(workers)
    outcomes: list[Outcome] = []
    counts: list[Counts] = []
    opened = open_toy(root, words, config, rows_per_shard=rows_per_shard, stages=stages)
    with running as pool, opened as build:
        for planned in build.planned:
            with build.lock_stage(planned):
                build.resolve(planned)
                outcomes += (done := list(pool.submit(planned, build.shards(planned))))
                if not failures(done):
                    build.drop_journals(planned)
                counts.append(build.resolve(planned))
        done = list(zip(build.planned, counts, strict=True))
        write_snapshot(build, done, record=record_of(rows_per_shard))
    return counts, outcomes


def failures(outcomes: Sequence[Outcome]) -> list[str]:
    """Return what went wrong with shards, as a user would read it."""
    return [each.result.error for each in outcomes if isinstance(each.result, ShardFailed)]


def open_toy(
    root: Path | str,
    words: Sequence[str],
    config: ToyConfig | None = None,
    *,
    rows_per_shard: int = 10,
    stages: Sequence[Stage] = STAGES,
) -> Build:
    """List the words and return the build of the toy stages, to be entered."""
    folder = Folder(str(root))
    items = write_items(folder, list_words(words))
    return Build(folder, plan_toy(config or ToyConfig(), stages), items, rows_per_shard)


@contextmanager
def resolved(opened: Build) -> Generator[Build]:
    with opened as build:
        for planned in build.planned:
            build.resolve(planned)
        yield build


def settled_toy(root: Path | str, words: Sequence[str]) -> AbstractContextManager[Build]:
    """Open a build of these words that knows what there is."""
    return resolved(open_toy(root, words))


def toy_version(root: Path | str, number: int) -> AbstractContextManager[Build]:
    """Open a version of a toy dataset, resolved."""
    snapshot = read_snapshot(Folder(str(root)), number)
    build = Build(Folder(str(root)), plan_toy(ToyConfig()), snapshot.content["items"], 10)
    return resolved(replace(build, pinned=snapshot))


def live_rows(build: Build) -> dict[str, list[Row]]:
    """Return the live rows of every stage."""
    return {each.stage.name: find_live(build, each, each.stage.writes) for each in build.planned}


def read_toy(root: Path | str, words: Sequence[str]) -> dict[str, list[Row]]:
    """Return the live rows of every stage, as a build of these words would see them now."""
    with settled_toy(root, words) as build:
        return live_rows(build)


def read_tree(root: Path) -> dict[str, bytes]:
    """Return every file of the tables, by its path; locks hold nothing."""
    paths = sorted(
        path for path in (root / "tables").rglob("*") if path.is_file() and path.name != ".lock"
    )
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def expect(words: Sequence[str], failed: Collection[str] = ()) -> dict[str, set[tuple[str, ...]]]:
    """Return the expected live rows: names of images, else the contents that they are about."""
    names: dict[str, list[str]] = {}
    for word in words:
        if not word.startswith("bad") and word not in failed:
            names.setdefault(word.partition("/")[0], []).append(word)
    chain = sorted(names)
    after = dict(pairwise(chain))
    return {
        "images": {
            (min(same, key=lambda word: make_key("word", word)),) for same in names.values()
        },
        "neighbours": {(word, after.get(word, "")) for word in chain},
        "links": {(word, after.get(word, "")) for word in chain},
        "pairs": set(after.items()),
        "notes": {tuple(sorted(pair, key=key_of)) for pair in after.items()},
    }


def say(rows: Mapping[str, Sequence[Row]]) -> dict[str, list[tuple[str, ...]]]:
    """Return live rows in the words of ``expect``; the content of an image is its bytes."""
    said = {row.key: _content(row).decode() for row in rows["images"]}
    said[""] = ""
    return {
        "images": [(row.name,) for row in rows["images"]],
        "neighbours": [
            (said[row.subject], said["".join(row.neighbours[0])]) for row in rows["neighbours"]
        ],
        "links": [(said[row.subject], said[row.text]) for row in rows["links"]],
        "pairs": [
            (said[row.anchor], said[row.first if row.anchor == row.second else row.second])
            for row in rows["pairs"]
        ],
        "notes": [tuple(row.text.split(" ")) for row in rows["notes"]],
    }


def key_of(word: str) -> str:
    """Return the key of a word's image."""
    return make_key(word.encode() * 50)


def check_rows(
    rows: Mapping[str, Sequence[Row]], words: Sequence[str], failed: Collection[str] = ()
) -> None:
    """The live rows are exactly the expected ones, each once."""
    said, right = say(rows), expect(words, failed)
    assert {name: sorted(found) for name, found in said.items()} == {
        name: sorted(all_) for name, all_ in right.items()
    }


def check(root: Path | str, words: Sequence[str], failed: Collection[str] = ()) -> None:
    """The live rows of a dataset are exactly the expected ones."""
    check_rows(read_toy(root, words), words, failed)


def check_version(
    root: Path | str, number: int, words: Sequence[str], failed: Collection[str] = ()
) -> None:
    """The rows of a version are exactly the expected ones."""
    with toy_version(root, number) as build:
        check_rows(live_rows(build), words, failed)


def take_calls(config: ToyConfig) -> list[str]:
    """Return what was worked on since the last time, sorted."""
    path = Path(config.calls)
    calls = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return sorted(calls)


def items_of(calls: Sequence[str]) -> list[str]:
    """Return the items among what was worked on."""
    return [call.removeprefix("item ") for call in calls if call.startswith("item ")]


def planned_items(name: str = "toy", **options: Any) -> Planned:
    """Return a stage that reads items, ready to run, for shards of which only the name matters."""
    toy = stage(name, iter, {"items": ItemRow}, ItemRow, **options)
    return Planned(stage=toy, config=None, inputs=toy.inputs(None), fingerprint="0")


def shard_of(folder: Path, name: str) -> ShardRef:
    fields = {"plan": "", "start": 0, "stop": 1, "indexes": (), "journals": str(folder)}
    return ShardRef(folder=Folder(str(folder)), name=name, **fields)
