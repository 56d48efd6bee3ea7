"""List what was written, by whom, and what was refused and why: a table per stage, for the pages and as plain text.

Reads the counts of the stages and the ``model`` column of their tables; writes nothing itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pairwright.tasks.report.measure_checks import Check
from pairwright.tasks.report.measure_served import ServedUse
from pairwright.tasks.report.tables import Tables
from pairwright.tasks.store.ledger import Counts

BY_RULE = {"retrieved": "retrieval", "swapped": "a rule", "edited": "a rule", "refuted": "failed checks"}
"""Who writes the rejected texts that no model is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Say what became of one stage that writes texts, or checks them."""

    counts: Counts
    writers: dict[str, int]
    """Rows by the model that wrote them, most first; "scene-graph", "given" and "a rule" are none."""

    @property
    def by(self) -> str:
        """Return the writers in words."""
        if len(self.writers) < 2:
            return "".join(self.writers)
        return ", ".join(f"{name} ({number:,})" for name, number in self.writers.items())


def list_written(tables: Tables, counts: Sequence[Counts], uses: Sequence[ServedUse]) -> tuple[Written, ...]:
    """Return every stage whose rows are texts, or checks of them, in the order of the build."""
    by_stage = {one.stage: one for one in counts}
    return tuple(
        Written(counts=by_stage[name], writers=_writers(tables, name, uses))
        for name in tables.served()
        if name in by_stage
    )


def _writers(tables: Tables, name: str, uses: Sequence[ServedUse]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for table in tables.chunks(name, ["model"]):
        if "model" in table.column_names:
            for item in table.column("model").value_counts().to_pylist():
                found[item["values"]] += item["counts"]
    if not found:
        found.update({use.model: use.rows for use in uses if use.stage == name})
    return dict(found.most_common()) or ({BY_RULE[name]: 0} if name in BY_RULE else {})


def write_plainly(written: Sequence[Written], uses: Sequence[ServedUse], checks: Sequence[Check]) -> str:
    """Return the tables as Markdown: what was written and refused, what models were asked, what checks found."""
    parts = [
        _table(("stage", "written by", "in", "rows", "dropped", "failed", "pending", "why"), map(_line, written)),
        _table(("stage", "model", "requests", "asked again", "prompt tokens", "completion tokens", "median s", "p95 s",
                "finish reasons"), map(_use, uses)) if uses else "",
        _table(("check", "rows", "passed", "found wrong", "why not"), map(_check, checks)) if checks else "",
    ]  # fmt: skip
    titles = ("What was written, what was refused, and why", "Served models", "Checks of descriptions")
    return "\n".join(f"## {title}\n\n{part}" for title, part in zip(titles, parts, strict=True) if part)


def _line(one: Written) -> Iterator[str]:
    count = one.counts
    numbers = (count.of, count.rows, count.dropped, count.failed, count.pending)
    yield from (count.stage, one.by, *(f"{number:,}" for number in numbers), _reasons(count.reasons))


def _use(use: ServedUse) -> Iterator[str]:
    numbers = (use.requests, use.again, use.prompt_tokens, use.completion_tokens)
    yield from (use.stage, use.model, *(f"{number:,}" for number in numbers))
    yield from (f"{use.median:.2f}", f"{use.p95:.2f}", _reasons(use.finish_reasons))


def _check(check: Check) -> Iterator[str]:
    yield from (check.name, f"{check.rows:,}", f"{check.passed:,}", f"{check.against:,}", _reasons(check.why))


def _reasons(reasons: dict[str, int]) -> str:
    return "; ".join(f"{number:,} x {reason}" for reason, number in reasons.items())


def _table(head: Sequence[str], lines: Iterable[Iterable[str]]) -> str:
    rows = [head, ["---"] * len(head), *(map(_cell, line) for line in lines)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(text: str) -> str:
    """Return a text that is one cell, whatever is in it: names and reasons may come from outside."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
