"""Measure how far each preference goes against what a blind model expects (ours).

Reads ``PreferenceRow``; writes ``HardnessRow``. Needs a served model that sees images, and shows it
none: which of the two answers is right is asked with the images hidden (``blind``), in both orders,
since models like a letter. Hardness is the probability of the rejected text. A row whose chosen
text a model expects anyway teaches nothing about images.
"""

import re
from operator import attrgetter

from pairwright.prompts import load_prompt
from pairwright.schemas.config import HardnessConfig
from pairwright.schemas.rows import Dropped, HardnessRow, PreferenceRow, make_key
from pairwright.tasks.images.blind import blind_images
from pairwright.tasks.images.decode import RefusedImageError
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.chat import IMAGE, Answer, Chat, Grammar, Question, seed_of
from pairwright.tasks.serving.untrusted import quoted
from pairwright.tasks.store.stage import Stage

PROMPT = "choose_text"
NO_REJECTED = "no rejected text"
LETTERS: tuple[str, str] = ("A", "B")
LETTER = Grammar(
    regex="[AB]",
    schema={
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": list(LETTERS)}},
        "required": ["answer"],
        "additionalProperties": False,
    },
)
FIRST_LETTER = re.compile(r"\W*(?:answer\W+)?([AB])\b")
ALTERNATIVES = 5  # the most that OpenAI-compatible servers give by default
MAX_TOKENS = 8


@asking
async def measure_hardness(
    row: PreferenceRow, chat: Chat, *, config: HardnessConfig
) -> HardnessRow | Dropped:
    """Return the hardness of a preference with a rejected text."""
    if not row.rejected:
        return Dropped(source_key=row.key, reason=NO_REJECTED)
    try:
        hidden = blind_images(row.images, config.condition)
    except RefusedImageError as refused:
        return Dropped(source_key=row.key, reason=refused.reason, detail=refused.detail)
    prompt = load_prompt(PROMPT)
    question = row.prompt[-1].text.replace(IMAGE, "").strip()
    shares: list[float] = []
    answers: list[Answer] = []
    orders = ((row.chosen, row.rejected), (row.rejected, row.chosen))
    for order, (first, second) in enumerate(orders):
        text = prompt.render(
            question=quoted(question),
            first_answer=quoted(first),
            second_answer=quoted(second),
        )
        answer = await chat.ask(
            Question(
                prompt=PROMPT,
                text=text,
                images=hidden,
                seed=seed_of(row.key, prompt, seed=config.seed, attempt=order + 1),
                max_tokens=MAX_TOKENS,
                temperature=0.0,
                grammar=LETTER,
                alternatives=ALTERNATIVES,
            )
        )
        answers.append(answer)
        shares.append(read_share(answer, LETTERS[1 - order]))
    return HardnessRow(
        key=make_key("hardness", row.key, config.condition),
        source_key=row.key,
        subject=row.subject,
        preference=row.key,
        hardness=round(sum(shares) / len(shares), 6),
        condition=config.condition,
        served=tuple(answer.served for answer in answers),
    )


def read_share(answer: Answer, letter: str) -> float:
    """Return the probability of a letter against the other one; 0.5: the answer has neither."""
    totals: dict[str, float] = dict.fromkeys(LETTERS, 0.0)
    for token, probability in answer.first_token:
        name = re.sub(r"\W", "", token)
        if name in totals:
            totals[name] += probability
    if not any(totals.values()):
        match = FIRST_LETTER.match(answer.text)
        if match:
            totals[match[1]] = 1.0
    both = sum(totals.values())
    return totals[letter] / both if both else 0.5


STAGE = Stage(
    name="hardness",
    group="preferences",
    reads={"preferences": PreferenceRow},
    writes=HardnessRow,
    function=measure_hardness,
    config=lambda profile: profile.complete(profile.hardness),
    prompts=(PROMPT,),
    journal="answers",
    enabled=attrgetter("is_served"),
    rows_per_shard=100,
)
