"""Measure what models say of two scenes: against the scene graphs, and against what was to be
said."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pairwright.prompts import difference_verbs
from pairwright.schemas.claims import Claim, Graphs, is_true_claim
from pairwright.tasks.scenes.read_phrases import read_phrases
from pairwright.tasks.texts.differences import Difference, read_difference
from tests.proof.people import read_people


def read_claims(answer: str) -> tuple[Claim, ...]:
    """Return all statements that can be read of an answer, in the template or in people's words."""
    read = read_difference(answer, difference_verbs())
    if isinstance(read, Difference):
        return tuple(read_phrases(read.first_half, read.second_half).claims)
    return read_people(re.sub(r" (?=[,'])|(?<=') ", "", answer.lower()))


def judge(answer: str, graphs: Graphs) -> list[bool]:
    """Return whether each statement that can be read of an answer holds of the two scene graphs."""
    return [is_true_claim(claim, graphs) for claim in read_claims(answer)]


def tells(answer: str, graphs: Graphs) -> bool:
    """Return whether an answer is true as a whole, and not true of the exchanged images as well."""
    own, exchanged = judge(answer, graphs), judge(answer, (graphs[1], graphs[0]))
    return bool(own) and all(own) and not all(exchanged)


def measure(
    answers: Mapping[str, str], graphs: Mapping[str, Graphs], wanted: Mapping[str, str]
) -> dict[str, Any]:
    """Return what the answers to some pairs are worth, all by the pairs' keys; shares are
    fractions."""
    keys = sorted(answers)
    judged = [judge(answers[key], graphs[key]) for key in keys]
    said = [one for own in judged for one in own]
    return {
        "rows": len(keys),
        "statements": sum(said) / max(len(said), 1),
        "whole": sum(tells(answers[key], graphs[key]) for key in keys) / len(keys),
        "unreadable": sum(not own for own in judged) / len(keys),
        "cider": cider([wanted[key] for key in keys], [answers[key] for key in keys]),
        "examples": [[wanted[key], answers[key]] for key in keys[:2]],
    }


def cider(references: Sequence[str], answers: Sequence[str]) -> float:
    """Return CIDEr-D, in the usual points (times 100), of lower-cased words without punctuation."""
    from pairwright.tasks.evaluation.score_captions import measure_cider

    def tokens(text: str) -> str:
        return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())

    measured = measure_cider(
        [tokens(text) for text in answers], [[tokens(text)] for text in references]
    )
    return 100 * float(measured.conclude(measured.statistics.sum(axis=0))[0])
