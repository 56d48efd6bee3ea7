"""A small line of stages over text items, for tests of the store: fast, and every kind of stage is in it.

items -> words (one item gives an image, is dropped, or fails) -> lengths (whole) -> pairs -> notes (uses both images).
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from schemas.config import Section
from schemas.rows import CaptionRow, Dropped, Failed, ImageRow, ItemRow, NeighbourRow, PairRow, make_key
from tasks.store.dataset import Build, write_items
from tasks.store.files import Folder
from tasks.store.ledger import Counts
from tasks.store.pool import Outcome, Workers
from tasks.store.stage import Planned, Stage, Uses, fingerprint


class ToyConfig(Section):
    """Say how the toy stages behave."""

    trouble: str = ""
    """A file; while it exists, items named "failing..." fail."""
    seconds_per_row: float = 0.0
    """Time that each item takes."""
    calls: str = ""
    """A file to which every item read is added."""


def list_words(words: Sequence[str]) -> list[ItemRow]:
    """Return one item per word; the place and the number of words do not matter."""
    return [
        ItemRow(key=key, source_key=key, subject=key, name=word, locator=word)
        for word in words
        for key in [make_key("word", word)]
    ]


def read_words(rows: Sequence[ItemRow], config: ToyConfig) -> Iterator[ImageRow | Dropped | Failed]:
    """Yield an "image" per item: its bytes are the word up to a slash, so that a/1 and a/2 have the same content."""
    for row in rows:
        time.sleep(config.seconds_per_row)
        if config.calls:
            with Path(config.calls).open("a") as calls:
                calls.write(row.name + "\n")
        if row.name.startswith("bad"):
            yield Dropped(source_key=row.key, reason="bad word", detail=row.name)
        elif row.name.startswith("failing") and config.trouble and Path(config.trouble).exists():
            yield Failed(source_key=row.key, reason="trouble", detail=row.name)
        else:
            yield _image(row)


def _image(row: ItemRow) -> ImageRow:
    data = row.name.partition("/")[0].encode() * 50
    key = make_key(data)
    return ImageRow(
        key=key, source_key=row.key, subject=key, image=data, format="png", width=len(row.name), height=1,
        name=row.name, source="toy", licence="CC0-1.0", group="",
    )  # fmt: skip


def rank_words(
    rows: Sequence[ImageRow], config: ToyConfig, *, everything: Sequence[ImageRow]
) -> Iterator[NeighbourRow]:
    """Yield the next word in alphabetical order as the only neighbour (the last has none)."""
    names = sorted((row.name.partition("/")[0], row.key) for row in everything)
    for row in rows:
        after = [key for name, key in names if name > row.name.partition("/")[0]][:1]
        yield NeighbourRow(
            key=make_key("rank", row.key, *after), source_key=row.key, subject=row.key,
            embedders=("name",), neighbours=(tuple(after),), similarities=(tuple(0.5 for _ in after),),
        )  # fmt: skip


def pair_words(rows: Sequence[NeighbourRow], config: ToyConfig) -> Iterator[PairRow | Dropped]:
    """Yield each word with its neighbour."""
    for row in rows:
        if not row.neighbours[0]:
            yield Dropped(source_key=row.key, reason="no neighbour")
            continue
        first, second = sorted([row.subject, row.neighbours[0][0]])
        key = make_key(first, second)
        yield PairRow(
            key=key, source_key=row.key, subject=key, first=first, second=second, origin="mined", anchor=row.subject,
            cluster=0,
        )  # fmt: skip


def note_pairs(rows: Sequence[PairRow], config: ToyConfig, *, images: Mapping[str, ImageRow]) -> Iterator[CaptionRow]:
    """Yield both contents of a pair as a text."""
    for row in rows:
        text = b" ".join(images[key].image[:8] for key in (row.first, row.second)).decode()
        yield CaptionRow(
            key=row.key, source_key=row.key, subject=row.key, text=text, sentences=(text,), model="toy"
        )  # fmt: skip


STAGES = (
    Stage(name="images", version=1, group="sources", reads="items", row=ItemRow, writes=ImageRow, function=read_words,
          config="toy", journal=True),
    Stage(name="neighbours", version=1, group="mining", reads="images", row=ImageRow, writes=NeighbourRow,
          function=rank_words, config="toy", whole=True,
          uses=(Uses(table="images", row=ImageRow, kind="all", name="everything"),)),
    Stage(name="pairs", version=1, group="mining", reads="neighbours", row=NeighbourRow, writes=PairRow,
          function=pair_words, config="toy", tie="anchor"),
    Stage(name="notes", version=1, group="captioning", reads="pairs", row=PairRow, writes=CaptionRow,
          function=note_pairs, config="toy", uses=(Uses(table="images", row=ImageRow, on="images", counts=True),)),
)  # fmt: skip


class Quiet(Section):
    """Identify the toy stages: how long they take and what troubles them does not change their rows."""


def plan_toy(config: ToyConfig, stages: Sequence[Stage] = STAGES) -> list[Planned]:
    """Return the toy stages, ready to run."""
    tables: dict[str, str] = {}
    for stage in stages:
        tables[stage.name] = fingerprint(stage, Quiet(), prompts={}, tables=tables)
    return [Planned(stage=stage, config=config, fingerprint=tables[stage.name]) for stage in stages]


def build_toy(
    root: Path | str,
    words: Sequence[str],
    config: ToyConfig | None = None,
    *,
    rows_per_shard: int = 10,
    workers: int = 1,
) -> tuple[list[Counts], list[Outcome]]:
    """Build the toy dataset; return the counts per stage and what every shard did."""
    folder = Folder(str(root))
    planned = plan_toy(config or ToyConfig())
    items = write_items(folder, list_words(words))
    outcomes: list[Outcome] = []
    counts: list[Counts] = []
    with Workers(workers) as pool, Build(folder, planned, items, rows_per_shard) as build:
        for stage in planned:
            with build.locked(stage):
                build.clean(stage)
                build.settle(stage)
                outcomes += pool.run(stage, build.shards(stage))
                counts.append(build.settle(stage))
    return counts, outcomes
