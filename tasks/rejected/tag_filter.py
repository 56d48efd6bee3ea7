"""Say which names are those of things that can be taken out of an image (ours).

Reads the words beside it (``no_things.txt``). Taggers and texts also name places, colours, actions and ideas, and a
detector finds a box for each. Kept are things that can be counted: people, animals, food, vehicles, furniture, clothes,
plants, buildings and their parts. Not kept is what a whole scene is made of (sky, sea, grass, floor), nor parts of
bodies.
"""

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import NamedTuple

NO_THING, EXCLUDED, TOO_LONG = "names no thing", "excluded by the profile", "too long for a name"
MAX_CHARACTERS = 60
"""Of a name; RAM's longest has 26."""
NOUNS = {"materials", "stuff", "places", "times", "weather", "images", "events", "abstract", "bodies"}
"""Sections whose entries count for their plurals, too: "shorts" are no "short"."""


class Words(NamedTuple):
    """Word list."""

    things: frozenset[str]
    whole: frozenset[str]
    """Refused as a whole tag."""
    last: frozenset[str]
    """Refused as its last word, too."""
    nouns: frozenset[str]
    """Those that have plurals."""


def why_refused(name: str, excluded: Iterable[str] = ()) -> str:
    """Return why a name, in any case, is not looked for, a short constant phrase; empty: it is."""
    tag = tidy(name)
    if len(tag) > MAX_CHARACTERS:
        return TOO_LONG
    if tag in {tidy(one) for one in excluded}:
        return EXCLUDED
    return "" if names_thing(tag) else NO_THING


def tidy(name: str) -> str:
    """Return a name in lower case, its words apart by single spaces."""
    return " ".join(name.casefold().split())


def names_thing(tag: str) -> bool:
    """Say whether a tidy name names a thing: by the list, then by its last word, then by its ending.

    Of "a of b", a decides: a glass of water is a glass.
    """
    words = read_words()
    if not any(letter.isalpha() for letter in tag):
        return False
    if _forms(tag) & words.things:
        return True
    if _is_in(tag, words.whole, words.nouns):
        return False
    if " of " in tag:
        return names_thing(tag.partition(" of ")[0])
    last = tag.rpartition(" ")[2]
    if _forms(last) & words.things:
        return True
    return not _is_in(last, words.last, words.nouns) and not (last.endswith("ing") and len(last) > len("thing"))


def _is_in(word: str, listed: frozenset[str], nouns: frozenset[str]) -> bool:
    return word in listed or bool(_forms(word) & listed & nouns)


def _forms(word: str) -> set[str]:
    """Return a word, and what may be its singular."""
    found = {word}
    if word.endswith("ies") and len(word) > len("ties"):
        found.add(f"{word[:-3]}y")
    if re.search(r"(s|x|z|ch|sh)es$", word):
        found.add(word[:-2])
    if word.endswith("s") and not word.endswith("ss"):
        found.add(word[:-1])
    return found


@cache
def read_words() -> Words:
    """Return the word list; where its lines break means nothing."""
    listed = " ".join(line for line in _text().splitlines() if not line.startswith("#"))
    sections = [(part.partition("]")[0], part.partition("]")[2].split(",")) for part in listed.split("[")[1:]]
    found = [(section, tidy(entry)) for section, entries in sections for entry in entries if entry.strip()]
    others = [(section, entry) for section, entry in found if section != "things"]
    return Words(
        things=frozenset(entry for section, entry in found if section == "things"),
        whole=frozenset(entry.removeprefix("=") for _, entry in others),
        last=frozenset(entry for _, entry in others if not entry.startswith("=")),
        nouns=frozenset(entry.removeprefix("=") for section, entry in others if section in NOUNS),
    )


def identify_words() -> str:
    """Return what tells this word list from others."""
    return f"names {hashlib.sha256(_text().encode()).hexdigest()[:12]}"


@cache
def _text() -> str:
    return (files(__package__ or "") / "no_things.txt").read_text(encoding="utf-8")
