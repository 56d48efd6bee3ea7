"""Let a served model rate answers, so that what is rated cannot write its own rating.

What others wrote (the answer, the question, the reference) stands on one line without control tokens, between lines
with a number drawn for this answer alone. A rating is one line of JSON in the judge's own reply that repeats that
number and has the fields that were asked for and no others; two such lines are none. A reply without a rating is asked
for again, and then the answer counts as unjudged. No rule can keep a judge from believing what it reads, though.
"""

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any

from pairwright.prompts import load
from pairwright.schemas.rows import Failed, Row, make_key
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.evaluation.benchmark import Rubric
from pairwright.tasks.serving.ask_rows import ask_rows
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question, seed_of
from pairwright.tasks.serving.untrusted import as_data
from pairwright.tasks.store.answers import Answers

ATTEMPTS = 3
MOST_TOKENS, REASON_TOKENS = 64, 320
"""Of a rating without and with a reason; the rating itself has some 40, as it repeats a number of 16 digits."""
FENCE = re.compile(r"\A```(?:json)?\s*|\s*```\Z")
"""What models like to put around JSON."""
SECRET = make_key("secret of the fences")
"""Under which key an evaluation keeps what its fences' numbers are made of."""


Values = Mapping[str, str]
"""The answer to rate, and all that the judge is told beside it, by the names in the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating(Row):
    """What a judge gave to the answer of the name ``key``, with what it was told."""

    values: Values
    rating: int | None = None
    """``None``: nothing that could be read, or no answer at all."""
    text: str = ""
    """The judge's reply."""
    failed: bool = False
    """Whether the judge did not answer, and may be asked again."""


def judge_answers(
    judged: Mapping[str, Values], rubric: Rubric, judge: ChatConfig, *, answers: Answers
) -> Iterator[Rating]:
    """Yield a rating of each answer, as they come; ``answers`` keeps what was said, and the secret of the fences."""
    work = partial(_judge, rubric=rubric, secret=_secret(answers))
    rows = {key: Rating(key=key, source_key=key, subject=key, values=values) for key, values in judged.items()}
    for result in ask_rows(rows.values(), work, judge, answers=answers):
        own = replace(rows[result.source_key], failed=isinstance(result, Failed))
        yield result if isinstance(result, Rating) else own


def _secret(answers: Answers) -> bytes:
    kept = answers.get(SECRET)
    if kept is None:
        kept = secrets.token_bytes(32)
        answers.put(SECRET, kept)
    return kept


def number_of(name: str, values: Values, secret: bytes) -> str:
    """Return the number of an answer's fences: it hashes all that stands inside."""
    parts = (name, *(part for pair in sorted(values.items()) for part in pair))
    inside = make_key(*(part.encode(errors="surrogatepass") for part in parts))
    return f"n{blake2b(inside.encode(), key=secret, digest_size=8).hexdigest()}"


async def _judge(row: Rating, chat: Chat, *, rubric: Rubric, secret: bytes) -> Rating:
    question, number = ask_rating(row.key, row.values, rubric, secret)
    answer: Answer | None = None
    for attempt in range(1, ATTEMPTS + 1):
        seed = seed_of(row.key, load(rubric.prompt), seed=0, attempt=attempt)
        answer = await chat.ask(replace(question, seed=seed, temperature=0.0 if attempt == 1 else None))
        rating = read_rating(answer.text, number, rubric)
        if rating is not None:
            return replace(row, rating=rating, text=answer.text)
    return replace(row, text=answer.text if answer else "")


def ask_rating(name: str, values: Values, rubric: Rubric, secret: bytes) -> tuple[Question, str]:
    """Return what a judge is asked about an answer, and the number that its rating must repeat."""
    number = number_of(name, values, secret)
    told = {field: as_data(text) or "(nothing)" for field, text in values.items()}
    fields: dict[str, Any] = {"number": {"type": "string", "enum": [number]}}
    if rubric.reasoned:
        fields["reason"] = {"type": "string", "maxLength": 800}
    fields["rating"] = {"type": "integer", "minimum": 0, "maximum": rubric.best}
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    question = Question(
        prompt=rubric.prompt,
        text=load(rubric.prompt).render(number=number, **told),
        max_tokens=REASON_TOKENS if rubric.reasoned else MOST_TOKENS,
        grammar=Grammar(schema=schema),
    )
    return question, number


def read_rating(text: str, number: str, rubric: Rubric) -> int | None:
    """Return the rating of a judge's reply, or ``None``."""
    fields = {"number", "rating", *(["reason"] if rubric.reasoned else [])}
    found = [value for value in _objects(text) if set(value) == fields and value["number"] == number]
    if len(found) != 1:
        return None
    rating = found[0]["rating"]
    fits = isinstance(rating, int) and not isinstance(rating, bool) and 0 <= rating <= rubric.best
    return rating if fits else None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects that have a line of their own, or are the whole reply."""
    whole = FENCE.sub("", text.strip())
    for line in dict.fromkeys([whole, *map(str.strip, text.splitlines())]):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value
