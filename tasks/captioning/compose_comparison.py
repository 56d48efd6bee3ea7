"""Compose a summary of commonalities and differences (CaD) of two photographs from their scene graphs.

Needs ``prompts/comparison_sentences.j2`` and the two layouts. An axis on which there is nothing to say is left out.
"""

from collections.abc import Iterable, Sequence
from random import Random

from pairwright.prompts import load
from pairwright.schemas.claims import Graphs, is_no_change
from pairwright.schemas.comparison_axes import AXES
from pairwright.tasks.captioning.axes import AXIS_WRITERS
from pairwright.tasks.captioning.commonalities import write_commonalities
from pairwright.tasks.captioning.contrast import find_contrasts
from pairwright.tasks.captioning.scope import Scope
from pairwright.tasks.captioning.statements import Statement
from pairwright.tasks.captioning.unchanged_axes import UNCHANGED_WRITERS

LIST_SHARE = 0.25
"""How often the commonalities are a numbered list instead of prose."""


def compose_comparison(graphs: Graphs, rng: Random) -> Statement | None:
    """Return a summary and its claims, or ``None`` where the graphs give no words for a difference."""
    contrasts = find_contrasts(graphs)
    rng.shuffle(contrasts)
    scope = Scope(graphs, contrasts, rng)
    writers = UNCHANGED_WRITERS if is_no_change(graphs) else AXIS_WRITERS
    found = [(axis, writers[axis](scope)) for axis in AXES if axis in writers]
    differences = [(axis, statements) for axis, statements in found if statements]
    if not differences:
        return None
    commonalities = write_commonalities(scope)
    spoken = [*commonalities, *(part for _, statements in differences for part in statements)]
    return Statement(
        _layout(commonalities, differences, scope), tuple(claim for part in spoken for claim in part.claims)
    )


def _layout(commonalities: list[Statement], differences: Sequence[tuple[str, list[Statement]]], scope: Scope) -> str:
    items = [(scope.say(f"label_{axis}"), _text(statements)) for axis, statements in differences]
    if scope.rng.random() < LIST_SHARE:
        texts = [part.text for part in commonalities]
        return load("comparison_layout_list").render(commonalities=texts, differences=items).strip()
    return load("comparison_layout").render(commonalities=_text(commonalities), differences=items).strip()


def _text(statements: Iterable[Statement]) -> str:
    return " ".join(part.text for part in statements)
