"""Make rejected texts by one small edit: another value of an attribute, a number or a place.

Reads ``DifferenceRow`` and the scene graphs of its pair; writes ``RejectedTextRow`` by the maker
"edited". All that the text says of one object, or of the place, changes alike in both halves, so
that an edited text contradicts the images but never itself: its form does not distinguish it from a
chosen one. An edit needs the claim's phrase exactly once in its half, so that text and claims
change alike.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from pairwright.prompts.difference_prompts import READ_BACK, fill_template
from pairwright.schemas.claims import CLAIMS, Claim, Graphs, Selector
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.phrases import bare, noun, some, tail, with_article, within
from pairwright.schemas.rows import DifferenceRow, Dropped, Images, Pairs, RejectedTextRow, make_key
from pairwright.schemas.scene import PREPOSITIONS, SceneGraph
from pairwright.tasks.rejected.check_texts import TRUTH_USES, KnownContent, rejected_row, truth_of
from pairwright.tasks.rejected.compare_words import Halves
from pairwright.tasks.scenes.vocabulary import (
    CLEAR,
    NEAR_COLOURS,
    SCENE_WORDS,
    SHAPES,
    Kind,
    colours_of,
)
from pairwright.tasks.store.stage import Stage

Value = str | int
MENTIONING = ("exists", "absent", "count")
# kinds of edits that are hard to see: made only without an alternative (ours)
HARD_TO_SEE = ("material", "size")
# kinds of edits that nearly every text allows
COMMON = ("shape", "colour")
NO_GRAPH = "no scene graph of both images: a model edits such texts (counterfactuals.enabled=true)"
NO_CLAIMS = (
    "not written from a scene graph: a model edits such texts (counterfactuals.enabled=true)"
)
MOST_ALTERNATIVES = 3  # alternatives that are tried for one attribute of one claim


@dataclass(frozen=True, slots=True)
class Edit:
    """Change of a description: the new claims that replace those with the edited attribute."""

    kind: str
    note: str
    becomes: Mapping[Claim, Claim]

    def apply(self, claim: Claim) -> Claim:
        """Return a claim of the text after the edit, also in relations."""
        if claim.kind != "relation":
            return self.becomes.get(claim, claim)
        selectors = {
            old.selector: new.selector
            for old, new in self.becomes.items()
            if old.side == claim.side
        }
        update = {
            "selector": selectors.get(claim.selector, claim.selector),
            "other": selectors.get(claim.other, claim.other),
        }
        return claim.model_copy(update=update)

    def rewrite(self, halves: Halves, *, no_change: bool) -> Halves | None:
        """Return the edited halves; ``None`` unless each old phrase occurs once, and no new one.

        Of a text without a change, only one half names the objects of both images.
        """
        written = [*halves]
        for old, new in self.becomes.items():
            half = _replace(
                written[old.side],
                old,
                new,
                kind=self.kind,
            )
            if half is not None:
                written[old.side] = half
            elif not no_change:
                return None
        if written[0] == written[1] or written == [*halves]:
            return None
        return written[0], written[1]


def edit_texts(
    rows: Sequence[DifferenceRow],
    config: RejectedTextsConfig,
    *,
    pairs: Pairs,
    images: Images,
) -> Iterator[RejectedTextRow | Dropped]:
    """Yield one edited text per description, or ``Dropped`` where no edit makes it false."""
    for row in rows:
        rng = Random(make_key("edited", config.seed, row.key))
        yield _edit_row(row, rng, truth_of(row, pairs, images))


def _edit_row(row: DifferenceRow, rng: Random, truth: KnownContent) -> RejectedTextRow | Dropped:
    claims = CLAIMS.validate_json(row.claims)
    if truth.graphs is None:
        return Dropped(source_key=row.key, reason=NO_GRAPH)
    if not claims:
        return Dropped(source_key=row.key, reason=NO_CLAIMS)
    distinct = tuple(dict.fromkeys(claims))
    edits = list(_find_edits(distinct, truth.graphs, rng))
    skipped = 0
    for edit in _shuffle_by_kind(edits, rng):
        halves = edit.rewrite(row.halves, no_change=row.no_change)
        if halves is None:
            continue
        edited = tuple(map(edit.apply, claims))
        if truth.judge(edited):
            skipped += 1
            continue
        return rejected_row(
            row,
            fill_template(row.verbs, *halves),
            maker="edited",
            note=edit.note,
            skipped_true=skipped,
            claims=edited,
        )
    detail = f"{skipped} left it true"
    return Dropped(
        source_key=row.key,
        reason="no edit makes it false",
        detail=detail,
    )


def _shuffle_by_kind(edits: list[Edit], rng: Random) -> list[Edit]:
    """Order the edits at random, their kinds in turn; kinds that are hard to see come last.

    Taking turns keeps kinds with many alternatives (shapes) from dominating; the kinds that nearly
    every text names come later still.
    """
    rng.shuffle(edits)
    turns: dict[str, int] = {}
    order: list[tuple[bool, int, float, Edit]] = []
    for edit in edits:
        turns[edit.kind] = turns.get(edit.kind, 0) + 1
        draws = [rng.random(), rng.random()]
        draw = max(draws) if edit.kind in COMMON else draws[0]
        order.append((edit.kind in HARD_TO_SEE, turns[edit.kind], draw, edit))
    return [entry[-1] for entry in sorted(order, key=lambda entry: entry[:-1])]


def _replace(
    half: str,
    old: Claim,
    new: Claim,
    *,
    kind: str,
) -> str | None:
    if kind == "place":
        return _replace_place(half, old.value, new.value)
    old_phrase = _phrase(old, kind)
    new_phrase = _phrase(new, kind)
    pattern = re.compile(rf"(?<![\w-])(?P<article>an? )?{re.escape(old_phrase)}(?![\w-])")
    if len(pattern.findall(half)) != 1 or new_phrase in half:
        return None

    def keep_article(match: re.Match[str]) -> str:
        return with_article(new_phrase) if match["article"] else new_phrase

    return pattern.sub(keep_article, half)


def _replace_place(half: str, old: str, new: str) -> str | None:
    text = half.replace(within(old), within(new)).replace(bare(old), bare(new))
    return None if text == half else text


def _phrase(claim: Claim, kind: str) -> str:
    if kind == "count":
        return some(claim.selector, claim.count)
    count = claim.count or 1
    return noun(claim.selector, count) + tail(claim.selector, count)


def _find_edits(claims: Sequence[Claim], graphs: Graphs, rng: Random) -> Iterator[Edit]:
    """Yield edits of every attribute of every claim, alike in all claims about the same object."""
    for claim in claims:
        related = [other for other in claims if _is_about_same(claim, other, graphs)]
        for kind, value in _values(claim).items():
            naming = [other for other in related if _values(other).get(kind) == value]
            if kind == "column" and not all(_is_clear(other, graphs) for other in naming):
                continue
            alternatives = _free_alternatives(kind, claim, related)
            count = min(len(alternatives), MOST_ALTERNATIVES)
            for alternative in rng.sample(alternatives, count):
                becomes = {other: _set_value(other, kind, alternative) for other in naming}
                if _is_possible(becomes, claims):
                    note = f"{kind.replace('_', ' ')} {value} -> {alternative}"
                    yield Edit(kind, note, becomes)


def _free_alternatives(kind: str, claim: Claim, related: Sequence[Claim]) -> list[Value]:
    """Return the other values of an attribute that no related claim has.

    A colour differs as clearly from those as after a change of the scene.
    """
    taken = {_values(other)[kind] for other in related if kind in _values(other)}
    free = [value for value in _alternatives(kind, claim) if value not in taken]
    if kind != "colour":
        return free
    return [value for value in free if not _is_near(value, taken)]


def _is_near(colour: Value, others: Collection[Value]) -> bool:
    return any(frozenset((colour, other)) in NEAR_COLOURS for other in others)


def _values(claim: Claim) -> dict[str, Value]:
    """Return the editable values of a claim: the place, or an object's number and attributes."""
    if claim.kind == "place":
        return {"place": claim.value}
    if claim.kind not in MENTIONING:
        return {}
    attributes = {name: value for name, value in vars(claim.selector).items() if value is not None}
    if claim.kind == "count" or (claim.kind == "exists" and attributes):
        attributes["count"] = claim.count or 1
    return attributes


