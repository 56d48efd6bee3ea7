"""Write what two photographs have in common: place, things, light, viewpoint, numbers."""

from typing import Literal

from schemas.claims import Claim, Selector, is_no_change
from schemas.phrases import joined, some, within
from tasks.captioning.scope import Scope
from tasks.captioning.statements import SIDES, Mention, Statement, claims_of
from tasks.captioning.word_contrasts import everything, shared


def write_commonalities(scope: Scope) -> list[Statement]:
    """Say what both photographs show: at least one sentence, at most four."""
    first, second = scope.graphs
    found = [*_same_scene(scope), *_same_things(scope)]
    if first.place == second.place:
        text = scope.say("same_place", place=first.place, within_place=within(first.place))
        found.insert(0, Statement(text, scope.phrases("place")))
    totals = [everything(side, scope.graphs[side]) for side in SIDES]
    if totals[0].count == totals[1].count:
        found.append(Statement(scope.say("same_count", things=totals[0].text), claims_of(totals)))
    found += [*_same_phrase(scope, "light"), *_same_phrase(scope, "viewpoint")]
    return found[: scope.rng.choice((3, 4))] or [Statement(scope.say("same_nothing"))]


def _same_scene(scope: Scope) -> list[Statement]:
    if not is_no_change(scope.graphs):
        return []
    return [Statement(scope.say("same_scene"), (Claim(side=0, kind="no_change"),))]


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
    claims = claims_of(Mention(side, selector) for side in SIDES for selector in chosen)
    return [Statement(scope.say("same_things", things=joined([some(a) for a in chosen])), claims)]


def _same_phrase(scope: Scope, kind: Literal["light", "viewpoint"]) -> list[Statement]:
    values = [getattr(graph, kind) for graph in scope.graphs]
    if values[0] != values[1] or scope.rng.random() < 0.5:
        return []
    return [Statement(scope.say(f"same_{kind}", **{kind: values[0]}), scope.phrases(kind))]
