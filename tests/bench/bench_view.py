"""Measure the search behind ``pairwright view`` on a million cards, against reading the same columns and filtering.

Run with ``make bench BENCH=view``, or ``python -m tests.bench.bench_view [ROWS]``. The rows are made up: as many
preferences and pairs, half as many images with captions, texts of some thirty words out of 5,000. What a reader would
do instead is to read the texts' columns with pandas from one zstd Parquet file, and to look for the words in each row.
Peaks are of this process.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from pairwright.schemas.arrow import schema_of
from pairwright.schemas.decisions import UNDECIDED
from pairwright.schemas.rows import CaptionRow, ImageRow, NeighbourRow, PairRow, PreferenceRow, SplitRow
from pairwright.tasks.report.card_table import write_cards
from pairwright.tasks.report.search_cards import CardSearch, Search
from pairwright.tasks.report.tables import open_database
from tests.bench.turns import take_turns

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
CHUNK = 50_000
ROWS = {
    "pairs": PairRow,
    "neighbours": NeighbourRow,
    "images": ImageRow,
    "captions": CaptionRow,
    "splits": SplitRow,
    "preferences": PreferenceRow,
}
WORDS = np.array([f"{first}{middle}{last}" for first in ("ba", "ke", "li", "mo", "ru", "sa", "te", "vo", "wi", "zu")
                  for middle in ("lan", "mir", "nok", "pet", "qua", "rov", "sil", "tam", "ver", "yol",)
                  for last in (f"{a}{b}" for a in "aeiou" for b in "dfgklmnrst")])  # fmt: skip
SEARCHES = {
    "one word": Search(q="bamirad"),
    "three words": Search(q="balanad balanaf balanag"),
    "a phrase": Search(q='"balanad balanaf"'),
    "no words": Search(),
    "most similar": Search(order="-similarity"),
    "filters": Search(split="test", kind="swapped", least=0.9),
}
REPEATS = 3


def keys(kind: int, start: int, count: int) -> list[str]:
    return [f"{kind:02x}{number * 2654435761 % 2**32:08x}{number:022x}" for number in range(start, start + count)]


def texts(rng: np.random.Generator, count: int) -> list[str]:
    drawn = WORDS[(rng.random((count, 30)) ** 2 * len(WORDS)).astype(int)]
    return [" ".join(row) for row in drawn.tolist()]


def rows_of(table: str, start: int, count: int) -> dict[str, list]:
    rng = np.random.default_rng([len(table), start])
    if table == "pairs":
        images = rng.integers(0, COUNT // 2, (count, 2)).tolist()
        both = [[keys(1, number, 1)[0] for number in pair] for pair in images]
        return {"key": keys(2, start, count), "first": [a for a, _ in both], "second": [b for _, b in both],
                "origin": ["mined"] * count, "similarity": rng.random(count).tolist()}  # fmt: skip
    if table == "neighbours":
        others = rng.integers(0, COUNT // 2, (count, 4)).tolist()
        found = [[[keys(1, number, 1)[0] for number in row]] for row in others]
        return {"subject": keys(1, start, count), "embedders": [["clip"]] * count, "neighbours": found,
                "similarities": np.sort(rng.random((count, 1, 4)), axis=2)[:, :, ::-1].tolist()}  # fmt: skip
    if table == "images":
        return {"key": keys(1, start, count), "name": [f"{n}.jpg" for n in range(start, start + count)],
                "source": ["folder"] * count, "licence": ["CC0-1.0"] * count}  # fmt: skip
    if table == "captions":
        return {"subject": keys(1, start, count), "text": texts(rng, count)}
    if table == "splits":
        return {"subject": keys(2, start, count), "split": rng.choice(["train", "test"], count, p=[0.9, 0.1]).tolist()}
    return {"key": keys(3, start, count), "subject": keys(2, start, count), "chosen": texts(rng, count),
            "rejected": texts(rng, count), "rejected_maker": rng.choice(["swapped", "edited"], count).tolist(),
            "split": rng.choice(["train", "test"], count, p=[0.9, 0.1]).tolist()}  # fmt: skip


def chunks(table: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield what the tables of such a dataset would."""
    if table == "differences":  # the chosen texts say the same
        return
    total = COUNT // 2 if table in ("images", "captions", "neighbours") else COUNT
    schema = schema_of(ROWS[table])
    for start in range(0, total, CHUNK):
        count = min(CHUNK, total - start)
        found = rows_of(table, start, count)
        given = {name: pa.array(found.get(name, [None] * count), schema.field(name).type) for name in columns}
        yield pa.table(given)


