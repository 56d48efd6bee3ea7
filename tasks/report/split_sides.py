"""Divide a statement about two images into what it says of each, where it says so plainly.

Reads and writes nothing. A statement is cut once, between what names only the first image and what names only the
second; the conjunction between them is left out, every other word stays as it is. One that does not say so, or names
both on one side of the cut, is not divided: a guess would put words into the wrong column.
"""

import re

FIRST = re.compile(
    r"\b(?:(?:image|picture|photo(?:graph)?) (?:1|one)|first (?:image|picture|photo(?:graph)?|one)|former)\b",
    re.IGNORECASE,
)
SECOND = re.compile(
    r"\b(?:(?:image|picture|photo(?:graph)?) (?:2|two)|second (?:image|picture|photo(?:graph)?|one)|latter)\b",
    re.IGNORECASE,
)
CUT = re.compile(r"(?:[,;]\s+(?:(?:whereas|while|but|and)\s+)?|\.\s+(?=[A-Z])|\s+(?:whereas|while)\s+)", re.IGNORECASE)


def split_sides(statement: str) -> tuple[str, str] | None:
    """Return what is said of the first and of the second image; ``None``: it is not said of one each."""
    found = None
    for cut in CUT.finditer(statement):
        before, after = statement[: cut.start()].strip(), statement[cut.end() :].strip()
        if FIRST.search(before) and SECOND.search(after) and not SECOND.search(before) and not FIRST.search(after):
            found = before, after  # the last: "In Image 1, ..." has a comma, too
    return found
