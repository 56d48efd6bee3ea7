"""Measure what served models were asked, list what was written and refused by whom, and say the main numbers.

A request whose answer is in rows of several tables (a description, and the rejected text that became of it) counts
where it comes first: no two take equally long to the last bit under one seed. Requests for rows that were dropped or
failed are in no table. The sentences stand in the card of an exported dataset; the pages show the numbers themselves.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pairwright.tasks.report import measure_texts
from pairwright.tasks.report.tables import Tables
from pairwright.tasks.store.ledger import Counts

SEVERAL = frozenset({"sampled"})
"""Tables whose rows ask for several answers on purpose."""
BY_RULE = {"retrieved": "retrieval", "swapped": "a rule", "edited": "a rule", "refuted": "failed checks"}
"""Who writes the rejected texts that no model is asked for."""


class ServedUse(NamedTuple):
    """What one model was asked by one stage."""

    stage: str
    model: str
    revisions: Sequence[str]
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
    finish_reasons: Mapping[str, int]


def measure_served(tables: Tables) -> list[ServedUse]:
    """Return what each stage asked of each model, in the order of the build; nothing where no model was served."""
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
    """What became of one stage that writes texts, or checks them."""

    counts: Counts
    writers: Mapping[str, int]
    """Rows by the model that wrote them, most first; "scene-graph", "given" and "a rule" are none."""

    @property
    def by(self) -> str:
        """Return the writers in words."""
        if len(self.writers) < 2:
            return "".join(self.writers)
        return ", ".join(f"{name} ({number:,})" for name, number in self.writers.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """What is measured of texts; what a dataset has nothing of is ``None`` or empty."""

    differences: measure_texts.Differences | None
    variety: measure_texts.Variety | None
    summaries: measure_texts.Summaries | None
    checks: Sequence[measure_texts.Check]
    uses: Sequence[ServedUse]
    written: Sequence[Written]


def measure_writing(tables: Tables, counts: Sequence[Counts]) -> Writing:
    """Read what is measured, table by table; ``counts`` say what the stages dropped."""
    uses = measure_served(tables)
    return Writing(
        differences=measure_texts.measure_differences(tables, counts),
        variety=measure_texts.measure_variety(tables),
        summaries=measure_texts.measure_summaries(tables),
        checks=measure_texts.measure_checks(tables),
        uses=uses,
        written=list_written(tables, counts, uses),
    )


def list_written(tables: Tables, counts: Sequence[Counts], uses: Sequence[ServedUse]) -> list[Written]:
    """Return every stage whose rows are texts, or checks of them, in the order of the build."""
    by_stage = {one.stage: one for one in counts}
    written: list[Written] = []
    for name in (name for name in tables.served() if name in by_stage):
        query = f"SELECT model::VARCHAR AS value FROM {name} WHERE model IS NOT NULL"
        asked = {use.model: use.rows for use in uses if use.stage == name}
        by_rule = {BY_RULE[name]: 0} if name in BY_RULE else {}
        written.append(Written(by_stage[name], tables.count(query, {name: ["model"]}) or asked or by_rule))
    return written


def say_writing(writing: Writing) -> Iterator[str]:
    """Yield the main numbers, a sentence each."""
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
        off = f" It could not be made of {sum(check.off.values()):,} more." if check.off else ""
        yield f'The check "{check.name}" was passed by {check.passed:,} of {check.rows:,} descriptions.{off}'
    for model in dict.fromkeys(use.model for use in writing.uses):
        own = [use for use in writing.uses if use.model == model]
        requests, tokens = (sum(getattr(use, name) for use in own) for name in ("requests", "completion_tokens"))
        yield f"{model} answered {requests:,} requests with {tokens:,} tokens, for the rows that were written."
