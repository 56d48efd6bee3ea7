"""Write what two photographs have in common: place, things, light, viewpoint, numbers.

Of one scene, light and viewpoint are mentioned here where they differ, too: they are on none of the six axes.
"""

from typing import Literal, get_args

from pairwright.schemas.claims import Claim, Graphs, Selector, is_no_change
from pairwright.schemas.phrases import joined, noun, within
from pairwright.tasks.captioning.scope import Scope
from pairwright.tasks.captioning.statements import SIDES, Mention, Statement, claims_of, shown
from pairwright.tasks.captioning.word_contrasts import everything, shared

View = Literal["viewpoint", "light"]


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
    return [Statement(scope.say("same_scene"), (Claim(side=0, kind="no_change"),)), *_other_view(scope)]


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
