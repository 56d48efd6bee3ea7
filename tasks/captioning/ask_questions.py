"""Ask a language model for questions and answers about each pair (CaD-QA), after paper 003, section 4.

Reads ``ComparisonRow``, the pairs and both captions, writes ``QuestionRow``: one of several rounds,
drawn by the comparison's key. Needs a served model; it sees no image. The checks of a round are
ours, and know English only.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from random import Random
from typing import Any

from pairwright.prompts import load
from pairwright.schemas.config import QuestionsConfig
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import Captions, ComparisonRow, Dropped, Pairs, QuestionRow, make_key
from pairwright.tasks.captioning.validators import CAPTIONS, PAIRS, ask_again, pair_captions
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question
from pairwright.tasks.serving.untrusted import as_data
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.texts.comparisons import END
from pairwright.tasks.texts.split_sentences import find_json
from pairwright.tasks.texts.words import declines, has_tokens, names_captions, repeats_itself

PROMPT = "ask_questions"
NAMES = (("question", "q"), ("answer", "a"), ("about",))
ORDERS = re.compile(
    r"(?:please )?(?:describe|compare|name|list|explain|tell|identify|count|summari[sz]e)\b",
    re.IGNORECASE,
)
LEANING = re.compile(
    r"(?:(?:and|but|also)|(?:what|how) about|(?:what|who|where) else(?! (?:is|are|can|do|does) "
    r".*\bimage)|anything else"
    r"|is there anything else|(?:apart from|besides|other than) (?:that|this|it|them)|(?:as "
    r")?you (?:said|mentioned)"
    r"|(?:what|where|who|why|how|is|are|do|does|did|was|were|has|have|can)(?: \w+){0,2} (?:he"
    r"|she|they))\b",
    re.IGNORECASE,
)
"""Beginnings of questions that refer to an earlier round: each question must stand alone."""
SPOILT: dict[str, Callable[[str], bool]] = {
    "declined": declines,
    "speaks of captions": names_captions,
    "control tokens": has_tokens,
    "repeats itself": repeats_itself,
}
IMAGE, IMAGES = (
    r"(?:image|picture|photo(?:graph)?|scene)",
    r"(?:images|pictures|photo(?:graph)?s|scenes)",
)
FIRST = re.compile(
    rf"\b{IMAGE} (?:number |no\. ?|# ?)?1\b|(?<!\bthe )\b{IMAGE} one\b|\b(?:first|1st) {IMAGE}\b"
    rf"|\bthe former\b",
    re.IGNORECASE,
)
SECOND = re.compile(
    rf"\b{IMAGE} (?:number |no\. ?|# ?)?2\b|(?<!\bthe )\b{IMAGE} two\b|\b(?:second|2nd) "
    rf"{IMAGE}\b|\bthe latter\b",
    re.IGNORECASE,
)
TOGETHER = re.compile(
    rf"\b(?:(?:both|the|these|those|two)(?: of the| two| given)? {IMAGES}|(?:images|pictures) 1 "
    rf"and 2"
    rf"|(?:in|do|does|of) both|both (?:show|have|contain|feature|depict|include)s?|between the two"
    rf"|(?:either|each|neither|other|another|every|which)(?: of the)?(?: two)? {IMAGE}s?(?! (?:1"
    rf"|2)\b)"
    r"|differs?|differences?|different(?: from| than| to|\?)|compar\w*|in common|commonalit\w*"
    r"|similarit\w*|in contrast"
    r"|unlike|whereas)(?!\w)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """Question with its answer."""

    question: str
    answer: str
    about: str = (
        ""  # image that it claims to be about: "both", "first" or "second"; empty: not stated
    )


def read_rounds(
    text: str, *, finish_reason: str = "stop"
) -> tuple[QuestionAnswer, ...] | RefusedText:
    """Return the different rounds of a JSON list, which may be a field of an object, or why there are none."""
    if finish_reason == "length":
        return RefusedText("cut off", finish_reason)
    found = find_json(text)
    if isinstance(found, dict):
        found = next((value for value in found.values() if isinstance(value, list)), [found])
    rounds: dict[str, QuestionAnswer] = {}
    for one in found if isinstance(found, list) else ():
        if isinstance(one, dict):
            fields = {str(name).lower(): value for name, value in one.items()}
            question, answer, about = (_field(fields, *names) for names in NAMES)
            if question or answer:
                about = about.lower() if about.lower() in ("both", "first", "second") else ""
                rounds.setdefault(question.lower(), QuestionAnswer(question, answer, about))
    why = "declined" if declines(text) else "no rounds"
    return tuple(rounds.values()) or RefusedText(why, text.strip()[:60])


def _field(fields: dict[str, Any], *names: str) -> str:
    value = next((fields[name] for name in names if name in fields), "")
    return " ".join(value.split()) if isinstance(value, str) else ""


@cache
def _examples() -> frozenset[str]:
    """Return the example questions and answers of the prompt, in its last line."""
    shown = read_rounds(load(PROMPT).text.strip().splitlines()[-1])
    assert not isinstance(shown, RefusedText)
    return frozenset(text for one in shown for text in (one.question, one.answer))


def check_round(one: QuestionAnswer) -> QuestionAnswer | RefusedText:
    """Return the round with the image that its words name, or the first reason to refuse it."""
    both = f"{one.question}\n{one.answer}"
    if not _examples().isdisjoint((one.question, one.answer)):
        return RefusedText("copied from the prompt", one.question)
    if not (re.search(r"\w", one.question) and re.search(r"\w", one.answer)):
        return RefusedText("empty question or answer", one.question)
    if not END.search(one.answer):
        return RefusedText("cut off", one.answer[-40:])
    if not one.question.endswith("?") and not ORDERS.match(one.question):
        return RefusedText("not a question", one.question)
    if LEANING.match(one.question):
        return RefusedText("leans on another round", one.question)
    spoilt = next((reason for reason, is_so in SPOILT.items() if is_so(both)), "")
    if spoilt:
        return RefusedText(spoilt, one.question)
    # A question about one image names it, and its answer keeps to that.
    asked, answered = _find_images(one.question), _find_images(one.answer)
    if not asked and (one.about in ("first", "second") or len(answered) == 1):
        return RefusedText("does not say which image", one.question)
    if len(asked) != 1 or not answered <= asked:
        return replace(one, about="both")
    [about] = asked
    if one.about not in ("both", "", about):
        return RefusedText("says the wrong image", one.question)
    return replace(one, about=about)


def _find_images(text: str) -> set[str]:
    if TOGETHER.search(text):
        return {"first", "second"}
    return {
        name for name, pattern in (("first", FIRST), ("second", SECOND)) if pattern.search(text)
    }


@asking
async def ask_questions(
    row: ComparisonRow, chat: Chat, *, config: QuestionsConfig, pairs: Pairs, captions: Captions
) -> QuestionRow | Dropped:
    """Return one question per comparison, or ``Dropped`` with the reason of the last of ``max_attempts`` refusals."""
    if row.subject not in pairs:
        return Dropped(source_key=row.key, reason="pair is missing", detail=row.subject)
    pair = pairs[row.subject]
    first, second = map(as_data, pair_captions(pair, captions))
    if not (first and second):
        return Dropped(
            source_key=row.key,
            reason="caption is missing",
            detail=pair.second if first else pair.first,
        )
    summary = "\n".join(filter(None, map(as_data, row.text.splitlines())))
    text = load(PROMPT).render(
        first_caption=first, second_caption=second, summary=summary, rounds=config.rounds
    )
    question = Question(
        prompt=PROMPT,
        text=text,
        max_tokens=config.max_tokens,
        grammar=rounds_grammar(config.rounds),
    )
    found = await ask_again(chat, row, question, _read_answer, config, "questions")
    if isinstance(found, Dropped):
        return found
    rounds, tries = found
    good = [(number, one) for number, one in enumerate(rounds) if isinstance(one, QuestionAnswer)]
    drawn, one = Random(make_key("question", config.seed, row.key)).choice(good)
    return QuestionRow(
        key=make_key("question", row.key, one.question, one.answer),
        source_key=row.key,
        subject=row.subject,
        question=one.question,
        answer=one.answer,
        about=one.about,
        round=drawn,
        rounds=len(rounds),
        model=tries[-1].model,
        served=tries,
    )


@cache
def rounds_grammar(rounds: int) -> Grammar:
    """Return the grammar of a conversation with this number of rounds."""

    def make_object(**fields: Any) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": fields,
            "required": list(fields),
            "additionalProperties": False,
        }

    about = {"type": "string", "enum": ["both", "first", "second"]}
    each = make_object(question={"type": "string"}, about=about, answer={"type": "string"})
    return Grammar(
        schema=make_object(
            rounds={"type": "array", "items": each, "minItems": rounds, "maxItems": rounds}
        )
    )


def _read_answer(answer: Answer) -> tuple[QuestionAnswer | RefusedText, ...] | RefusedText:
    """Return the rounds, each refused one as its reason; one reason where all are refused."""
    rounds = read_rounds(answer.text, finish_reason=answer.finish_reason)
    if isinstance(rounds, RefusedText):
        return rounds
    checked = tuple(map(check_round, rounds))
    refused = [one for one in checked if isinstance(one, RefusedText)]
    return refused[0] if len(refused) == len(checked) else checked


STAGE = Stage(
    name="questions",
    version=2,
    group="captioning",
    reads={"comparisons": ComparisonRow},
    writes=QuestionRow,
    function=ask_questions,
    config=lambda profile: profile.complete(profile.questions),
    prompts=(PROMPT,),
    uses=(PAIRS, CAPTIONS),
    enabled=attrgetter("is_served"),
    by_source=True,  # a comparison's key does not hash captions that it was not written from
    without=("conversation", "served"),
    remembers=True,
)
