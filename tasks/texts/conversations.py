"""Conversations about images: the turns of user and assistant for each written table.

A preference is a conversation, too: its prompt, then its chosen text.
"""

from collections.abc import Sequence
from random import Random

from pairwright.prompts import load, load_wordings
from pairwright.schemas import rows
from pairwright.schemas.rows import ImageRow, PairRow, PreferenceRow, SplitRow, Turn

TellingRow = rows.CaptionRow | rows.ComparisonRow | rows.DifferenceRow | rows.QuestionRow
SHOWN = "Image 1: <image>\nImage 2: <image>\n"  # prefix of a CaD-QA question, as published
ASK, DESCRIBE = "ask_difference", "describe_image"


def turns_of(row: TellingRow | PreferenceRow) -> tuple[Turn, ...]:
    """Return a row's conversation, up to its last answer."""
    match row:
        case PreferenceRow():
            return *row.prompt, Turn(role="assistant", text=row.chosen)
        case rows.ComparisonRow():
            last = max(n for n, turn in enumerate(row.conversation) if turn.role == "assistant")
            return row.conversation[: last + 1]
        case rows.QuestionRow():
            asked, answer = SHOWN + row.question, row.answer
        case rows.CaptionRow():
            asked, answer = load(DESCRIBE).render(), row.text
        case rows.DifferenceRow():
            asked = load_wordings(ASK).say("given" if row.is_given else "ask", Random(row.key))
            answer = row.text
    return Turn(role="user", text=asked), Turn(role="assistant", text=answer)


def converse(
    row: TellingRow, pair: PairRow, shown: Sequence[ImageRow], split: SplitRow
) -> PreferenceRow:
    """Return a row's conversation about one or both images of a pair, as a preference that rejects nothing."""
    *asked, answer = turns_of(row)
    return PreferenceRow(
        key=row.key,
        source_key=pair.key,
        subject=row.subject,
        prompt=tuple(asked),
        images=tuple(image.image for image in shown),
        image_keys=tuple(image.key for image in shown),
        chosen=answer.text,
        chosen_model=row.model,
        component=split.component,
        split=split.split,
        sources=tuple(image.source for image in shown),
        licences=tuple(image.licence for image in shown),
    )
