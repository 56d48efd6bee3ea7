"""Preferences and rows of tables with what is known of their pairs: regions and edits."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields

from pairwright.schemas.phrases import with_article
from pairwright.schemas.rows import PairRow, PreferenceRow
from pairwright.schemas.scene import SceneChange, SceneGraph
from pairwright.tasks.images.regions import Graphs, Region, same_world

REQUESTS = "image-editing-request"
"""Kind of source whose texts are requests to edit the first image."""
REMOVALS = re.compile(
    r"^(?:please )?(?:remove|delete|erase|get rid of|take away|take out)\s+(.+?)[\s.]*$", re.I
)
ADDITIONS = re.compile(r"^(?:please )?(?:add|insert|put in)\s+(.+?)[\s.]*$", re.I)
SEVERAL = re.compile(r",|;|\.|\b(?:and|then|from|to|by)\b", re.I)
"""Words of an instruction whose reverse is more than an exchange of its verb."""


@dataclass(frozen=True, slots=True)
class PairEdit:
    """Instruction that makes one image of a pair of the other."""

    source: int
    """Image that is edited: 0, the first, or 1, the second."""
    instruction: str
    task: str
    """"addition", "removal", "swap", "attribute_modification", as in OmniEdit; or "edit"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRow(PreferenceRow):
    """Preference, or row of another table, with what is known of its pair."""

    regions: tuple[Region, ...] | None = None
    """Where its images differ; ``None``: it is not known."""
    edits: tuple[PairEdit, ...] = ()
    difference: str = ""
    """Description of the pair, if it has one."""
    graphs: tuple[SceneGraph, SceneGraph] | None = None
    """Scene graphs of two photographs of one scene; ``None``: they are not."""


def as_paired(row: PreferenceRow) -> PairedRow:
    """Return a row with what is known of its pair, which may be nothing."""
    if isinstance(row, PairedRow):
        return row
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    return PairedRow(**values)


def find_edits(pair: PairRow, graphs: Graphs, sources: Sequence[str]) -> tuple[PairEdit, ...]:
    """Return the instructions that make one image of a pair of the other.

    They are those of the source, or follow from the only change between two rendered photographs.
    An addition or a removal gives both directions.
    """
    if pair.instruction:
        return _with_reverse(pair.instruction)
    if REQUESTS in sources:
        edits: list[PairEdit] = []
        for text in pair.human_differences:
            edits += _with_reverse(text)
        return tuple(edits)
    world = same_world(graphs)
    if world is None:
        return ()
    changes = set(world[0].changes) ^ set(world[1].changes)
    if len(changes) != 1:
        return ()
    (change,) = changes
    source = 0 if change in world[1].changes else 1
    return _edit_change(change, source)


def _with_reverse(instruction: str) -> tuple[PairEdit, ...]:
    """Return an instruction, and its reverse if it asks for one addition or removal."""
    removed = REMOVALS.match(instruction)
    added = ADDITIONS.match(instruction)
    if removed:
        task, verb, thing = "removal", "Add", removed[1]
        reverse_task = "addition"
    elif added:
        task, verb, thing = "addition", "Remove", added[1]
        reverse_task = "removal"
    else:
        return (PairEdit(0, instruction, "edit"),)
    forward = PairEdit(0, instruction, task)
    if SEVERAL.search(thing):
        return (forward,)
    return forward, PairEdit(1, f"{verb} {thing}.", reverse_task)


def _edit_change(change: SceneChange, source: int) -> tuple[PairEdit, ...]:
    """Return the edits of one known change, which made the other image of ``source``."""
    before, after = change.before, change.after
    if change.type == "addition":
        return (
            PairEdit(source, f"Add {with_article(after)}.", "addition"),
            PairEdit(1 - source, f"Remove the {after}.", "removal"),
        )
    if change.type in ("disappearance", "removal"):
        return (
            PairEdit(source, f"Remove the {before}.", "removal"),
            PairEdit(1 - source, f"Add {with_article(before)}.", "addition"),
        )
    if change.type == "substitution":
        return (
            PairEdit(source, f"Replace the {before} with {with_article(after)}.", "swap"),
            PairEdit(1 - source, f"Replace the {after} with {with_article(before)}.", "swap"),
        )
    return ()
