"""Rate each description from 0 to 5 by a served model (ours).

Reads ``DifferenceRow``, the pairs and both images; writes ``CheckRow`` with the rating as score.
Needs the profile's ``judge``. The first question is asked at temperature 0, for a reproducible
rating; after an answer without a rating it is asked again at the model's own temperature.

Rejected texts (``RejectedTextRow``) of unknown truth are judged in the same way: one that passes
may be true.
"""

import re
from dataclasses import replace
from operator import attrgetter

from pairwright.prompts import load_prompt
from pairwright.schemas import rows
from pairwright.schemas.checks import LOW_RATING, NO_RATING
from pairwright.schemas.config import JudgingConfig
from pairwright.schemas.rows import CheckRow, DifferenceRow, Dropped, Images, Pairs, RejectedTextRow
from pairwright.tasks.captioning.validators import IMAGES, PAIRS, check_text, pair_images
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.chat import IMAGE, Answer, Chat, Grammar, Question, seed_of
from pairwright.tasks.serving.untrusted import quoted
from pairwright.tasks.store.stage import Stage

PROMPT = "judge_difference"
MAX_TOKENS = 32  # enough for "Rating: 4/5"; paper 003's judge has 20
RATING = Grammar(regex="[0-5]")
UNRATED = -1.0  # score without a rating: below all others
SCALE = re.compile(r"\b(?:from |of )?0\s*(?:-|–|to)\s*5\b", re.IGNORECASE)
"""The scale, which answers often repeat."""
NUMBER = r"(?<![\w.,-])(-?\d+(?:[.,]\d+)*)(?![\w-])"
RATINGS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\A[\s*_#`\"'(\[]*{NUMBER}[\s*_`\"')\].]*(?:\n|\Z)",  # the first line is a number
        rf"{NUMBER}(?=\s*(?:/|out of)\s*5\b)",
        rf"\b(?:rat(?:ing|ed?)|score|give)\b[^\d\n-]{{0,24}}{NUMBER}",
        rf"\A{NUMBER}(?=\s*[:.,;–—]|\s+(?:because|as|since)\b)",  # before prose
        rf"\A\D*{NUMBER}(?=[\s*_`\"')\].]*\Z)",  # after prose without a number
    )
)
"""Positions of the rating in an answer; the first pattern that matches counts."""


@asking
async def judge_differences(
    row: DifferenceRow | RejectedTextRow,
    chat: Chat,
    *,
    config: JudgingConfig,
    pairs: Pairs,
    images: Images,
) -> CheckRow | Dropped:
    """Return the rating of a text against the images."""
    if isinstance(row, RejectedTextRow) and not row.is_unchecked:
        return Dropped(source_key=row.key, reason="known to be false")
    files = pair_images(row.key, pairs[row.subject], images)
    if isinstance(files, Dropped):
        return files
    prompt = load_prompt(PROMPT)
    question = Question(
        prompt=PROMPT,
        text=prompt.render(
            first=IMAGE,
            second=IMAGE,
            description=quoted(row.text),
        ),
        images=files,
        max_tokens=MAX_TOKENS,
        grammar=RATING,
    )
    answers: list[Answer] = []
    for attempt in range(1, config.max_attempts + 1):
        seed = seed_of(
            row.key,
            prompt,
            seed=config.seed,
            attempt=attempt,
        )
        temperature = 0.0 if attempt == 1 else None
        answer = await chat.ask(replace(question, seed=seed, temperature=temperature))
        answers.append(answer)
        rating = None if answer.refused else read_rating(answer.text)
        if rating is None:
            continue
        why = ""
        if rating < config.min_rating:
            why = f"{LOW_RATING} (judging.min_rating={config.min_rating})"
        return check_text(
            row,
            "judged",
            score=float(rating),
            why=why,
            answers=answers,
        )
    return check_text(
        row,
        "judged",
        score=UNRATED,
        why=NO_RATING,
        answers=answers,
    )


def read_rating(text: str) -> int | None:
    """Return the rating of an answer; ``None``: none, several, or off the scale."""
    text = SCALE.sub(" ", text.strip())
    for pattern in RATINGS:
        ratings = {"".join(match.groups("")) for match in pattern.finditer(text)}
        if len(ratings) == 1:
            rating = ratings.pop()
            return int(rating) if re.fullmatch("[0-5]", rating) else None
        if ratings:
            return None
    return None


STAGE = Stage(
    name="judged",
    version=3,
    group="captioning",
    reads={"described": DifferenceRow},
    writes=CheckRow,
    function=judge_differences,
    config=lambda profile: profile.complete(profile.judging),
    prompts=(PROMPT,),
    enabled=attrgetter("is_served"),
    uses=(PAIRS, IMAGES),
    journal="answers",
)
REJECTED = replace(
    STAGE,
    name="judged_rejected",
    group="rejected",
    reads=dict.fromkeys(rows.MAKERS, RejectedTextRow),
)
