"""Describe the differences of two drawn scenes in people's words, and read such texts back as
claims.

The style shares no template with generated texts: short, lower-case, without a full stop. Each form
is one line with places for words; the same line, with its places as groups, reads what was written.
What reads is checked as generated texts are: ``schemas.claims.is_true_claim``.
"""

import re
from random import Random

from pairwright.schemas.claims import Claim, Graphs, Selector
from pairwright.schemas.scene import SceneObject

PLACES = {
    ("back", "left"): "in the far left corner",
    ("back", "centre"): "at the far end",
    ("back", "right"): "in the far right corner",
    ("middle", "left"): "over on the left",
    ("middle", "centre"): "right in the middle",
    ("middle", "right"): "over on the right",
    ("front", "left"): "close by on the left",
    ("front", "centre"): "up front",
    ("front", "right"): "close by on the right",
}
"""Words for a cell of the grid: its depth and its column."""
FORMS = {
    "another": (
        "the {colour} {shape} turned into a {colour2} {shape2}",
        "where the {colour} {shape} was you now see a {colour2} {shape2}",
        "someone swapped the {colour} {shape} for a {colour2} {shape2}",
    ),
    "gone": (
        "the {colour} {shape} is gone",
        "there's no {colour} {shape} any more",
        "somebody took away the {colour} {shape}",
    ),
    "new": (
        "a {colour} {shape} showed up",
        "there's a {colour} {shape} now",
        "somebody put a {colour} {shape} there",
    ),
}
READERS = [
    (kind, re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[a-z]+)", form)))
    for kind, forms in FORMS.items()
    for form in map(re.escape, forms)
]


def say_as_people(graphs: Graphs, rng: Random) -> str:
    """Return one sentence about what differs."""
    first, second = ({thing.id: thing for thing in graph.objects} for graph in graphs)
    for name in sorted(first | second):
        before, after = first.get(name), second.get(name)
        if before != after:
            kind = "new" if before is None else "gone" if after is None else "another"
            return _fill(rng.choice(FORMS[kind]), before or after, after)
    raise ValueError("nothing differs")


def _fill(form: str, thing: SceneObject | None, other: SceneObject | None) -> str:
    assert thing is not None
    words = {"colour": thing.colour, "shape": thing.shape}
    if other is not None:
        words |= {"colour2": other.colour, "shape2": other.shape}
    return form.format(**words)


def read_people(text: str) -> tuple[Claim, ...]:
    """Return what a sentence claims; nothing where it cannot be read."""
    for kind, reader in READERS:
        if found := reader.fullmatch(text.strip().rstrip(".")):
            words = found.groupdict()
            before = Selector(colour=words["colour"], shape=words["shape"])
            if kind == "another":
                after = before.model_copy(
                    update={"colour": words["colour2"], "shape": words["shape2"]}
                )
                return Claim(side=0, kind="exists", selector=before), Claim(
                    side=1, kind="exists", selector=after
                )
            there, not_there = (0, 1) if kind == "gone" else (1, 0)
            return (
                Claim(side=there, kind="exists", selector=before),
                Claim(side=not_there, kind="absent", selector=before),
            )
    return ()
