"""Have a served model rate answers, safe against answers that forge their own rating.

Untrusted text (answer, question, reference) is one line without control tokens, between fences with
a number drawn for this answer. A rating is one line of JSON in the judge's reply with that number
and exactly the required fields; two such lines are invalid. A reply without a rating is asked for
again, then the answer counts as unjudged. The judge may still believe a manipulative answer.
"""

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any

from pairwright.prompts import load_prompt
from pairwright.schemas.rows import Failed, Row, make_key
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.evaluation.benchmark import Rubric
from pairwright.tasks.serving.ask_rows import ask_rows
from pairwright.tasks.serving.chat import Chat, Grammar, Question, seed_of
from pairwright.tasks.serving.untrusted import as_data
from pairwright.tasks.store.answers import Answers

ATTEMPTS = 3
MOST_TOKENS = 64
"""Maximum tokens of a rating; it has some 40, with its 16-digit number."""
REASON_TOKENS = 320
"""Maximum tokens of a rating with a reason."""
SECRET = make_key("secret of the fences")
"""Key of an evaluation's secret, which the fences' numbers derive from."""
Values = Mapping[str, str]  # the answer and other fields of the judge's prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating(Row):
    """Judge's rating of the answer ``key``, with its input."""

    values: Values
    rating: int | None = None  # ``None``: unreadable, or no reply
    text: str = ""  # the judge's reply
    failed: bool = False  # whether the judge did not reply, and may be asked again


def judge_answers(
    judged: Mapping[str, Values],
    rubric: Rubric,
    judge: ChatConfig,
    *,
    answers: Answers,
) -> Iterator[Rating]:
    """Yield a rating of each answer, in the order of completion.

    ``answers`` stores replies and the secret.
    """
    secret = answers.get(SECRET)
    if secret is None:
        secret = secrets.token_bytes(32)
        answers.store_value(SECRET, secret)
    work = partial(_judge, rubric=rubric, secret=secret)
    rows = {
        key: Rating(key=key, source_key=key, subject=key, values=values)
        for key, values in judged.items()
    }
    for result in ask_rows(rows.values(), work, judge, answers=answers):
        if isinstance(result, Rating):
            yield result
        else:
            failed = isinstance(result, Failed)
            yield replace(rows[result.source_key], failed=failed)


async def _judge(
    row: Rating,
    chat: Chat,
    *,
    rubric: Rubric,
    secret: bytes,
) -> Rating:
    question, number = ask_rating(row.key, row.values, rubric, secret)
    text = ""
    for attempt in range(1, ATTEMPTS + 1):
        seed = seed_of(
            row.key,
            load_prompt(rubric.prompt),
            seed=0,
            attempt=attempt,
        )
        temperature = 0.0 if attempt == 1 else None
        answer = await chat.ask(replace(question, seed=seed, temperature=temperature))
        text = answer.text
        rating = read_rubric_rating(text, number, rubric)
        if rating is not None:
            return replace(row, rating=rating, text=text)
    return replace(row, text=text)


def ask_rating(
    name: str,
    values: Values,
    rubric: Rubric,
    secret: bytes,
) -> tuple[Question, str]:
    """Return the judge's question about an answer, and its fences' number.

    The number is a keyed hash of the fences' content.
    """
    number = _hash_content(name, values, secret)
    texts = {field: as_data(text) or "(nothing)" for field, text in values.items()}
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
        text=load_prompt(rubric.prompt).render(number=number, **texts),
        max_tokens=REASON_TOKENS if rubric.reasoned else MOST_TOKENS,
        grammar=Grammar(schema=schema),
    )
    return question, number


def _hash_content(name: str, values: Values, secret: bytes) -> str:
    parts = [name]
    for pair in sorted(values.items()):
        parts += pair
    content = make_key(*(part.encode(errors="surrogatepass") for part in parts))
    digest = blake2b(
        content.encode(),
        key=secret,
        digest_size=8,
    ).hexdigest()
    return f"n{digest}"


def read_rubric_rating(
    text: str,
    number: str,
    rubric: Rubric,
) -> int | None:
    """Return the rating in a judge's reply, or ``None``.

    It is a JSON object that fills a line or the whole reply.
    """
    fields = {"number", "rating"}
    if rubric.reasoned:
        fields.add("reason")
    lines = [line.strip() for line in text.splitlines()]
    ratings: list[Any] = []
    for line in dict.fromkeys([text.strip(), *lines]):
        with suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict) and set(value) == fields and value["number"] == number:
                ratings.append(value["rating"])
    rating = ratings[0] if len(ratings) == 1 else None
    if type(rating) is int and 0 <= rating <= rubric.best:
        return rating
    return None