def write_parquet(path: Path) -> None:
    """Write one file with what a reader would search in: the pair's texts, and the captions of its images."""
    captions = {}
    for table in chunks("captions", ("subject", "text")):
        captions |= dict(zip(table["subject"].to_pylist(), table["text"].to_pylist(), strict=True))
    writer = None
    both = zip(chunks("preferences", ("key", "chosen", "rejected")), chunks("pairs", ("first", "second")), strict=True)
    for table, pairs in both:
        for name in ("first", "second"):
            said = pa.array([captions[key] for key in pairs[name].to_pylist()])
            table = table.append_column(f"caption_{name}", said)
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    assert writer
    writer.close()


def timed(work: Callable[[], object]) -> float:
    """Return the least of a few times, in seconds."""
    return take_turns({"": work}, REPEATS, warm=0)[""].clock


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


TEXTS = ("chosen", "rejected", "caption_first", "caption_second")


def by_pandas(frame: pd.DataFrame, words: Sequence[str]) -> int:
    whole = frame[TEXTS[0]].str.cat([frame[name] for name in TEXTS[1:]], sep="\n").str.lower()
    hit = np.ones(len(frame), dtype=bool)
    for word in words:
        hit &= whole.str.contains(word, regex=False).to_numpy(dtype=bool)
    return len(frame[hit].sort_values("key").head(10)) and int(hit.sum())


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        file = folder / "cards.duckdb"
        start = time.perf_counter()
        for name in ROWS:
            for _ in chunks(name, ()):
                pass
        spent = time.perf_counter() - start
        start = time.perf_counter()
        with open_database(str(file), folder) as database:
            write_cards(chunks, database, "preferences", about_pairs=True, reasons=None, watch=lambda _: None)
        took = time.perf_counter() - start
        size = file.stat().st_size / 2**20
        print(f"{COUNT:,} cards: file of {size:,.0f} MB in {took:.0f} s, of which {spent:.0f} s to make the rows up")
        print(f"peak memory {peak():.1f} GB")
        ours: dict[str, tuple[float, int]] = {}
        for name, search in SEARCHES.items():
            with open_database(str(file), folder) as database:
                cards = CardSearch(database)
                cards.set_decisions(UNDECIDED)
                start = time.perf_counter()
                hits = cards.find(search)
                first = time.perf_counter() - start
                more = search.model_copy(update={"after": hits.keys[-1] if hits.keys else ""})
                following = timed(lambda cards=cards, more=more: cards.find(more))
            ours[name] = (first, hits.total)
            print(f"  {name}: {hits.total:,} hits, first page {first:.2f} s, next page {following:.2f} s")
        print(f"peak memory {peak():.1f} GB")
        path = folder / "rows.parquet"
        write_parquet(path)
        for name in ("one word", "three words"):
            words = SEARCHES[name].words
            first, total = ours[name]
            assert by_pandas(pd.read_parquet(path), words) == total
            took = timed(lambda words=words: by_pandas(pd.read_parquet(path), words))
            print(f"{name}: view {first:.2f} s; pandas, reading {took:.1f} s = {took / first:.1f}x")
        print(f"peak memory with pandas {peak():.1f} GB")


if __name__ == "__main__":
    main()
