"""Make rejected texts by a language model's smallest edit that makes the chosen text false (ours).

Reads ``DifferenceRow`` and, to check, its pair and scene graphs; writes ``RejectedTextRow`` by the
maker "counterfactual". Needs a served model; it sees no images. An edit must contradict the text by
our rules (``check_edit``), and then in the model's judgement: models call too much a contradiction,
and rules know too few words. After a refusal, another kind of edit is asked for.
"""

import re
from itertools import cycle, islice
from operator import attrgetter
from random import Random
from typing import NamedTuple

from pairwright.prompts import difference_verbs, load, load_wordings
from pairwright.prompts.difference_prompts import TEMPLATE, difference_regex, fill_template
from pairwright.schemas.config import CounterfactualsConfig
from pairwright.schemas.phrases import SIZES
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import (
    DifferenceRow,
    Dropped,
    Images,
    Pairs,
    RejectedTextRow,
    Served,
    make_key,
)
from pairwright.tasks.rejected.check_texts import (
    TRUTH_USES,
    KnownContent,
    is_as_true,
    rejected_row,
    text_cosine,
    truth_of,
)
from pairwright.tasks.rejected.compare_words import COLOURS, DENIALS, NUMBERS, RELATIONS, compare
from pairwright.tasks.scenes.vocabulary import SCENE_WORDS
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question, seed_of
from pairwright.tasks.serving.untrusted import quoted, within_quotes
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.texts.differences import read_difference, read_plain
from pairwright.tasks.texts.words import WORD

LEAST_LIKENESS, LEAST_LIKENESS_GIVEN = 0.7, 0.5
"""Least likeness of an edited text to the chosen one; people's texts are short, without the
template's words."""
MOST_WORDS = 4  # most content words that an edit may remove, or add
STILL_TRUE = "edited text is as true"
EDIT, EDIT_GIVEN, KINDS, CONTRADICTION = (
    "edit_difference",
    "edit_sentence",
    "edit_kinds",
    "ask_contradiction",
)
CHOICES = ("contradict", "compatible")
CHOICE_TOKENS = 16
BOTH = "the model finds that both may be true"
SIDES = ("first", "second")


def _any_of(*words: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?<![\w'’-])(?:{'|'.join(' '.join(words).split())})(?![\w'’-])", re.IGNORECASE
    )


OFFERS = {
    "object": re.compile(r"[^\W\d_]{3}"),
    "attribute": _any_of(
        COLOURS,
        "grey",
        *SCENE_WORDS["material"],
        *SIZES.values(),
        "big little tall short old young",
    ),
    "count": _any_of(NUMBERS, r"an? one \d+"),
    "relation": _any_of(RELATIONS, "on top in"),
    "action": re.compile(
        r"(?<!\w)(?!(?:something|nothing|anything|everything|building|ceiling|clothing)\b)\w{2,}ing\b"
    ),
    "left or right": _any_of("left right"),
    "presence": _any_of(DENIALS),
}
"""Words that a half must have for an edit of this kind."""


class CheckedEdit(NamedTuple):
    """Edited text that contradicts the chosen one by our rules."""

    text: str
    changed: str  # "red -> blue"
    true: bool | None  # ``False`` where scene graphs refute it, ``None`` where there are none


@asking
async def edit_with_model(
    row: DifferenceRow, chat: Chat, *, config: CounterfactualsConfig, pairs: Pairs, images: Images
) -> RejectedTextRow | Dropped:
    """Return one edited text per description, or ``Dropped`` with the reason of the last refusal."""
    plans = draw_plans(row, config)
    if not plans or row.no_change:
        return Dropped(source_key=row.key, reason="nothing to edit", detail=row.text)
    truth, served = truth_of(row, pairs, images), list[Served]()
    true, refused = 0, RefusedText("nothing to edit")
    for attempt, (kind, side) in enumerate(islice(cycle(plans), config.max_attempts), 1):
        answer = await chat.ask(_edit_question(row, config, kind=kind, side=side, attempt=attempt))
        served.append(answer.served)
        edit = check_edit(answer, row, side=side, truth=truth)
        if isinstance(edit, RefusedText):
            refused = edit.by_tokens(
                answer.finish_reason, f"counterfactuals.max_tokens={config.max_tokens}"
            )
        else:
            choice = await chat.ask(_choice_question(row, edit, config, attempt=attempt))
            served.append(choice.served)
            said = choice.text.strip(" \n\t\"'“”.*").lower()
            if choice.finish_reason == "length" or said not in CHOICES:
                refused = RefusedText("no clear answer", choice.text[:80])
            elif said == "contradict":
                note, tries = f"{kind}: {edit.changed}", tuple(served)
                return rejected_row(
                    row,
                    edit.text,
                    maker="counterfactual",
                    note=note,
                    true=edit.true,
                    skipped_true=true,
                    served=tries,
                )
            else:
                refused = RefusedText(BOTH, edit.changed)
        true += refused.reason in (STILL_TRUE, BOTH)
    return Dropped(source_key=row.key, reason=refused.reason, detail=refused.detail)


