"""Compose a summary of commonalities and differences (CaD) of two photographs from their scene graphs.

Needs ``prompts/comparison_sentences.j2`` and the two layouts. An axis (paper 003 has six) without a
difference is left out. Where nothing in the scene has changed, the last difference is that of light
and viewpoint, on no axis.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from pairwright.prompts import load, load_wordings
from pairwright.schemas.claims import Claim, Graphs, Selector, is_no_change
from pairwright.schemas.phrases import COLUMNS, DEPTHS, SPOKEN, capital, joined, noun, some, within
from pairwright.schemas.scene import SceneObject
from pairwright.tasks.captioning import statements
from pairwright.tasks.captioning.statements import (
    SIDES,
    Contrast,
    Mention,
    MentionPair,
    Side,
    Statement,
)
from pairwright.tasks.texts.comparisons import AXES, Axis


@dataclass(frozen=True, slots=True)
class Scope:
    """Input of the axis writers: both graphs, their contrasts, and a source of variety."""

    graphs: Graphs
    contrasts: list[Contrast]
    rng: Random

    @property
    def one_world(self) -> bool:
        """Return whether both are photographs of one world."""
        return self.graphs[0].world == self.graphs[1].world

    def say(self, kind: str, **values: object) -> str:
        """Choose a wording."""
        return capital(load_wordings("comparison_sentences").say(kind, self.rng, **values))

    def lost(self) -> list[tuple[Side, SceneObject]]:
        """Return the objects that one photograph lacks, with the side that has them."""
        return [lost for contrast in self.contrasts for lost in contrast.lost]

    def limited(self, found: list[Statement]) -> list[Statement]:
        """Return the first statements of an axis; of one world, every difference is stated."""
        return found if self.one_world else found[:MOST_PER_AXIS]

    def say_all(self, kind: str, names: Sequence[statements.Setting], **values: str) -> Statement:
        """Word the places, lights or viewpoints of both photographs."""
        claims = (
            statements.scene_claim(side, name, self.graphs[side])
            for name in names
            for side in SIDES
        )
        return Statement(self.say(kind, **values), tuple(claims))


MOST_PER_AXIS = 2
LIST_SHARE = 0.25  # share of comparisons with the commonalities as a numbered list instead of prose
VIEWS: tuple[statements.Setting, ...] = ("viewpoint", "light")


def compose_comparison(graphs: Graphs, rng: Random) -> Statement | None:
    """Return a summary and its claims, or ``None`` where the graphs give no words for a difference."""
    contrasts = statements.find_contrasts(graphs)
    rng.shuffle(contrasts)
    if (
        graphs[0].world == graphs[1].world
        and contrasts
        and not statements.picked(contrasts, graphs, rng)
    ):
        return None  # a difference without words
    scope = Scope(graphs, contrasts, rng)
    if is_no_change(graphs):
        same = (Claim(side=0, kind="no_change"),)
        found = [(axis, [Statement(scope.say(f"unchanged_{axis}"), same)]) for axis in AXES[:-1]]
        found.append(("view", _compare_views(scope)))
    else:
        found = [(axis, AXIS_WRITERS[axis](scope)) for axis in AXES]
    differences = [(axis, said) for axis, said in found if said]
    if not differences:
        return None
    commonalities = _write_commonalities(scope)
    spoken = [*commonalities, *(part for _, said in differences for part in said)]
    items = [
        (scope.say(f"label_{axis}"), " ".join(part.text for part in said))
        for axis, said in differences
    ]
    texts = [part.text for part in commonalities]
    if rng.random() < LIST_SHARE:
        text = load("comparison_layout_list").render(commonalities=texts, differences=items)
    else:
        text = load("comparison_layout").render(commonalities=" ".join(texts), differences=items)
    return Statement(text.strip(), tuple(claim for part in spoken for claim in part.claims))


def _contrast(pair: MentionPair, scope: Scope) -> Statement:
    return Statement(
        scope.say("versus", first=pair[0].text, second=pair[1].text), statements.claims_of(pair)
    )


def _compare_objects(scope: Scope) -> list[Statement]:
    """State which things (in unrelated photographs: which kinds of things) only one photograph has."""
    found: list[Statement] = []
    for side in SIDES:
        things = [thing for a, thing in scope.lost() if a == side]
        look = statements.describe if scope.one_world else lambda thing: Selector(shape=thing.shape)
        looks = {look(thing): thing for thing in things}
        absent = [a for a in looks if not a.select(scope.graphs[1 - side])][
            : None if scope.one_world else 3
        ]
        if not absent:
            continue
        # Of one world, also what a thing rests on is said.
        whole = [
            statements.describe(looks[a], "rests_on") if scope.one_world else a for a in absent
        ]
        here = [statements.shown(side, selector, scope.graphs[side]) for selector in whole]
        there = [Mention(SIDES[1 - side], selector, 0) for selector in absent]
        text = scope.say(
            "gone",
            here=side + 1,
            there=2 - side,
            things=joined([mention.text for mention in here]),
            no_things=joined([mention.text for mention in there]),
        )
        found.append(Statement(text, statements.claims_of([*here, *there])))
    for contrast in scope.contrasts:
        pair = (
            statements.word_contrast(contrast, scope.graphs, scope.rng)
            if "shape" in contrast.changed
            else None
        )
        if pair and pair[0].count is None:
            found.append(_contrast(pair, scope))
    return scope.limited(found)


def _compare_actions(scope: Scope) -> list[Statement]:
    """State how facings and poses differ; of unrelated photographs, those of a thing that only one has."""
    if scope.one_world:
        return _contrast_by(scope, {"facing", "pose"})
    found: list[Statement] = []
    for side, thing in scope.lost():
        marks = [name for name in ("facing", "pose") if getattr(thing, name) is not None]
        if marks and all(part.claims[0].side != side for part in found):
            mention = statements.shown(side, statements.describe(thing, *marks), scope.graphs[side])
            found.append(
                Statement(scope.say("doing", here=side + 1, thing=mention.text), (mention.claim,))
            )
    return sorted(found, key=lambda part: part.claims[0].side)


def _contrast_by(scope: Scope, names: set[str]) -> list[Statement]:
    contrasts = scope.contrasts
    if not scope.one_world:  # things of one shape that the photographs show in different looks
        mine, theirs = (
            {thing.shape: thing for a, thing in scope.lost() if a == side} for side in SIDES
        )
        contrasts = [Contrast(mine[shape], theirs[shape]) for shape in mine if shape in theirs]
    differ = (a for a in contrasts if "shape" not in a.changed and not names.isdisjoint(a.changed))
    pairs = (statements.word_contrast(a, scope.graphs, scope.rng) for a in differ)
    return scope.limited([_contrast(pair, scope) for pair in pairs if pair])


def _compare_counts(scope: Scope) -> list[Statement]:
    totals = (statements.everything(0, scope.graphs[0]), statements.everything(1, scope.graphs[1]))
    found: list[Statement] = []
    if totals[0].count != totals[1].count:
        text = scope.say("total", first=totals[0].text, second=totals[1].text)
        found.append(Statement(text, statements.claims_of(totals)))
    things = [thing for a in scope.contrasts for thing in (a.first, a.second) if thing is not None]
    for thing in things:
        selector = statements.describe(thing) if scope.one_world else Selector(shape=thing.shape)
        first, second = (len(selector.select(graph)) for graph in scope.graphs)
        if first and second and first != second:
            return [
                *found,
                _contrast((Mention(0, selector, first), Mention(1, selector, second)), scope),
            ]
    return found


def _compare_locations(scope: Scope) -> list[Statement]:
    """State what moved; else the place of a thing, and of like things, that only one photograph has."""
    if moved := _contrast_by(scope, set(statements.POSITION)):
        return moved
    found: dict[Side, Statement] = {}
    for side, thing in scope.lost():
        alike = statements.describe(thing).select(scope.graphs[side])
        if side in found or len({(one.column, one.depth) for one in alike}) > 1:
            continue
        count = len(alike) if len(alike) > 1 else None
        where = f"{COLUMNS[thing.column]} {DEPTHS[thing.depth]}"
        text = scope.say(
            "located", here=side + 1, things=some(statements.describe(thing), count), where=where
        )
        found[side] = Statement(
            text, (Mention(side, statements.describe(thing, "column", "depth"), count).claim,)
        )
    return [found[side] for side in SIDES if side in found]


def _compare_relations(scope: Scope) -> list[Statement]:
    """Relate a new, missing, moved or replaced thing to another; else state which relation was reversed."""
    found: dict[Side, Statement] = {}
    # Things that only one photograph has at their place; one with merely other looks stands where
    # it stood.
    exchanged: list[tuple[Side, SceneObject]] = [
        (side, thing)
        for contrast in scope.contrasts
        for side, thing in zip(SIDES, (contrast.first, contrast.second), strict=True)
        if thing is not None and (contrast.lost or contrast.moved or "shape" in contrast.changed)
    ]
    for side, thing in exchanged:
        related = (
            statements.find_relation(thing, scope.graphs[side], scope.rng)
            if side not in found
            else None
        )
        if related and statements.tells_apart(related.claims(side), scope.graphs):
            text = scope.say("related", here=side + 1, **related.words)
            found[side] = Statement(text, related.claims(side))
    reversal = (
        statements.find_reversal(scope.graphs, scope.rng) if scope.one_world and not found else None
    )
    if reversal:
        text = scope.say("reversed", **reversal[0].words, opposite=SPOKEN[reversal[1].relation])
        return [Statement(text, (*reversal[0].claims(0), *reversal[1].claims(1)))]
    return [found[side] for side in SIDES if side in found]


AXIS_WRITERS: Mapping[Axis, Callable[[Scope], list[Statement]]] = {
    "object types": _compare_objects,
    "attributes": lambda scope: _contrast_by(scope, {"colour", "material", "size", "text"}),
    "counts": _compare_counts,
    "actions": _compare_actions,
    "locations": _compare_locations,
    "relative positions": _compare_relations,
}


def _write_commonalities(scope: Scope) -> list[Statement]:
    """State what both photographs show, in one to four sentences."""
    first, second = scope.graphs
    found: list[Statement] = []
    if is_no_change(scope.graphs):
        found = [Statement(scope.say("same_scene"), (Claim(side=0, kind="no_change"),))]
    found += _share_things(scope)
    if first.place == second.place:
        place = scope.say_all(
            "same_place", ("place",), place=first.place, within_place=within(first.place)
        )
        found.insert(0, place)
    totals = [statements.everything(side, scope.graphs[side]) for side in SIDES]
    if totals[0].count == totals[1].count:
        found.append(
            Statement(scope.say("same_count", things=totals[0].text), statements.claims_of(totals))
        )
    for name in reversed(VIEWS):
        value = getattr(first, name)
        if value == getattr(second, name) and scope.rng.random() >= 0.5:
            found.append(scope.say_all(f"same_{name}", (name,), **{name: value}))
    return found[: scope.rng.choice((3, 4))] or [Statement(scope.say("same_nothing"))]


def _compare_views(scope: Scope) -> list[Statement]:
    first, second = scope.graphs
    names: list[statements.Setting] = [
        name for name in VIEWS if getattr(first, name) != getattr(second, name)
    ]
    values = {f"first_{name}": getattr(first, name) for name in names}
    values |= {f"second_{name}": getattr(second, name) for name in names}
    return [scope.say_all(f"other_{'_'.join(names)}", names, **values)] if names else []


def _share_things(scope: Scope) -> list[Statement]:
    """Name what both show: whole objects, else shapes, materials or colours; like things with their equal number."""
    looks = statements.shared(scope.graphs)
    for name in ("shape", "material", "colour"):
        if not looks:
            values = sorted({getattr(thing, name) for thing in scope.graphs[0].objects})
            looks = [
                a
                for a in (Selector(**{name: value}) for value in values)
                if a.select(scope.graphs[1])
            ]
    chosen = scope.rng.sample(looks, min(len(looks), scope.rng.choice((2, 3, 4))))
    words: list[str] = []
    claims: list[Claim] = []
    for look in chosen:
        mentions = [statements.shown(side, look, scope.graphs[side]) for side in SIDES]
        word = mentions[0].text
        if mentions[0].count != mentions[1].count:
            word = (
                noun(look, 2)
                if all(mention.count for mention in mentions)
                else f"one or more {noun(look, 2)}"
            )
            mentions = [Mention(side, look) for side in SIDES]
        words.append(word)
        claims += statements.claims_of(mentions)
    return (
        [Statement(scope.say("same_things", things=joined(words)), tuple(claims))] if chosen else []
    )
