"""Compose an implicit-change description of two photographs from their scene graphs.

Needs ``prompts/difference_template.j2`` (paper 001's) and the phrases of ``prompts/difference_phrases.j2`` (ours).
"""

import re
from dataclasses import replace
from random import Random

from pairwright.prompts import load_wordings
from pairwright.prompts.differences import fill_template
from pairwright.schemas.claims import Claim, Graphs, Selector, is_no_change
from pairwright.schemas.phrases import joined, noun, some, within
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.captioning.statements import (
    SIDES,
    Contrast,
    Mention,
    MentionPair,
    Side,
    Statement,
    claims_of,
    describe,
    everything,
    find_contrasts,
    find_relation,
    picked,
    scene_claim,
    selects,
    shared,
    shown,
)
from pairwright.tasks.texts.say_claims import VIEWS, Phrased, say_claims

MOST_THINGS = 3
ANCHOR_SHARE = 0.3
"""How often a change is told with what the thing stands beside."""
SPARED, SPARED_SHARE = ("material", "size"), 0.95
"""What a mention may leave out where it is clear without, and how often it does."""
PLACE_SHARE = 0.25
"""How often a half names the place."""


def compose_difference(graphs: Graphs, rng: Random) -> Statement | None:
    """Return a description and its claims, or ``None`` where the graphs give no words for a difference."""
    if is_no_change(graphs):
        return _unchanged(graphs, rng)
    halves = _contrasting(graphs, rng)
    if halves is None:
        return None
    verbs: list[str] = []
    for half in halves:
        kind = "plain_verb" if re.search(r"\bno\b", half.text) else "verb"
        choices = [prompt.text for prompt in load_wordings("difference_phrases").kinds[kind]]
        verbs.append(rng.choice([verb for verb in choices if verb not in verbs]))
    text = fill_template(verbs, halves[0].text, halves[1].text)
    return Statement(text, (*halves[0].claims, *halves[1].claims))


def _contrasting(graphs: Graphs, rng: Random) -> tuple[Statement, Statement] | None:
    """Fill the halves with mentions that tell the photographs apart."""
    if graphs[0].world == graphs[1].world:
        pairs = picked(find_contrasts(graphs), graphs, rng)
        rng.shuffle(pairs)
        mentions = _by_side([_anchored(_shortened(pair, graphs, rng), graphs, rng) for pair in pairs])
    else:
        mentions = _contents(graphs, rng)
    if not mentions[0] or not mentions[1]:
        return None
    named = rng.random() < PLACE_SHARE
    first, second = (_half(mentions[side], graphs, rng, named=named) for side in SIDES)
    return first, second


def _shortened(pair: MentionPair, graphs: Graphs, rng: Random) -> MentionPair:
    """Leave out what both mentions say of a thing where the rest fits nothing else: "the red mug"."""
    for name in SPARED:
        same = getattr(pair[0].selector, name) == getattr(pair[1].selector, name)
        if not same or rng.random() > SPARED_SHARE:
            continue
        first, second = (replace(one, selector=one.selector.model_copy(update={name: None})) for one in pair)
        both = ((first.selector, pair[0].selector), (second.selector, pair[1].selector))
        if all(selects(short, graph) == selects(full, graph) for short, full in both for graph in graphs):
            pair = first, second
    return pair


def _anchored(pair: MentionPair, graphs: Graphs, rng: Random) -> MentionPair:
    """Say now and then beside what the thing stands, where one photograph shows it alone of its looks."""
    single = [mention for mention in pair if mention.count is None]
    if not single or rng.random() > ANCHOR_SHARE:
        return pair
    told = rng.choice(single)
    [thing] = told.selector.select(graphs[told.side])
    related = find_relation(thing, graphs[told.side], rng)
    if related is None:
        return pair
    anchored = replace(told, beside=(related.relation, _briefly(related.other, graphs[told.side])))
    return (anchored, pair[1]) if told.side == 0 else (pair[0], anchored)


def _briefly(selector: Selector, graph: SceneGraph) -> Selector:
    """Return a selector of the same one object by its shape, or its shape and colour, where that will do."""
    for names in (("shape",), ("shape", "colour")):
        brief = Selector(**{name: getattr(selector, name) for name in names})
        if selects(brief, graph) == 1:
            return brief
    return selector


def _contents(graphs: Graphs, rng: Random) -> list[list[Mention]]:
    """Describe two unrelated photographs by what each has and the other lacks."""
    contrasts = find_contrasts(graphs)
    rng.shuffle(contrasts)
    own = [_own_things(contrasts, side, graphs=graphs, rng=rng) for side in SIDES]
    if all(own):
        return own
    # One holds all that the other does: say what is missing; with equal contents, look at sizes, places and numbers.
    whole = contrasts or [Contrast(thing, None) for thing in graphs[0].objects]
    return _by_side(picked(whole, graphs, rng, limit=MOST_THINGS))


def _own_things(contrasts: list[Contrast], side: Side, *, graphs: Graphs, rng: Random) -> list[Mention]:
    """Describe single things in some detail, and like things by their number."""
    found: dict[str, Mention] = {}
    for contrast in contrasts:
        thing = (contrast.first, contrast.second)[side]
        if thing is not None and len(found) < MOST_THINGS:
            extras = rng.choice((("text",), ("size", "text"), ("column", "text"), ("size", "pose"), ("facing", "text")))
            single = selects(describe(thing), graphs[side]) == 1
            named = [name for name in extras if single and getattr(thing, name) is not None]
            found.setdefault(noun(describe(thing)), shown(side, describe(thing, *named), graphs[side]))
    return list(found.values())[: rng.choice((2, MOST_THINGS))]


def _by_side(pairs: list[MentionPair]) -> list[list[Mention]]:
    return [[pair[side] for pair in pairs] for side in SIDES]


def _half(mentions: list[Mention], graphs: Graphs, rng: Random, *, named: bool) -> Statement:
    """Word one half: what is there, what is not, and where that is."""
    side = mentions[0].side
    present = [mention for mention in mentions if mention.count != 0]
    missing = [mention for mention in mentions if mention.count == 0]
    kind = "both" if present and missing else "things" if present else "missing"
    claims = claims_of(mentions)
    total = everything(side, graphs[side])
    if named:
        kind, claims = f"{kind}_place", (*claims, scene_claim(side, "place", graphs[side]))
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


def _unchanged(graphs: Graphs, rng: Random) -> Statement:
    """Say that nothing has changed, by what light or viewpoint differ, and what both photographs show."""
    # Another viewpoint may hide some of several like things: another number of them would read as a change.
    common = [a for a in shared(graphs) if selects(a, graphs[0]) == selects(a, graphs[1])]
    looks = rng.sample(common, min(len(common), rng.choice((1, 2, MOST_THINGS))))
    told: list[Phrased] = [name for name in VIEWS if getattr(graphs[0], name) != getattr(graphs[1], name)]
    if not looks or rng.random() < PLACE_SHARE:
        told.append("place")
    claims = [Claim(side=0, kind="no_change")]
    for side in SIDES:
        claims += claims_of(shown(side, look, graphs[side]) for look in looks)
        claims += [scene_claim(side, kind, graphs[side]) for kind in told]
    return Statement(say_claims(claims, "template", rng), tuple(claims))
