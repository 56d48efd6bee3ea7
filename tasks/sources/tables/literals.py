"""Read Python literals that others wrote into tables as text (``"['a.jpg', 'b.jpg']"``), without trusting them.

Only lists, tuples, dicts, strings, whole numbers, ``None``, ``True`` and ``False`` are taken, of limited size and
depth; that is checked before Python's parser, which deep nesting can exhaust, sees the text.
"""

import ast
import re
import warnings
from typing import Any

LONGEST = 500_000
"""Characters; the longest conversation of CaD-Inst has some ten thousand."""
MOST_VALUES = 10_000
DEEPEST = 8
# Possessive, and matched from one end to the other: no text takes more than one look at each character.
PIECE = re.compile(r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|(?P<rest>[^'"]++)""", re.DOTALL)
REST = re.compile(r"(?:[\[\](){},:\s]|None|True|False|-?\d{1,20})*+")
BRACKETS = {"[": 1, "(": 1, "{": 1, "]": -1, ")": -1, "}": -1}


def parse_literal(text: object) -> Any:
    """Return the value that a text spells, or ``None`` where it is not such a literal."""
    if not isinstance(text, str) or len(text) > LONGEST or not _is_plain(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unknown escapes in strings
            return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _is_plain(text: str) -> bool:
    place = depth = values = 0
    while place < len(text):
        piece = PIECE.match(text, place)
        if piece is None:
            return False
        place = piece.end()
        rest = piece["rest"] or ""
        if not REST.fullmatch(rest):
            return False
        values += rest.count(",")
        for sign in rest:
            depth += BRACKETS.get(sign, 0)
            if not 0 <= depth <= DEEPEST:
                return False
    return values <= MOST_VALUES
