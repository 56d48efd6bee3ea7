"""Conversations about images: the turns of user and assistant for each written table.

A preference is a conversation, too: its prompt, then its chosen text.
"""

from collections.abc import Sequence
from random import Random

from pairwright.prompts import load_prompt, load_wordings
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
            answers = [n for n, turn in enumerate(row.conversation) if turn.role == "assistant"]
            return row.conversation[: max(answers) + 1]
        case rows.QuestionRow():
            question = SHOWN + row.question
            answer = row.answer
        case rows.CaptionRow():
            question = load_prompt(DESCRIBE).render()
            answer = row.text
        case rows.DifferenceRow():
            wording_kind = "given" if row.is_given else "ask"
            question = load_wordings(ASK).say(wording_kind, Random(row.key))
            answer = row.text
    return Turn(role="user", text=question), Turn(role="assistant", text=answer)


def converse(
    row: TellingRow,
    pair: PairRow,
    images: Sequence[ImageRow],
    split: SplitRow,
) -> PreferenceRow:
    """Return a row's conversation about images of a pair as a preference that rejects nothing."""
    *prompt, answer = turns_of(row)
    return PreferenceRow(
        key=row.key,
        source_key=pair.key,
        subject=row.subject,
        prompt=tuple(prompt),
        images=tuple(image.image for image in images),
        image_keys=tuple(image.key for image in images),
        chosen=answer.text,
        chosen_model=row.model,
        component=split.component,
        split=split.split,
        sources=tuple(image.source for image in images),
        licences=tuple(image.licence for image in images),
    )
