"""Ask a language model for questions and answers about each pair (CaD-QA), after paper 003, section 4.

Reads ``ComparisonRow``, the pairs and both captions, writes ``QuestionRow``: from the captions and the summary the
model writes a conversation of several rounds, and one of them is drawn by the comparison's key. Needs a served model,
the profile's ``language``; it sees no image.

Ours: rounds that will not do are not drawn (``schemas.questions``); which image a question is about is decided by its
words, not by what the model says of it; a conversation without any good round is asked for again with another seed.
``served`` of a row lists all tries, the one that was taken last.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from pairwright.prompts import load
from pairwright.schemas.config import QuestionsConfig
from pairwright.schemas.questions import RefusedRound, Round, check_round, read_rounds
from pairwright.schemas.rows import (
    CaptionRow,
    ComparisonRow,
    Dropped,
    Failed,
    PairRow,
    QuestionRow,
    Row,
    Served,
    make_key,
)
from pairwright.schemas.writing import is_served
from pairwright.tasks.captioning.statements import row_random
from pairwright.tasks.serving.ask_rows import ask_rows
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question, seed_of
from pairwright.tasks.serving.untrusted import as_data
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.store.stage import Stage, Uses

PROMPT = "ask_questions"


def ask_questions(
    rows: Sequence[ComparisonRow],
    config: QuestionsConfig,
    *,
    pairs: Mapping[str, PairRow],
    captions: Mapping[str, CaptionRow],
    answers: Answers | None = None,
) -> Iterator[Row | Dropped | Failed]:
    """Yield one question per comparison, or ``Dropped`` with the reason of the last of ``max_attempts`` refusals."""
    work = partial(_ask, config=config, pairs=pairs, captions=captions)
    yield from ask_rows(rows, work, config.served, answers=answers)


async def _ask(
    row: ComparisonRow,
    chat: Chat,
    *,
    config: QuestionsConfig,
    pairs: Mapping[str, PairRow],
    captions: Mapping[str, CaptionRow],
) -> QuestionRow | Dropped:
    question = _question(row, config, pairs=pairs, captions=captions)
    if isinstance(question, Dropped):
        return question
    tries: list[Served] = []
    while True:
        seed = seed_of(row.key, load(PROMPT), seed=config.seed, attempt=len(tries) + 1)
        answer = await chat.ask(replace(question, seed=seed))
        tries.append(answer.served)
        rounds = _checked(answer)
        good = [number for number, one in enumerate(rounds) if isinstance(one, Round)]
        if good:
            drawn = row_random("question", config.seed, row.key).choice(good)
            return _row(row, rounds, drawn=drawn, tries=tuple(tries))
        last = rounds[0]
        if len(tries) == config.max_attempts and isinstance(last, RefusedRound):
            return Dropped(source_key=row.key, reason=last.reason, detail=last.detail)


def _question(
    row: ComparisonRow,
    config: QuestionsConfig,
    *,
    pairs: Mapping[str, PairRow],
    captions: Mapping[str, CaptionRow],
) -> Question | Dropped:
    """Return what the model is asked, its seed aside, or what is missing for it."""
    if row.subject not in pairs:
        return Dropped(source_key=row.key, reason="pair is missing", detail=row.subject)
    pair = pairs[row.subject]
    first, second = (as_data(captions[key].text) if key in captions else "" for key in (pair.first, pair.second))
    if not (first and second):
        return Dropped(source_key=row.key, reason="caption is missing", detail=pair.second if first else pair.first)
    summary = "\n".join(filter(None, map(as_data, row.text.splitlines())))
    text = load(PROMPT).render(first_caption=first, second_caption=second, summary=summary, rounds=config.rounds)
    return Question(prompt=PROMPT, text=text, max_tokens=config.max_tokens, grammar=rounds_grammar(config.rounds))


@cache
def rounds_grammar(rounds: int) -> Grammar:
    """Return the grammar of a conversation of so many rounds."""
    texts: dict[str, Any] = {name: {"type": "string"} for name in ("question", "about", "answer")}
    texts["about"]["enum"] = ["both", "first", "second"]
    each = {"type": "object", "properties": texts, "required": list(texts), "additionalProperties": False}
    several = {"type": "array", "items": each, "minItems": rounds, "maxItems": rounds}
    return Grammar(
        schema={
            "type": "object",
            "properties": {"rounds": several},
            "required": ["rounds"],
            "additionalProperties": False,
        }
    )


def _checked(answer: Answer) -> tuple[Round | RefusedRound, ...]:
    """Return the rounds of a conversation, those that will not do with their reasons; one reason where it has none."""
    rounds = read_rounds(answer.text, finish_reason=answer.finish_reason)
    if isinstance(rounds, RefusedRound):
        return (rounds,)
    return tuple(_unlike_examples(check_round(one)) for one in rounds)


def _unlike_examples(one: Round | RefusedRound) -> Round | RefusedRound:
    if isinstance(one, Round) and (one.question in _examples() or one.answer in _examples()):
        return RefusedRound("copied from the prompt", one.question)
    return one


@cache
def _examples() -> frozenset[str]:
    """Return the questions and answers that the prompt shows the layout with: its last line."""
    rounds = read_rounds(load(PROMPT).text.strip().splitlines()[-1])
    assert not isinstance(rounds, RefusedRound)
    return frozenset(text for one in rounds for text in (one.question, one.answer))


def _row(
    row: ComparisonRow, rounds: Sequence[Round | RefusedRound], *, drawn: int, tries: tuple[Served, ...]
) -> QuestionRow:
    one = rounds[drawn]
    assert isinstance(one, Round)
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


STAGE = Stage(
    name="questions",
    version=1,
    group="captioning",
    reads={"comparisons": ComparisonRow},
    writes=QuestionRow,
    function=ask_questions,
    config="questions",
    prompts=(PROMPT,),
    uses=(
        Uses(table="pairs", row=PairRow),
        Uses(table="captions", row=CaptionRow, on="images", of="pairs"),
    ),
    enabled=is_served,
    by_source=True,  # a comparison's key does not hash captions that it was not written from
    without=("conversation", "served"),
    remembers=True,
)
