"""The form of a comparison, for servers that hold answers to a regular expression: paper 003's published layout.

Commonalities as a paragraph or a numbered list, an empty line, and one to six numbered differences, each with the label
of an axis: none is forced, so that a pair's content decides (section 3.1). How long a line is, the request's most
tokens limit, not the expression: counted repeats of any character are what makes automata large. It has no look-around
and no references, so that all engines of vLLM take it. The first word may follow a space, as it does for models with a
SentencePiece vocabulary (Mixtral).
"""

from functools import cache

from tasks.serving.chat import Grammar

LABELS = (
    "Object types",
    "Object attributes",
    "Counting the objects",
    "Object actions",
    "Object locations",
    "Relative positions between objects",
)
"""The paper's axes by the words of its published summaries."""
MOST_COMMONALITIES = 6
LINE = r"[A-Z0-9\"'][^\n]*[.!?]"


@cache
def comparison_grammar() -> Grammar:
    """Return the grammar of a whole summary."""
    commonalities = rf"( {LINE}|\n{_numbered(LINE, MOST_COMMONALITIES)})"
    differences = _numbered(f"({'|'.join(LABELS)}): {LINE}", len(LABELS))
    return Grammar(regex=rf" ?Commonalities:{commonalities}\n\nDifferences:\n{differences}")


def _numbered(item: str, most: int) -> str:
    """Return a list of one to so many items, numbered in order."""
    later = ""
    for number in range(most, 1, -1):
        later = rf"(\n{number}\. {item}{later})?"
    return rf"1\. {item}{later}"
