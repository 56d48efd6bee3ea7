"""The form of a comparison, for servers that hold answers to a regular expression: paper 003's published layout.

Commonalities as a paragraph or a numbered list, an empty line, and one to six numbered differences, each with the label
of an axis: none is forced, so that a pair's content decides (section 3.1). A line has a bounded number of full stops,
so that a model that runs away comes to its end; its length is not counted, since counted repeats of any character are
what makes automata large. There is no look-around and no reference, so that all engines of vLLM take it. The first word
may follow a space, as it does for models with a SentencePiece vocabulary (Mixtral).
"""

from functools import cache

from pairwright.tasks.serving.chat import Grammar

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
IN_PARAGRAPH, IN_ITEM = 8, 5
"""Most full stops of a line; abbreviations and decimals count, too."""
STOP = r"[.!?][\"')]?"


@cache
def comparison_grammar() -> Grammar:
    """Return the grammar of a whole summary."""
    item, labels = _line(IN_ITEM), "|".join(LABELS)
    commonalities = rf"( {_line(IN_PARAGRAPH)}|\n{_numbered(item, MOST_COMMONALITIES)})"
    differences = _numbered(f"({labels}): {item}", len(LABELS))
    return Grammar(regex=rf" ?Commonalities:{commonalities}\n\nDifferences:\n{differences}")


def _line(most: int) -> str:
    """Return a line of one to so many sentences."""
    return rf"[A-Z0-9\"'][^\n.!?]*{STOP}([^\n.!?]+{STOP}){{0,{most - 1}}}"


def _numbered(item: str, most: int) -> str:
    """Return a list of one to so many items, numbered in order."""
    later = ""
    for number in range(most, 1, -1):
        later = rf"(\n{number}\. {item}{later})?"
    return rf"1\. {item}{later}"
