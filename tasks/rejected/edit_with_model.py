"""Make rejected texts by a language model's smallest edit that makes the chosen text false (ours).

Reads ``DifferenceRow`` and, to check, its pair and scene graphs; writes ``RejectedTextRow`` by the
maker "counterfactual". Needs a served model; it sees no images. An edit must contradict the text by
our rules (``check_edit``), and then in the model's judgement: models call too much a contradiction,
and rules know too few words. After a refusal, another kind of edit is requested.
"""

import re
from itertools import cycle, islice
from operator import attrgetter
from random import Random
from typing import NamedTuple

from pairwright.prompts import difference_verbs, load_prompt, load_wordings
from pairwright.prompts.difference_prompts import READ_BACK, difference_regex, fill_template
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
from pairwright.tasks.rejected.compare_words import (
    COLOURS,
    DENIALS,
    NUMBERS,
    RELATIONS,
    Change,
    Halves,
    compare_texts,
)
from pairwright.tasks.scenes.vocabulary import SCENE_WORDS
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question, seed_of
from pairwright.tasks.serving.read_response import read_text
from pairwright.tasks.serving.untrusted import quoted, within_quotes
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.texts.differences import Difference, read_difference, read_plain
from pairwright.tasks.texts.words import WORD

LEAST_LIKENESS = 0.7
"""Least likeness of an edited text to the chosen one."""
LEAST_LIKENESS_GIVEN = 0.5
"""Least likeness to people's texts, which are short, without the template's words."""
MOST_WORDS = 4  # most content words that an edit may remove, or add
STILL_TRUE = "edited text is as true"
EDIT = "edit_difference"
EDIT_GIVEN = "edit_sentence"
KINDS = "edit_kinds"
CONTRADICTION = "ask_contradiction"
CHOICES = ("contradict", "compatible")
CHOICE_TOKENS = 16
BOTH = "the model finds that both may be true"
SIDES = ("first", "second")


def _any_of(*entries: str) -> re.Pattern[str]:
    choices = "|".join(" ".join(entries).split())
    return re.compile(rf"(?<![\w'’-])(?:{choices})(?![\w'’-])", re.IGNORECASE)


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
        r"(?<!\w)"
        r"(?!(?:something|nothing|anything|everything|building|ceiling|clothing)\b)"
        r"\w{2,}ing\b"
    ),
    "left or right": _any_of("left right"),
    "presence": _any_of(DENIALS),
}
"""Words that a half must have for an edit of this kind."""


class EditPlan(NamedTuple):
    """Edit to request: its kind and the half to edit."""

    kind: str
    side: int


class CheckedEdit(NamedTuple):
    """Edited text that contradicts the chosen one by our rules."""

    text: str
    changed: str  # "red -> blue"
    true: bool | None  # ``False`` where scene graphs refute it, ``None`` where there are none


@asking
async def edit_with_model(
    row: DifferenceRow,
    chat: Chat,
    *,
    config: CounterfactualsConfig,
    pairs: Pairs,
    images: Images,
) -> RejectedTextRow | Dropped:
    """Return one edited text per description, or ``Dropped`` with the last refusal's reason."""
    plans = draw_plans(row, config)
    if not plans or row.no_change:
        return Dropped(
            source_key=row.key,
            reason="nothing to edit",
            detail=row.text,
        )
    truth = truth_of(row, pairs, images)
    served: list[Served] = []
    skipped_true = 0
    refused = RefusedText("nothing to edit")
    for attempt, plan in enumerate(islice(cycle(plans), config.max_attempts), 1):
        edit, answers = await _ask_edit(
            row,
            chat,
            config,
            plan=plan,
            attempt=attempt,
            truth=truth,
        )
        served += answers
        if isinstance(edit, CheckedEdit):
            return rejected_row(
                row,
                edit.text,
                maker="counterfactual",
                note=f"{plan.kind}: {edit.changed}",
                true=edit.true,
                skipped_true=skipped_true,
                served=tuple(served),
            )
        refused = edit
        skipped_true += refused.reason in (STILL_TRUE, BOTH)
    return Dropped(
        source_key=row.key,
        reason=refused.reason,
        detail=refused.detail,
    )


async def _ask_edit(
    row: DifferenceRow,
    chat: Chat,
    config: CounterfactualsConfig,
    *,
    plan: EditPlan,
    attempt: int,
    truth: KnownContent,
) -> tuple[CheckedEdit | RefusedText, list[Served]]:
    """Return an edit that the model confirms, or why there is none, and the model's answers."""
    answer = await chat.ask(
        _edit_question(
            row,
            config,
            plan=plan,
            attempt=attempt,
        )
    )
    edit = check_edit(
        answer,
        row,
        side=plan.side,
        truth=truth,
    )
    if isinstance(edit, RefusedText):
        setting = f"counterfactuals.max_tokens={config.max_tokens}"
        return edit.by_tokens(setting), [answer.served]
    choice = await chat.ask(
        _choice_question(
            row,
            edit,
            config,
            attempt=attempt,
        )
    )
    return _read_choice(choice, edit), [answer.served, choice.served]


