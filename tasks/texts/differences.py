"""Parse an implicit-change description into its two halves, or refuse it (paper 001, 3.1.2 and D.2).

Descriptions of served models and those from scene graphs are parsed alike. The verbs are given:
``prompts.difference_verbs()``. Ours, where the paper is silent: the accepted inflections, that a
second sentence is off the template, and the order of the reasons.
"""

import re
from dataclasses import dataclass
from functools import cache

from pairwright.prompts.difference_prompts import UNCHANGED
from pairwright.schemas.replies import RefusedText
from pairwright.tasks.texts.words import WORD

REASONS = (
    *(
        "cut off",
        "off the template",
        "empty half",
        "negation or auxiliary only",
        "verb not in the list",
    ),
    *("halves are equal", "placeholder kept", "too long", "too short"),
)
"""Reasons to refuse an answer; pairs dropped for other reasons got no answer."""
START = re.compile(
    r"the difference between (?:the )?two images is that (?:the )?first image(?=\s|,)",
    re.IGNORECASE,
)
# Descriptions contain commas and "while", so nothing shorter may split.
MIDDLE = re.compile(r", while the second image(?=\s|$)", re.IGNORECASE)
FULL_STOP = re.compile(r"\.[\"'”’]?$")
QUOTES = "\"'“”‘’`"
SECOND_SENTENCE = re.compile(
    r"[.!?][\"'”’]?\s+(?:The|This|These|In|It|Both|Another|Additionally|Overall|There|However|Also|An?)\b"
)
PLACEHOLDER = re.compile(r"\[object description\]|\{descriptive verb\}", re.IGNORECASE)
MIN_WORDS = 2  # of each half, where length is checked
AUXILIARIES = (
    "am is are was were be been being do does did doing done has have had having will would shall should can could may "
    "might must"
)
NEGATIONS = (
    "not no never none nothing neither nor without isn't aren't wasn't weren't doesn't don't didn't hasn't haven't "
    "hadn't won't can't cannot couldn't"
)
EMPTY_WORDS = "it that this the something anything one so same too either"
HOLLOW = frozenset(f"{AUXILIARIES} {NEGATIONS} {EMPTY_WORDS}".split())
"""Auxiliary verbs, negations and pronouns: words without visible content."""
IRREGULAR = {
    "is": ("is", "are", "was", "were", "be", "been", "being"),
    "has": ("has", "have", "had", "having"),
    "refers": ("refers", "refer", "referred", "referring"),
    "takes": ("takes", "take", "took", "taken", "taking"),
    "shows": ("shows", "show", "showed", "shown", "showing"),
    "sets": ("sets", "set", "setting"),
    "focuses": ("focuses", "focus", "focused", "focusing", "focusses", "focussed", "focussing"),
    "specifies": ("specifies", "specify", "specified", "specifying"),
    "labels": ("labels", "label", "labeled", "labelled", "labeling", "labelling"),
    "centers": (
        "centers",
        "center",
        "centered",
        "centering",
        "centres",
        "centre",
        "centred",
        "centring",
    ),
    "symbolizes": (
        "symbolizes",
        "symbolize",
        "symbolized",
        "symbolizing",
        "symbolises",
        "symbolised",
        "symbolising",
    ),
}
STEMS_IN_E = re.compile(
    "(?:describ|illustrat|demonstrat|introduc|plac|promot|incorporat|attribut|captur|advertis|featur|indicat|provid"
    "|stat|showcas|creat)es"
)


@dataclass(frozen=True, slots=True)
class Difference:
    """Description in its parts; a half begins after its verb."""

    first_half: str
    second_half: str
    verbs: tuple[str, ...]  # as in the text, in lower case; none where nothing has changed
    text: str  # the whole description on one line, unquoted


