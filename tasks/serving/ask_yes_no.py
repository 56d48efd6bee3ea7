"""Ask a served model a yes/no question in several wordings until its answers agree (ours).

Each answer is evidence: the odds of yes against no among the first tokens, where the server gives
their probabilities, else the answer's first word. A single answer counts at most ``MAX_ODDS`` to 1,
since models are often surer than they are right. The question is asked again in other words until
the product of the odds reaches ``SURE_ODDS``, or no wording is left. Half of the wordings ask for
the opposite, so that a model that likes to agree confirms nothing by that.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from pairwright.prompts import Prompt, load_wordings
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question, seed_of

YES = "yes"
NO = "no"
MAX_ODDS = 9.0
"""Most that one answer counts: a model that is right nine times of ten."""
SURE_ODDS = 19.0
"""Odds at which no further wording is asked: 95 %."""
ALTERNATIVES = 5  # the most that OpenAI-compatible servers give by default
MAX_TOKENS = 8
YES_OR_NO = Grammar(
    regex="(?:yes|no)",
    schema={
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": [YES, NO]}},
        "required": ["answer"],
        "additionalProperties": False,
    },
)
FIRST_WORD = re.compile(r"\W*(?:answer\W+)?(yes|no)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Likelihood:
    """How likely a statement is true, by a model's answers."""

    probability: float
    """Probability that the statement is true, from 0 to 1; 0.5: the answers cancel, or none could
    be read."""
    answers: tuple[Answer, ...]

    @property
    def is_true(self) -> bool:
        """Return whether the statement is more likely true."""
        return self.probability > 0.5

    @property
    def is_false(self) -> bool:
        """Return whether the statement is more likely false."""
        return self.probability < 0.5


async def ask_yes_no(
    chat: Chat,
    name: str,
    values: dict[str, str],
    *,
    images: tuple[bytes, ...],
    key: str,
    seed: int,
) -> Likelihood:
    """Return the verdict of a model about a statement.

    ``name``: the file of wordings, of the kinds ``yes`` (yes confirms the statement) and ``no``;
    ``values``: what they are filled with; ``key``: the row's, for the seeds.
    """
    odds = 1.0
    answers: list[Answer] = []
    for polarity, wording in alternate_wordings(name):
        question = Question(
            prompt=name,
            text=wording.render(**values),
            images=images,
            max_tokens=MAX_TOKENS,
            temperature=0.0,
            grammar=YES_OR_NO,
            alternatives=ALTERNATIVES,
        )
        seeded = replace(question, seed=seed_of(key, wording, seed=seed))
        answer = await chat.ask(seeded)
        answers.append(answer)
        evidence = read_odds(answer)
        odds *= evidence if polarity == YES else 1 / evidence
        if max(odds, 1 / odds) >= SURE_ODDS:
            break
    return Likelihood(round(odds / (1 + odds), 6), tuple(answers))


def alternate_wordings(name: str) -> Sequence[tuple[str, Prompt]]:
    """Return the wordings of a file with their polarities, in turn, ``yes`` first."""
    kinds = load_wordings(name).kinds
    confirming = [(YES, wording) for wording in kinds[YES]]
    denying = [(NO, wording) for wording in kinds[NO]]
    return [pair for pair in chain(*zip_longest(confirming, denying)) if pair]


def read_odds(answer: Answer) -> float:
    """Return the odds of yes against no in an answer; 1: it says neither."""
    yes, no = _read_probabilities(answer)
    if yes == no:
        return 1.0
    if no == 0:
        return MAX_ODDS
    return min(MAX_ODDS, max(1 / MAX_ODDS, yes / no))


def _read_probabilities(answer: Answer) -> tuple[float, float]:
    totals = {YES: 0.0, NO: 0.0}
    for token, probability in answer.first_token:
        word = re.sub(r"\W", "", token).lower()
        if word in totals and math.isfinite(probability):
            totals[word] += probability
    if any(totals.values()):
        return totals[YES], totals[NO]
    match = FIRST_WORD.match(answer.text)
    if match:
        totals[match[1].lower()] = 1.0
    return totals[YES], totals[NO]