def draw_plans(row: DifferenceRow, config: CounterfactualsConfig) -> list[EditPlan]:
    """Return the possible kinds of edits with one half each, in an order drawn by the row's key."""
    rng = Random(make_key("counterfactual", config.seed, row.key))
    plans: list[EditPlan] = []
    for kind, offer in OFFERS.items():
        sides = [side for side in (0, 1) if offer.search(row.halves[side])]
        if sides:
            plans.append(EditPlan(kind, rng.choice(sides)))
    rng.shuffle(plans)
    return plans


def _edit_question(
    row: DifferenceRow,
    config: CounterfactualsConfig,
    *,
    plan: EditPlan,
    attempt: int,
) -> Question:
    (change,) = load_wordings(KINDS).kinds[plan.kind]
    if row.is_given:
        prompt = EDIT_GIVEN
        names = {}
        grammar = None
    else:
        prompt = EDIT
        names = {"side": SIDES[plan.side], "other": SIDES[1 - plan.side]}
        grammar = Grammar(regex=difference_regex())
    return Question(
        prompt=prompt,
        text=load_prompt(prompt).render(
            sentence=quoted(row.text),
            change=change.text,
            **names,
        ),
        seed=seed_of(
            row.key,
            load_prompt(prompt),
            seed=config.seed,
            attempt=attempt,
        ),
        max_tokens=config.max_tokens,
        grammar=grammar,
    )


def _choice_question(
    row: DifferenceRow,
    edit: CheckedEdit,
    config: CounterfactualsConfig,
    *,
    attempt: int,
) -> Question:
    """Ask whether both texts can be true; their order is drawn, since models favour a position."""
    seed = seed_of(
        row.key,
        load_prompt(CONTRADICTION),
        seed=config.seed,
        attempt=attempt,
    )
    first, second = Random(seed).sample((quoted(row.text), quoted(edit.text)), 2)
    return Question(
        prompt=CONTRADICTION,
        text=load_prompt(CONTRADICTION).render(first=first, second=second),
        seed=seed,
        max_tokens=CHOICE_TOKENS,
        temperature=0.0,
        grammar=Grammar(regex=f"({'|'.join(CHOICES)})"),
    )


def _read_choice(answer: Answer, edit: CheckedEdit) -> CheckedEdit | RefusedText:
    """Return the edit if the model confirms the contradiction, or why it does not."""
    choice = answer.text.strip(" .").lower()
    if answer.refused or choice not in CHOICES:
        return RefusedText("no clear answer", answer.text[:80])
    return edit if choice == "contradict" else RefusedText(BOTH, edit.changed)


def check_edit(
    answer: Answer,
    row: DifferenceRow,
    *,
    side: int,
    truth: KnownContent,
) -> CheckedEdit | RefusedText:
    """Return the edited text, or the first reason to refuse it; ``side``: the half to edit."""
    read = _read_answer(answer, row)
    if isinstance(read, RefusedText):
        return read
    halves = _edited_halves(read, row, side)
    if isinstance(halves, RefusedText):
        return halves
    text = halves[0] if row.is_given else fill_template(row.verbs, *halves)
    change = compare_texts(row.halves[side], halves[side])
    changed = f"{' '.join(change.went) or 'nothing'} -> {' '.join(change.came) or 'nothing'}"
    if change.refusal:
        return RefusedText(change.refusal, changed)
    if _is_too_far(text, row, change):
        return RefusedText("too far from the chosen text", changed)
    true = is_as_true(halves, (row,), truth)
    if true:
        return RefusedText(STILL_TRUE, changed)
    if true is None and truth.graphs:
        return RefusedText("not refuted by the scene graphs", changed)
    return CheckedEdit(text, changed, true)


def _read_answer(answer: Answer, row: DifferenceRow) -> Difference | RefusedText:
    text = read_text(answer)
    if isinstance(text, RefusedText):
        return text
    return read_plain(text) if row.is_given else read_difference(text, difference_verbs())


def _edited_halves(read: Difference, row: DifferenceRow, side: int) -> Halves | RefusedText:
    """Return the halves, the unedited one as in the row; refused if that one or a verb changed."""
    if row.is_given:
        return read.first_half, read.second_half
    halves = [read.first_half, read.second_half]
    other = 1 - side
    if read.verbs != row.verbs or _quoted_words(halves[other]) != _quoted_words(row.halves[other]):
        return RefusedText("edited more than one half", halves[other])
    halves[other] = row.halves[other]
    return halves[0], halves[1]


def _quoted_words(half: str) -> list[str]:
    return WORD.findall(within_quotes(half).lower())


def _is_too_far(text: str, row: DifferenceRow, change: Change) -> bool:
    least = LEAST_LIKENESS_GIVEN if row.is_given else LEAST_LIKENESS
    if text_cosine(row.text, text) < least:
        return True
    return max(len(change.went), len(change.came)) > MOST_WORDS


STAGE = Stage(
    name="counterfactual",
    version=7,
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=edit_with_model,
    config=lambda profile: profile.complete(profile.counterfactuals),
    prompts=(EDIT, EDIT_GIVEN, KINDS, CONTRADICTION, *READ_BACK),
    journal="answers",
    enabled=attrgetter("is_served"),
    uses=TRUTH_USES,
)
