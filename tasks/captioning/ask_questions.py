"""Ask a language model for questions and answers about each pair (CaD-QA; paper 003, section 4).

Reads ``ComparisonRow``, the pairs and both captions, writes ``QuestionRow``: one of several rounds,
drawn by the comparison's key. Needs a served model; it sees no image. The checks of a round are
ours, and know English only.
"""

import re
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import attrgetter
from random import Random
from typing import Any

from pairwright.prompts import load_prompt
from pairwright.schemas.config import QuestionsConfig
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import (
    Captions,
    ComparisonRow,
    Dropped,
    PairRow,
    Pairs,
    QuestionRow,
    make_key,
)
from pairwright.tasks.captioning.validators import CAPTIONS, PAIRS, ask_again, pair_captions
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question, ask_in
from pairwright.tasks.serving.read_response import refuse_text
from pairwright.tasks.serving.untrusted import as_data
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.texts.comparisons import END
from pairwright.tasks.texts.differences import NO_FULL_STOP
from pairwright.tasks.texts.split_sentences import find_json
from pairwright.tasks.texts.words import declines, names_captions

PROMPT = "ask_questions"
QUESTION_NAMES = ("question", "q")
ANSWER_NAMES = ("answer", "a")
ABOUT_NAMES = ("about",)
"""Names of the fields of a round in a model's JSON."""
ORDERS = re.compile(
    r"(?:please )?(?:describe|compare|name|list|explain|tell|identify|count|summari[sz]e)\b",
    re.IGNORECASE,
)
LEANING = re.compile(
    r"(?:(?:and|but|also)|(?:what|how) about"
    r"|(?:what|who|where) else(?! (?:is|are|can|do|does) .*\bimage)|anything else"
    r"|is there anything else|(?:apart from|besides|other than) (?:that|this|it|them)"
    r"|(?:as )?you (?:said|mentioned)"
    r"|(?:what|where|who|why|how|is|are|do|does|did|was|were|has|have|can)(?: \w+){0,2} "
    r"(?:he|she|they))\b",
    re.IGNORECASE,
)
"""Beginnings of questions that refer to an earlier round: each question must stand alone."""
IMAGE = r"(?:image|picture|photo(?:graph)?|scene)"
IMAGES = r"(?:images|pictures|photo(?:graph)?s|scenes)"
FIRST = re.compile(
    rf"\b{IMAGE} (?:number |no\. ?|# ?)?1\b|(?<!\bthe )\b{IMAGE} one\b"
    rf"|\b(?:first|1st) {IMAGE}\b|\bthe former\b",
    re.IGNORECASE,
)
SECOND = re.compile(
    rf"\b{IMAGE} (?:number |no\. ?|# ?)?2\b|(?<!\bthe )\b{IMAGE} two\b"
    rf"|\b(?:second|2nd) {IMAGE}\b|\bthe latter\b",
    re.IGNORECASE,
)
TOGETHER = re.compile(
    rf"\b(?:(?:both|the|these|those|two)(?: of the| two| given)? {IMAGES}"
    r"|(?:images|pictures) 1 and 2"
    rf"|(?:in|do|does|of) both|both (?:show|have|contain|feature|depict|include)s?|between the two"
    rf"|(?:either|each|neither|other|another|every|which)(?: of the)?(?: two)? {IMAGE}s?"
    r"(?! (?:1|2)\b)"
    r"|differs?|differences?|different(?: from| than| to|\?)|compar\w*|in common|commonalit\w*"
    r"|similarit\w*|in contrast|unlike|whereas)(?!\w)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """Question with its answer."""

    question: str
    answer: str
    about: str = ""
    """Image that it claims to be about: "both", "first" or "second"; empty: not stated."""


def read_rounds(text: str) -> tuple[QuestionAnswer, ...] | RefusedText:
    """Return the different rounds of a JSON list, or why there are none.

    The list may be a field of an object; an object without a list is a single round.
    """
    rounds: dict[str, QuestionAnswer] = {}
    for item in _find_items(find_json(text)):
        if not isinstance(item, dict):
            continue
        parsed = _read_round(item)
        if parsed.question or parsed.answer:
            rounds.setdefault(parsed.question.lower(), parsed)
    if rounds:
        return tuple(rounds.values())
    reason = "declined" if declines(text) else "no rounds"
    return RefusedText(reason, text.strip()[:60])


def _find_items(content: Any) -> list[Any]:
    """Return a list, the first list of an object, or the object in a list; else nothing."""
    if isinstance(content, dict):
        for value in content.values():
            if isinstance(value, list):
                return value
        return [content]
    return content if isinstance(content, list) else []


def _read_round(item: dict[Any, Any]) -> QuestionAnswer:
    fields = {str(name).lower(): value for name, value in item.items()}
    question = _field(fields, QUESTION_NAMES)
    answer = _field(fields, ANSWER_NAMES)
    image = _field(fields, ABOUT_NAMES).lower()
    if image not in ("both", "first", "second"):
        image = ""
    return QuestionAnswer(question, answer, image)


def _field(fields: dict[str, Any], names: tuple[str, ...]) -> str:
    """Return the text of the first field of these names on one line; empty: it is no text."""
    for name in names:
        if name in fields:
            value = fields[name]
            return " ".join(value.split()) if isinstance(value, str) else ""
    return ""


@cache
def _examples(prompt: str) -> frozenset[str]:
    """Return the example questions and answers of the prompt, in its last line."""
    rounds = read_rounds(prompt.strip().splitlines()[-1])
    assert not isinstance(rounds, RefusedText)
    texts: set[str] = set()
    for example in rounds:
        texts |= {example.question, example.answer}
    return frozenset(texts)


def check_round(read: QuestionAnswer, language: str = "") -> QuestionAnswer | RefusedText:
    """Return the round with the image that it names, or the first reason to refuse it.

    Checks that need English words are off for another language.
    """
    question, answer = read.question, read.answer
    if not _examples(load_prompt(PROMPT).text).isdisjoint((question, answer)):
        return RefusedText("copied from the prompt", question)
    if not re.search(r"\w", question) or not re.search(r"\w", answer):
        return RefusedText("empty question or answer", question)
    if language:
        return refuse_text(f"{question}\n{answer}", language) or read
    if not END.search(answer):
        return RefusedText(NO_FULL_STOP, answer[-40:])
    if not question.endswith("?") and not ORDERS.match(question):
        return RefusedText("not a question", question)
    if LEANING.match(question):
        return RefusedText("leans on another round", question)
    round_text = f"{question}\n{answer}"
    refused = refuse_text(round_text)
    if refused:
        return refused
    if names_captions(round_text):
        return RefusedText("speaks of captions", question)
    return _check_image(read)


def _check_image(read: QuestionAnswer) -> QuestionAnswer | RefusedText:
    """Check that a question about one image names it, and that its answer keeps to that."""
    question_images = _find_images(read.question)
    answer_images = _find_images(read.answer)
    claims_one = read.about in ("first", "second")
    if not question_images and (claims_one or len(answer_images) == 1):
        return RefusedText("does not say which image", read.question)
    if len(question_images) != 1 or not answer_images <= question_images:
        return replace(read, about="both")
    [image] = question_images
    if read.about not in ("both", "", image):
        return RefusedText("says the wrong image", read.question)
    return replace(read, about=image)


def _find_images(text: str) -> set[str]:
    if TOGETHER.search(text):
        return {"first", "second"}
    images: set[str] = set()
    if FIRST.search(text):
        images.add("first")
    if SECOND.search(text):
        images.add("second")
    return images


@asking
async def ask_questions(
    row: ComparisonRow,
    chat: Chat,
    *,
    config: QuestionsConfig,
    pairs: Pairs,
    captions: Captions,
) -> QuestionRow | Dropped:
    """Return one question per comparison, or the reason of the last refusal."""
    if row.subject not in pairs:
        return Dropped(
            source_key=row.key,
            reason="pair is missing",
            detail=row.subject,
        )
    question = _make_question(row, pairs[row.subject], config, captions)
    if isinstance(question, Dropped):
        return question
    read = partial(_read_answer, language=config.language)
    written = await ask_again(chat, row, question, read, config, "questions")
    if isinstance(written, Dropped):
        return written
    rounds, tries = written
    accepted: list[tuple[int, QuestionAnswer]] = []
    for index, checked in enumerate(rounds):
        if isinstance(checked, QuestionAnswer):
            accepted.append((index, checked))
    rng = Random(make_key("question", config.seed, row.key))
    round_index, chosen = rng.choice(accepted)
    return QuestionRow(
        key=make_key("question", row.key, chosen.question, chosen.answer),
        source_key=row.key,
        subject=row.subject,
        question=chosen.question,
        answer=chosen.answer,
        about=chosen.about,
        round=round_index,
        rounds=len(rounds),
        model=tries[-1].model,
        served=tries,
    )


def _make_question(
    row: ComparisonRow,
    pair: PairRow,
    config: QuestionsConfig,
    captions: Captions,
) -> Question | Dropped:
    """Return the request for the rounds of a pair, or which caption is missing."""
    first, second = map(as_data, pair_captions(pair, captions))
    if not first or not second:
        image_key = pair.second if first else pair.first
        return Dropped(
            source_key=row.key,
            reason="caption is missing",
            detail=image_key,
        )
    lines = map(as_data, row.text.splitlines())
    prompt = load_prompt(PROMPT).render(
        first_caption=first,
        second_caption=second,
        summary="\n".join(line for line in lines if line),
        rounds=config.rounds,
    )
    return Question(
        prompt=PROMPT,
        text=ask_in(prompt, config.language),
        max_tokens=config.max_tokens,
        grammar=rounds_grammar(config.rounds),
    )


@cache
def rounds_grammar(rounds: int) -> Grammar:
    """Return the grammar of a conversation with this number of rounds."""
    image = {"type": "string", "enum": ["both", "first", "second"]}
    text = {"type": "string"}
    item = _object_schema(
        question=text,
        about=image,
        answer=text,
    )
    items = {"type": "array", "items": item, "minItems": rounds, "maxItems": rounds}
    return Grammar(schema=_object_schema(rounds=items))


def _object_schema(**fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _read_answer(
    answer: Answer, language: str
) -> tuple[QuestionAnswer | RefusedText, ...] | RefusedText:
    """Return the rounds, each refused one as its reason; one reason where all are refused."""
    if answer.refused:
        return answer.refused
    rounds = read_rounds(answer.text)
    if isinstance(rounds, RefusedText):
        return rounds
    checked = tuple(check_round(parsed, language) for parsed in rounds)
    refused = [result for result in checked if isinstance(result, RefusedText)]
    return refused[0] if len(refused) == len(checked) else checked


STAGE = Stage(
    name="questions",
    version=3,
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
    journal="answers",
)
