"""Show scores on a terminal: of captions, and of a benchmark."""

from collections.abc import Iterator

from pairwright.flows.evaluate_captions import Evaluation
from pairwright.flows.evaluate_model import Evaluated
from pairwright.tasks.evaluation.measured import CONFIDENCE, Score
from pairwright.tasks.evaluation.results import ROWS


def score_rows(evaluation: Evaluation) -> Iterator[tuple[object, ...]]:
    """Yield heads and scores, times 100 as papers print them, with their intervals."""
    yield "metric", ">x 100", f">{CONFIDENCE:.0%} interval"
    for one in evaluation.found.scores:
        interval = "" if one.low is None or one.high is None else f"{100 * one.low:.2f} to {100 * one.high:.2f}"
        yield one.name, "-" if one.value is None else f"{100 * one.value:.2f}", interval
    for name in evaluation.found.skipped:
        yield name.upper(), "-", "skipped"


def score_notes(evaluation: Evaluation) -> Iterator[str]:
    """Yield what the scores are of, and what was left out or skipped."""
    matched, found = evaluation.matched, evaluation.found
    yield f"{len(matched.items):,} items, {found.references:,} references; protocol {evaluation.protocol}"
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


SAID = {
    "empty": "answers are empty",
    "cut": "answers were cut, at the most tokens that are allowed",
    "not_read": "answers could not be read, and count as no answer",
    "refused": "questions were refused, and count as not answered",
    "failed": "questions were not answered in time; their items are left out until they are: run it again",
    "without_image": "questions lack an image, or have one that does not decode; their items are left out",
    "unjudged": "answers got no rating from the judge, and are left out",
}


def mark_rows(found: Evaluated) -> Iterator[tuple[object, ...]]:
    """Yield heads and scores with their intervals; shares are times 100."""
    yield "score", "of", ">value", f">{CONFIDENCE:.0%} interval", ">items"
    for score in found.results.scores:
        low, high = _shown(score, score.low), _shown(score, score.high)
        interval = f"{low} to {high}" if score.low is not None and score.high is not None else ""
        yield score.name, score.category or "all", _shown(score, score.value), interval, score.items


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
