"""Parse an implicit-change description into two halves, or refuse it (paper 001, 3.1.2 and D.2).

Descriptions of served models and those from scene graphs are parsed alike. The verbs are given:
``prompts.difference_verbs()``. Ours, where the paper is silent: the accepted inflections, that a
second sentence is off the template, and the order of the reasons.
"""

import re
from dataclasses import dataclass
from functools import cache

from pairwright.prompts.difference_prompts import UNCHANGED
from pairwright.schemas.replies import CUT_OFF, RefusedText
from pairwright.tasks.texts.words import WORD

NO_FULL_STOP = "no full stop"
REASONS = (
    CUT_OFF,
    NO_FULL_STOP,
    "off the template",
    "empty half",
    "negation or auxiliary only",
    "verb not in the list",
    "halves are equal",
    "placeholder kept",
    "too long",
    "too short",
)
"""Reasons to refuse an answer; pairs dropped for other reasons got no answer."""
START = re.compile(
    r"the difference between (?:the )?two images is that (?:the )?first image(?=\s|,)",
    re.IGNORECASE,
)
# Descriptions contain commas and "while", so nothing shorter may split.
MIDDLE = re.compile(r", while the second image(?=\s|$)", re.IGNORECASE)
FULL_STOP = re.compile(r"\.[\"'”’]?$")
SECOND_SENTENCE = re.compile(
    r"[.!?][\"'”’]?\s+(?:The|This|These|In|It|Both|Another|Additionally|Overall|There|However"
    r"|Also|An?)\b"
)
PLACEHOLDER = re.compile(r"\[object description\]|\{descriptive verb\}", re.IGNORECASE)
MIN_WORDS = 2  # of each half, where length is checked
AUXILIARIES = (
    "am is are was were be been being do does did doing done has have had having will would "
    "shall should can could may "
    "might must"
)
NEGATIONS = (
    "not no never none nothing neither nor without isn't aren't wasn't weren't doesn't don't "
    "didn't hasn't haven't "
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
    "(?:describ|illustrat|demonstrat|introduc|plac|promot|incorporat|attribut|captur|advertis"
    "|featur|indicat|provid"
    "|stat|showcas|creat)es"
)


@dataclass(frozen=True, slots=True)
class Difference:
    """Description in its parts; a half begins after its verb."""

    first_half: str
    second_half: str
    verbs: tuple[str, ...]  # as in the text, in lower case; none where nothing has changed
    text: str  # the whole description on one line


def read_difference(text: str, verbs: tuple[str, ...]) -> Difference | RefusedText:
    """Return the halves and verbs of a description, or the first reason to refuse it.

    ``verbs`` may open a half, in the third person singular.
    """
    text = " ".join(text.split())
    if not FULL_STOP.search(text):
        return RefusedText(NO_FULL_STOP, text[-40:])
    start = START.match(text)
    if not start:
        return RefusedText("off the template", text[:60])
    halves = MIDDLE.split(text[start.end() :])
    if len(halves) != 2:
        return RefusedText("off the template", f"{len(halves)} halves")
    if SECOND_SENTENCE.search(text):
        return RefusedText("off the template", "more than one sentence")
    if PLACEHOLDER.search(text):
        return RefusedText("placeholder kept", text[-80:])
    return _read_halves(text, halves[0].strip(), halves[1].strip().removesuffix("."), verbs)


def _read_halves(
    text: str,
    first: str,
    second: str,
    verbs: tuple[str, ...],
) -> Difference | RefusedText:
    first_parts = _split_half(first, verbs)
    if isinstance(first_parts, RefusedText):
        return first_parts
    second_parts = _split_half(second, verbs)
    if isinstance(second_parts, RefusedText):
        return second_parts
    first_verb, first_half = first_parts
    second_verb, second_half = second_parts
    if WORD.findall(first_half.lower()) == WORD.findall(second_half.lower()):
        return RefusedText("halves are equal", first_half)
    return Difference(first_half, second_half, (first_verb, second_verb), text)


def read_plain(text: str) -> Difference | RefusedText:
    """Return a description as people write them; each half is the whole text."""
    text = " ".join(text.split())
    if not text:
        return RefusedText("no text")
    return Difference(text, text, (), text)


def read_composed(text: str, verbs: tuple[str, ...]) -> Difference | RefusedText:
    """Parse a description from scene graphs, which may state that nothing has changed.

    Such a statement is off the template: its halves are then the things that both images show, and
    the statement that they are the same.
    """
    pattern = re.escape(UNCHANGED)
    pattern = pattern.replace(r"\{second\}", "(.+?)").replace(r"\{first\}", "(.+)")
    unchanged = re.fullmatch(pattern, text)
    if unchanged:
        return Difference(unchanged[2], unchanged[1], (), text)
    return read_difference(text, verbs)


def refuse_length(
    read: Difference,
    max_words: int,
    setting: str = "words",
) -> RefusedText | None:
    """Refuse a description that is too long, or has a half that is too short (ours)."""
    count = len(read.text.split())
    if count > max_words:
        return RefusedText(f"too long ({setting}={max_words})", f"{count} words")
    shortest = min((read.first_half, read.second_half), key=lambda half: len(half.split()))
    if len(shortest.split()) < MIN_WORDS:
        return RefusedText("too short", shortest)
    return None


def _split_half(half: str, verbs: tuple[str, ...]) -> tuple[str, str] | RefusedText:
    """Return the verb and the description of a half, or why it is refused."""
    half_words = [word.lower().replace("’", "'") for word in WORD.findall(half)]
    if not half_words:
        return RefusedText("empty half")
    if HOLLOW.issuperset(half_words):
        return RefusedText("negation or auxiliary only", half)
    verb = _verb_pattern(verbs).match(half)
    if not verb:
        return RefusedText("verb not in the list", half)
    description = half[verb.end() :].strip()
    if not WORD.search(description):
        return RefusedText("empty half", half)
    verb_length = len(WORD.findall(verb[0]))
    if HOLLOW.issuperset(half_words[verb_length:]):
        return RefusedText("negation or auxiliary only", half)
    return verb[0].lower(), description


def inflections(verb: str) -> tuple[str, ...]:
    """Return the inflections of a verb, given in the third person singular."""
    if verb in IRREGULAR:
        return IRREGULAR[verb]
    if STEMS_IN_E.fullmatch(verb):
        stem = verb[:-2]
        return (verb, f"{stem}e", f"{stem}ed", f"{stem}ing")
    ending = "es" if verb.endswith(("sses", "shes", "ches")) else "s"
    stem = verb.removesuffix(ending)
    return (verb, stem, f"{stem}ed", f"{stem}ing")


@cache
def _verb_pattern(verbs: tuple[str, ...]) -> re.Pattern[str]:
    forms: set[str] = set()
    for verb in verbs:
        forms.update(inflections(verb))
    longest_first = sorted(forms, key=len, reverse=True)
    return re.compile(rf"(?:{'|'.join(longest_first)})(?![\w'’-])", re.IGNORECASE)
