"""Tell names of things from names of places, colours, actions and ideas, by a word list (ours).

A profile may add names of things, or have a list of its own: water and rust are things to others.
A detector finds a box for any name. Accepted are countable objects: people, animals, food,
vehicles, furniture, clothes, plants, buildings and their parts. Refused, by the words of
``no_things.txt``, are places, colours, actions, ideas, materials of whole scenes (sky, sea, grass,
floor), and parts of bodies.
"""

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).with_name("no_things.txt")
WITH_PLURALS = {
    "materials",
    "stuff",
    "places",
    "times",
    "weather",
    "images",
    "events",
    "abstract",
    "bodies",
}
"""Sections whose entries also refuse their plurals: "shorts" are no "short"."""


class WordList(NamedTuple):
    """Word list."""

    things: frozenset[str]
    whole: frozenset[str]
    last: frozenset[str]  # refused also as the last word of a tag
    nouns: frozenset[str]  # words with plurals


def tidy(name: str) -> str:
    """Return a name in lower case with single spaces."""
    return " ".join(name.casefold().split())


def names_thing(tag: str, word_list: WordList | None = None) -> bool:
    """Return whether a tidy name names an object: by the list, its last word, then its ending.

    Of "a of b", a decides: "a glass of water" is a glass. ``word_list``: another than ours.
    """
    word_list = word_list or read_words()
    if _forms(tag) & word_list.things:
        return True
    if _is_listed(tag, word_list.whole, word_list.nouns) or not any(map(str.isalpha, tag)):
        return False
    if " of " in tag:
        return names_thing(tag.partition(" of ")[0], word_list)
    last = tag.rpartition(" ")[2]
    if _forms(last) & word_list.things:
        return True
    if _is_listed(last, word_list.last, word_list.nouns):
        return False
    is_action = last.endswith("ing") and len(last) > len("thing")
    return not is_action


def _is_listed(word: str, refused: frozenset[str], nouns: frozenset[str]) -> bool:
    """Return whether a word is refused; of nouns, plurals are as well."""
    return word in refused or bool(_forms(word) & refused & nouns)


def _forms(word: str) -> set[str]:
    """Return a word and its possible singulars."""
    forms = {word}
    if word.endswith("ies") and len(word) > len("ties"):
        forms.add(f"{word[:-3]}y")
    if re.search(r"(s|x|z|ch|sh)es$", word):
        forms.add(word[:-2])
    if word.endswith("s") and not word.endswith("ss"):
        forms.add(word[:-1])
    return forms


@cache
def read_words(text: str = "", included: tuple[str, ...] = ()) -> WordList:
    """Return the word list of a text, by default ours, with further names of things."""
    things = set(map(tidy, included))
    whole: set[str] = set()
    last: set[str] = set()
    nouns: set[str] = set()
    for section, entry in _read_entries(text or _read_ours()):
        if section == "things":
            things.add(entry)
            continue
        word = entry.removeprefix("=")
        whole.add(word)
        if not entry.startswith("="):
            last.add(entry)
        if section in WITH_PLURALS:
            nouns.add(word)
    return WordList(frozenset(things), frozenset(whole), frozenset(last), frozenset(nouns))


@cache
def _read_ours() -> str:
    return LIST.read_text(encoding="utf-8")


def _read_entries(word_list: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of a word list, each with its section."""
    lines = word_list.splitlines()
    text = " ".join(line for line in lines if not line.startswith("#"))
    for part in text.split("[")[1:]:
        section, _, entries = part.partition("]")
        for entry in entries.split(","):
            if entry.strip():
                yield section, tidy(entry)


def identify_words(text: str = "") -> str:
    """Return the identifier of a word list, by default of ours."""
    word_list = text or _read_ours()
    return f"names {hashlib.sha256(word_list.encode()).hexdigest()[:12]}"
