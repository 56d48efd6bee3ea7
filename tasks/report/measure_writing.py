"""Measure texts: repeated and refused differences, axes of comparisons, checks, served models.

Reads the texts and narrow columns of ``DifferenceRow``, ``ComparisonRow``, ``CheckRow`` and the
records of requests; DuckDB counts.

Repeated, after paper 001, Table 14: of equal descriptions all but the first (white space aside;
case and full stops count, on which the paper is silent). The paper generates once and filters; a
refused answer is asked for again here, so the comparable number is the share of refused first
answers. Axes as in paper 003, Figure 3 (c); mean numbers of words count those of statements, not
headings and labels. A request with its answer in several tables (a description, and the rejected
text made from it) counts in the first: the pair of latency and seed identifies it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pairwright.schemas.arrow import schema_of
from pairwright.schemas.checks import CHECK_TABLES, SEEN_IN_SAME, speaks_against, without_bound
from pairwright.tasks.report.query_tables import WORDS, Tables
from pairwright.tasks.serving.read_response import REASONS
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.texts.comparisons import AXES
from pairwright.tasks.texts.differences import REASONS as FORM_REASONS

# normalised white space, as SQL
PLAIN = "array_to_string(regexp_extract_all(coalesce(text, ''), '[^\\s]+'), ' ')"
UNLABELLED = "no axis named"


class Differences(NamedTuple):
    """Counts of the descriptions of differences."""

    total: int
    repeated: int
    asked: int  # first answers
    again: int  # descriptions accepted after a refused first answer
    lost: int  # pairs with refused answers only


def measure_differences(tables: Tables, counts: Sequence[Counts]) -> Differences | None:
    """Measure all written descriptions, also those that failed a check; ``None``: none."""
    reasons: Mapping[str, int] = {}
    for stage_counts in counts:
        if stage_counts.stage == "described":
            reasons = stage_counts.reasons
            break
    refusals = (*REASONS, *FORM_REASONS)
    lost = sum(count for reason, count in reasons.items() if without_bound(reason) in refusals)
    # Hashes have 64 bits, so collisions are negligible.
    query = f"""SELECT count(*), count(DISTINCT hash({PLAIN})), count(*) FILTER (attempts > 1)
        FROM described"""
    result = tables.query(query, {"described": ["text", "attempts"]})
    if not result:
        return None
    ((total, unique, again),) = result
    if not total and not lost:
        return None
    return Differences(total, total - unique, total + lost, again, lost)


class Summaries(NamedTuple):
    """Measurements of the comparisons."""

    axes: dict[str, int]  # summaries with each axis, and those with a statement on no axis, if any
    answers: dict[str, int]  # right answers of the retrieval question ("A" is the first image)
    rows: int
    common_words: float  # mean words of the commonalities of one summary
    difference_words: float

    @property
    def per_summary(self) -> float:
        """Return the mean number of different axes of a summary."""
        return sum(self.axes[axis] for axis in AXES) / self.rows


def measure_summaries(tables: Tables) -> Summaries | None:
    """Measure all comparisons; ``None``: none."""
    commonalities = WORDS.format("array_to_string(commonalities, ' ')")
    differences = WORDS.format("array_to_string(differences, ' ')")
    query = f"SELECT count(*), avg({commonalities}), avg({differences}) FROM comparisons"
    result = tables.query(query, {"comparisons": ["commonalities", "differences"]})
    if not result or not result[0][0]:
        return None
    counts = count_axes(tables)
    query = "SELECT conversation[4].text AS value FROM comparisons WHERE len(conversation) > 3"
    answers = tables.count_values(query, {"comparisons": ["conversation"]})
    axes = {axis: counts.get(axis, 0) for axis in AXES}
    if UNLABELLED in counts:
        axes[UNLABELLED] = counts[UNLABELLED]
    return Summaries(axes, dict(sorted(answers.items())), *result[0])


def count_axes(tables: Tables) -> dict[str, int]:
    """Count the rows with statements on each axis ("counts, locations"), and on no axis."""
    axes = ", ".join(repr(axis) for axis in AXES)
    query = f"""SELECT DISTINCT number,
            unnest(CASE WHEN len(named) = 0 THEN ['{UNLABELLED}'] ELSE named END) AS value
        FROM (SELECT number, list_intersect(string_split(label, ', '), [{axes}]) AS named
            FROM (SELECT number, unnest(axes) AS label FROM comparisons))"""
    return tables.count_values(query, {"comparisons": ["axes"]})


class CheckOutcome(NamedTuple):
    """Outcome of one check."""

    name: str
    rows: int
    passed: int
    why: dict[str, int]  # reasons of failures, the most frequent first
    off: dict[str, int]  # reasons why it could not be made, of some that passed

    @property
    def against(self) -> int:
        """Return the number found wrong, without inconclusive failures."""
        return sum(number for why, number in self.why.items() if speaks_against(why))


def says_something(why: str) -> bool:
    """Return whether a failed check was conclusive, so that its score counts."""
    return speaks_against(why) or why == SEEN_IN_SAME


def measure_checks(tables: Tables, name: str) -> Iterator[CheckOutcome]:
    """Yield the checks of a table."""
    columns = {name: ["check", "passed", "why"]}
    query = f"""SELECT "check" AS name, count(*), count(*) FILTER (passed) FROM {name}
        GROUP BY name ORDER BY name != 'swapped', name"""
    reason = f'SELECT why AS value FROM {name} WHERE "check" = ?'
    for check, rows, passed in tables.query(query, columns):
        why = tables.count_values(f"{reason} AND NOT passed", columns, [check])
        off = tables.count_values(f"{reason} AND passed AND why != ''", columns, [check])
        yield CheckOutcome(check, rows, passed, why, off)


class ServedUse(NamedTuple):
    """Requests of one stage to one model, for rows that were written."""

    stage: str
    model: str
    revisions: Mapping[str, int]
    rows: int
    requests: int
    prompt_tokens: int
    completion_tokens: int
    median: float  # median latency in seconds until the whole answer
    p95: float
    finish_reasons: Mapping[str, int]
    thought_tokens: int  # those of the answers that the server returned apart, as thoughts
    removed: Mapping[str, int]  # answers by the kind of what was taken off


def measure_served(tables: Tables) -> list[ServedUse]:
    """Return the requests of each stage to each model, in the order of the build.

    There are none without a served model.
    """
    stages: list[str] = []
    for planned in tables.build.planned:
        if "served" in schema_of(planned.stage.writes).names:
            stages.append(planned.stage.name)
    if not stages:
        return []
    parts = [
        f"SELECT {index} AS place, number, unnest(served) AS s FROM {stage}"
        for index, stage in enumerate(stages)
    ]
    query = f"""WITH requests AS (
            SELECT place, number, unnest(s) FROM ({" UNION ALL ".join(parts)})
            QUALIFY row_number() OVER
                (PARTITION BY s.latency, s.seed ORDER BY place, number) = 1)
        SELECT place, model, histogram(revision), count(DISTINCT number), count(*) AS requests,
            sum(prompt_tokens)::BIGINT, sum(completion_tokens)::BIGINT,
            quantile_cont(latency::DOUBLE, 0.5), quantile_cont(latency::DOUBLE, 0.95),
            histogram(finish_reason), sum(thought_tokens)::BIGINT,
            coalesce(list_histogram(flatten(list(removed))), MAP {{}})
        FROM requests GROUP BY ALL ORDER BY place, requests DESC, model"""
    rows = tables.query(query, {stage: ["served"] for stage in stages})
    return [ServedUse(stages[index], *values) for index, *values in rows]


class Writing(NamedTuple):
    """Measurements of texts; ``None`` or empty where a dataset has none."""

    differences: Differences | None
    summaries: Summaries | None
    checks: Sequence[CheckOutcome]
    uses: Sequence[ServedUse]


def measure_writing(tables: Tables, counts: Sequence[Counts]) -> Writing:
    """Measure the texts table by table; ``counts`` have the stages' reasons."""
    checks: list[CheckOutcome] = []
    for table in CHECK_TABLES:
        checks += measure_checks(tables, table)
    return Writing(
        measure_differences(tables, counts),
        measure_summaries(tables),
        checks,
        measure_served(tables),
    )