def _is_about_same(claim: Claim, other: Claim, graphs: Graphs) -> bool:
    """Return whether two claims are about the same object, the place or the number of objects."""
    if "place" in (claim.kind, other.kind):
        return claim.kind == other.kind
    return claim == other or bool(_object_ids(claim, graphs) & _object_ids(other, graphs))


def _graph_of(claim: Claim, graphs: Graphs) -> SceneGraph:
    """Return the graph with the objects that a claim names, or denies in the other photograph."""
    return graphs[1 - claim.side if claim.kind == "absent" else claim.side]


def _object_ids(claim: Claim, graphs: Graphs) -> set[str]:
    if claim.kind not in MENTIONING or not claim.selector.shape:
        return set()
    graph = _graph_of(claim, graphs)
    return {f"{graph.world} {item.id}" for item in claim.selector.select(graph)}


def _is_clear(claim: Claim, graphs: Graphs) -> bool:
    """Return whether all objects of a claim are clearly within their columns."""
    for item in claim.selector.select(_graph_of(claim, graphs)):
        middle = (item.box[0] + item.box[2]) / 2 / item.mask.width
        if abs(middle - 1 / 3) < CLEAR or abs(middle - 2 / 3) < CLEAR:
            return False
    return True


def _alternatives(kind: str, claim: Claim) -> Sequence[Value]:
    if kind == "place":
        return tuple(PREPOSITIONS)
    if kind == "count":
        # "A ball" has no number to edit: a text that counts says "one ball".
        if claim.kind != "count":
            return []
        return [count for count in (claim.count - 1, claim.count + 1) if count > 0]
    if kind == "pose":
        return SHAPES[claim.selector.shape].poses if claim.selector.shape in SHAPES else ()
    return SCENE_WORDS[kind]


