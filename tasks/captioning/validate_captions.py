"""Say why a model's answer is no detailed description of an image (ours).

Needs nothing but the words; whether they are true of the image is not asked here.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from pairwright.schemas.refusals import declines, repeats_itself
from pairwright.schemas.sentences import split_by_rules

Reason = Literal[
    "empty",
    "cut off",
    "the model declines",
    "more than one paragraph",
    "not a description",
    "repeats itself",
    "too short",
    "too long",
]
COMPLETE = re.compile(r"[.!?…。][\"'”’)\]]*$")
MARKED = re.compile(r"(?:[-*#•>|]|\d{1,2}[.)]\s|```|[{\[<])")
"""How lists, headings, tables and code begin."""
PREFACE = re.compile(
    r"(?:sure|certainly|of course|absolutely|okay|ok|here(?:['’]s| is| are))\b[^.]{0,80}[:!]|(?:description|caption):",
    re.IGNORECASE,
)
LEAST_WORDS, MOST_WORDS = 12, 600
MOST_REPEATS = 2
"""How often a sentence may be said."""
LONG = 4
"""Words from which on a sentence counts for that."""


@dataclass(frozen=True, slots=True)
class RefusedCaption:
    """Say why a text is no description."""

    reason: Reason
    detail: str = ""


def refuse_caption(text: str, *, finish_reason: str = "stop") -> RefusedCaption | None:
    """Return the first reason to refuse a description."""
    text = text.strip()
    if not text:
        return RefusedCaption("empty")
    if finish_reason == "length" or not COMPLETE.search(text):
        return RefusedCaption("cut off", finish_reason if finish_reason == "length" else text[-40:])
    if declines(text):
        return RefusedCaption("the model declines", text[:80])
    if "\n" in text or "\r" in text:
        return RefusedCaption("more than one paragraph", f"{len(text.splitlines())} lines")
    if MARKED.match(text) or PREFACE.match(text):
        return RefusedCaption("not a description", text[:80])
    return _refuse_words(text)


def _refuse_words(text: str) -> RefusedCaption | None:
    if repeats_itself(text):
        return RefusedCaption("repeats itself", text[-80:])
    sentences = Counter(sentence.lower() for sentence in split_by_rules(text) if len(sentence.split()) >= LONG)
    if sentences and (most := max(sentences, key=sentences.__getitem__)) and sentences[most] > MOST_REPEATS:
        return RefusedCaption("repeats itself", most)
    count = len(text.split())
    if count < LEAST_WORDS:
        return RefusedCaption("too short", text)
    return RefusedCaption("too long", f"{count} words") if count > MOST_WORDS else None
