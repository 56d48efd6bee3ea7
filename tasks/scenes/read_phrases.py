"""Parse claims from the noun phrases of any text about scenes with known graphs (ours).

Reads and writes nothing. Only certain statements are parsed, so a claim that does not hold makes
the text false. If all claims hold, the text is true only if every word of it was understood.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pairwright.schemas.claims import Claim, Selector
from pairwright.schemas.phrases import (
    COLUMNS,
    DEPTHS,
    FACINGS,
    NUMBERS,
    SIZES,
    surface,
    with_article,
)
from pairwright.schemas.scene import PLURALS, PREPOSITIONS
from pairwright.tasks.scenes.vocabulary import SCENE_WORDS

NOUNS = {
    **{shape: shape for shape in PLURALS},
    **{plural: shape for shape, plural in PLURALS.items()},
    **dict.fromkeys(("object", "objects", "thing", "things", "item", "items"), ""),
}
COUNTS = {
    **{word: count for count, word in enumerate(NUMBERS) if count},
    **{str(count): count for count in range(1, 100)},
}


def _invert(phrases: Mapping[str, str]) -> dict[str, str]:
    return {phrase: value for value, phrase in phrases.items()}


SPOKEN: dict[str, dict[str, str]] = {
    "size": {**_invert(SIZES), "medium": "medium"},
    "colour": {word: word for word in SCENE_WORDS["colour"]},
    "material": {
        **{word: word for word in SCENE_WORDS["material"]},
        "glass": "glass",
        "wood": "wooden",
        "metallic": "metal",
    },
    "rests_on": {
        **{surface("rests_on", shape): shape for shape in PLURALS},
        **{f"on top of {with_article(shape)}": shape for shape in PLURALS},
    },
    "column": {**_invert(COLUMNS), "in the center": "centre"},
    "depth": _invert(DEPTHS),
    "facing": {**_invert(FACINGS), "facing the viewer": "front"},
}
"""Words of each attribute, with the graph's value."""
MOST_CHARACTERS = 2000
"""Longest half that is parsed: patterns take long on more, and nobody writes so much about a
scene."""
FILLERS = "a an the and with there is are one sees that has where scene image which shows in on of"
UNREADABLE = re.compile(
    r"\b(?:not|never|n['’]t|gone|missing|removed|disappeared|vanished|instead|rather|except|unlike"
    r"|changed|replaced|became|become|turned|moved|was|were|used|previously|longer|same|unchanged"
    r"|if|or|nor|but|than|isn|aren|least|most|about|around|almost|nearly|more|over)\b",
    re.IGNORECASE,
)
"""Words of statements beyond this parser; a half with one is not parsed."""


def either(phrases: Iterable[str]) -> str:
    """Return a pattern of any of the phrases, the longest first."""
    return "|".join(sorted(map(re.escape, phrases), key=len, reverse=True))


def _adjective(name: str) -> str:
    return rf"(?:(?P<{name}>{either(SPOKEN[name])})\s+)?"


def _qualifier(name: str) -> str:
    phrase = rf"(?P<{name}>{either(SPOKEN[name])})"
    return rf"(?:\s+{phrase}(?!\w|\s(?:of|side|half|edge)\b))?"


_NOUN = either(NOUNS)
PHRASE = re.compile(
    r"(?<![\w'’-])"
    r"(?:(?P<denied>no|without|lacks|lacking)\s+)?"
    r"(?:(?:an?|the|any|only|exactly)\s+){0,3}"
    rf"(?:(?P<count>{either(COUNTS)})\s+)?"
    rf"{''.join(map(_adjective, ('size', 'colour', 'material')))}"
    rf"(?P<noun>{_NOUN})(?![\w'’-])(?! (?:{_NOUN})\b)"
    rf"{''.join(map(_qualifier, ('rests_on', 'column', 'depth', 'facing')))}"
    r"(?:\s+(?:reading|that says?) '(?P<text>\w+)')?",
    re.IGNORECASE,
)
DENIALS = re.compile(r"\b(?:no|without|lacks|lacking|none|nothing|neither)\b", re.IGNORECASE)
BUT_NO = re.compile(r"\bbut (?=(?:no|without|lacks|lacking)\b)", re.IGNORECASE)
ENDED = re.compile(r"\s*(?:$|[,.;]|and\b|(?:in|on)\s*(?:$|[,.;]|and\b))")
"""Text after an unqualified noun phrase; the names of places are blanks by then."""
PLACE = re.compile(rf"(?<!\w)({either(PREPOSITIONS)})(?!\w)", re.IGNORECASE)
NO_SUCH = re.compile(r"\bno sign of(?: any)?\b|\bwithout any\b|\blacks any\b")


@dataclass(frozen=True, slots=True)
class Reading:
    """Parsed claims of a text."""

    claims: tuple[Claim, ...]
    understood: bool
    """Whether every word was parsed."""
    unread: int = 0
    """Sentences or halves of which some words were not parsed."""


def read_phrases(first: str, second: str) -> Reading:
    """Return the claims of the halves of a description about their images."""
    first_half = _read(first, 0)
    second_half = _read(second, 1)
    claims = (*first_half.claims, *second_half.claims)
    unread = 2 - first_half.understood - second_half.understood
    return Reading(claims, understood=not unread, unread=unread)


def _read(text: str, side: Literal[0, 1]) -> Reading:
    text = NO_SUCH.sub("no", BUT_NO.sub("and ", text))
    if len(text) > MOST_CHARACTERS or UNREADABLE.search(text):
        return Reading((), understood=False)
    claims: list[Claim] = []
    rest = text
    for match in PLACE.finditer(text):
        rest = rest.replace(match[0], " ", 1)
        claims.append(
            Claim(
                side=side,
                kind="place",
                value=match[1].lower(),
            )
        )
    text = PLACE.sub(" ", text)
    for match in PHRASE.finditer(text):
        rest = rest.replace(match[0], " ", 1)
        claims.extend(_claim(match, side, text=text))
    unread = set(re.findall(r"\w+", rest.lower())) - set(FILLERS.split())
    return Reading(tuple(claims), understood=bool(claims) and not unread)


def _claim(match: re.Match[str], side: Literal[0, 1], *, text: str) -> Iterator[Claim]:
    """Yield the claim of one noun phrase; none if a denial before it may apply."""
    selector = _read_selector(match)
    is_whole = ENDED.match(text, match.end()) is not None
    if match["denied"]:
        if is_whole:
            yield Claim(
                side=side,
                kind="absent",
                selector=selector,
            )
    elif DENIALS.search(text[: match.start()]):
        return
    elif match["count"] and is_whole:
        count = COUNTS[match["count"].lower()]
        yield Claim(
            side=side,
            kind="count",
            selector=selector,
            count=count,
        )
    else:
        yield Claim(
            side=side,
            kind="exists",
            selector=selector,
        )


def _read_selector(match: re.Match[str]) -> Selector:
    values: dict[str, str] = {}
    for name, values_by_phrase in SPOKEN.items():
        if match[name]:
            values[name] = values_by_phrase[match[name].lower()]
    if match["text"]:
        values["text"] = match["text"]
    shape = NOUNS[match["noun"].lower()]
    if shape:
        values["shape"] = shape
    return Selector.model_validate(values)