def say_writing(writing: Writing) -> Iterator[str]:
    """Yield the main numbers as sentences."""
    if writing.differences:
        yield from _say_differences(writing.differences)
    summaries = writing.summaries
    if summaries:
        lengths = f"{summaries.common_words:.0f} + {summaries.difference_words:.0f}"
        yield (
            f"A summary of commonalities and differences has {lengths} words on average "
            f"(paper 003: 40 + 117) and {summaries.per_summary:.1f} of six axes."
        )
    for check in writing.checks:
        yield (
            f'The check "{check.name}" was passed by '
            f"{check.passed:,} of {check.rows:,} descriptions."
        )
        if check.off:
            yield f"It could not be made of {sum(check.off.values()):,} of them, which pass."
    for model in dict.fromkeys(use.model for use in writing.uses):
        uses = [use for use in writing.uses if use.model == model]
        requests = sum(use.requests for use in uses)
        tokens = sum(use.completion_tokens for use in uses)
        yield (
            f"{model} answered {requests:,} requests with {tokens:,} tokens, "
            "for the rows that were written."
        )
        yield from _say_removed(uses)


def _say_removed(uses: Sequence[ServedUse]) -> Iterator[str]:
    """Yield what was taken off a model's answers, and its thoughts."""
    removed = Counter[str]()
    for use in uses:
        removed.update(use.removed)
    if removed:
        kinds = [f"{kind} ({count:,})" for kind, count in removed.most_common()]
        yield f"Taken off its answers: {', '.join(kinds)}."
    thought_tokens = sum(use.thought_tokens for use in uses)
    if thought_tokens:
        yield f"{thought_tokens:,} of its tokens are thoughts, which the server returned apart."


def _say_differences(differences: Differences) -> Iterator[str]:
    share = differences.repeated / max(differences.total, 1)
    yield (
        f"{differences.repeated:,} of {differences.total:,} descriptions of differences "
        f"({share:.2%}) repeat another one word for word (paper 001, Table 14: 3.07%)."
    )
    refused = differences.again + differences.lost
    yield (
        f"{refused:,} of {differences.asked:,} first answers ({refused / differences.asked:.2%}) "
        f"were refused by the validator (paper 001: about 0.2%); after {differences.lost:,} of "
        "these, no other was accepted."
    )
