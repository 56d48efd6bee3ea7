"""Parse the sentences into which a model split a text, and check them against the text (ours).
English only.
"""

import json
import re
from typing import Any

from pairwright.tasks.texts.words import content_words, split_by_rules

LEAST_KNOWN, LEAST_KEPT = 0.75, 0.5
"""Least share of a sentence's content words that occur in the text, and of the text's that are
kept."""
ENDINGS = re.compile(r"(?:ing|ed|ly|e)$")


def read_sentences(answer: str, text: str, *, least_known: float = LEAST_KNOWN) -> tuple[str, ...]:
    """Return the different sentences of a model's JSON; none where they add to the text or omit some of it."""
    found = find_json(answer)
    if isinstance(found, dict):
        found = found.get("sentences")
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        return ()
    sentences = tuple(dict.fromkeys(" ".join(one.split()) for one in found))
    told, said = _stems(text), _stems(" ".join(sentences))
    is_known = all(_share(_stems(sentence), told) >= least_known for sentence in sentences)
    is_kept = all(
        _share(_stems(sentence), said, empty=1.0) >= LEAST_KEPT for sentence in split_by_rules(text)
    )
    return sentences if is_known and is_kept else ()


def _stems(text: str) -> set[str]:
    return {
        short if len(short := ENDINGS.sub("", word)) > 2 else word for word in content_words(text)
    }


def _share(words: set[str], known: set[str], *, empty: float = 0.0) -> float:
    return len(words & known) / len(words) if words else empty


def find_json(text: str) -> Any:
    """Return the value of the JSON in an answer, also in a fence or among other words; ``None``: there is none."""
    starts = [place for sign in "[{" if (place := text.find(sign)) >= 0]
    for part in (text, text[min(starts, default=0) : max(text.rfind(sign) + 1 for sign in "]}")]):
        try:
            return json.loads(part)
        except (ValueError, RecursionError):
            continue
    return None
