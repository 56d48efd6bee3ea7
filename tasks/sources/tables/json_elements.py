"""Read the elements of a large JSON list, or the lines of a JSON Lines file, one by one, in little memory.

A list has no lines to recover at: after a damaged element, the rest of the file cannot be told apart and is one more
damaged element. A damaged line is one damaged element, and reading goes on.
"""

import io
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

CHUNK = 1 << 20
BETWEEN = re.compile(r"[ \t\r\n,]*+")
LONGEST = 4 << 20
"""Characters of one element."""


class Damaged(str):
    """Say what is wrong with an element, in its place."""

    __slots__ = ()


def read_elements(file: BinaryIO) -> Iterator[Any]:
    """Yield the elements of a list; nothing where the file does not begin like one. Closes the file."""
    with io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace") as text:
        buffer = text.read(CHUNK).lstrip()
        if buffer.startswith("["):
            yield from _elements(text, buffer[1:])


def _elements(text: io.TextIOWrapper, buffer: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    place = 0
    while True:
        between = BETWEEN.match(buffer, place)
        place = between.end() if between else place
        if buffer[place : place + 1] == "]":
            return
        try:
            # A number at the end of the buffer may go on; elements here are objects.
            value, place = decoder.raw_decode(buffer, place)
        except (ValueError, RecursionError) as error:
            buffer, place = buffer[place:], 0
            more = text.read(CHUNK) if len(buffer) <= LONGEST and isinstance(error, ValueError) else ""
            if not more:
                yield Damaged(str(error)[:200])
                return
            buffer += more
        else:
            yield value


def read_json_lines(file: BinaryIO) -> Iterator[Any]:
    """Yield what each line that is not blank holds. Closes the file."""
    with io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="\n") as text:
        while line := text.readline(LONGEST + 1):
            if len(line) > LONGEST:
                while line and not line.endswith("\n"):
                    line = text.readline(CHUNK)
                yield Damaged(f"longer than {LONGEST} characters")
            elif line.strip():
                yield _parse(line)


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return Damaged(str(error)[:200])
