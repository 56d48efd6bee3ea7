"""Ask the writing model control questions with a known right answer (ours).

Reads ``DifferenceRow``, the pairs, both images and their captions; writes one ``CheckRow`` per
control and description. ``swapped``: the pair is shown in the other order, with everything that the
writer was told. The answer's halves must be more alike the description's crosswise than straight;
the score is the difference, from -1 to 1, and must reach ``controls.min_score``.
``same``: one image is shown twice, without captions. A sentence for "no difference", or equal
halves, pass; the score is 1 or 0.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from random import Random

from pairwright.prompts import load_prompt, load_wordings
from pairwright.prompts.difference_prompts import PROMPTS, difference_regex
from pairwright.schemas import checks
from pairwright.schemas.config import ControlsConfig
from pairwright.schemas.replies import CUT_OFF, RefusedText
from pairwright.schemas.rows import (
    Captions,
    CheckRow,
    DifferenceRow,
    Dropped,
    Images,
    PairRow,
    Pairs,
    make_key,
)
from pairwright.tasks.captioning import describe_differences
from pairwright.tasks.captioning.validators import (
    CAPTIONS,
    IMAGES,
    PAIRS,
    Two,
    check_text,
    pair_images,
)
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question, seed_of
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.texts.differences import Difference
from pairwright.tasks.texts.words import content_words, says_no_change

SAME = "control_same"
REVERSED = "control_reversed"
NONE = "There is no difference between the two images."
NONE_FORM = NONE.replace(".", r"\.")
MAX_WORDS = 1000  # ``max_tokens`` ends answers long before
UNREADABLE = -1.0  # the score of a swapped pair where there is nothing to compare
Outcome = tuple[float, str]
"""Score of a control, and why it failed; empty: it passed."""


@asking
async def control_differences(
    row: DifferenceRow,
    chat: Chat,
    *,
    config: ControlsConfig,
    pairs: Pairs,
    images: Images,
    captions: Captions,
) -> Sequence[CheckRow] | Dropped:
    """Return the outcome of each control that is on, of every description."""
    pair = pairs[row.subject]
    files = pair_images(row.key, pair, images)
    if isinstance(files, Dropped):
        return files
    texts = describe_differences.quoted_captions(pair, captions)
    questions = {
        "swapped": ask_swapped(row, pair, files, texts, config),
        "same": ask_same(row, pair, files, config),
    }
    outcomes: list[CheckRow] = []
    for kind, question in questions.items():
        if kind in config.kinds:
            answer = await chat.ask(question)
            outcomes.append(_check(kind, row, answer, config))
    return outcomes


def _check(
    kind: str,
    row: DifferenceRow,
    answer: Answer,
    config: ControlsConfig,
) -> CheckRow:
    score, why = _judge(kind, row, answer, config)
    if answer.refused and answer.refused.reason == CUT_OFF:
        why = f"{why} (controls.max_tokens={config.max_tokens})"
    return check_text(row, kind, score=score, why=why, answers=[answer])


def ask_swapped(
    row: DifferenceRow,
    pair: PairRow,
    images: Two[bytes],
    captions: Two[str] | None,
    config: ControlsConfig,
) -> Question:
    """Return the question about the pair in the other order."""
    wordings = load_wordings(REVERSED).kinds
    # The human difference that the writer's prompt had is not stored: take the one most like the
    # description.
    halves = f"{row.first_half} {row.second_half}"
    nearest = sorted(pair.human_differences, key=lambda text: -dice_coefficient(halves, text))[:1]
    instruction_text = ""
    if pair.instruction:
        instruction_text = wordings["edit"][0].render(text=pair.instruction)
    turned = replace(
        pair,
        first=pair.second,
        second=pair.first,
        instruction=instruction_text,
        human_differences=tuple(wordings["human"][0].render(text=text) for text in nearest),
    )
    swapped = (captions[1], captions[0]) if captions else None
    instruction = describe_differences.instruct_pair(
        turned,
        swapped,
        seed=config.seed,
        attempt=1,
    )
    seed = seed_of(row.key, load_prompt(instruction.prompt), seed=config.seed)
    return describe_differences.difference_question(
        instruction, (images[1], images[0]), seed, config.max_tokens
    )


def ask_same(
    row: DifferenceRow,
    pair: PairRow,
    images: Two[bytes],
    config: ControlsConfig,
) -> Question:
    """Return the question about one of the images, shown twice."""
    image = Random(make_key("same image", config.seed, row.key)).choice(images)
    bare = replace(pair, instruction="", human_differences=())
    instruction = describe_differences.instruct_pair(
        bare,
        None,
        seed=config.seed,
        attempt=1,
    )
    prompt = load_prompt(SAME)
    return Question(
        prompt=SAME,
        text=prompt.render(instruction=instruction.text, way_out=NONE),
        images=(image, image),
        seed=seed_of(row.key, prompt, seed=config.seed),
        max_tokens=config.max_tokens,
        grammar=Grammar(regex=f"(?:{NONE_FORM}|{difference_regex()})"),
    )


def _judge(
    kind: str,
    row: DifferenceRow,
    answer: Answer,
    config: ControlsConfig,
) -> Outcome:
    """Score the answer to a control question."""
    parsed = describe_differences.read_description(answer, MAX_WORDS)
    is_none = says_none(answer, parsed)
    if kind == "same":
        return _judge_same(parsed, is_none=is_none)
    if is_none:
        return (1.0, "") if row.no_change else (UNREADABLE, checks.NONE_IN_SWAPPED)
    if isinstance(parsed, RefusedText):
        return UNREADABLE, checks.UNREADABLE_SWAPPED + parsed.reason
    if row.no_change:
        return UNREADABLE, checks.NOT_TURNED_ROUND
    return _judge_swapped(row, parsed, config)


def _judge_same(parsed: Difference | RefusedText, *, is_none: bool) -> Outcome:
    """Pass an answer that finds no difference in one image."""
    if is_none:
        return 1.0, ""
    if isinstance(parsed, RefusedText):
        return 0.0, checks.UNREADABLE_SAME + parsed.reason
    return 0.0, checks.SEEN_IN_SAME


def _judge_swapped(row: DifferenceRow, parsed: Difference, config: ControlsConfig) -> Outcome:
    """Score how much more alike the halves are crosswise than straight."""
    first, second = row.halves
    crosswise = dice_coefficient(first, parsed.second_half)
    crosswise += dice_coefficient(second, parsed.first_half)
    straight = dice_coefficient(first, parsed.first_half)
    straight += dice_coefficient(second, parsed.second_half)
    score = round((crosswise - straight) / 2, 6)
    if score >= config.min_score:
        return score, ""
    return score, f"{checks.NOT_TURNED_ROUND} (controls.min_score={config.min_score:g})"


def dice_coefficient(first: str, second: str) -> float:
    """Return how alike two texts are, from 0 (no content word in common, or none at all) to 1.

    Dice's coefficient of the multisets of their content words and of the pairs of neighbours among
    these: "a cat left of a dog" and "a dog left of a cat" are not quite alike.
    """
    first_counts = _count_ngrams(first)
    second_counts = _count_ngrams(second)
    total = first_counts.total() + second_counts.total()
    if not total:
        return 0.0
    return 2 * (first_counts & second_counts).total() / total


def _count_ngrams(text: str) -> "Counter[tuple[str, ...]]":
    """Count the content words of a text, and the pairs of neighbours among them."""
    content = content_words(text)
    ngrams: Counter[tuple[str, ...]] = Counter((word,) for word in content)
    ngrams.update(pairwise(content))
    return ngrams


def says_none(answer: Answer, parsed: Difference | RefusedText) -> bool:
    """Return whether a whole answer says that the images do not differ.

    It may say so in the template, or in a sentence of its own.
    """
    if isinstance(parsed, Difference):
        is_equal = content_words(parsed.first_half) == content_words(parsed.second_half)
        return is_equal or says_no_change(parsed.second_half)
    if parsed.reason == "halves are equal":
        return True
    return parsed.reason == "off the template" and says_no_change(answer.text)


STAGE = Stage(
    name="controlled",
    version=5,
    group="captioning",
    reads={"described": DifferenceRow},
    writes=CheckRow,
    function=control_differences,
    config=lambda profile: profile.complete(profile.controls),
    prompts=(*PROMPTS, SAME, REVERSED),
    enabled=attrgetter("is_served"),
    uses=(PAIRS, IMAGES, CAPTIONS),
    by_source=True,  # a description's key does not hash the captions in the question
    journal="answers",
)
