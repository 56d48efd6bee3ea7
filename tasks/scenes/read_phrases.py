"""Parse claims from the noun phrases of any text about scenes with known graphs (ours).

Reads and writes nothing. Only certain statements are parsed, so a claim that does not hold makes
the text false. If all claims hold, the text is true only if every word of it was understood.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pairwright.schemas.claims import Claim, Selector
from pairwright.schemas.phrases import COLUMNS, DEPTHS, FACINGS, NUMBERS, SIZES, surface
from pairwright.schemas.scene import PLURALS, PREPOSITIONS
from pairwright.tasks.scenes.vocabulary import SCENE_WORDS

NOUNS = {
    **{form: shape for shape, plural in PLURALS.items() for form in (shape, plural)},
    **dict.fromkeys(("object", "objects", "thing", "things", "item", "items"), ""),
}
COUNTS = {word: count for count, word in enumerate(NUMBERS) if count} | {
    str(count): count for count in range(1, 100)
}
SPOKEN = {
    "size": {words: value for value, words in SIZES.items()} | {"medium": "medium"},
    "colour": {word: word for word in SCENE_WORDS["colour"]},
    "material": {w: w for w in (*SCENE_WORDS["material"], "glass")}
    | {"wood": "wooden", "metallic": "metal"},
    "rests_on": {surface("rests_on", shape): shape for shape in PLURALS},
    "column": {words: value for value, words in COLUMNS.items()} | {"in the center": "centre"},
    "depth": {words: value for value, words in DEPTHS.items()},
    "facing": {words: value for value, words in FACINGS.items()},
}
"""Words of each attribute, with the graph's value."""
MOST_CHARACTERS = 2000
"""Longest half that is parsed: patterns take long on more, and nobody writes so much about a
scene."""
FILLERS = "a an the and with there is are one sees that has where scene image which shows in on of"
UNREADABLE = re.compile(
    r"\b(?:not|never|n['’]t|gone|missing|removed|disappeared|vanished|instead|rather|except|unlike|changed|replaced"
    r"|became|become|turned|moved|was|were|used|previously|longer|same|unchanged|if|or|nor|but|than|isn|aren"
    r"|least|most|about|around|almost|nearly|more|over)\b",
    re.IGNORECASE,
)
"""Words of statements beyond this parser; a half with one is not parsed."""


def _either(words: dict[str, str] | dict[str, int]) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))


PHRASE = re.compile(
    r"(?<![\w'’-])(?:(?P<denied>no|without|lacks|lacking)\s+)?(?:(?:an?|the|any|only|exactly)\s+){0,3}"
    rf"(?:(?P<count>{_either(COUNTS)})\s+)?"
    + "".join(
        rf"(?:(?P<{name}>{_either(SPOKEN[name])})\s+)?" for name in ("size", "colour", "material")
    )
    + rf"(?P<noun>{_either(dict.fromkeys(NOUNS, 0))})(?![\w'’-])(?! (?:{_either(dict.fromkeys(NOUNS, 0))})\b)"
    + "".join(
        rf"(?:\s+(?P<{name}>{_either(SPOKEN[name])})(?!\w|\s(?:of|side|half|edge)\b))?"
        for name in ("rests_on", "column", "depth", "facing")
    )
    + r"(?:\s+reading '(?P<text>\w+)')?",
    re.IGNORECASE,
)
DENIALS = re.compile(r"\b(?:no|without|lacks|lacking|none|nothing|neither)\b", re.IGNORECASE)
BUT_NO = re.compile(r"\bbut (?=(?:no|without|lacks|lacking)\b)", re.IGNORECASE)
ENDED = re.compile(r"\s*(?:$|[,.;]|and\b|(?:in|on)\s*(?:$|[,.;]|and\b))")
"""Text after an unqualified noun phrase; the names of places are blanks by then."""
PLACE = re.compile(rf"(?<!\w)({_either(dict.fromkeys(PREPOSITIONS, 0))})(?!\w)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reading:
    """Parsed claims of a text."""

    claims: tuple[Claim, ...]
    understood: bool
    """Whether every word was parsed."""


def read_phrases(first: str, second: str) -> Reading:
    """Return the claims of the halves of a description about their images."""
    halves = (_read(first, 0), _read(second, 1))
    return Reading((*halves[0].claims, *halves[1].claims), all(half.understood for half in halves))


def _read(text: str, side: Literal[0, 1]) -> Reading:
    text = re.sub(
        r"\bno sign of(?: any)?\b|\bwithout any\b|\blacks any\b", "no", BUT_NO.sub("and ", text)
    )
    if len(text) > MOST_CHARACTERS or UNREADABLE.search(text):
        return Reading((), understood=False)
    claims: list[Claim] = []
    rest = text
    for pattern in (PLACE, PHRASE):
        for match in pattern.finditer(text):
            rest = rest.replace(match[0], " ", 1)
            if pattern is PLACE:
                claims.append(Claim(side=side, kind="place", value=match[1].lower()))
            else:
                claims.extend(_claim(match, side, text=text))
        text = PLACE.sub(" ", text)
    left = set(re.findall(r"\w+", rest.lower())) - set(FILLERS.split())
    return Reading(tuple(claims), understood=bool(claims) and not left)


def _claim(match: re.Match[str], side: Literal[0, 1], *, text: str) -> Iterator[Claim]:
    """Yield the claim of one noun phrase; none if a denial before it may apply."""
    named = {name: match[name] for name in (*SPOKEN, "text") if match[name]}
    values = {
        name: SPOKEN[name][value.lower()] if name in SPOKEN else value
        for name, value in named.items()
    }
    shape = NOUNS[match["noun"].lower()]
    selector = Selector(**values, **({"shape": shape} if shape else {}))
    ended = ENDED.match(text, match.end())
    if match["denied"]:
        if ended:
            yield Claim(side=side, kind="absent", selector=selector)
    elif DENIALS.search(text[: match.start()]):
        return
    elif match["count"] and ended:
        yield Claim(
            side=side, kind="count", selector=selector, count=COUNTS[match["count"].lower()]
        )
    else:
        yield Claim(side=side, kind="exists", selector=selector)
