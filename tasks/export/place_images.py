"""Say where in a prompt its images are, and what a form of messages can hold.

Pure. ``PLACE`` stands for an image in a text; where a prompt has none, the images go before its first words, as they do
in training. Readers count these marks, so a text that has one of its own is not held: it would show another image.
"""

from collections.abc import Sequence

from pairwright.schemas.rows import PreferenceRow, Turn
from pairwright.tasks.export.form import UnheldError

PLACE = "<image>"
MEDIA = (PLACE, "<video>", "<audio>")
"""What readers take for a place of something."""
SHAREGPT_ROLES = {"user": "human", "assistant": "gpt", "system": "system"}


def place_images(row: PreferenceRow, marks: Sequence[str] = MEDIA) -> list[Turn]:
    """Return the prompt's turns with a ``PLACE`` per image.

    Raises:
        UnheldError: there are others of the reader's marks in a text, turns that do not alternate, or no chosen text.
    """
    if not row.chosen.strip():
        raise UnheldError("no chosen text")
    found = sum(turn.text.count(PLACE) for turn in row.prompt)
    if found not in (0, len(row.images)):
        raise UnheldError(f"the prompt has {PLACE} in its words")
    if any(mark in turn.text for turn in row.prompt for mark in marks if mark != PLACE):
        raise UnheldError("the prompt has the mark of a video or a sound in its words")
    if any(mark in text for text in (row.chosen, row.rejected) for mark in marks):
        raise UnheldError("an answer has the mark of an image, a video or a sound in its words")
    turns = list(row.prompt)
    first = int(bool(turns) and turns[0].role == "system")
    roles = [turn.role for turn in turns[first:]]
    if len(roles) % 2 != 1 or set(roles[::2]) != {"user"} or set(roles[1::2]) - {"assistant"}:
        raise UnheldError("user and assistant do not take turns in the prompt")
    if not found:
        turns[first] = Turn(role="user", text=PLACE * len(row.images) + turns[first].text)
    return turns


def rejected_text(row: PreferenceRow) -> str:
    """Return what a text is preferred to.

    Raises:
        UnheldError: nothing, or the same text.
    """
    if not row.rejected.strip():
        raise UnheldError("no rejected text")
    if row.rejected == row.chosen:
        raise UnheldError("the rejected text is the chosen one")
    return row.rejected
