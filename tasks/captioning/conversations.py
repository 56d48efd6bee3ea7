"""Put a comparison into a conversation of two turns, after paper 003 (CaD-VI), sections 3.1 and 3.3.

First both images are to be summarised, their captions withheld. Then one of the two captions is drawn, and which image
it belongs to is asked; the answer is A or B, one as often as the other where both captions will do. This turn is left
out where the captions nearly match, and where neither is known to fit its own image only (ours: the paper draws any).
"""

import re
from collections.abc import Sequence

from pairwright.prompts import load
from pairwright.schemas.content_words import content_words
from pairwright.schemas.rows import PairRow, Turn
from pairwright.tasks.captioning.statements import SIDES, Side, row_random
from pairwright.tasks.serving.untrusted import within_quotes

FIRST, SECOND = "compare_images", "retrieve_image"
PROMPTS = (FIRST, SECOND)
WORD = re.compile(r"\w+")


def summary_turns(text: str) -> tuple[Turn, Turn]:
    """Return the first turn: the question that shows the images, and the summary."""
    return Turn(role="user", text=load(FIRST).render()), Turn(role="assistant", text=text)


def retrieval_turns(pair: PairRow, captions: Sequence[str], sides: Sequence[Side], *, seed: int) -> tuple[Turn, ...]:
    """Return the second turn, about the caption of one of the sides, drawn by the pair's key; none: no turn."""
    if not sides:
        return ()
    side = row_random("retrieval", seed, pair.key).choice(sides)
    question = load(SECOND).render(caption=within_quotes(captions[side]))
    return Turn(role="user", text=question), Turn(role="assistant", text="AB"[side])


def nearly_match(captions: Sequence[str], most: float) -> bool:
    """Say whether one is missing, or both say the same but for signs and capitals, or share more than ``most``."""
    words = [WORD.findall(text.lower()) for text in captions]
    return not all(words) or words[0] == words[1] or overlap(*captions) > most


def overlap(first: str, second: str) -> float:
    """Return the share of the larger caption's different words that the other has too."""
    words = [set(WORD.findall(text.lower())) for text in (first, second)]
    return len(words[0] & words[1]) / max(len(words[0]), len(words[1]), 1)


def sides_of_own_words(captions: Sequence[str]) -> list[Side]:
    """Return the sides whose caption has a content word that the other lacks.

    Without scene graphs this is all that can be known: a caption that says nothing but what the other says, too, fits
    both images. Whether other words mean the same is not asked.
    """
    words = [set(content_words(text)) for text in captions]
    return [side for side in SIDES if words[side] - words[1 - side]]
