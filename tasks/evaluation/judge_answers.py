"""Have a served model rate answers, safe against answers that forge their own rating.

Untrusted text (answer, question, reference) is one line without control tokens, between fences with
a number drawn for this answer. A rating is one line of JSON in the judge's reply with that number
and exactly the required fields; two such lines are invalid. A reply without a rating is asked for
again, then the answer counts as unjudged. The judge may still believe a manipulative answer.
"""

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any

from pairwright.prompts import load
from pairwright.schemas.rows import Failed, Row, make_key
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.evaluation.benchmark import Rubric
from pairwright.tasks.serving.ask_rows import ask_rows
from pairwright.tasks.serving.chat import Chat, Grammar, Question, seed_of
from pairwright.tasks.serving.untrusted import as_data
from pairwright.tasks.store.answers import Answers

ATTEMPTS = 3
MOST_TOKENS, REASON_TOKENS = 64, 320
"""Maximum tokens of a rating without and with a reason; the rating itself has some 40, with its
16-digit number."""
FENCE = re.compile(r"\A```(?:json)?\s*|\s*```\Z")  # code fences around JSON
SECRET = make_key(
    "secret of the fences"
)  # key of an evaluation's secret, which the fences' numbers derive from
Values = Mapping[str, str]  # the answer and other fields of the judge's prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating(Row):
    """Judge's rating of the answer ``key``, with its input."""

    values: Values
    rating: int | None = None  # ``None``: unreadable, or no reply
    text: str = ""  # the judge's reply
    failed: bool = False  # whether the judge did not reply, and may be asked again


def judge_answers(
    judged: Mapping[str, Values], rubric: Rubric, judge: ChatConfig, *, answers: Answers
) -> Iterator[Rating]:
    """Yield a rating of each answer, in the order of completion; ``answers`` stores replies and the secret."""
    secret = answers.get(SECRET)
    if secret is None:
        secret = secrets.token_bytes(32)
        answers.put(SECRET, secret)
    work = partial(_judge, rubric=rubric, secret=secret)
    rows = {
        key: Rating(key=key, source_key=key, subject=key, values=values)
        for key, values in judged.items()
    }
    for result in ask_rows(rows.values(), work, judge, answers=answers):
        own = replace(rows[result.source_key], failed=isinstance(result, Failed))
        yield result if isinstance(result, Rating) else own


async def _judge(row: Rating, chat: Chat, *, rubric: Rubric, secret: bytes) -> Rating:
    question, number = ask_rating(row.key, row.values, rubric, secret)
    text = ""
    for attempt in range(1, ATTEMPTS + 1):
        seed = seed_of(row.key, load(rubric.prompt), seed=0, attempt=attempt)
        text = (
            await chat.ask(replace(question, seed=seed, temperature=0.0 if attempt == 1 else None))
        ).text
        rating = read_rating(text, number, rubric)
        if rating is not None:
            return replace(row, rating=rating, text=text)
    return replace(row, text=text)


def ask_rating(name: str, values: Values, rubric: Rubric, secret: bytes) -> tuple[Question, str]:
    """Return the judge's question about an answer, and its fences' number: a keyed hash of their content."""
    parts = (name, *(part for pair in sorted(values.items()) for part in pair))
    inside = make_key(*(part.encode(errors="surrogatepass") for part in parts))
    number = f"n{blake2b(inside.encode(), key=secret, digest_size=8).hexdigest()}"
    told = {field: as_data(text) or "(nothing)" for field, text in values.items()}
    fields: dict[str, Any] = {"number": {"type": "string", "enum": [number]}}
    if rubric.reasoned:
        fields["reason"] = {"type": "string", "maxLength": 800}
    fields["rating"] = {"type": "integer", "minimum": 0, "maximum": rubric.best}
    schema = {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }
    question = Question(
        prompt=rubric.prompt,
        text=load(rubric.prompt).render(number=number, **told),
        max_tokens=REASON_TOKENS if rubric.reasoned else MOST_TOKENS,
        grammar=Grammar(schema=schema),
    )
    return question, number


def read_rating(text: str, number: str, rubric: Rubric) -> int | None:
    """Return the rating in a judge's reply, a JSON object that fills a line or the whole reply; or ``None``."""
    fields, found = {"number", "rating", *(["reason"] if rubric.reasoned else [])}, list[Any]()
    for line in dict.fromkeys([FENCE.sub("", text.strip()), *map(str.strip, text.splitlines())]):
        with suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict) and set(value) == fields and value["number"] == number:
                found.append(value["rating"])
    rating = found[0] if len(found) == 1 else None
    return rating if type(rating) is int and 0 <= rating <= rubric.best else None
