"""Measure what served models were asked: requests, tokens, latencies, how answers ended, what was asked again.

Reads the ``served`` column (with ``attempts``) of every table that has one, column by column; 40 bytes per request of
one table are held in memory, and 8 of all. A request whose answer is in rows of several tables (a description, and the
rejected text that became of it) counts where it comes first. Requests for rows that were dropped or failed are in no
table.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from pairwright.tasks.report.tables import Tables

pc: Any = pyarrow.compute
WORDS = ("prompt", "model", "revision", "finish_reason")
NUMBERS = ("seed", "prompt_tokens", "completion_tokens", "latency")
SEVERAL = frozenset({"sampled"})
"""Tables whose rows ask for several answers on purpose."""
Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedUse:
    """Say what one model was asked by one stage."""

    stage: str
    model: str
    revisions: tuple[str, ...]
    prompts: tuple[str, ...]
    rows: int
    """Rows that were made with it."""
    again: int
    """Those for which it was asked more than once for one thing."""
    requests: int
    prompt_tokens: int
    completion_tokens: int
    median: float
    """Seconds from sending to the whole answer."""
    p95: float
    finish_reasons: dict[str, int]

    @property
    def share_again(self) -> float:
        """Return the share of rows that needed more than one attempt."""
        return self.again / max(self.rows, 1)


@dataclass(frozen=True)
class Requests:
    """Hold the requests of one table, column by column; words as codes into their list."""

    rows: Codes
    """Which row of the table each was made for."""
    attempts: Codes
    """How many attempts that row says it took."""
    codes: dict[str, Codes]
    words: dict[str, list[str]]
    numbers: dict[str, NDArray[Any]]

    @property
    def marks(self) -> NDArray[np.uint64]:
        """Return what tells requests apart: no two take equally long to the last bit under one seed."""
        latency = self.numbers["latency"].astype(np.float32).view(np.uint32).astype(np.uint64)
        return latency << np.uint64(32) | self.numbers["seed"].astype(np.uint64) & np.uint64(0xFFFFFFFF)


def measure_served(tables: Tables) -> tuple[ServedUse, ...]:
    """Return what each stage asked of each model, in the order of the build; nothing where no model was served."""
    found: list[ServedUse] = []
    seen = np.empty(0, np.uint64)
    for name in tables.served():
        requests = read_requests(tables, name)
        if requests is not None:
            marks, first = np.unique(requests.marks, return_index=True)
            new = np.sort(first[~np.isin(marks, seen)])
            seen = np.union1d(seen, marks)
            found += measure_requests(name, requests, new)
    return tuple(found)


def read_requests(tables: Tables, name: str) -> Requests | None:
    """Return the requests of a table's live rows; ``None`` if there are none."""
    parts: list[pa.Table] = []
    rows = 0
    for table in tables.chunks(name, ["served", "attempts"]):
        if "served" in table.column_names:
            parts.append(_flat(table, rows))
        rows += len(table)
    if not sum(map(len, parts)):
        return None
    whole = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    words = {word: whole.column(word).chunk(0) for word in WORDS}
    return Requests(
        rows=whole.column("row").to_numpy(),
        attempts=whole.column("attempts").to_numpy(),
        codes={word: column.indices.to_numpy().astype(np.int64) for word, column in words.items()},
        words={word: column.dictionary.to_pylist() for word, column in words.items()},
        numbers={number: whole.column(number).to_numpy() for number in NUMBERS},
    )


def _flat(table: pa.Table, before: int) -> pa.Table:
    """Return one row per request, of rows that have ``before`` others before them."""
    lists = table.column("served").combine_chunks()
    parents = pc.list_parent_indices(lists)
    requests = pc.list_flatten(lists)
    columns = {word: pc.fill_null(pc.struct_field(requests, word), "").dictionary_encode() for word in WORDS}
    columns |= {number: pc.fill_null(pc.struct_field(requests, number), 0) for number in NUMBERS}
    attempts = table.column("attempts") if "attempts" in table.column_names else pa.nulls(len(table), pa.int32())
    columns["attempts"] = pc.fill_null(attempts.take(parents), 1).cast(pa.int64())
    return pa.table({**columns, "row": pc.add(parents, before).cast(pa.int64())})


def measure_requests(stage: str, requests: Requests, new: Codes) -> Iterator[ServedUse]:
    """Yield what each model was asked, by falling number of requests; only those at the places ``new`` count."""
    models = requests.codes["model"][new]
    for code in np.argsort(-np.bincount(models), kind="stable") if len(new) else ():
        own = new[models == code]
        if len(own):
            yield _measure(stage, requests, own)


def _measure(stage: str, requests: Requests, own: Codes) -> ServedUse:
    latencies = requests.numbers["latency"][own]
    median, p95 = np.quantile(latencies, (0.5, 0.95)).tolist()
    return ServedUse(
        stage=stage,
        model=requests.words["model"][requests.codes["model"][own[0]]],
        revisions=tuple(filter(None, _count(requests, "revision", own))),
        prompts=tuple(_count(requests, "prompt", own)),
        rows=len(np.unique(requests.rows[own])),
        again=0 if stage in SEVERAL else _count_again(requests, own),
        requests=len(own),
        prompt_tokens=int(requests.numbers["prompt_tokens"][own].sum(dtype=np.int64)),
        completion_tokens=int(requests.numbers["completion_tokens"][own].sum(dtype=np.int64)),
        median=median,
        p95=p95,
        finish_reasons=_count(requests, "finish_reason", own),
    )


def _count(requests: Requests, word: str, own: Codes) -> dict[str, int]:
    """Return how often each word occurs, the most frequent first."""
    counts = np.bincount(requests.codes[word][own], minlength=len(requests.words[word]))
    order = np.argsort(-counts, kind="stable")
    return {requests.words[word][code]: int(counts[code]) for code in order if counts[code]}


def _count_again(requests: Requests, own: Codes) -> int:
    """Count the rows that took several attempts: they say so, or one prompt was asked twice for them."""
    rows = requests.rows[own]
    asked = rows * len(requests.words["prompt"]) + requests.codes["prompt"][own]
    pairs, times = np.unique(asked, return_counts=True)
    twice = pairs[times > 1] // len(requests.words["prompt"])
    return len(np.union1d(rows[requests.attempts[own] > 1], twice))
