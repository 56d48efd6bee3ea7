"""Describe the difference of each pair by an implicit-change description (paper 001, 3.1.2 and D.2).

Reads ``PairRow``, writes ``DifferenceRow``: composed from the images' scene graphs and checked
against them, by ``prompts/difference_template.j2`` (the paper's) and the phrases of
``difference_phrases.j2`` (ours); or written by a served model that sees both images and reads their
captions. Ours: verbs, and one of several human differences, are drawn anew for each attempt.
``served`` of a row lists all attempts, the accepted one last.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from random import Random

from pairwright.prompts import difference_verbs, load, load_wordings
from pairwright.prompts.difference_prompts import (
    PROMPTS,
    Instruction,
    difference_regex,
    draw_verbs,
    fill_template,
    instruct,
)
from pairwright.schemas.claims import Claim, Graphs, Selector, dump_claims, is_no_change
from pairwright.schemas.config import DifferencesConfig
from pairwright.schemas.phrases import joined, noun, some, within
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import Captions, DifferenceRow, Dropped, Images, PairRow, make_key
from pairwright.tasks.captioning import statements, validators
from pairwright.tasks.captioning.statements import Contrast, Mention, MentionPair, Statement
from pairwright.tasks.captioning.validators import Two
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question, ask_until, seed_of
from pairwright.tasks.serving.untrusted import as_data
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.texts.differences import (
    Difference,
    read_composed,
    read_difference,
    refuse_length,
)
from pairwright.tasks.texts.say_claims import VIEWS, Phrased, say_claims
from pairwright.tasks.texts.words import ends_short, says_no_change

LONGER = 2  # token limit of later attempts, as a multiple of the first attempt's
MOST_THINGS = 3
ANCHOR_SHARE = 0.3  # share of changes that name a neighbouring object
SPARED, SPARED_SHARE = ("material", "size"), 0.95
"""Attributes that a mention omits where it is unambiguous without them, and the share of mentions
that do."""
PLACE_SHARE = 0.25  # share of halves that name the place


def compose_difference(graphs: Graphs, rng: Random) -> Statement | None:
    """Return a description and its claims, or ``None`` where the graphs give no words for a difference."""
    if is_no_change(graphs):
        return _compose_unchanged(graphs, rng)
    if graphs[0].world == graphs[1].world:
        pairs = statements.picked(statements.find_contrasts(graphs), graphs, rng)
        rng.shuffle(pairs)
        mentions = _by_side(
            [_add_relation(_omit_attributes(pair, graphs, rng), graphs, rng) for pair in pairs]
        )
    else:
        mentions = _mention_contents(graphs, rng)
    if not mentions[0] or not mentions[1]:
        return None
    named = rng.random() < PLACE_SHARE
    halves = [_word_half(mentions[side], graphs, rng, named=named) for side in statements.SIDES]
    verbs: list[str] = []
    for half in halves:
        kind = "plain_verb" if re.search(r"\bno\b", half.text) else "verb"
        choices = [prompt.text for prompt in load_wordings("difference_phrases").kinds[kind]]
        verbs.append(rng.choice([verb for verb in choices if verb not in verbs]))
    text = fill_template(verbs, halves[0].text, halves[1].text)
    return Statement(text, (*halves[0].claims, *halves[1].claims))


def _omit_attributes(pair: MentionPair, graphs: Graphs, rng: Random) -> MentionPair:
    """Omit attributes that both mentions share where the rest is unambiguous: "the red mug"."""
    for name in SPARED:
        same = getattr(pair[0].selector, name) == getattr(pair[1].selector, name)
        if not same or rng.random() > SPARED_SHARE:
            continue
        first, second = (
            replace(one, selector=one.selector.model_copy(update={name: None})) for one in pair
        )
        both = ((first.selector, pair[0].selector), (second.selector, pair[1].selector))
        if all(
            len(short.select(graph)) == len(full.select(graph))
            for short, full in both
            for graph in graphs
        ):
            pair = first, second
    return pair


def _add_relation(pair: MentionPair, graphs: Graphs, rng: Random) -> MentionPair:
    """Relate the thing to a neighbour in a share of the pairs, where a photograph shows only one such thing."""
    single = [mention for mention in pair if mention.count is None]
    if not single or rng.random() > ANCHOR_SHARE:
        return pair
    told = rng.choice(single)
    graph = graphs[told.side]
    [thing] = told.selector.select(graph)
    related = statements.find_relation(thing, graph, rng)
    if related is None:
        return pair
    other = related.other
    briefer = (Selector(shape=other.shape), Selector(shape=other.shape, colour=other.colour))
    brief = next((selector for selector in briefer if len(selector.select(graph)) == 1), other)
    anchored = replace(told, beside=(related.relation, brief))
    return (anchored, pair[1]) if told.side == 0 else (pair[0], anchored)


def _mention_contents(graphs: Graphs, rng: Random) -> list[list[Mention]]:
    """Describe two unrelated photographs by what each has and the other lacks."""
    contrasts = statements.find_contrasts(graphs)
    rng.shuffle(contrasts)
    own: list[list[Mention]] = []
    for side in statements.SIDES:  # single things in some detail, and like things by their number
        found: dict[str, Mention] = {}
        for thing in [(contrast.first, contrast.second)[side] for contrast in contrasts]:
            if thing is None or len(found) == MOST_THINGS:
                continue
            look = statements.describe(thing)
            extras = rng.choice(
                (
                    ("text",),
                    ("size", "text"),
                    ("column", "text"),
                    ("size", "pose"),
                    ("facing", "text"),
                )
            )
            single = len(look.select(graphs[side])) == 1
            named = [name for name in extras if single and getattr(thing, name) is not None]
            mention = statements.shown(side, statements.describe(thing, *named), graphs[side])
            found.setdefault(noun(look), mention)
        own.append(list(found.values())[: rng.choice((2, MOST_THINGS))])
    if all(own):
        return own
    # One holds all that the other does: name what is missing; with equal contents, compare sizes,
    # places and numbers.
    whole = contrasts or [Contrast(thing, None) for thing in graphs[0].objects]
    return _by_side(statements.picked(whole, graphs, rng, limit=MOST_THINGS))


def _by_side(pairs: list[MentionPair]) -> list[list[Mention]]:
    return [[pair[side] for pair in pairs] for side in statements.SIDES]


def _word_half(mentions: list[Mention], graphs: Graphs, rng: Random, *, named: bool) -> Statement:
    """Word one half: what is there, what is missing, and the place."""
    side = mentions[0].side
    present = [mention for mention in mentions if mention.count != 0]
    missing = [mention for mention in mentions if mention.count == 0]
    kind = "both" if present and missing else "things" if present else "missing"
    claims = statements.claims_of(mentions)
    total = statements.everything(side, graphs[side])
    if named:
        kind, claims = (
            f"{kind}_place",
            (*claims, statements.scene_claim(side, "place", graphs[side])),
        )
    elif kind == "missing" and total.count and rng.random() < 0.4:
        kind, claims = "missing_count", (*claims, total.claim)
    text = load_wordings("difference_phrases").say(
        kind,
        rng,
        place=graphs[side].place,
        within_place=within(graphs[side].place),
        everything=total.text,
        things=joined([mention.text for mention in present]),
        no_things=joined([mention.text for mention in missing]),
        any_things=joined([some(mention.selector) for mention in missing], "or"),
    )
    return Statement(text, claims)


def _compose_unchanged(graphs: Graphs, rng: Random) -> Statement:
    """State that nothing has changed, how light and viewpoint differ, and what both photographs show."""
    # Another viewpoint may hide some of several like things: another number of them would read as a
    # change.
    common = [
        a for a in statements.shared(graphs) if len(a.select(graphs[0])) == len(a.select(graphs[1]))
    ]
    looks = rng.sample(common, min(len(common), rng.choice((1, 2, MOST_THINGS))))
    told: list[Phrased] = [
        name for name in VIEWS if getattr(graphs[0], name) != getattr(graphs[1], name)
    ]
    if not looks or rng.random() < PLACE_SHARE:
        told.append("place")
    claims = [Claim(side=0, kind="no_change")]
    for side in statements.SIDES:
        claims += statements.claims_of(statements.shown(side, look, graphs[side]) for look in looks)
        claims += [statements.scene_claim(side, kind, graphs[side]) for kind in told]
    return Statement(say_claims(claims, "template", rng), tuple(claims))


def _compose(
    row: PairRow, *, config: DifferencesConfig, images: Images, captions: Captions
) -> DifferenceRow | Dropped:
    del captions  # the graphs say more
    verbs = difference_verbs()
    found = validators.compose_true(
        row,
        images,
        config,
        "difference",
        compose_difference,
        lambda text: read_composed(text, verbs),
    )
    if isinstance(found, Dropped):
        return found
    _, written, parts, attempts = found
    made = _make_row(
        row, replace(parts, text=written.text), key=row.key, attempts=attempts, model="scene-graph"
    )
    claims = dump_claims(written.claims)
    return replace(
        made, claims=claims, no_change=any(claim.kind == "no_change" for claim in written.claims)
    )


def _make_row(
    row: PairRow, read: Difference, *, key: str, attempts: int, model: str
) -> DifferenceRow:
    return DifferenceRow(
        key=key,
        source_key=row.key,
        subject=row.key,
        text=read.text,
        first_half=read.first_half,
        second_half=read.second_half,
        verbs=read.verbs,
        attempts=attempts,
        finish_reason="stop",
        model=model,
        claims="[]",
        no_change=says_no_change(read.second_half),
    )


@partial(asking, compose=_compose)
async def describe_differences(
    row: PairRow, chat: Chat, *, config: DifferencesConfig, images: Images, captions: Captions
) -> Sequence[DifferenceRow] | Dropped:
    """Return up to ``candidates`` different descriptions, or ``Dropped`` with the reason of the last refusal."""
    shown, told = validators.pair_images(row.key, row, images), told_captions(row, captions)
    if isinstance(shown, Dropped):
        return shown
    kept: dict[str, DifferenceRow] = {}
    refused = RefusedText("")
    for candidate in range(config.candidates):
        made = await _describe(
            row, shown, told, chat, config, first=candidate * config.max_attempts + 1
        )
        if isinstance(made, RefusedText):
            refused = made
        else:
            kept.setdefault(made.text, made)
    return tuple(kept.values()) or Dropped(
        source_key=row.key, reason=refused.reason, detail=refused.detail
    )


async def _describe(
    row: PairRow,
    shown: Two[bytes],
    told: Two[str] | None,
    chat: Chat,
    config: DifferencesConfig,
    *,
    first: int,
) -> DifferenceRow | RefusedText:
    """Ask until a description is accepted; attempts are numbered from ``first``, as each draws its own seed."""

    def ask(attempt: int) -> Question:
        instruction = instruct_pair(
            row, told, seed=config.seed, attempt=attempt, paper=config.verbs == "paper"
        )
        seed = seed_of(row.key, load(instruction.prompt), seed=config.seed, attempt=attempt)
        longer = 1 if attempt == first else LONGER  # it may have been cut off
        return difference_question(instruction, shown, seed, longer * config.max_tokens)

    def read(answer: Answer) -> Difference | RefusedText:
        return validators.validated(
            read_answer(answer, config.max_words, "differences.max_words"), config
        )

    found, tries = await ask_until(chat, ask, read, tries=config.max_attempts, first=first)
    if isinstance(found, RefusedText):
        return found.by_tokens(
            tries[-1].finish_reason, f"differences.max_tokens={config.max_tokens}"
        )
    key = make_key("difference", row.key, found.text)
    known = instruct_pair(row, told, seed=config.seed, attempt=first).known
    made = _make_row(row, found, key=key, attempts=len(tries), model=tries[-1].model)
    return replace(made, finish_reason=tries[-1].finish_reason, known=known, served=tries)


def instruct_pair(
    pair: PairRow, captions: Two[str] | None, *, seed: int, attempt: int, paper: bool = False
) -> Instruction:
    """Return the instruction of an attempt, which draws the verbs and one of the human differences."""
    rng = Random(make_key("difference asked", seed, pair.key, attempt))
    verbs = draw_verbs(rng, paper=paper)
    differences = [data for text in pair.human_differences if (data := _clean(text))]
    human = rng.choice(differences) if differences else ""
    return instruct(verbs, captions=captions, human=human, edit=_clean(pair.instruction))


def difference_question(
    instruction: Instruction, images: Two[bytes], seed: int, max_tokens: int
) -> Question:
    """Return the question that asks an instruction; its grammar is the template."""
    return Question(
        prompt=instruction.prompt,
        text=instruction.text,
        images=images,
        seed=seed,
        max_tokens=max_tokens,
        grammar=Grammar(regex=difference_regex()),
    )


def told_captions(row: PairRow, captions: Captions) -> Two[str] | None:
    """Return both captions quoted as data; ``None`` where one is missing."""
    first, second = map(_clean, validators.pair_captions(row, captions))
    return (first, second) if first and second else None


def _clean(text: str) -> str:
    """Return a text quoted as data, without its full stop: the instruction ends with one."""
    return as_data(text).rstrip(" .")


def read_answer(
    answer: Answer, most_words: int, setting: str = "words"
) -> Difference | RefusedText:
    """Return a model's description in its parts, or why it is refused; ``setting`` names the bound ``most_words``."""
    read = read_difference(answer.text, difference_verbs(), finish_reason=answer.finish_reason)
    if isinstance(read, Difference) and ends_short(read.text):
        return RefusedText("cut off", read.text[-40:])
    return (
        read if isinstance(read, RefusedText) else refuse_length(read, most_words, setting) or read
    )


def _fit(stage: Stage, config: DifferencesConfig) -> Stage:
    if not config.is_served:
        return stage
    uses = tuple(
        replace(use, without=()) if use.argument == "images" else use for use in stage.uses
    )
    return replace(stage, prompts=PROMPTS, uses=uses, remembers=True)


STAGE = Stage(
    name="described",
    version=6,
    group="captioning",
    reads={"pairs": PairRow},
    writes=DifferenceRow,
    function=describe_differences,
    config=lambda profile: profile.complete(profile.differences),
    enabled=attrgetter("is_written"),
    models=validators.name_validators,
    prompts=("difference_template", "difference_phrases", "answer_sentences"),
    uses=validators.OF_PAIRS,
    fit=_fit,
)