def draw_plans(row: DifferenceRow, config: CounterfactualsConfig) -> list[tuple[str, int]]:
    """Return the possible kinds of edits, each with one half, in an order drawn by the row's key."""
    rng = Random(make_key("counterfactual", config.seed, row.key))
    sides = {
        kind: [side for side in (0, 1) if offer.search(row.halves[side])]
        for kind, offer in OFFERS.items()
    }
    plans = [(kind, rng.choice(found)) for kind, found in sides.items() if found]
    rng.shuffle(plans)
    return plans


def _edit_question(
    row: DifferenceRow, config: CounterfactualsConfig, *, kind: str, side: int, attempt: int
) -> Question:
    (change,) = load_wordings(KINDS).kinds[kind]
    prompt = EDIT_GIVEN if row.is_given else EDIT
    names = {} if row.is_given else {"side": SIDES[side], "other": SIDES[1 - side]}
    return Question(
        prompt=prompt,
        text=load(prompt).render(sentence=quoted(row.text), change=change.text, **names),
        seed=seed_of(row.key, load(prompt), seed=config.seed, attempt=attempt),
        max_tokens=config.max_tokens,
        grammar=None if row.is_given else Grammar(regex=difference_regex()),
    )


def _choice_question(
    row: DifferenceRow, edit: CheckedEdit, config: CounterfactualsConfig, *, attempt: int
) -> Question:
    """Ask whether both texts can be true; their order is drawn, since models favour a position."""
    seed = seed_of(row.key, load(CONTRADICTION), seed=config.seed, attempt=attempt)
    first, second = Random(seed).sample((quoted(row.text), quoted(edit.text)), 2)
    return Question(
        prompt=CONTRADICTION,
        text=load(CONTRADICTION).render(first=first, second=second),
        seed=seed,
        max_tokens=CHOICE_TOKENS,
        temperature=0.0,
        grammar=Grammar(regex=f"({'|'.join(CHOICES)})"),
    )


def check_edit(
    answer: Answer, row: DifferenceRow, *, side: int, truth: KnownContent
) -> CheckedEdit | RefusedText:
    """Return the edited text, or the first reason to refuse it; ``side``: the half to edit."""
    if row.is_given:
        read = read_plain(answer.text, finish_reason=answer.finish_reason)
    else:
        read = read_difference(answer.text, difference_verbs(), finish_reason=answer.finish_reason)
    if isinstance(read, RefusedText):
        return read
    halves, kept = [read.first_half, read.second_half], 1 - side
    if not row.is_given:
        shown = [
            WORD.findall(within_quotes(half).lower()) for half in (halves[kept], row.halves[kept])
        ]
        if read.verbs != row.verbs or shown[0] != shown[1]:
            return RefusedText("edited more than one half", halves[kept])
        halves[kept] = row.halves[kept]
    text = halves[0] if row.is_given else fill_template(row.verbs, *halves)
    change = compare(row.halves[side], halves[side])
    changed = f"{' '.join(change.went) or 'nothing'} -> {' '.join(change.came) or 'nothing'}"
    if change.refusal:
        return RefusedText(change.refusal, changed)
    least = LEAST_LIKENESS_GIVEN if row.is_given else LEAST_LIKENESS
    if text_cosine(row.text, text) < least or max(len(change.went), len(change.came)) > MOST_WORDS:
        return RefusedText("too far from the chosen text", changed)
    true = is_as_true((halves[0], halves[1]), (row,), truth)
    if true:
        return RefusedText(STILL_TRUE, changed)
    if true is None and truth.graphs:
        return RefusedText("not refuted by the scene graphs", changed)
    return CheckedEdit(text, changed, true)


STAGE = Stage(
    name="counterfactual",
    version=5,
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=edit_with_model,
    config=lambda profile: profile.complete(profile.counterfactuals),
    prompts=(EDIT, EDIT_GIVEN, KINDS, CONTRADICTION, TEMPLATE),
    remembers=True,
    enabled=attrgetter("is_served"),
    uses=TRUTH_USES,
)