def _set_value(claim: Claim, kind: str, value: Value) -> Claim:
    if kind == "place":
        return claim.model_copy(update={"value": value})
    if kind == "count":
        return claim.model_copy(update={"count": value})
    return claim.model_copy(update={"selector": claim.selector.model_copy(update={kind: value})})


def _is_possible(becomes: Mapping[Claim, Claim], claims: Sequence[Claim]) -> bool:
    """Return whether scenes may hold such objects, distinct from others of the same photograph."""
    looks: set[tuple[int, str | None, str | None]] = set()
    for claim in claims:
        if claim in becomes:
            continue
        selector = claim.other if claim.kind == "relation" else claim.selector
        if selector.shape:
            looks.add((claim.side, selector.shape, selector.colour))
    return all(
        _is_rendered(claim.selector, claim.count)
        and (claim.side, claim.selector.shape, claim.selector.colour) not in looks
        for claim in becomes.values()
    )


def _is_rendered(selector: Selector, count: int) -> bool:
    """Return whether rendered scenes may hold so many objects with these attributes."""
    shape = selector.shape or ""
    kind = SHAPES.get(shape)
    if kind is None:
        return True
    if count >= 2 and not kind.repeats:
        return False
    for name, values in _allowed_values(shape, kind, selector.material or "").items():
        value = getattr(selector, name)
        if value and value not in values:
            return False
    return True


def _allowed_values(shape: str, kind: Kind, material: str) -> dict[str, Collection[str]]:
    """Return the values of each attribute that a shape has in rendered scenes."""
    return {
        "colour": colours_of(shape, material),
        "material": kind.materials,
        "size": kind.sizes,
        "pose": kind.poses,
        "facing": SCENE_WORDS["facing"] if kind.front else (),
        "text": SCENE_WORDS["text"] if shape == "sign" else (),
        "rests_on": SCENE_WORDS["rests_on"] if kind.rides else (),
    }


STAGE = Stage(
    name="edited",
    version=9,
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=edit_texts,
    config=lambda profile: profile.complete(profile.rejected_texts),
    prompts=READ_BACK,
    uses=TRUTH_USES,
)