def read_difference(
    text: str, known: tuple[str, ...], *, finish_reason: str = "stop"
) -> Difference | RefusedText:
    """Return the halves and verbs of a description, or the first reason to refuse it.

    ``known`` are the verbs that may open a half, in the third person singular; the finish reason
    "length" stands for a text that was cut off.
    """
    text = _unquoted(text)
    if finish_reason == "length" or not FULL_STOP.search(text):
        return RefusedText("cut off", finish_reason if finish_reason == "length" else text[-40:])
    start = START.match(text)
    halves = MIDDLE.split(text[start.end() :]) if start else []
    if len(halves) != 2:
        return RefusedText("off the template", text[:60] if not start else f"{len(halves)} halves")
    if SECOND_SENTENCE.search(text):
        return RefusedText("off the template", "more than one sentence")
    if PLACEHOLDER.search(text):
        return RefusedText("placeholder kept", text[-80:])
    first, second = (
        _split_half(half, known)
        for half in (halves[0].strip(), halves[1].strip().removesuffix("."))
    )
    if isinstance(first, RefusedText):
        return first
    if isinstance(second, RefusedText):
        return second
    if WORD.findall(first[1].lower()) == WORD.findall(second[1].lower()):
        return RefusedText("halves are equal", first[1])
    return Difference(first[1], second[1], (first[0], second[0]), text)


def read_plain(text: str, *, finish_reason: str = "stop") -> Difference | RefusedText:
    """Return a description off the template, as people write them; both halves are the whole text."""
    text = _unquoted(text)
    if finish_reason == "length" or not text:
        return RefusedText("cut off" if text else "no text", text[-40:])
    return Difference(text, text, (), text)


def _unquoted(text: str) -> str:
    """Return a text on one line, without the quotation marks that models copy from the instruction."""
    text = " ".join(text.split())
    return (
        text[1:-1].strip() if len(text) > 1 and text[0] in QUOTES and text[-1] in QUOTES else text
    )


def read_composed(text: str, known: tuple[str, ...]) -> Difference | RefusedText:
    """Parse a description from scene graphs, which states off the template that nothing has changed.

    Its halves are then the things that both images show, and the statement that they are the same.
    """
    unchanged = re.escape(UNCHANGED).replace(r"\{second\}", "(.+?)").replace(r"\{first\}", "(.+)")
    found = re.fullmatch(unchanged, text)
    return Difference(found[2], found[1], (), text) if found else read_difference(text, known)


def refuse_length(read: Difference, max_words: int, setting: str = "words") -> RefusedText | None:
    """Refuse a description that is too long, or has a half that is too short (ours)."""
    if (count := len(read.text.split())) > max_words:
        return RefusedText(f"too long ({setting}={max_words})", f"{count} words")
    shortest = min((read.first_half, read.second_half), key=lambda half: len(half.split()))
    return RefusedText("too short", shortest) if len(shortest.split()) < MIN_WORDS else None


def _split_half(half: str, known: tuple[str, ...]) -> tuple[str, str] | RefusedText:
    words = [word.lower().replace("’", "'") for word in WORD.findall(half)]
    if not words:
        return RefusedText("empty half")
    if HOLLOW.issuperset(words):
        return RefusedText("negation or auxiliary only", half)
    verb = _forms(known).match(half)
    if not verb:
        return RefusedText("verb not in the list", half)
    description = half[verb.end() :].strip()
    if not WORD.search(description):
        return RefusedText("empty half", half)
    if HOLLOW.issuperset(words[len(WORD.findall(verb[0])) :]):
        return RefusedText("negation or auxiliary only", half)
    return verb[0].lower(), description


def inflections(verb: str) -> tuple[str, ...]:
    """Return the inflections of a verb, given in the third person singular."""
    if verb in IRREGULAR:
        return IRREGULAR[verb]
    if STEMS_IN_E.fullmatch(verb):
        stem = verb[:-2]
        return (verb, f"{stem}e", f"{stem}ed", f"{stem}ing")
    stem = (
        verb.removesuffix("es")
        if verb.endswith(("sses", "shes", "ches"))
        else verb.removesuffix("s")
    )
    return (verb, stem, f"{stem}ed", f"{stem}ing")


@cache
def _forms(known: tuple[str, ...]) -> re.Pattern[str]:
    forms = sorted({form for verb in known for form in inflections(verb)}, key=len, reverse=True)
    return re.compile(rf"(?:{'|'.join(forms)})(?![\w'’-])", re.IGNORECASE)
