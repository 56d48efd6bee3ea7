"""Split a description into sentences that stand alone: by their ends, or as a served model split it.

A model's sentences are taken only if they say what the description says: nearly every content word of each is one of
the description's, and each sentence of the description has at least half of its content words in them. The rules, and
these two shares, are ours.
"""

import json
import re
from typing import Any

from pairwright.schemas.content_words import content_words
from pairwright.schemas.sentences import split_by_rules

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"sentences": {"type": "array", "items": {"type": "string"}}},
    "required": ["sentences"],
    "additionalProperties": False,
}
"""An object, since some servers hold to no list at the top."""
FENCED = re.compile(r"\A```\w*\s*(.*?)\s*```\Z", re.DOTALL)
LEAST_KNOWN = 0.75
LEAST_KEPT = 0.5
ENDINGS = re.compile(r"(?:ing|ed|ly|e)$")


def read_sentences(answer: str, description: str) -> tuple[str, ...]:
    """Return the sentences that a model split a description into; none where its answer will not do."""
    sentences = _listed(answer)
    told, said = _stems(description), _stems(" ".join(sentences))
    is_known = all(_share(_stems(sentence), told) >= LEAST_KNOWN for sentence in sentences)
    is_kept = all(_share(_stems(sentence), said, empty=1.0) >= LEAST_KEPT for sentence in split_by_rules(description))
    return sentences if is_known and is_kept else ()


def _listed(answer: str) -> tuple[str, ...]:
    """Return the different texts of a JSON list, also in an object or a fence; none where there is no such list."""
    fenced = FENCED.match(answer.strip())
    try:
        found = json.loads(fenced[1] if fenced else answer)
    except (ValueError, RecursionError):
        return ()
    if isinstance(found, dict):
        found = found.get("sentences")
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        return ()
    return tuple(dict.fromkeys(" ".join(one.split()) for one in found))


def _stems(text: str) -> set[str]:
    words = (word for word in content_words(text))
    return {short if len(short := ENDINGS.sub("", word)) > 2 else word for word in words}


def _share(words: set[str], known: set[str], *, empty: float = 0.0) -> float:
    return len(words & known) / len(words) if words else empty
