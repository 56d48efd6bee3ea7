"""Measure all that was written about pairs and images, and say the main numbers in sentences.

The sentences stand in the card of an exported dataset; the pages show the numbers themselves.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pairwright.tasks.report.list_written import Written, list_written
from pairwright.tasks.report.measure_axes import Summaries, measure_summaries
from pairwright.tasks.report.measure_checks import Check, measure_checks
from pairwright.tasks.report.measure_served import ServedUse, measure_served
from pairwright.tasks.report.measure_texts import Differences, measure_differences
from pairwright.tasks.report.tables import Tables
from pairwright.tasks.store.ledger import Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Hold what is measured of texts; what a dataset has nothing of is ``None`` or empty."""

    differences: Differences | None
    summaries: Summaries | None
    checks: tuple[Check, ...]
    uses: tuple[ServedUse, ...]
    written: tuple[Written, ...]


def measure_writing(tables: Tables, counts: Sequence[Counts]) -> Writing:
    """Read what is measured, table by table; ``counts`` say what the stages dropped."""
    uses = measure_served(tables)
    return Writing(
        differences=measure_differences(tables, counts),
        summaries=measure_summaries(tables),
        checks=measure_checks(tables),
        uses=uses,
        written=list_written(tables, counts, uses),
    )


def say_writing(writing: Writing) -> Iterator[str]:
    """Yield the main numbers, a sentence each."""
    if writing.differences:
        yield from _say_differences(writing.differences)
    if writing.summaries:
        found = writing.summaries
        yield (
            f"A summary of commonalities and differences has {found.common_words:.0f} + {found.difference_words:.0f} "
            f"words on average (paper 003: 40 + 117) and {found.per_summary:.1f} of six axes."
        )
    for check in writing.checks:
        yield f'The check "{check.name}" was passed by {check.passed:,} of {check.rows:,} descriptions.'
    models = dict.fromkeys(use.model for use in writing.uses)
    for model in models:
        own = [use for use in writing.uses if use.model == model]
        requests, tokens = (sum(getattr(use, name) for use in own) for name in ("requests", "completion_tokens"))
        yield f"{model} answered {requests:,} requests with {tokens:,} tokens, for the rows that were written."


def _say_differences(found: Differences) -> Iterator[str]:
    sentences = found.sentences
    yield (
        f"{sentences.repeated:,} of {sentences.total:,} descriptions of differences ({sentences.share:.2%}) repeat "
        "another one word for word (paper 001, Table 14: 3.07%)."
    )
    yield (
        f"{found.again + found.lost:,} of {found.asked:,} first answers ({found.share_refused:.2%}) were refused by "
        f"the validator (paper 001: about 0.2%); of these, {found.lost:,} had no good one after them."
    )
