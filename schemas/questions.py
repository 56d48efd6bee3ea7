"""Read a conversation about two images into its rounds, and say of each whether it will do (CaD-QA, paper 003).

A conversation is JSON, ``{"rounds": [{"question", "about", "answer"}]}``, perhaps with a fence or words around it, or
text ("Q: … A: …"). Nothing is published about refusing rounds: the rules are ours, and know English only.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from pairwright.schemas.refusals import declines, has_tokens, names_captions, repeats_itself

About = Literal["both", "first", "second"]
Reason = Literal[
    "cut off",
    "no rounds",
    "empty question or answer",
    "not a question",
    "speaks of captions",
    "declined",
    "control tokens",
    "repeats itself",
    "leans on another round",
    "does not say which image",
    "says the wrong image",
    "copied from the prompt",
]

END = re.compile(r"(?<!\.\.)[.!?][\"'”’“»«›」)*_`]*$")
ROLE = r"^[ \t>#*_-]*+(?:\(?\d{{1,2}}[.)][ \t]*+)?+[*_]*+(?:{})(?:[ \t]*+#?\d{{1,2}})?+[*_]*+[ \t]*+[:.)-][*_]*+[ \t]*+"
SPEAKER = re.compile(
    rf"(?P<question>{ROLE.format('q|question|user|human|person')})"
    rf"|(?P<answer>{ROLE.format('a|answer|assistant|response|gpt')})"
    rf"|(?P<about>{ROLE.format('about')})",
    re.IGNORECASE | re.MULTILINE,
)
ORDERS = re.compile(
    r"(?:please )?(?:describe|compare|name|list|explain|tell|identify|count|summari[sz]e)\b", re.IGNORECASE
)
LEANING = re.compile(
    r"(?:(?:and|but|also)|(?:what|how) about|(?:what|who|where) else(?! (?:is|are|can|do|does) .*\bimage)|anything else"
    r"|is there anything else|(?:apart from|besides|other than) (?:that|this|it|them)|(?:as )?you (?:said|mentioned)"
    r"|(?:what|where|who|why|how|is|are|do|does|did|was|were|has|have|can)(?: \w+){0,2} (?:he|she|they))\b",
    re.IGNORECASE,
)
"""How a question begins that needs an earlier one: it is read alone."""
SPOILT: dict[Reason, Callable[[str], bool]] = {
    "declined": declines,
    "speaks of captions": names_captions,
    "control tokens": has_tokens,
    "repeats itself": repeats_itself,
}
IMAGE, IMAGES = r"(?:image|picture|photo(?:graph)?|scene)", r"(?:images|pictures|photo(?:graph)?s|scenes)"
FIRST = re.compile(
    rf"\b{IMAGE} (?:number |no\. ?|# ?)?1\b|(?<!\bthe )\b{IMAGE} one\b|\b(?:first|1st) {IMAGE}\b|\bthe former\b",
    re.IGNORECASE,
)
SECOND = re.compile(
    rf"\b{IMAGE} (?:number |no\. ?|# ?)?2\b|(?<!\bthe )\b{IMAGE} two\b|\b(?:second|2nd) {IMAGE}\b|\bthe latter\b",
    re.IGNORECASE,
)
TOGETHER = re.compile(
    rf"\b(?:(?:both|the|these|those|two)(?: of the| two| given)? {IMAGES}|(?:images|pictures) 1 and 2"
    rf"|(?:in|do|does|of) both|both (?:show|have|contain|feature|depict|include)s?|between the two"
    rf"|(?:either|each|neither|other|another|every|which)(?: of the)?(?: two)? {IMAGE}s?(?! (?:1|2)\b)"
    r"|differs?|differences?|different(?: from| than| to|\?)|compar\w*|in common|commonalit\w*|similarit\w*|in contrast"
    r"|unlike|whereas)(?!\w)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Round:
    """Be one question and its answer."""

    question: str
    answer: str
    about: str = ""
    """What it is said to be about: "both", "first" or "second"; empty: nothing is said."""


@dataclass(frozen=True, slots=True)
class RefusedRound:
    """Say why a round, or a whole conversation, will not do."""

    reason: Reason
    detail: str = ""


def read_rounds(text: str, *, finish_reason: str = "stop") -> tuple[Round, ...] | RefusedRound:
    """Return the rounds in order, equal ones once, or why there are none."""
    if finish_reason == "length":
        return RefusedRound("cut off", finish_reason)
    found = list(_from_json(text)) or list(_from_text(text))
    rounds: dict[str, Round] = {}
    for one in found:
        rounds.setdefault(one.question.lower(), one)
    if rounds:
        return tuple(rounds.values())
    return RefusedRound("declined" if declines(text) else "no rounds", text.strip()[:60])


def check_round(one: Round) -> Round | RefusedRound:
    """Return the round with what it is about, as its words have it, or the first reason to refuse it."""
    both = f"{one.question}\n{one.answer}"
    if not (re.search(r"\w", one.question) and re.search(r"\w", one.answer)):
        return RefusedRound("empty question or answer", one.question)
    if not END.search(one.answer):
        return RefusedRound("cut off", one.answer[-40:])
    if not one.question.endswith("?") and not ORDERS.match(one.question):
        return RefusedRound("not a question", one.question)
    if LEANING.match(one.question):
        return RefusedRound("leans on another round", one.question)
    for reason, is_so in SPOILT.items():
        if is_so(both):
            return RefusedRound(reason, one.question)
    return _placed(one)


def _placed(one: Round) -> Round | RefusedRound:
    """Say by its words what a round is about: a question on one image names it, and its answer keeps to that."""
    asked, answered = _named(one.question), _named(one.answer)
    if not asked and (one.about in ("first", "second") or len(answered) == 1):
        return RefusedRound("does not say which image", one.question)
    if len(asked) != 1 or not answered <= asked:
        return replace(one, about="both")
    [about] = asked
    if one.about not in ("both", "", about):
        return RefusedRound("says the wrong image", one.question)
    return replace(one, about=about)


def _named(text: str) -> set[str]:
    """Return the images that a text speaks of."""
    if TOGETHER.search(text):
        return {"first", "second"}
    return {name for name, pattern in (("first", FIRST), ("second", SECOND)) if pattern.search(text)}


def _from_json(text: str) -> Iterator[Round]:
    """Yield the rounds of a JSON list, which may be a field of an object or stand among other words."""
    found = _loaded(text)
    if found is None:
        starts, ends = (sorted(text.find(sign) for sign in "[{"), [text.rfind(sign) + 1 for sign in "]}"])
        found = _loaded(text[next((start for start in starts if start >= 0), 0) : max(ends)])
    if isinstance(found, dict):
        found = next((value for value in found.values() if isinstance(value, list)), [found])
    for one in found if isinstance(found, list) else ():
        if isinstance(one, dict):
            fields = {str(name).lower(): value for name, value in one.items()}
            question, answer = (_field(fields, *names) for names in (("question", "q"), ("answer", "a")))
            if question or answer:
                yield Round(question, answer, _about(_field(fields, "about")))


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _field(fields: dict[str, Any], *names: str) -> str:
    value = next((fields[name] for name in names if name in fields), "")
    return " ".join(value.split()) if isinstance(value, str) else ""


def _from_text(text: str) -> Iterator[Round]:
    """Yield a round for each answer that follows a question; what else is said of it stands between the two."""
    marks = list(SPEAKER.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    question = about = ""
    for mark, end in zip(marks, ends, strict=False):
        said = " ".join(text[mark.end() : end].strip(" \t\n*_#-").split())
        if mark["question"]:
            question, about = said, ""
        elif mark["about"]:
            about = _about(said)
        elif question:
            yield Round(question, said, about)
            question = ""


def _about(text: str) -> str:
    """Return what a model's own words say that a round is about; other words say nothing."""
    plain = text.lower().strip(" .\"'")
    if plain in ("both", "first", "second"):
        return plain
    names = _named(plain)
    return "both" if len(names) == 2 else next(iter(names), "")
