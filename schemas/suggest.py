"""Hints for a name that is not known: similar ones, or all."""

from collections.abc import Iterable
from difflib import get_close_matches

MAX_HINTS = 3


def suggest(name: str, choices: Iterable[str]) -> str:
    """Return "did you mean images?" where names are similar, or else "choose from ..."."""
    names = list(choices)
    similar = get_close_matches(name, names, n=MAX_HINTS)
    if similar:
        return f"did you mean {' or '.join(similar)}?"
    return f"choose from {', '.join(names)}"
