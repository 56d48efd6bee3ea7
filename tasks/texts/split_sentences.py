"""Parse the sentences into which a model split a text, and check them against the text (ours).

English only.
"""

import json
import re
from typing import Any

from pairwright.tasks.texts.words import content_words, split_by_rules

MIN_FROM_TEXT = 0.75
"""Minimum share of a sentence's content words that occur in the text."""
MIN_COVERED = 0.5
"""Minimum share of the content words of each of the text's sentences that the sentences repeat."""
ENDINGS = re.compile(r"(?:ing|ed|ly|e)$")


def read_sentences(
    answer: str,
    text: str,
    *,
    least_known: float = MIN_FROM_TEXT,
) -> tuple[str, ...]:
    """Return the different sentences of a model's JSON.

    Without JSON, or if they add to the text or omit some of it, return none.
    """
    content = find_json(answer)
    if isinstance(content, dict):
        content = content.get("sentences")
    if not isinstance(content, list) or not all(isinstance(item, str) for item in content):
        return ()
    sentences = tuple(dict.fromkeys(" ".join(item.split()) for item in content))
    text_stems = _stems(text)
    stems = _stems(" ".join(sentences))
    adds_nothing = all(
        _share(_stems(sentence), text_stems) >= least_known for sentence in sentences
    )
    omits_nothing = all(
        _share(_stems(sentence), stems, empty=1.0) >= MIN_COVERED
        for sentence in split_by_rules(text)
    )
    if adds_nothing and omits_nothing:
        return sentences
    return ()


def _stems(text: str) -> set[str]:
    stems: set[str] = set()
    for word in content_words(text):
        stem = ENDINGS.sub("", word)
        stems.add(stem if len(stem) > 2 else word)
    return stems


def _share(
    stems: set[str],
    others: set[str],
    *,
    empty: float = 0.0,
) -> float:
    """Return the share of the stems that occur among the others; ``empty``: without stems."""
    return len(stems & others) / len(stems) if stems else empty


def find_json(text: str) -> Any:
    """Return the value of the JSON in an answer, which may be between sentences.

    ``None``: there is none.
    """
    starts = [text.find(bracket) for bracket in "[{" if bracket in text]
    start = min(starts, default=0)
    end = max(text.rfind(bracket) + 1 for bracket in "]}")
    for part in (text, text[start:end]):
        try:
            return json.loads(part)
        except (ValueError, RecursionError):
            continue
    return None
