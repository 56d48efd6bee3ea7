"""Compose a summary of commonalities and differences (CaD) of two photographs from their scene graphs.

Needs ``prompts/comparison_sentences.j2`` and the two layouts. An axis (paper 003 has six) on which there is nothing to
say is left out. Where nothing in the scene has changed, the last difference is that of light and viewpoint, on no axis.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

from pairwright.prompts import load, load_wordings
from pairwright.schemas.claims import Claim, Graphs, Selector, is_no_change
from pairwright.schemas.phrases import COLUMNS, DEPTHS, SPOKEN, capital, joined, noun, some, within
from pairwright.schemas.scene import SceneObject
from pairwright.tasks.captioning.statements import (
    POSITION,
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
    find_reversal,
    picked,
    scene_claim,
    selects,
    shared,
    shown,
    tells_apart,
    word_contrast,
)
from pairwright.tasks.texts.comparisons import AXES, Axis


@dataclass(frozen=True, slots=True)
class Scope:
    """What the writers of a comparison look at: both graphs, their contrasts, and a source of variety."""

    graphs: Graphs
    contrasts: list[Contrast]
    rng: Random

    @property
    def one_world(self) -> bool:
        """Say whether both are photographs of one world."""
        return self.graphs[0].world == self.graphs[1].world

    @property
    def limit(self) -> int | None:
        """Return how many statements an axis has at most."""
        return None if self.one_world else MOST_PER_AXIS

    def say(self, kind: str, **values: object) -> str:
        """Choose a wording."""
        return capital(load_wordings("comparison_sentences").say(kind, self.rng, **values))

    def lost(self) -> list[tuple[Side, SceneObject]]:
        """Return the objects that one photograph lacks, with the side that has them."""
        return [lost for contrast in self.contrasts for lost in contrast.lost]

    def phrases(self, kind: Literal["light", "viewpoint", "place"]) -> tuple[Claim, Claim]:
        """Claim for both photographs what their graphs say of the light, the viewpoint or the place."""
        return scene_claim(0, kind, self.graphs[0]), scene_claim(1, kind, self.graphs[1])


AxisWriter = Callable[[Scope], list[Statement]]
MOST_PER_AXIS = 2
"""Of photographs of two worlds; of one world all is said."""


def _versus(pair: MentionPair, scope: Scope) -> Statement:
    return Statement(scope.say("versus", first=pair[0].text, second=pair[1].text), claims_of(pair))


def _object_types(scope: Scope) -> list[Statement]:
    """Say which things, or in unrelated photographs which kinds of things, only one photograph has."""
    found = [part for side in SIDES if (part := _gone(side, scope))]
    for contrast in scope.contrasts:
        pair = word_contrast(contrast, scope.graphs, scope.rng) if "shape" in contrast.changed else None
        if pair and pair[0].count is None:
            found.append(_versus(pair, scope))
    return found[: scope.limit]


def _gone(side: Side, scope: Scope) -> Statement | None:
    """Say what one photograph has and the other lacks; of one world, what it rests on, too."""
    things = [thing for a, thing in scope.lost() if a == side]
    looks = {describe(thing) if scope.one_world else Selector(shape=thing.shape): thing for thing in things}
    absent = [a for a in looks if not a.select(scope.graphs[1 - side])][: None if scope.one_world else 3]
    if not absent:
        return None
    whole = [describe(looks[a], "rests_on") if scope.one_world else a for a in absent]
    here = [shown(side, selector, scope.graphs[side]) for selector in whole]
    there = [Mention(SIDES[1 - side], selector, 0) for selector in absent]
    text = scope.say(
        "gone",
        here=side + 1,
        there=2 - side,
        things=joined([mention.text for mention in here]),
        no_things=joined([mention.text for mention in there]),
    )
    return Statement(text, claims_of([*here, *there]))


def _actions(scope: Scope) -> list[Statement]:
    """Say which way things face and how their parts are; of unrelated photographs, what one has done to a thing."""
    if scope.one_world:
        return _versus_where(scope, {"facing", "pose"})
    found: list[Statement] = []
    for side, thing in scope.lost():
        marks = [name for name in ("facing", "pose") if getattr(thing, name) is not None]
        if marks and all(part.claims[0].side != side for part in found):
            mention = shown(side, describe(thing, *marks), scope.graphs[side])
            found.append(Statement(scope.say("doing", here=side + 1, thing=mention.text), (mention.claim,)))
    return sorted(found, key=lambda part: part.claims[0].side)


def _versus_where(scope: Scope, names: set[str]) -> list[Statement]:
    """Contrast things of one shape that differ in one of the attributes."""
    contrasts = scope.contrasts
    if not scope.one_world:  # things of one shape that the photographs show in different looks
        mine, theirs = ({thing.shape: thing for a, thing in scope.lost() if a == side} for side in SIDES)
        contrasts = [Contrast(mine[shape], theirs[shape]) for shape in mine if shape in theirs]
    differ = (a for a in contrasts if "shape" not in a.changed and not names.isdisjoint(a.changed))
    pairs = (word_contrast(a, scope.graphs, scope.rng) for a in differ)
    return [_versus(pair, scope) for pair in pairs if pair][: scope.limit]


def _counts(scope: Scope) -> list[Statement]:
    totals = (everything(0, scope.graphs[0]), everything(1, scope.graphs[1]))
    found: list[Statement] = []
    if totals[0].count != totals[1].count:
        text = scope.say("total", first=totals[0].text, second=totals[1].text)
        found.append(Statement(text, claims_of(totals)))
    things = [thing for a in scope.contrasts for thing in (a.first, a.second) if thing is not None]
    for thing in things:
        selector = describe(thing) if scope.one_world else Selector(shape=thing.shape)
        first, second = (selects(selector, graph) for graph in scope.graphs)
        if first and second and first != second:
            return [*found, _versus((Mention(0, selector, first), Mention(1, selector, second)), scope)]
    return found


def _locations(scope: Scope) -> list[Statement]:
    """Say what was moved; or else where a thing of each photograph stands that only it has; like things together."""
    if moved := _versus_where(scope, set(POSITION)):
        return moved
    found: dict[Side, Statement] = {}
    for side, thing in scope.lost():
        alike = describe(thing).select(scope.graphs[side])
        if side in found or len({(one.column, one.depth) for one in alike}) > 1:
            continue
        count = len(alike) if len(alike) > 1 else None
        where = f"{COLUMNS[thing.column]} {DEPTHS[thing.depth]}"
        text = scope.say("located", here=side + 1, things=some(describe(thing), count), where=where)
        found[side] = Statement(text, (Mention(side, describe(thing, "column", "depth"), count).claim,))
    return [found[side] for side in SIDES if side in found]


def _relative_positions(scope: Scope) -> list[Statement]:
    """Relate what is new, gone, moved or replaced to another thing; or else say which relation was reversed."""
    found: dict[Side, Statement] = {}
    # What only one photograph has there: a thing that merely changed its looks stands where it stood.
    exchanged: list[tuple[Side, SceneObject]] = [
        (side, thing)
        for contrast in scope.contrasts
        for side, thing in zip(SIDES, (contrast.first, contrast.second), strict=True)
        if thing is not None and (contrast.lost or contrast.moved or "shape" in contrast.changed)
    ]
    for side, thing in exchanged:
        related = find_relation(thing, scope.graphs[side], scope.rng) if side not in found else None
        if related and tells_apart(related.claims(side), scope.graphs):
            text = scope.say("related", here=side + 1, **related.words)
            found[side] = Statement(text, related.claims(side))
    return [found[side] for side in SIDES if side in found] or _reversed(scope)


def _reversed(scope: Scope) -> list[Statement]:
    reversal = find_reversal(scope.graphs, scope.rng) if scope.one_world else None
    if reversal is None:
        return []
    text = scope.say("reversed", **reversal[0].words, opposite=SPOKEN[reversal[1].relation])
    return [Statement(text, (*reversal[0].claims(0), *reversal[1].claims(1)))]


AXIS_WRITERS: Mapping[Axis, AxisWriter] = {
    "object types": _object_types,
    "attributes": lambda scope: _versus_where(scope, {"colour", "material", "size", "text"}),
    "counts": _counts,
    "actions": _actions,
    "locations": _locations,
    "relative positions": _relative_positions,
}


View = Literal["viewpoint", "light"]


def write_commonalities(scope: Scope) -> list[Statement]:
    """Say what both photographs show: at least one sentence, at most four."""
    first, second = scope.graphs
    found: list[Statement] = []
    if is_no_change(scope.graphs):
        found = [Statement(scope.say("same_scene"), (Claim(side=0, kind="no_change"),))]
    found += _same_things(scope)
    if first.place == second.place:
        text = scope.say("same_place", place=first.place, within_place=within(first.place))
        found.insert(0, Statement(text, scope.phrases("place")))
    totals = [everything(side, scope.graphs[side]) for side in SIDES]
    if totals[0].count == totals[1].count:
        found.append(Statement(scope.say("same_count", things=totals[0].text), claims_of(totals)))
    found += [*_same_phrase(scope, "light"), *_same_phrase(scope, "viewpoint")]
    return found[: scope.rng.choice((3, 4))] or [Statement(scope.say("same_nothing"))]


def _other_view(scope: Scope) -> list[Statement]:
    """Say how light and viewpoint differ."""
    first, second = scope.graphs
    kinds: list[View] = [kind for kind in get_args(View) if getattr(first, kind) != getattr(second, kind)]
    values = {
        f"{name}_{kind}": getattr(graph, kind)
        for name, graph in zip(("first", "second"), scope.graphs, strict=True)
        for kind in kinds
    }
    claims = tuple(claim for kind in kinds for claim in scope.phrases(kind))
    return [Statement(scope.say(f"other_{'_'.join(kinds)}", **values), claims)] if kinds else []


def _same_things(scope: Scope) -> list[Statement]:
    """Name what both show: whole objects, or else shapes or materials."""
    looks = shared(scope.graphs)
    for name in ("shape", "material", "colour"):
        if not looks:
            values = sorted({getattr(thing, name) for thing in scope.graphs[0].objects})
            looks = [a for a in (Selector(**{name: value}) for value in values) if a.select(scope.graphs[1])]
    chosen = scope.rng.sample(looks, min(len(looks), scope.rng.choice((2, 3, 4))))
    if not chosen:
        return []
    shows = [_shown_by_both(selector, scope.graphs) for selector in chosen]
    claims = tuple(claim for _, both in shows for claim in both)
    return [Statement(scope.say("same_things", things=joined([words for words, _ in shows])), claims)]


def _shown_by_both(selector: Selector, graphs: Graphs) -> tuple[str, tuple[Claim, ...]]:
    """Name like things by their number where that is the same, and else leave it open."""
    mentions = [shown(side, selector, graphs[side]) for side in SIDES]
    if mentions[0].count == mentions[1].count:
        return mentions[0].text, claims_of(mentions)
    several = noun(selector, 2) if all(mention.count for mention in mentions) else f"one or more {noun(selector, 2)}"
    return several, claims_of(Mention(side, selector) for side in SIDES)


def _same_phrase(scope: Scope, kind: View) -> list[Statement]:
    values = [getattr(graph, kind) for graph in scope.graphs]
    if values[0] != values[1] or scope.rng.random() < 0.5:
        return []
    return [Statement(scope.say(f"same_{kind}", **{kind: values[0]}), scope.phrases(kind))]


LIST_SHARE = 0.25
"""How often the commonalities are a numbered list instead of prose."""


def compose_comparison(graphs: Graphs, rng: Random) -> Statement | None:
    """Return a summary and its claims, or ``None`` where the graphs give no words for a difference."""
    contrasts = find_contrasts(graphs)
    rng.shuffle(contrasts)
    if graphs[0].world == graphs[1].world and contrasts and not picked(contrasts, graphs, rng):
        return None  # a difference without words
    scope = Scope(graphs, contrasts, rng)
    if is_no_change(graphs):
        same = (Claim(side=0, kind="no_change"),)
        found: list[tuple[str, list[Statement]]] = [
            (axis, [Statement(scope.say(f"unchanged_{axis}"), same)]) for axis in AXES[:-1]
        ]
        found.append(("view", _other_view(scope)))
    else:
        found = [(axis, AXIS_WRITERS[axis](scope)) for axis in AXES]
    differences = [(axis, statements) for axis, statements in found if statements]
    if not differences:
        return None
    commonalities = write_commonalities(scope)
    spoken = [*commonalities, *(part for _, statements in differences for part in statements)]
    claims = tuple(claim for part in spoken for claim in part.claims)
    return Statement(_layout(commonalities, differences, scope), claims)


def _layout(commonalities: list[Statement], differences: Sequence[tuple[str, list[Statement]]], scope: Scope) -> str:
    items = [(scope.say(f"label_{axis}"), _text(statements)) for axis, statements in differences]
    if scope.rng.random() < LIST_SHARE:
        texts = [part.text for part in commonalities]
        return load("comparison_layout_list").render(commonalities=texts, differences=items).strip()
    return load("comparison_layout").render(commonalities=_text(commonalities), differences=items).strip()


def _text(statements: Iterable[Statement]) -> str:
    return " ".join(part.text for part in statements)
