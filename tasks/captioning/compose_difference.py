"""Compose an implicit-change description of two photographs from their scene graphs.

Needs ``prompts/difference_template.j2`` (paper 001's) and the phrases of ``prompts/difference_phrases.j2`` (ours).
"""

from random import Random

from pairwright.prompts import load_wordings
from pairwright.prompts.differences import fill_template
from pairwright.schemas.claims import Claim, Graphs, is_no_change
from pairwright.schemas.phrases import bare, joined, noun, some, with_the, within
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
    picked,
    scene_claim,
    selects,
    shared,
    shown,
)

MOST_CHANGES = 3
MOST_THINGS = 3
PLACE_SHARE = 0.45
"""How often a half names the place."""


def compose_difference(graphs: Graphs, rng: Random) -> Statement | None:
    """Return a description and its claims, or ``None`` where the graphs give no words for a difference."""
    halves = _unchanged(graphs, rng) if is_no_change(graphs) else _contrasting(graphs, rng)
    if halves is None:
        return None
    first, second = rng.sample([prompt.text for prompt in load_wordings("difference_phrases").kinds["verb"]], 2)
    text = fill_template((first, second), halves[0].text, halves[1].text)
    return Statement(text, (*halves[0].claims, *halves[1].claims))


def _contrasting(graphs: Graphs, rng: Random) -> tuple[Statement, Statement] | None:
    """Fill the halves with mentions that tell the photographs apart."""
    if graphs[0].world == graphs[1].world:
        pairs = picked(find_contrasts(graphs), graphs, rng, limit=MOST_CHANGES)
        rng.shuffle(pairs)
        mentions = _by_side(pairs)
    else:
        mentions = _contents(graphs, rng)
    if not mentions[0] or not mentions[1]:
        return None
    named = rng.random() < PLACE_SHARE
    first, second = (_half(mentions[side], graphs, rng, named=named) for side in SIDES)
    return first, second


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


def _unchanged(graphs: Graphs, rng: Random) -> tuple[Statement, Statement]:
    """Say that nothing has changed: the first half shows the scene, the second says that it is the same."""
    # Another viewpoint may hide some of several like things: another number of them would read as a change.
    common = [a for a in shared(graphs) if selects(a, graphs[0]) == selects(a, graphs[1])]
    looks = rng.sample(common, min(len(common), rng.choice((1, 2, MOST_THINGS))))
    things = [shown(0, selector, graphs[0]) for selector in looks]
    first = Statement(graphs[0].place, (scene_claim(0, "place", graphs[0]),))
    if things:
        first = _half(things, graphs, rng, named=rng.random() < 2 * PLACE_SHARE)
    kinds = ["unchanged", "unchanged_view", "unchanged_light"]
    if things and graphs[0].place == graphs[1].place:
        kinds += ["unchanged_place", "unchanged_things"] * 2
    return first, _same(rng.choice(kinds), things, graphs, rng=rng)


def _same(kind: str, things: list[Mention], graphs: Graphs, *, rng: Random) -> Statement:
    values = {
        "place": graphs[1].place,
        "the_place": with_the(graphs[1].place),
        "bare_place": bare(graphs[1].place),
        "things": joined([mention.text for mention in things]),
        "the_things": joined([f"the {noun(mention.selector, mention.count or 1)}" for mention in things]),
        "viewpoint": graphs[1].viewpoint,
        "light": graphs[1].light,
    }
    there = claims_of(Mention(1, mention.selector, mention.count) for mention in things)
    claims = {
        "unchanged_place": (scene_claim(1, "place", graphs[1]), *there),
        "unchanged_things": there,
        "unchanged_view": (scene_claim(1, "viewpoint", graphs[1]),),
        "unchanged_light": (scene_claim(1, "light", graphs[1]),),
    }
    text = load_wordings("difference_phrases").say(kind, rng, **values)
    return Statement(text, (Claim(side=0, kind="no_change"), *claims.get(kind, ())))
