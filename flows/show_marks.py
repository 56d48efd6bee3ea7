"""Show the scores of a benchmark on a terminal."""

from collections.abc import Iterable, Iterator

from rich.table import Table

from pairwright.flows.evaluate_model import Evaluated
from pairwright.tasks.evaluation.benchmark import Benchmark
from pairwright.tasks.evaluation.measured import CONFIDENCE, Score
from pairwright.tasks.evaluation.results import ROWS

SAID = {
    "empty": "answers are empty",
    "cut": "answers were cut, at the most tokens that are allowed",
    "not_read": "answers could not be read, and count as no answer",
    "refused": "questions were refused, and count as not answered",
    "failed": "questions were not answered in time; their items are left out until they are: run it again",
    "without_image": "questions lack an image, or have one that does not decode; their items are left out",
    "unjudged": "answers got no rating from the judge, and are left out",
}


def mark_table(found: Evaluated) -> Table:
    """Return the scores with their intervals; shares are times 100."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("score")
    table.add_column("of")
    table.add_column("value", justify="right")
    table.add_column(f"{CONFIDENCE:.0%} interval", justify="right")
    table.add_column("items", justify="right")
    for score in found.results.scores:
        low, high = _shown(score, score.low), _shown(score, score.high)
        interval = f"{low} to {high}" if score.low is not None and score.high is not None else ""
        table.add_row(score.name, score.category or "all", _shown(score, score.value), interval, f"{score.items:,}")
    return table


def _shown(score: Score, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{100 * value:.2f} %" if score.percent else f"{value:.3f}"


def mark_notes(found: Evaluated) -> Iterator[str]:
    """Yield what the scores are of, what was left out, and where they lie."""
    counts = found.results.counts
    yield f"{counts['scored_items']:,} of {counts['items']:,} items, {counts['questions']:,} questions"
    for name, text in SAID.items():
        if counts[name]:
            yield f"{counts[name]:,} {text}"
    yield from found.results.exam.notes
    yield f"scores: {found.to}; answers: {found.to.with_suffix(ROWS)}"


def benchmark_table(benchmarks: Iterable[Benchmark]) -> Table:
    """Return what each benchmark measures and needs."""
    table = Table(box=None, header_style="bold", padding=(0, 2, 1, 0))
    for name in ("name", "measures", "--data holds", "needs"):
        table.add_column(name, overflow="fold")
    for one in benchmarks:
        table.add_row(one.name, one.measures, one.layout, "a judge (--judge)" if one.rubric else "")
    return table
