"""Words for the content of a scene graph: noun phrases, numbers, places; one phrase per value.

Writers use these, so that a phrase and its ``Selector`` mean the same, and other steps can find a
claim's words in a text.
"""

import re
from collections.abc import Sequence

from pairwright.schemas.claims import Relation, Selector
from pairwright.schemas.scene import PREPOSITIONS

NUMBERS = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
SIZES = {"small": "small", "medium": "medium-sized", "large": "large"}
COLUMNS = {"left": "on the left", "centre": "in the centre", "right": "on the right"}
DEPTHS = {
    "front": "in the foreground",
    "middle": "in the middle ground",
    "back": "in the background",
}
FACINGS = {
    "left": "facing left",
    "right": "facing right",
    "front": "facing the camera",
    "back": "facing away",
}
SPOKEN: dict[Relation, str] = {
    "left of": "to the left of",
    "right of": "to the right of",
    "in front of": "in front of",
    "behind": "behind",
}
SURFACE = {"size": SIZES, "column": COLUMNS, "depth": DEPTHS, "facing": FACINGS}
"""Attributes whose words differ from their values."""
TAIL = ("rests_on", "column", "depth", "pose", "facing", "text")
"""Attributes whose words follow the noun, in order."""


def surface(attribute: str, value: str) -> str:
    """Return the words that stand for one attribute's value."""
    if attribute == "text":
        return f"that says '{value}'"
    if attribute == "rests_on":
        return f"on {with_article(value)}"
    return SURFACE.get(attribute, {}).get(value, value)


def plural(noun: str) -> str:
    """Return the plural of a noun, by rule."""
    if re.search(r"(s|x|z|ch|sh)$", noun):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if re.search(r"[^aeiou]y$", noun) else f"{noun}s"


def capital(text: str) -> str:
    """Return the text with its first letter a capital."""
    return text[:1].upper() + text[1:]


def spell_number(count: int) -> str:
    """Return a count in words, in digits above twelve."""
    return NUMBERS[count] if count < len(NUMBERS) else str(count)


def with_article(phrase: str) -> str:
    """Put "a" or "an" before a phrase."""
    return f"{'an' if re.match(r'[aeio]|u(?!ni|se)', phrase) else 'a'} {phrase}"


def bare(phrase: str) -> str:
    """Take a phrase's own article off."""
    return re.sub(r"^(an?|the) ", "", phrase)


def within(place: str) -> str:
    """Return a place with its preposition: "on a wooden table-top"."""
    return f"{PREPOSITIONS.get(place, 'in')} {place}"


def joined(phrases: Sequence[str], word: str = "and") -> str:
    """Return "a, b and c"."""
    return (
        "".join(phrases) if len(phrases) < 2 else f"{', '.join(phrases[:-1])} {word} {phrases[-1]}"
    )


def noun(selector: Selector, count: int = 1) -> str:
    """Return the words before and including the noun: "small red metal ball"."""
    shape = selector.shape or "object"
    adjectives = (selector.size and SIZES[selector.size], selector.colour, selector.material)
    return " ".join([*filter(None, adjectives), shape if count == 1 else plural(shape)])


def tail(selector: Selector, count: int = 1) -> str:
    """Return the words after the noun: " on the left facing right", or nothing."""
    named = [(name, getattr(selector, name)) for name in TAIL]
    words = "".join(f" {surface(name, value)}" for name, value in named if value)
    if count == 1:  # poses are written for one thing: "with its lid open"
        return words
    words = re.sub(r"with its (lid|head)\b", r"with their \1s", words)
    return words.replace(" its ", " their ").replace(" that says ", " that say ")


def some(selector: Selector, count: int | None = None) -> str:
    """Return an indefinite phrase: "a small red metal ball on the left".

    A count makes it "no", "one" or "two red balls".
    """
    head, after = noun(selector, count or 1), tail(selector, count or 1)
    return f"{with_article(head) if count is None else f'{spell_number(count)} {head}'}{after}"


def the(selector: Selector) -> str:
    """Return a definite phrase: "the red metal ball on the left"."""
    return f"the {noun(selector)}{tail(selector)}"
