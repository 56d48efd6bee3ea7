"""Split a description into sentences that stand alone: by their ends, or as a served model split it.

A model's sentences are taken only if they say what the description says: nearly every content word of each is one of
the description's, and each sentence of the description has at least half of its content words in them. The rules, and
these two shares, are ours.
"""

import json
import re
from typing import Any

from tasks.captioning.likeness import content_words

END = re.compile(r"[.!?…]+[\"'”’)\]]*(?= [\"'“‘(\[]*[A-Z0-9À-ÖØ-Þ])")
OPENER = re.compile(
    r" [\"'“‘(\[]*(?:The|An?|It|Its|In|On|At|To|There|This|That|These|Those|He|She|They|His|Her|Their|Some|Several|Many"
    r"|Both|One|Two|Three|Behind|Below|Above|Next|Near|Another|Overall|Also|Beside|Beyond|Under|With|And|But)\b(?!\.)"
)
"""What a sentence usually begins with; after an abbreviation that may end one, nothing else does."""
TITLES = "mr mrs ms dr prof gen col capt lt sgt rev fig figs vs approx cf al e.g i.e ca"
SHORTENED = "st mt ave blvd rd sq jr sr co inc ltd corp etc dept est min max p.m a.m"
NEVER_LAST, SOMETIMES_LAST = frozenset(TITLES.split()), frozenset(SHORTENED.split())
"""Abbreviations that end no sentence, and those that may."""
LETTERS = re.compile(r"[A-Z]|[^\W\d_](?:\.[^\W\d_])+")
"""An initial ("J."), or letters with full stops ("U.S.")."""
ENUMERATED = re.compile(r"\(?(?:\d{1,2}|[a-z])[.)]+", re.IGNORECASE)
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


def split_by_rules(text: str) -> tuple[str, ...]:
    """Return the sentences; joined by spaces they are the text, put on one line."""
    text = " ".join(text.split())
    sentences: list[str] = []
    start = 0
    for match in END.finditer(text):
        if _is_end(text[start : match.end()], text[match.end() :]):
            sentences.append(text[start : match.end()])
            start = match.end() + 1
    return (*sentences, text[start:]) if text else ()


def _is_end(before: str, after: str) -> bool:
    """Say whether a sentence ends between the two: not after an abbreviation, an initial, or the number of an item."""
    if ENUMERATED.fullmatch(before):
        return False
    last = before.rpartition(" ")[2].lstrip("\"'“‘([")
    word = last.removesuffix(".")
    if word == last or word.endswith((".", "!", "?")):  # another end than one full stop, or a quotation's
        return True
    if word.lower() in NEVER_LAST or (word.lower() in ("no", "nos") and after[1:2].isdigit()):
        return False
    return bool(OPENER.match(after)) if word.lower() in SOMETIMES_LAST or LETTERS.fullmatch(word) else True


def ends_short(text: str) -> bool:
    """Say whether a text ends in an abbreviation that ends no sentence: it was cut off at its full stop."""
    return text.rpartition(" ")[2].lower().lstrip("\"'“‘([").removesuffix(".") in NEVER_LAST


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
