"""Sanitise untrusted text for prompts: it stays data, whatever it says.

Removes what chat templates use for turns, roles and images: control tokens of all families, also
hidden ones (zero-width characters, compatibility forms, combining marks, HTML entities, nested
tokens), and headers like "User:". The result is one line of bounded length. Ordinary text in any
script is unchanged; a hostile one may lose its accents.
"""

import html
import re
import unicodedata
from collections.abc import Iterator
from itertools import count
from typing import Literal

from pairwright.schemas.control_tokens import BAR as _BAR
from pairwright.schemas.control_tokens import TOKEN

MOST = 6000  # maximum characters: a summary of 750 tokens has about 4,000
ROUNDS = 8  # deeper nesting is an attack: all brackets and bars are removed

# Always removed: controls, invisible format characters, selectors, tags, lone surrogates.
_INVISIBLE = re.compile(
    "[\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0d\ufeff\uffa0"
    "\ufff0-\ufffb\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    # Joiners are needed in Persian, Indic scripts and emoji alone.
    "|(?<![^\0-\x7f\u200c\u200d])[\u200c\u200d]|[\u200c\u200d](?![^\0-\x7f\u200c\u200d])"
    "|(?<![^\\s\ufe0e\ufe0f])[\ufe0e\ufe0f]"
)
_AMPERSANDS = re.compile(r"&(?:amp;|#0*38;|#[xX]0*26;)+")  # resolved at once, however deep
_LINE_ENDS = str.maketrans(dict.fromkeys("\r\v\f\x1c\x1d\x1e\x85\u2028\u2029", "\n"))

_OPEN = "[<\u2039\u3008\u27e8\u276e]"
_CLOSE = "[>\u203a\u3009\u27e9\u276f]"
_TOKEN = re.compile(
    # with spaces, and any tag: in a prompt, more is taken out than is refused in a text
    rf"{_OPEN}\s*{_BAR}[^<>|]{{0,64}}?{_BAR}\s*{_CLOSE}"
    r"|<{1,3}[/!]?(?:[^\W\d]|0[xX])[\w:.=~-]{0,63}/?>{1,3}"
    rf"|{TOKEN}"
)
_RIM = re.compile(rf"{_OPEN}{_BAR}|{_BAR}{_CLOSE}")  # halves of tokens
_MARKS = ("Mn", "Me", "Cf", "Cs")  # categories of combining, format and surrogate characters
_BRACKETS = re.compile(rf"{_OPEN}|{_CLOSE}|{_BAR}|[\[\]]")

_ROLE = (
    "(?:system|user|human|assistant|ai|bot|chatbot|gpt|model|developer|tool|function"
    "|observation|instruction|response)"
)
_START = r"[ \t>*_~`=-]{0,16}"
_GAP = r"[ \t*_#]{0,8}"
_HEADER = re.compile(
    # "### Assistant:", "User:"
    rf"(?im)^(?:{_START}(?:\#+{_GAP}{_ROLE}\b(?:{_GAP}:|{_GAP}$)|{_ROLE}{_GAP}:)[*_]*)+"
    # the prompts' own
    r"|(?:first|second) image could be described as\s*:|here is the (?:difference|prompt)\s*:"
    r"|generate the description strictly according to the template\s*:?"
)
_IMAGE_HEADER = re.compile(
    rf"(?im)^{_START}\#*{_GAP}(?:(?:image|picture|photo)[ \t]+(?:\d+|one|two)|(?:first|second)[ "
    rf"\t]+image){_GAP}(:)"
)
_ROLE_LINE = re.compile(rf"(?im)^{_START}{_ROLE}{_GAP}$")
_QUOTES = re.compile('["\u201c\u201d\u201e\u201f\u301d\u301e\u301f\uff02]')


def as_data(text: str, *, most: int = MOST) -> str:
    """Return the text on one line, without control tokens and forged headers; idempotent.

    ``most``: maximum number of characters.
    """
    text = text[: 8 * most]  # the rest would be cut anyway
    while True:
        after = " ".join(_stripped(text).split())
        if len(after) > most:
            after = after[:most].rpartition(" ")[0] or after[:most]
        if after == text:
            return text
        text = after


def within_quotes(text: str, *, most: int = MOST) -> str:
    """Return the text as data that cannot end the double quotes around it."""
    return _QUOTES.sub("'", as_data(text, most=most)).rstrip("\\")


def quoted(text: str, *, most: int = MOST) -> str:
    """Return the text as data in double quotes, which it cannot end."""
    return f'"{within_quotes(text, most=most)}"'


def _stripped(text: str) -> str:
    """Remove forbidden parts, and those that appear once these are gone."""
    for turn in count():
        text = _INVISIBLE.sub("", text).translate(_LINE_ENDS)
        shorter = _strip_once(text, all_brackets=turn > ROUNDS)
        if shorter is None:
            break
        text = shorter
    for form in _forms(text):
        if _IMAGE_HEADER.search(form):
            return _IMAGE_HEADER.sub(lambda header: f"{header[0][:-1]} ", form)
    return text


def _strip_once(text: str, *, all_brackets: bool) -> str | None:
    """Remove a kind of forbidden parts from the first form that has any; ``None``: none has."""
    for form in _forms(text):
        shorter = _without_one_kind(form, all_brackets=all_brackets)
        if shorter != form:
            return shorter
    return None


def _without_one_kind(form: str, *, all_brackets: bool) -> str:
    """Remove the first kind of forbidden parts; headers appear once tokens before them are gone."""
    patterns = [_BRACKETS] if all_brackets else [_TOKEN, _RIM]
    patterns.append(_HEADER)
    if "\n" in form.rstrip():
        patterns.append(_ROLE_LINE)
    for pattern in patterns:
        if pattern.search(form):
            return pattern.sub("\n", form)  # what follows counts as the start of a line
    return form


def _forms(text: str) -> Iterator[str]:
    """Yield the text as is, with entities and compatibility forms resolved, and without marks."""
    yield text
    if text.isascii() and "&" not in text:
        return
    resolved = text
    for _ in range(2):
        resolved = _resolve("NFKC", resolved)
    yield resolved
    bare = text
    for _ in range(3):
        bare = _resolve("NFKD", bare)
        bare = "".join(c for c in bare if c.isascii() or unicodedata.category(c) not in _MARKS)
    yield bare


def _resolve(form: Literal["NFKC", "NFKD"], text: str) -> str:
    text = html.unescape(_AMPERSANDS.sub("&", unicodedata.normalize(form, text)))
    return _INVISIBLE.sub("", unicodedata.normalize(form, text)).translate(_LINE_ENDS)
