"""Compose a summary of commonalities and differences (CaD) of two photographs from scene graphs.

Needs ``prompts/comparison_sentences.j2`` and the two layouts. An axis (paper 003 has six) without a
difference is left out. Where nothing in the scene has changed, the last difference is that of light
and viewpoint, on no axis.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from pairwright.prompts import load_prompt, load_wordings
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

    def lost_objects(self) -> list[tuple[Side, SceneObject]]:
        """Return the objects that one photograph lacks, with the side that has them."""
        objects: list[tuple[Side, SceneObject]] = []
        for contrast in self.contrasts:
            objects.extend(contrast.lost)
        return objects

    def lost_by_side(self, side: Side) -> list[SceneObject]:
        """Return the objects that only this photograph has."""
        return [obj for owner, obj in self.lost_objects() if owner == side]

    def limited(self, sentences: list[Statement]) -> list[Statement]:
        """Return the first statements of an axis; of one world, every difference is stated."""
        return sentences if self.one_world else sentences[:MAX_PER_AXIS]

    def say_all(
        self,
        kind: str,
        names: Sequence[statements.Setting],
        **values: str,
    ) -> Statement:
        """Word the places, lights or viewpoints of both photographs."""
        claims: list[Claim] = []
        for name in names:
            for side in SIDES:
                claims.append(statements.scene_claim(side, name, self.graphs[side]))
        return Statement(self.say(kind, **values), tuple(claims))


Differences = list[tuple[str, list[Statement]]]
"""Sentences by axis; "view": light and viewpoint."""


MAX_PER_AXIS = 2
MAX_ABSENT = 3
"""Maximum shapes that are said to be absent from one of two unrelated photographs."""
LIST_SHARE = 0.25  # share of comparisons with the commonalities as a numbered list instead of prose
VIEWS: tuple[statements.Setting, ...] = ("viewpoint", "light")


def compose_comparison(graphs: Graphs, rng: Random) -> Statement | None:
    """Return a summary and its claims; ``None`` where a difference has no words."""
    contrasts = statements.find_contrasts(graphs)
    rng.shuffle(contrasts)
    scope = Scope(graphs, contrasts, rng)
    if scope.one_world and contrasts and not statements.word_contrasts(contrasts, graphs, rng):
        return None
    differences = _write_differences(scope)
    if not differences:
        return None
    commonalities = _write_commonalities(scope)
    claims: list[Claim] = []
    for sentence in commonalities:
        claims.extend(sentence.claims)
    items: list[tuple[str, str]] = []
    for axis, sentences in differences:
        for sentence in sentences:
            claims.extend(sentence.claims)
        item = " ".join(sentence.text for sentence in sentences)
        items.append((scope.say(f"label_{axis}"), item))
    text = _lay_out([sentence.text for sentence in commonalities], items, rng)
    return Statement(text.strip(), tuple(claims))


def _write_differences(scope: Scope) -> Differences:
    """Return the sentences of each axis that has any."""
    differences: Differences = []
    if is_no_change(scope.graphs):
        same = (Claim(side=0, kind="no_change"),)
        for axis in AXES[:-1]:
            differences.append((axis, [Statement(scope.say(f"unchanged_{axis}"), same)]))
        differences.append(("view", _compare_views(scope)))
    else:
        for axis in AXES:
            differences.append((axis, AXIS_WRITERS[axis](scope)))
    return [(axis, sentences) for axis, sentences in differences if sentences]


def _lay_out(
    commonalities: list[str],
    items: list[tuple[str, str]],
    rng: Random,
) -> str:
    if rng.random() < LIST_SHARE:
        layout = load_prompt("comparison_layout_list")
        return layout.render(commonalities=commonalities, differences=items)
    layout = load_prompt("comparison_layout")
    return layout.render(commonalities=" ".join(commonalities), differences=items)


def _contrast(pair: MentionPair, scope: Scope) -> Statement:
    first, second = pair
    text = scope.say("versus", first=first.text, second=second.text)
    return Statement(text, statements.claims_of(pair))


def _compare_objects(scope: Scope) -> list[Statement]:
    """State which objects only one photograph has; of unrelated photographs, which shapes."""
    sentences: list[Statement] = []
    for side in SIDES:
        sentence = _state_absent(scope, side)
        if sentence:
            sentences.append(sentence)
    for contrast in scope.contrasts:
        if "shape" not in contrast.changed:
            continue
        pair = statements.word_contrast(contrast, scope.graphs, scope.rng)
        if pair and pair[0].count is None:
            sentences.append(_contrast(pair, scope))
    return scope.limited(sentences)


def _state_absent(scope: Scope, side: Side) -> Statement | None:
    """State which objects of one photograph the other lacks."""
    by_look: dict[Selector, SceneObject] = {}
    for obj in scope.lost_by_side(side):
        by_look[_look_at(obj, scope)] = obj
    other_side = SIDES[1 - side]
    absent = [look for look in by_look if not look.select(scope.graphs[other_side])]
    if scope.one_world:
        # Also what an object rests on is said.
        present = [statements.describe_object(by_look[look], "rests_on") for look in absent]
    else:
        absent = absent[:MAX_ABSENT]
        present = absent
    if not absent:
        return None
    graph = scope.graphs[side]
    mentions = [statements.mention_selected(side, look, graph) for look in present]
    denials = [Mention(other_side, look, 0) for look in absent]
    text = scope.say(
        "gone",
        here=side + 1,
        there=2 - side,
        things=joined([mention.text for mention in mentions]),
        is_="are" if mentions[0].count else "is",
        no_things=joined([mention.text for mention in denials]),
    )
    return Statement(text, statements.claims_of([*mentions, *denials]))


def _look_at(obj: SceneObject, scope: Scope) -> Selector:
    """Return the look of an object; of unrelated photographs, its shape alone."""
    return statements.describe_object(obj) if scope.one_world else Selector(shape=obj.shape)


def _compare_actions(scope: Scope) -> list[Statement]:
    """State how facings and poses differ.

    Of unrelated photographs, state those of an object that only one has.
    """
    if scope.one_world:
        return _contrast_by(scope, {"facing", "pose"})
    by_side: dict[Side, Statement] = {}
    for side, obj in scope.lost_objects():
        names = [name for name in ("facing", "pose") if getattr(obj, name) is not None]
        if not names or side in by_side:
            continue
        selector = statements.describe_object(obj, *names)
        mention = statements.mention_selected(side, selector, scope.graphs[side])
        text = scope.say("doing", here=side + 1, thing=mention.text)
        by_side[side] = Statement(text, (mention.claim,))
    return _in_order(by_side)


def _in_order(by_side: Mapping[Side, Statement]) -> list[Statement]:
    return [by_side[side] for side in SIDES if side in by_side]


def _contrast_by(scope: Scope, names: set[str]) -> list[Statement]:
    """Contrast the objects that differ by one of the attributes, but not by their shape."""
    contrasts = scope.contrasts if scope.one_world else _match_shapes(scope)
    sentences: list[Statement] = []
    for contrast in contrasts:
        if "shape" in contrast.changed or names.isdisjoint(contrast.changed):
            continue
        pair = statements.word_contrast(contrast, scope.graphs, scope.rng)
        if pair:
            sentences.append(_contrast(pair, scope))
    return scope.limited(sentences)


def _match_shapes(scope: Scope) -> list[Contrast]:
    """Return the objects of one shape that unrelated photographs show in different looks."""
    first = {obj.shape: obj for obj in scope.lost_by_side(0)}
    second = {obj.shape: obj for obj in scope.lost_by_side(1)}
    return [Contrast(first[shape], second[shape]) for shape in first if shape in second]


def _compare_counts(scope: Scope) -> list[Statement]:
    """State the first different number of like objects."""
    for contrast in scope.contrasts:
        for obj in (contrast.first, contrast.second):
            pair = _count_alike(obj, scope) if obj else None
            if pair:
                return [_contrast(pair, scope)]
    return []


def _count_alike(obj: SceneObject, scope: Scope) -> MentionPair | None:
    """Return the numbers of objects like this one, if both photographs show different numbers."""
    look = _look_at(obj, scope)
    first, second = (len(look.select(graph)) for graph in scope.graphs)
    if not first or not second or first == second:
        return None
    return Mention(0, look, first), Mention(1, look, second)


def _compare_locations(scope: Scope) -> list[Statement]:
    """State what moved, or else the position of objects that only one photograph has."""
    moved = _contrast_by(scope, set(statements.POSITION))
    if moved:
        return moved
    by_side: dict[Side, Statement] = {}
    for side, obj in scope.lost_objects():
        if side in by_side:
            continue
        look = statements.describe_object(obj)
        alike = look.select(scope.graphs[side])
        positions = {(other.column, other.depth) for other in alike}
        if len(positions) > 1:
            continue
        count = len(alike) if len(alike) > 1 else None
        where = COLUMNS[obj.column]
        if obj.depth is not None:
            where = f"{where} {DEPTHS[obj.depth]}"
        text = scope.say(
            "located",
            here=side + 1,
            things=some(look, count),
            is_="are" if count else "is",
            where=where,
        )
        mention = Mention(side, statements.describe_object(obj, "column", "depth"), count)
        by_side[side] = Statement(text, (mention.claim,))
    return _in_order(by_side)


def _compare_relations(scope: Scope) -> list[Statement]:
    """Relate new, missing, moved or replaced objects, or else state a reversed relation."""
    by_side: dict[Side, Statement] = {}
    for side, obj in _exchanged_objects(scope):
        if side in by_side:
            continue
        related = statements.find_relation(obj, scope.graphs[side], scope.rng)
        if related and statements.tells_apart(related.claims(side), scope.graphs):
            text = scope.say("related", here=side + 1, **related.wording_values)
            by_side[side] = Statement(text, related.claims(side))
    if by_side or not scope.one_world:
        return _in_order(by_side)
    reversal = statements.find_reversal(scope.graphs, scope.rng)
    if reversal is None:
        return []
    before, after = reversal
    text = scope.say("reversed", **before.wording_values, opposite=SPOKEN[after.relation])
    return [Statement(text, (*before.claims(0), *after.claims(1)))]


def _exchanged_objects(scope: Scope) -> Iterator[tuple[Side, SceneObject]]:
    """Yield the objects that only one photograph has at their position.

    An object that merely looks different stands where it stood.
    """
    for contrast in scope.contrasts:
        if contrast.lost or contrast.moved or "shape" in contrast.changed:
            for side, obj in zip(SIDES, (contrast.first, contrast.second), strict=True):
                if obj is not None:
                    yield side, obj


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
    sentences: list[Statement] = []
    if is_no_change(scope.graphs):
        no_change = Claim(side=0, kind="no_change")
        sentences.append(Statement(scope.say("same_scene"), (no_change,)))
    sentences += _share_objects(scope)
    if first.planted:
        return sentences or [Statement(scope.say("same_photograph"))]
    if first.place == second.place:
        values = {"place": first.place, "within_place": within(first.place)}
        sentences.insert(0, scope.say_all("same_place", ("place",), **values))
    for name in reversed(VIEWS):
        value = getattr(first, name)
        if value == getattr(second, name) and scope.rng.random() >= 0.5:
            sentences.append(scope.say_all(f"same_{name}", (name,), **{name: value}))
    limit = scope.rng.choice((3, 4))
    return sentences[:limit] or [Statement(scope.say("same_nothing"))]


def _compare_views(scope: Scope) -> list[Statement]:
    """State how light and viewpoint differ."""
    first, second = scope.graphs
    names: list[statements.Setting] = []
    values: dict[str, str] = {}
    for name in VIEWS:
        first_value, second_value = getattr(first, name), getattr(second, name)
        if first_value != second_value:
            names.append(name)
            values[f"first_{name}"] = first_value
            values[f"second_{name}"] = second_value
    if not names:
        return []
    if first.planted:
        return [scope.say_all("other_photograph", names, **_photograph_values(scope.graphs, names))]
    return [scope.say_all(f"other_{'_'.join(names)}", names, **values)]


def _photograph_values(graphs: Graphs, names: Sequence[statements.Setting]) -> dict[str, str]:
    """Return the light, focus and framing of both photographs, as they differ."""
    first, second = graphs
    return {
        "first": joined([getattr(first, name) for name in names]),
        "second": joined([getattr(second, name) for name in names]),
    }


def _share_objects(scope: Scope) -> list[Statement]:
    """Name what both show: whole objects, else shapes, materials or colours.

    Like objects are named with their number, if it is equal.
    """
    looks = _shared_looks(scope.graphs)
    max_count = scope.rng.choice((2, 3, 4))
    chosen = scope.rng.sample(looks, min(len(looks), max_count))
    if not chosen:
        return []
    names: list[str] = []
    claims: list[Claim] = []
    is_plural = False
    for look in chosen:
        mentions = [statements.mention_selected(side, look, scope.graphs[side]) for side in SIDES]
        name = mentions[0].text
        if mentions[0].count != mentions[1].count:
            are_several = all(mention.count for mention in mentions)
            name = noun(look, 2) if are_several else f"one or more {noun(look, 2)}"
            mentions = [Mention(side, look) for side in SIDES]
        is_plural = is_plural or (not names and mentions[0].text != name)
        names.append(name)
        claims += statements.claims_of(mentions)
    text = scope.say("same_things", things=joined(names), is_="are" if is_plural else "is")
    return [Statement(text, tuple(claims))]


def _shared_looks(graphs: Graphs) -> list[Selector]:
    """Return the looks that both photographs show, or else shapes, materials or colours."""
    looks = statements.shared(graphs)
    for name in ("shape", "material", "colour"):
        if looks:
            break
        values = sorted({getattr(obj, name) for obj in graphs[0].objects})
        selectors = [Selector(**{name: value}) for value in values]
        looks = [selector for selector in selectors if selector.select(graphs[1])]
    return looks
