"""Show scores of captions on a terminal."""

from collections.abc import Iterator

from rich.table import Table

from pairwright.flows.evaluate_captions import Evaluation
from pairwright.tasks.evaluation.measured import CONFIDENCE


def score_table(evaluation: Evaluation) -> Table:
    """Return the scores, times 100 as papers print them, with their intervals."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("metric")
    table.add_column("x 100", justify="right")
    table.add_column(f"{CONFIDENCE:.0%} interval", justify="right")
    for one in evaluation.found.scores:
        interval = "" if one.low is None or one.high is None else f"{100 * one.low:.2f} to {100 * one.high:.2f}"
        table.add_row(one.name, "-" if one.value is None else f"{100 * one.value:.2f}", interval)
    for name in evaluation.found.skipped:
        table.add_row(name.upper(), "-", "skipped")
    return table


def score_notes(evaluation: Evaluation) -> Iterator[str]:
    """Yield what the scores are of, and what was left out or skipped."""
    matched, found = evaluation.matched, evaluation.found
    yield (
        f"{len(matched.items):,} items, {found.references:,} references; protocol {evaluation.protocol}; "
        f"words by {found.tokenised_by}"
    )
    if found.tokeniser_reason:
        yield f"Java's tokeniser was not used: {found.tokeniser_reason}"
    for count, text in (
        (matched.missing, "references had no prediction"),
        (matched.empty, "predictions are empty"),
        (matched.blank, "blank references were left out"),
        (matched.unreferenced, "items with blank references only were left out"),
    ):
        if count:
            yield f"{count:,} {text}"
    for name, reason in found.skipped.items():
        yield f"{name} was skipped: {reason}"
