"""Expand the braces of a pattern: ``shards-{000..011}.tar`` and ``{train,val}.tar``, as shells do. Reads nothing."""

import re
from collections.abc import Iterator
from itertools import islice

from pairwright.schemas.errors import SourceError

MAX_NAMES = 100_000
_INNERMOST = re.compile(r"\{([^{}]*,[^{}]*|\d{1,18}\.\.\d{1,18})\}")


def expand_braces(pattern: str) -> list[str]:
    """Return the names that a pattern stands for, in order, each once; itself where it has no braces to expand.

    Raises:
        SourceError: the braces stand for too many names.
    """
    names = list(islice(_expand(pattern), MAX_NAMES + 1))
    if len(names) > MAX_NAMES:
        raise SourceError(f"{pattern}: its braces stand for more than {MAX_NAMES} names")
    return list(dict.fromkeys(names))


def _expand(pattern: str) -> Iterator[str]:
    found = _INNERMOST.search(pattern)
    if found is None:
        yield pattern
        return
    for choice in found[1].split(",") if "," in found[1] else _numbers(*found[1].split("..")):
        yield from _expand(pattern[: found.start()] + choice + pattern[found.end() :])


def _numbers(first: str, last: str) -> Iterator[str]:
    """Yield the numbers from one to the other, padded where one of them is written with a leading zero."""
    padded = any(len(end) > 1 and end.startswith("0") for end in (first, last))
    width = max(len(first), len(last)) if padded else 1
    step = 1 if int(first) <= int(last) else -1
    for number in range(int(first), int(last) + step, step):
        yield str(number).zfill(width)
