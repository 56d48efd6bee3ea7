"""Measure the use of served models, list the writers and refusals of texts, and state the main numbers.

A request with its answer in several tables (a description, and the rejected text made from it) counts in the first
table: the pair of latency and seed identifies it. Requests for dropped or failed rows are in no table.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pairwright.tasks.report import measure_texts
from pairwright.tasks.report.tables import CHECKS, Tables
from pairwright.tasks.store.ledger import Counts

SEVERAL = frozenset({"sampled"})
"""Tables with several intended answers per row."""
BY_RULE = {"retrieved": "retrieval", "swapped": "a rule", "edited": "a rule", "refuted": "failed checks"}
"""Writers of the rejected texts that no model writes."""


class ServedUse(NamedTuple):
    """Requests of one stage to one model."""

    stage: str
    model: str
    revisions: Sequence[str]
    rows: int
    again: int
    """Rows with repeated requests for one thing."""
    requests: int
    prompt_tokens: int
    completion_tokens: int
    median: float
    """Median latency in seconds until the whole answer."""
    p95: float
    finish_reasons: Mapping[str, int]


def measure_served(tables: Tables) -> list[ServedUse]:
    """Return the requests of each stage to each model, in the order of the build; none without a served model."""
    stages = tables.served()
    parts = [
        f"SELECT {place} AS place, {name in SEVERAL} AS several, number, coalesce(attempts, 1) AS attempts, "
        f"unnest(served) AS s FROM {name}"
        for place, name in enumerate(stages)
    ]
    query = f"""WITH requests AS (SELECT place, several, number, attempts, unnest(s) FROM ({" UNION ALL ".join(parts)})
            QUALIFY row_number() OVER (PARTITION BY s.latency, s.seed ORDER BY place, number) = 1),
        rows AS (SELECT place, model, number, NOT any_value(several) AND (max(attempts) > 1
            OR count(*) > count(DISTINCT prompt)) AS again FROM requests GROUP BY ALL)
        SELECT place, model, histogram(revision), count(DISTINCT number),
            (SELECT count(*) FROM rows r WHERE again AND (r.place, r.model) = (q.place, q.model)), count(*) AS requests,
            sum(prompt_tokens)::BIGINT, sum(completion_tokens)::BIGINT, quantile_cont(latency::DOUBLE, 0.5),
            quantile_cont(latency::DOUBLE, 0.95), histogram(finish_reason)
        FROM requests q GROUP BY ALL ORDER BY place, requests DESC, model"""
    found = tables.ask(query, {name: ["served", "attempts"] for name in stages}) if stages else ()
    return [
        ServedUse(
            stages[place],
            model,
            [name for name, _ in Counter(revisions).most_common() if name],
            *numbers,
            finish_reasons=dict(Counter(ends).most_common()),
        )
        for place, model, revisions, *numbers, ends in found
    ]


class Written(NamedTuple):
    """Outcome of one stage that writes or checks texts."""

    counts: Counts
    writers: Mapping[str, int]
    """Rows by writer, most first; "scene-graph", "given" and "a rule" are no models."""

    @property
    def by(self) -> str:
        """Return the writers in words."""
        if len(self.writers) < 2:
            return "".join(self.writers)
        return ", ".join(f"{name} ({number:,})" for name, number in self.writers.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Measurements of texts; ``None`` or empty where a dataset has none."""

    differences: measure_texts.Differences | None
    variety: measure_texts.Variety | None
    summaries: measure_texts.Summaries | None
    checks: Sequence[measure_texts.Check]
    uses: Sequence[ServedUse]
    written: Sequence[Written]


def measure_writing(tables: Tables, counts: Sequence[Counts]) -> Writing:
    """Measure the texts table by table; ``counts`` have the stages' reasons."""
    uses = measure_served(tables)
    return Writing(
        differences=measure_texts.measure_differences(tables, counts),
        variety=measure_texts.measure_variety(tables),
        summaries=measure_texts.measure_summaries(tables),
        checks=[check for name in CHECKS for check in measure_texts.measure_checks(tables, name)],
        uses=uses,
        written=list_written(tables, counts, uses),
    )


def list_written(tables: Tables, counts: Sequence[Counts], uses: Sequence[ServedUse]) -> list[Written]:
    """Return every stage of texts, or of their checks, in the order of the build."""
    by_stage = {one.stage: one for one in counts}
    written: list[Written] = []
    for name in (name for name in tables.served() if name in by_stage):
        query = f"SELECT model::VARCHAR AS value FROM {name} WHERE model IS NOT NULL"
        asked = {use.model: use.rows for use in uses if use.stage == name}
        by_rule = {BY_RULE[name]: 0} if name in BY_RULE else {}
        written.append(Written(by_stage[name], tables.count(query, {name: ["model"]}) or asked or by_rule))
    return written


def say_writing(writing: Writing) -> Iterator[str]:
    """Yield the main numbers as sentences."""
    if found := writing.differences:
        sentences = found.sentences
        yield (
            f"{sentences.repeated:,} of {sentences.total:,} descriptions of differences ({sentences.share:.2%}) repeat "
            "another one word for word (paper 001, Table 14: 3.07%)."
        )
        yield (
            f"{found.again + found.lost:,} of {found.asked:,} first answers ({found.share_refused:.2%}) were refused "
            f"by the validator (paper 001: about 0.2%); of these, {found.lost:,} had no good one after them."
        )
    if summaries := writing.summaries:
        words = f"{summaries.common_words:.0f} + {summaries.difference_words:.0f}"
        yield (
            f"A summary of commonalities and differences has {words} words on average (paper 003: 40 + 117) and "
            f"{summaries.per_summary:.1f} of six axes."
        )
    for check in writing.checks:
        off = f" It was not possible for {sum(check.off.values()):,} more." if check.off else ""
        yield f'The check "{check.name}" was passed by {check.passed:,} of {check.rows:,} descriptions.{off}'
    for model in dict.fromkeys(use.model for use in writing.uses):
        own = [use for use in writing.uses if use.model == model]
        requests, tokens = (sum(getattr(use, name) for use in own) for name in ("requests", "completion_tokens"))
        yield f"{model} answered {requests:,} requests with {tokens:,} tokens, for the rows that were written."
