"""The six axes of paper 003 (CaD-VI), on which two images are compared, and the words by which models name them."""

import re
from typing import Literal, get_args

Axis = Literal["object types", "attributes", "counts", "actions", "locations", "relative positions"]
AXES: tuple[Axis, ...] = get_args(Axis)

RELATIVE = re.compile(
    r"(?:relative|spatial)\s+(?:positions?|positioning|locations?|placements?|arrangements?|relations?(?:hips?)?)"
    r"|positions? between"
)
WORDS: dict[Axis, re.Pattern[str]] = {
    "object types": re.compile(r"\b(?:types?|kinds?|categor(?:y|ies))\b"),
    "attributes": re.compile(r"\b(?:attributes?|colou?rs?|appearances?|characteristics?)\b"),
    "counts": re.compile(r"\b(?:count(?:s|ing)?|numbers?|quantit(?:y|ies))\b"),
    "actions": re.compile(r"\b(?:actions?|poses?|activit(?:y|ies))\b"),
    "locations": re.compile(r"\b(?:locations?|placements?|positions?)\b"),
}


def read_axes(label: str) -> tuple[Axis, ...]:
    """Return the axes that a label names, in the paper's order."""
    words = label.lower().replace("(s)", "s")
    plain = RELATIVE.sub(" ", words)
    found: list[Axis] = [axis for axis, pattern in WORDS.items() if pattern.search(plain)]
    return tuple(found) if plain == words else (*found, "relative positions")
