"""Say whether an edited description contradicts the one that it was made of, or why it will not do.

Reads and writes nothing. By our rules an edit contradicts where it keeps the template, changes one half and nothing
else, by words that exclude those that they replace, and few of them; where scene graphs are known, they must refute it.
"""

from dataclasses import dataclass

from pairwright.prompts import difference_verbs
from pairwright.prompts.differences import fill_template
from pairwright.schemas.differences import RefusedDifference, read_difference
from pairwright.schemas.rows import DifferenceRow
from pairwright.tasks.rejected.check_texts import Truth, halves_of, is_as_true, likeness
from pairwright.tasks.rejected.compare_words import WORD, compare
from pairwright.tasks.serving.chat import Answer
from pairwright.tasks.serving.untrusted import within_quotes

LEAST_LIKENESS = 0.7
"""Edited texts less like the chosen one than this are no small edits."""
MOST_WORDS = 4
"""Nor are those of which more content words than these came, or went."""
STILL_TRUE = "edited text is as true"


@dataclass(frozen=True, slots=True)
class CheckedEdit:
    """Be an edited text that contradicts by our rules."""

    text: str
    changed: str
    """"red -> blue"."""
    score: float
    true: bool | None
    """``False`` where scene graphs refute it, ``None`` where there are none."""


@dataclass(frozen=True, slots=True)
class RefusedEdit:
    """Say why an edited text is none."""

    reason: str
    detail: str = ""


def check_edit(answer: Answer, row: DifferenceRow, *, side: int, truth: Truth) -> CheckedEdit | RefusedEdit:
    """Return the edited text, or the first reason to refuse it.

    Args:
        answer: the edited sentence, as a model wrote it.
        row: the chosen description.
        side: whose half was to be edited: 0, the first image's; 1, the second's.
        truth: what is known of the pair.
    """
    read = read_difference(answer.text, difference_verbs(), finish_reason=answer.finish_reason)
    if isinstance(read, RefusedDifference):
        return RefusedEdit(read.reason, read.detail)
    halves, kept = [read.first_half, read.second_half], 1 - side
    if read.verbs != row.verbs or _words(halves[kept]) != _words(halves_of(row)[kept]):
        return RefusedEdit("edited more than one half", halves[kept])
    halves[kept] = halves_of(row)[kept]
    return _checked((halves[0], halves[1]), row, side=side, truth=truth)


def _checked(halves: tuple[str, str], row: DifferenceRow, *, side: int, truth: Truth) -> CheckedEdit | RefusedEdit:
    text = fill_template((row.verbs[0], row.verbs[1]), *halves)
    change, score = compare(halves_of(row)[side], halves[side]), likeness(row.text, text)
    changed = f"{' '.join(change.went) or 'nothing'} -> {' '.join(change.came) or 'nothing'}"
    if change.refusal:
        return RefusedEdit(change.refusal, changed)
    if score < LEAST_LIKENESS or max(len(change.went), len(change.came)) > MOST_WORDS:
        return RefusedEdit("too far from the chosen text", changed)
    true = is_as_true(halves, (row,), truth)
    if true:
        return RefusedEdit(STILL_TRUE, changed)
    if true is None and truth.graphs:
        return RefusedEdit("not refuted by the scene graphs", changed)
    return CheckedEdit(text, changed, score, true)


def _words(half: str) -> list[str]:
    """Return what has to stay: the words, as the model was shown them."""
    return WORD.findall(within_quotes(half).lower())
