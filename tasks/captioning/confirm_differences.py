"""Ask about each statement of a description, of each image alone, whether it is true (ours).

Reads ``DifferenceRow``, the pairs and both images; writes one ``CheckRow`` per description. After
the idea of RLAIF-V and POPE: a model is more often right about one plain statement than about a
whole text. A description passes if

- each statement is true of the image that it is about: one that is true of the other image alone
  shows that the images were exchanged, one that is true of neither was invented;
- at least one statement is false of the other image: what is true of both is no difference.

A description that says that nothing differs has no such statements: the model is asked about both
images at once whether they show the same.

The score is the least probability by which all of this holds, from 0 to 1; ``text`` has the
statements and their probabilities as JSON. Needs the profile's ``judge``; another model than the
writer knows better what the writer invents. It sees what one image shows: that a statement is about
something else than the difference, or omits one, it does not see.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from pairwright.prompts.difference_prompts import VERBS
from pairwright.schemas import checks
from pairwright.schemas.config import ConfirmingConfig
from pairwright.schemas.rows import CheckRow, DifferenceRow, Dropped, Images, Pairs
from pairwright.tasks.captioning.split_claims import read_description, split_half
from pairwright.tasks.captioning.validators import IMAGES, PAIRS, Two, check_text, pair_images
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.ask_yes_no import Likelihood, ask_yes_no
from pairwright.tasks.serving.chat import IMAGE, Answer, Chat
from pairwright.tasks.serving.split_text import SPLIT
from pairwright.tasks.serving.untrusted import quoted
from pairwright.tasks.store.stage import Stage

STATEMENT = "confirm_statement"
SAME = "confirm_same"
UNKNOWN = 0.5
"""Probability of what was not asked."""


@dataclass(slots=True)
class AskedStatement:
    """Statement of a description about one image, and what was answered about it."""

    side: int
    """Index of the image that it is about."""
    text: str
    own: Likelihood | None = None
    """Likelihood about the image that it is about."""
    other: Likelihood | None = None
    """Likelihood about the other image; ``None``: it was not asked for."""


@asking
async def confirm_differences(
    row: DifferenceRow,
    chat: Chat,
    *,
    config: ConfirmingConfig,
    pairs: Pairs,
    images: Images,
) -> CheckRow | Dropped:
    """Return whether all statements of a description are true, and one of them tells."""
    files = pair_images(row.key, pairs[row.subject], images)
    if isinstance(files, Dropped):
        return files
    if row.no_change:
        return await _confirm_same(row, chat, files, config)
    statements = await _split_description(row, chat, config)
    why = await _ask_about(statements, row, chat, files, config)
    score = _score(statements)
    return check_text(
        row,
        "confirmed",
        score=score,
        why=why or _bound(score, config),
        answers=_answers(statements),
        text=_describe(statements),
    )


async def _confirm_same(
    row: DifferenceRow,
    chat: Chat,
    files: Two[bytes],
    config: ConfirmingConfig,
) -> CheckRow:
    verdict = await ask_yes_no(
        chat,
        SAME,
        {"first": IMAGE, "second": IMAGE},
        images=files,
        key=row.key,
        seed=config.seed,
    )
    return check_text(
        row,
        "confirmed",
        score=verdict.probability,
        why=_bound(verdict.probability, config) if verdict.is_true else checks.NOT_SAME,
        answers=verdict.answers,
    )


async def _split_description(
    row: DifferenceRow,
    chat: Chat,
    config: ConfirmingConfig,
) -> list[AskedStatement]:
    """Return the statements of both halves; those about each image are different."""
    statements: list[AskedStatement] = []
    by_grammar = read_description(row.text)
    if by_grammar is not None:
        for side, sentences in enumerate(by_grammar):
            statements += [
                AskedStatement(side, text) for text in sentences[: config.max_statements]
            ]
        return statements
    for side, half in enumerate(row.halves):
        verb = row.verbs[side] if side < len(row.verbs) else "shows"
        texts = await split_half(
            half,
            verb,
            chat,
            key=row.key,
            seed=config.seed,
            max_tokens=config.max_tokens,
        )
        statements += [AskedStatement(side, text) for text in texts[: config.max_statements]]
    return statements


async def _ask_about(
    statements: Sequence[AskedStatement],
    row: DifferenceRow,
    chat: Chat,
    files: Two[bytes],
    config: ConfirmingConfig,
) -> str:
    """Ask about the statements until the description fails or passes; return why it failed."""

    async def ask(statement: AskedStatement, side: int) -> Likelihood:
        return await ask_yes_no(
            chat,
            STATEMENT,
            {"image": IMAGE, "statement": quoted(statement.text)},
            images=(files[side],),
            key=f"{row.key} {side}",
            seed=config.seed,
        )

    for statement in statements:
        statement.own = await ask(statement, statement.side)
        if statement.own.is_true:
            continue
        if not statement.own.is_false:
            return checks.UNANSWERED
        statement.other = await ask(statement, 1 - statement.side)
        return checks.EXCHANGED if statement.other.is_true else checks.INVENTED
    for statement in statements:
        statement.other = await ask(statement, 1 - statement.side)
        if statement.other.is_false:
            return ""
    return checks.SHARED


def _score(statements: Sequence[AskedStatement]) -> float:
    """Return the least probability by which the description holds."""
    own = [statement.own.probability for statement in statements if statement.own]
    others = [statement.other.probability for statement in statements if statement.other]
    telling = 1 - min(others) if others else UNKNOWN
    return round(min([*own, telling]), 6)


def _bound(score: float, config: ConfirmingConfig) -> str:
    """Return why a score is below the bound; empty: it is not."""
    if score >= config.min_score:
        return ""
    return f"{checks.UNSURE} (confirming.min_score={config.min_score:g})"


def _answers(statements: Sequence[AskedStatement]) -> list[Answer]:
    answers: list[Answer] = []
    for statement in statements:
        for verdict in (statement.own, statement.other):
            answers += verdict.answers if verdict else ()
    return answers


def _describe(statements: Sequence[AskedStatement]) -> str:
    """Return the statements as JSON: the image, the text, the probabilities."""
    described: list[dict[str, object]] = []
    for statement in statements:
        described.append(
            {
                "image": statement.side + 1,
                "statement": statement.text,
                "own": statement.own.probability if statement.own else None,
                "other": statement.other.probability if statement.other else None,
            }
        )
    return json.dumps(described, ensure_ascii=False)


STAGE = Stage(
    name="confirmed",
    group="captioning",
    reads={"described": DifferenceRow},
    writes=CheckRow,
    function=confirm_differences,
    config=lambda profile: profile.complete(profile.confirming),
    prompts=(STATEMENT, SAME, SPLIT, VERBS),
    enabled=attrgetter("is_served"),
    uses=(PAIRS, IMAGES),
    journal="answers",
)
