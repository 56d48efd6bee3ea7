"""Describe the difference of each pair by an implicit-change description (paper 001, 3.1.2, D.2).

Reads ``PairRow``, writes ``DifferenceRow``: composed from the images' scene graphs and checked
against them, by ``prompts/difference_template.j2`` (the paper's) and the phrases of
``difference_phrases.j2`` (ours); or written by a served model that sees both images and reads their
captions. With both writers, the served model describes the pairs without scene graphs. Ours: verbs,
and one of several human differences, are drawn anew for each attempt. ``served`` of a row lists all
attempts, the accepted one last.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from random import Random

from pairwright.prompts import difference_verbs, load_prompt, load_wordings
from pairwright.prompts.difference_prompts import (
    PROMPTS,
    READ_BACK,
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
from pairwright.schemas.scene import SceneObject
from pairwright.tasks.captioning import statements, validators
from pairwright.tasks.captioning.statements import Contrast, Mention, MentionPair, Statement
from pairwright.tasks.captioning.validators import Two
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question, ask_until, seed_of
from pairwright.tasks.serving.read_response import read_text
from pairwright.tasks.serving.untrusted import as_data
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.texts.differences import (
    NO_FULL_STOP,
    Difference,
    read_composed,
    read_difference,
    refuse_length,
)
from pairwright.tasks.texts.say_claims import VIEWS, Phrased, say_claims
from pairwright.tasks.texts.words import ends_short, says_no_change

LONGER = 2  # token limit of later attempts, as a multiple of the first attempt's
MAX_OBJECTS = 3
CONTENT_EXTRAS = (
    ("text",),
    ("size", "text"),
    ("column", "text"),
    ("size", "pose"),
    ("facing", "text"),
)
"""Attributes that a mention of a single object in an unrelated photograph adds, one of these."""
ANCHOR_SHARE = 0.15  # share of changes that name a neighbouring object
SPARED: Mapping[str, float] = {"material": 0.95, "size": 0.95, "colour": 0.4}
"""Attributes that a mention omits where it is unambiguous without them, and in which share."""
PLACE_SHARE = 0.25  # share of descriptions of unrelated photographs that name the places
SAME_PLACE_SHARE = 0.08  # share of descriptions that name the place of both photographs
VIEW_SHARE = 0.5  # share of unchanged pairs of which light and viewpoint are described


def compose_difference(graphs: Graphs, rng: Random) -> Statement | None:
    """Return a description and its claims; ``None`` where a difference has no words."""
    if is_no_change(graphs):
        return _compose_unchanged(graphs, rng)
    if graphs[0].world == graphs[1].world:
        mentions = _mention_changes(graphs, rng)
        place_share = SAME_PLACE_SHARE
    else:
        mentions = _mention_contents(graphs, rng)
        place_share = PLACE_SHARE
    if not mentions[0] or not mentions[1]:
        return None
    names_place = not graphs[0].planted and rng.random() < place_share
    first, second = (_word_half(part, graphs, rng, names_place=names_place) for part in mentions)
    verbs: list[str] = []
    for half in (first, second):
        kind = "plain_verb" if re.search(r"\bno\b", half.text) else "verb"
        choices = [prompt.text for prompt in load_wordings("difference_phrases").kinds[kind]]
        verbs.append(rng.choice([verb for verb in choices if verb not in verbs]))
    text = fill_template(verbs, first.text, second.text)
    return Statement(text, (*first.claims, *second.claims))


def _mention_changes(graphs: Graphs, rng: Random) -> list[list[Mention]]:
    """Describe the changes between two photographs of one world."""
    contrasts = statements.find_contrasts(graphs)
    pairs = statements.word_contrasts(contrasts, graphs, rng)
    rng.shuffle(pairs)
    briefer: list[MentionPair] = []
    for pair in pairs:
        short = _omit_attributes(pair, graphs, rng)
        briefer.append(_add_relation(short, graphs, rng))
    return _by_side(briefer)


def _omit_attributes(
    pair: MentionPair,
    graphs: Graphs,
    rng: Random,
) -> MentionPair:
    """Omit attributes where the rest is unambiguous: "the red mug".

    They are shared by both mentions, or one shape has taken another one's place.
    """
    is_replaced = pair[0].selector.shape != pair[1].selector.shape
    for name, share in SPARED.items():
        is_shared = getattr(pair[0].selector, name) == getattr(pair[1].selector, name)
        if not (is_shared or is_replaced) or rng.random() > share:
            continue
        shorter = (_omit(pair[0], name), _omit(pair[1], name))
        if _is_unambiguous(shorter, pair, graphs):
            pair = shorter
    return pair


def _omit(mention: Mention, name: str) -> Mention:
    return replace(mention, selector=mention.selector.model_copy(update={name: None}))


def _is_unambiguous(
    shorter: MentionPair,
    pair: MentionPair,
    graphs: Graphs,
) -> bool:
    """Return whether the shorter mentions select as many objects as the full ones."""
    for short, full in zip(shorter, pair, strict=True):
        for graph in graphs:
            if len(short.selector.select(graph)) != len(full.selector.select(graph)):
                return False
    return True


def _add_relation(
    pair: MentionPair,
    graphs: Graphs,
    rng: Random,
) -> MentionPair:
    """Relate the object to a neighbour in a share of the pairs.

    Only a single object that the other photograph lacks, or that stands elsewhere there.
    """
    single = [mention for mention in pair if mention.count is None]
    if not single or not _is_elsewhere(pair) or rng.random() > ANCHOR_SHARE:
        return pair
    mention = rng.choice(single)
    graph = graphs[mention.side]
    [obj] = mention.selector.select(graph)
    related = statements.find_relation(obj, graph, rng)
    if related is None:
        return pair
    other = related.other
    briefer = (Selector(shape=other.shape), Selector(shape=other.shape, colour=other.colour))
    brief = next((selector for selector in briefer if len(selector.select(graph)) == 1), other)
    anchored = replace(mention, beside=(related.relation, brief))
    return (anchored, pair[1]) if mention.side == 0 else (pair[0], anchored)


def _is_elsewhere(pair: MentionPair) -> bool:
    """Return whether one photograph lacks the object, or shows it elsewhere, not known by place."""
    if any(mention.count == 0 for mention in pair):
        return all(mention.selector.column is None for mention in pair)
    without: dict[str, None] = dict.fromkeys(statements.POSITION)
    rests = [mention.selector.model_copy(update=without) for mention in pair]
    return rests[0] == rests[1]


def _mention_contents(graphs: Graphs, rng: Random) -> list[list[Mention]]:
    """Describe two unrelated photographs by what each has and the other lacks."""
    contrasts = statements.find_contrasts(graphs)
    rng.shuffle(contrasts)
    first = [contrast.first for contrast in contrasts if contrast.first is not None]
    second = [contrast.second for contrast in contrasts if contrast.second is not None]
    mentions = [_mention_some(0, first, graphs, rng), _mention_some(1, second, graphs, rng)]
    if all(mentions):
        return mentions
    # One holds all that the other does: name what is missing; with equal contents, compare sizes,
    # positions and numbers.
    if not contrasts:
        contrasts = [Contrast(obj, None) for obj in graphs[0].objects]
    return _by_side(statements.word_contrasts(contrasts, graphs, rng, limit=MAX_OBJECTS))


def _mention_some(
    side: statements.Side,
    objects: Sequence[SceneObject],
    graphs: Graphs,
    rng: Random,
) -> list[Mention]:
    """Mention up to three looks: a single object in some detail, like objects by their number."""
    graph = graphs[side]
    by_look: dict[str, Mention] = {}
    for obj in objects:
        if len(by_look) == MAX_OBJECTS:
            break
        look = statements.describe_object(obj)
        extras = rng.choice(CONTENT_EXTRAS)
        names: list[str] = []
        if len(look.select(graph)) == 1:
            names = [name for name in extras if getattr(obj, name) is not None]
        mention = statements.mention_selected(side, statements.describe_object(obj, *names), graph)
        by_look.setdefault(noun(look), mention)
    limit = rng.choice((2, MAX_OBJECTS))
    return list(by_look.values())[:limit]


def _by_side(pairs: list[MentionPair]) -> list[list[Mention]]:
    return [[pair[side] for pair in pairs] for side in statements.SIDES]


def _word_half(
    mentions: list[Mention],
    graphs: Graphs,
    rng: Random,
    *,
    names_place: bool,
) -> Statement:
    """Word one half: what is there, what is missing, and the place."""
    side = mentions[0].side
    graph = graphs[side]
    present = [mention for mention in mentions if mention.count != 0]
    missing = [mention for mention in mentions if mention.count == 0]
    kind = _half_kind(present, missing)
    claims = statements.claims_of(mentions)
    if names_place:
        kind = f"{kind}_place"
        claims = (*claims, statements.scene_claim(side, "place", graph))
    text = load_wordings("difference_phrases").say(
        kind,
        rng,
        place=graph.place,
        within_place=within(graph.place),
        things=joined([mention.text for mention in present]),
        no_things=joined([mention.text for mention in missing]),
        any_things=joined([some(mention.selector) for mention in missing], "or"),
    )
    return Statement(text, claims)


def _half_kind(present: list[Mention], missing: list[Mention]) -> str:
    if not missing:
        return "things"
    return "both" if present else "missing"


def _compose_unchanged(graphs: Graphs, rng: Random) -> Statement | None:
    """State that nothing has changed, how the views differ, and what both photographs show.

    ``None`` where they show nothing that has words.
    """
    first, second = graphs
    # Another viewpoint may hide some of several like objects: another number of them would read as
    # a change.
    common = [
        look
        for look in statements.shared(graphs)
        if len(look.select(first)) == len(look.select(second))
    ]
    looks = [_brief_look(look, graphs) for look in rng.sample(common, min(len(common), 2))]
    looks = looks[: rng.choice((1, 2))]
    if first.planted and not looks:
        return None
    settings: list[Phrased] = []
    if rng.random() < VIEW_SHARE:
        settings = [name for name in VIEWS if getattr(first, name) != getattr(second, name)]
    if not first.planted and (not looks or rng.random() < SAME_PLACE_SHARE):
        settings.append("place")
    claims = [Claim(side=0, kind="no_change")]
    for side in statements.SIDES:
        graph = graphs[side]
        mentions = [statements.mention_selected(side, look, graph) for look in looks]
        claims += statements.claims_of(mentions)
        claims += [statements.scene_claim(side, kind, graph) for kind in settings]
    return Statement(say_claims(claims, "template", rng), tuple(claims))


def _brief_look(look: Selector, graphs: Graphs) -> Selector:
    """Return the look without its material where it selects as many objects without it."""
    brief = look.model_copy(update={"material": None})
    if all(len(brief.select(graph)) == len(look.select(graph)) for graph in graphs):
        return brief
    return look


def _compose(
    row: PairRow,
    *,
    config: DifferencesConfig,
    images: Images,
    captions: Captions,
) -> DifferenceRow | Dropped:
    del captions  # the graphs say more
    verbs = difference_verbs()
    composed = validators.compose_true(
        row,
        images,
        config,
        "difference",
        compose_difference,
        lambda text: read_composed(text, verbs),
    )
    if isinstance(composed, Dropped):
        return composed
    _, statement, parts, attempts = composed
    parts = replace(parts, text=statement.text)
    difference = _make_row(
        row,
        parts,
        key=row.key,
        attempts=attempts,
        model="scene-graph",
    )
    return replace(
        difference,
        claims=dump_claims(statement.claims),
        no_change=any(claim.kind == "no_change" for claim in statement.claims),
    )


def _make_row(
    row: PairRow,
    read: Difference,
    *,
    key: str,
    attempts: int,
    model: str,
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
    row: PairRow,
    chat: Chat,
    *,
    config: DifferencesConfig,
    images: Images,
    captions: Captions,
) -> Sequence[DifferenceRow] | Dropped:
    """Return up to ``candidates`` different descriptions, or the reason of the last refusal.

    With the writer ``scene-graph``, too, a pair of images with scene graphs has a composed one.
    """
    has_graphs = not isinstance(validators.pair_graphs(row, images), Dropped)
    if config.is_composed and has_graphs:
        composed = _compose(row, config=config, images=images, captions=captions)
        return composed if isinstance(composed, Dropped) else [composed]
    pair_images = validators.pair_images(row.key, row, images)
    if isinstance(pair_images, Dropped):
        return pair_images
    captions_given = quoted_captions(row, captions)
    by_text: dict[str, DifferenceRow] = {}
    refused = RefusedText("")
    for candidate in range(config.candidates):
        first_attempt = candidate * config.max_attempts + 1
        description = await _describe(
            row, pair_images, captions_given, chat, config, first=first_attempt
        )
        if isinstance(description, RefusedText):
            refused = description
        else:
            by_text.setdefault(description.text, description)
    if not by_text:
        return Dropped(
            source_key=row.key,
            reason=refused.reason,
            detail=refused.detail,
        )
    return tuple(by_text.values())


async def _describe(
    row: PairRow,
    images: Two[bytes],
    captions: Two[str] | None,
    chat: Chat,
    config: DifferencesConfig,
    *,
    first: int,
) -> DifferenceRow | RefusedText:
    """Ask until a description is accepted; attempts are numbered from ``first``.

    Each attempt draws its own seed.
    """
    is_paper = config.verbs == "paper"

    def make_question(attempt: int) -> Question:
        instruction = instruct_pair(
            row,
            captions,
            seed=config.seed,
            attempt=attempt,
            paper=is_paper,
        )
        seed = seed_of(
            row.key,
            load_prompt(instruction.prompt),
            seed=config.seed,
            attempt=attempt,
        )
        max_tokens = config.max_tokens
        if attempt != first:  # the first answer may have been cut off
            max_tokens *= LONGER
        return difference_question(instruction, images, seed, max_tokens)

    def parse_description(answer: Answer) -> Difference | RefusedText:
        parsed = read_description(answer, config.max_words, "differences.max_words")
        return validators.validated(parsed, config)

    parsed, tries = await ask_until(
        chat,
        make_question,
        parse_description,
        tries=config.max_attempts,
        first=first,
    )
    served = tries[-1]
    if isinstance(parsed, RefusedText):
        bound = f"differences.max_tokens={config.max_tokens}"
        return parsed.by_tokens(bound)
    key = make_key("difference", row.key, parsed.text)
    instruction = instruct_pair(
        row,
        captions,
        seed=config.seed,
        attempt=first,
    )
    difference = _make_row(
        row,
        parsed,
        key=key,
        attempts=len(tries),
        model=served.model,
    )
    return replace(
        difference,
        finish_reason=served.finish_reason,
        known=instruction.known,
        served=tries,
    )


def instruct_pair(
    pair: PairRow,
    captions: Two[str] | None,
    *,
    seed: int,
    attempt: int,
    paper: bool = False,
) -> Instruction:
    """Return the instruction of an attempt, which draws verbs and one human difference."""
    rng = Random(make_key("difference asked", seed, pair.key, attempt))
    verbs = draw_verbs(rng, paper=paper)
    differences = [_clean(text) for text in pair.human_differences]
    differences = [text for text in differences if text]
    human = rng.choice(differences) if differences else ""
    return instruct(
        verbs,
        captions=captions,
        human=human,
        edit=_clean(pair.instruction),
    )


def difference_question(
    instruction: Instruction,
    images: Two[bytes],
    seed: int,
    max_tokens: int,
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


def quoted_captions(row: PairRow, captions: Captions) -> Two[str] | None:
    """Return both captions quoted as data; ``None`` where one is missing."""
    first, second = map(_clean, validators.pair_captions(row, captions))
    return (first, second) if first and second else None


def _clean(text: str) -> str:
    """Return a text quoted as data, without its full stop: the instruction ends with one."""
    return as_data(text).rstrip(" .")


def read_description(
    answer: Answer,
    max_words: int,
    setting: str = "words",
) -> Difference | RefusedText:
    """Return a model's description in its parts, or why it is refused.

    ``setting`` names the bound ``max_words``.
    """
    text = read_text(answer)
    if isinstance(text, RefusedText):
        return text
    parsed = read_difference(text, difference_verbs())
    if isinstance(parsed, RefusedText):
        return parsed
    if ends_short(parsed.text):
        return RefusedText(NO_FULL_STOP, parsed.text[-40:])
    return refuse_length(parsed, max_words, setting) or parsed


def _name_prompts(config: DifferencesConfig) -> tuple[str, ...]:
    names: list[str] = []
    if config.is_composed:
        names += [*READ_BACK, "difference_phrases", "answer_sentences"]
    if config.is_served:
        names += PROMPTS
    return tuple(dict.fromkeys(names))


STAGE = Stage(
    name="described",
    version=9,
    group="captioning",
    reads={"pairs": PairRow},
    writes=DifferenceRow,
    function=describe_differences,
    config=lambda profile: profile.complete(profile.differences),
    enabled=attrgetter("is_written"),
    models=validators.name_validators,
    prompts=_name_prompts,
    uses=validators.OF_PAIRS,
    journal="answers",
)
