"""Make rejected texts by one small edit: another value of an attribute, a number or a place.

Reads ``DifferenceRow`` and the scene graphs of its pair; writes ``RejectedTextRow`` by the maker
"edited". All that the text says of one thing, or of the place, changes alike in both halves, so
that an edited text contradicts the images but never itself: its form does not distinguish it from a
chosen one. An edit needs the claim's phrase exactly once in its half, so that text and claims
change alike.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from pairwright.prompts.difference_prompts import TEMPLATE, fill_template
from pairwright.schemas.claims import CLAIMS, Claim, Graphs, Selector
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.phrases import bare, noun, some, tail, with_article, within
from pairwright.schemas.rows import DifferenceRow, Dropped, Images, Pairs, RejectedTextRow, make_key
from pairwright.schemas.scene import PREPOSITIONS
from pairwright.tasks.rejected.check_texts import TRUTH_USES, KnownContent, rejected_row, truth_of
from pairwright.tasks.rejected.compare_words import Halves
from pairwright.tasks.scenes.vocabulary import CLEAR, NEAR_COLOURS, SCENE_WORDS, SHAPES, colours_of
from pairwright.tasks.store.stage import Stage

MENTIONING = ("exists", "absent", "count")
HARD_TO_SEE = (
    "material",
    "size",
)  # kinds of edits that are hard to see: made only without an alternative (ours)
NO_GRAPH = "no scene graph of both images: a model edits such texts (counterfactuals.enabled=true)"
NO_CLAIMS = (
    "not written from a scene graph: a model edits such texts (counterfactuals.enabled=true)"
)
MOST_ALTERNATIVES = 3  # alternatives that are tried for one attribute of one claim


@dataclass(frozen=True, slots=True)
class Edit:
    """Change of a description: the new claim for each one that names the edited attribute of one thing."""

    kind: str
    note: str
    becomes: Mapping[Claim, Claim]

    def apply(self, claim: Claim) -> Claim:
        """Return a claim of the text after the edit, also in relations."""
        if claim.kind != "relation":
            return self.becomes.get(claim, claim)
        named = {
            old.selector: new.selector
            for old, new in self.becomes.items()
            if old.side == claim.side
        }
        ends = {name: getattr(claim, name) for name in ("selector", "other")}
        return claim.model_copy(update={name: named.get(end, end) for name, end in ends.items()})

    def rewrite(self, halves: Halves, *, no_change: bool) -> Halves | None:
        """Return the edited halves; ``None`` unless each old phrase occurs once in its half, and no new one does.

        Of a text without a change, only one half names the things of both images.
        """
        written = [*halves]
        for old, new in self.becomes.items():
            half = _replace(written[old.side], old, new, kind=self.kind)
            if half is not None:
                written[old.side] = half
            elif not no_change:
                return None
        return (
            (written[0], written[1]) if written[0] != written[1] and written != [*halves] else None
        )


def edit_texts(
    rows: Sequence[DifferenceRow], config: RejectedTextsConfig, *, pairs: Pairs, images: Images
) -> Iterator[RejectedTextRow | Dropped]:
    """Yield one edited text per description, or ``Dropped`` where no edit makes it false."""
    for row in rows:
        yield _edit_row(
            row, Random(make_key("edited", config.seed, row.key)), truth_of(row, pairs, images)
        )


def _edit_row(row: DifferenceRow, rng: Random, truth: KnownContent) -> RejectedTextRow | Dropped:
    claims = CLAIMS.validate_json(row.claims)
    if not claims or truth.graphs is None:
        return Dropped(source_key=row.key, reason=NO_GRAPH if truth.graphs is None else NO_CLAIMS)
    skipped = 0
    for edit in _shuffle_by_kind(
        list(_find_edits(tuple(dict.fromkeys(claims)), truth.graphs, rng)), rng
    ):
        halves = edit.rewrite(row.halves, no_change=row.no_change)
        if halves is None:
            continue
        edited = tuple(map(edit.apply, claims))
        if not truth.of(edited):
            text = fill_template(row.verbs, *halves)
            return rejected_row(
                row, text, maker="edited", note=edit.note, skipped_true=skipped, claims=edited
            )
        skipped += 1
    return Dropped(
        source_key=row.key, reason="no edit makes it false", detail=f"{skipped} left it true"
    )


def _shuffle_by_kind(edits: list[Edit], rng: Random) -> list[Edit]:
    """Order the edits at random, their kinds in turn, so that kinds with many alternatives (shapes) do not dominate.

    Kinds that are hard to see come last.
    """
    rng.shuffle(edits)
    turns: dict[str, int] = {}
    order: list[tuple[bool, int, float, Edit]] = []
    for edit in edits:
        turns[edit.kind] = turns.get(edit.kind, 0) + 1
        order.append((edit.kind in HARD_TO_SEE, turns[edit.kind], rng.random(), edit))
    return [entry[-1] for entry in sorted(order, key=lambda entry: entry[:-1])]


def _replace(half: str, old: Claim, new: Claim, *, kind: str) -> str | None:
    if kind == "place":
        text = half.replace(within(old.value), within(new.value)).replace(
            bare(old.value), bare(new.value)
        )
        return None if text == half else text
    phrase, becomes = (
        some(claim.selector, claim.count)
        if kind == "count"
        else noun(claim.selector, claim.count or 1) + tail(claim.selector, claim.count or 1)
        for claim in (old, new)
    )
    pattern = re.compile(rf"(?<![\w-])(?P<article>an? )?{re.escape(phrase)}(?![\w-])")
    if len(pattern.findall(half)) != 1 or becomes in half:
        return None
    return pattern.sub(lambda match: with_article(becomes) if match["article"] else becomes, half)


def _find_edits(claims: Sequence[Claim], graphs: Graphs, rng: Random) -> Iterator[Edit]:
    """Yield edits of every attribute of every claim, made alike in other claims about the same thing."""
    for claim in claims:
        about = [other for other in claims if _is_about_same(claim, other, graphs)]
        for kind, value in _values(claim).items():
            named = [one for one in about if _values(one).get(kind) == value]
            if kind == "column" and not all(_is_clear(one, graphs) for one in named):
                continue
            taken = {_values(one)[kind] for one in about if kind in _values(one)}
            near = (
                NEAR_COLOURS if kind == "colour" else ()
            )  # as clearly different as a change would be
            others = [
                other
                for other in _alternatives(kind, claim)
                if other not in taken and not any(frozenset((other, one)) in near for one in taken)
            ]
            for other in rng.sample(others, min(len(others), MOST_ALTERNATIVES)):
                becomes = {one: _set_value(one, kind, other) for one in named}
                if _is_possible(
                    tuple(becomes.values()), [one for one in claims if one not in becomes]
                ):
                    yield Edit(kind, f"{kind.replace('_', ' ')} {value} -> {other}", becomes)


def _values(claim: Claim) -> dict[str, str | int]:
    """Return the editable values of a claim: the place, or a thing's number and attributes."""
    if claim.kind == "place":
        return {"place": claim.value}
    named = {name: value for name, value in vars(claim.selector).items() if value is not None}
    if claim.kind == "count" or (claim.kind == "exists" and named):
        named["count"] = claim.count or 1
    return named if claim.kind in MENTIONING else {}


def _is_about_same(claim: Claim, other: Claim, graphs: Graphs) -> bool:
    """Return whether two claims are about the same thing, or both about the place or the number of all things."""
    if "place" in (claim.kind, other.kind):
        return claim.kind == other.kind
    return claim == other or bool(_things(claim, graphs) & _things(other, graphs))


def _things(claim: Claim, graphs: Graphs) -> set[str]:
    """Return the things that a claim names in its photograph or, if it denies them, in the other one."""
    graph = graphs[1 - claim.side if claim.kind == "absent" else claim.side]
    shown = (
        claim.selector.select(graph) if claim.kind in MENTIONING and claim.selector.shape else []
    )
    return {f"{graph.world} {thing.id}" for thing in shown}


def _is_clear(claim: Claim, graphs: Graphs) -> bool:
    graph = graphs[1 - claim.side if claim.kind == "absent" else claim.side]
    middles = (
        (thing.box[0] + thing.box[2]) / 2 / thing.mask.width
        for thing in claim.selector.select(graph)
    )
    return all(abs(middle - boundary) >= CLEAR for middle in middles for boundary in (1 / 3, 2 / 3))


def _alternatives(kind: str, claim: Claim) -> Sequence[str | int]:
    if kind == "place":
        return tuple(PREPOSITIONS)
    if kind == "count":
        # "A ball" has no number to edit: a text that counts says "one ball".
        return (
            [n for n in (claim.count - 1, claim.count + 1) if n > 0]
            if claim.kind == "count"
            else []
        )
    if kind == "pose":
        return SHAPES[claim.selector.shape].poses if claim.selector.shape in SHAPES else ()
    return SCENE_WORDS[kind]


def _set_value(claim: Claim, kind: str, value: str | int) -> Claim:
    if kind in ("place", "count"):
        return claim.model_copy(update={"value" if kind == "place" else kind: value})
    return claim.model_copy(update={"selector": claim.selector.model_copy(update={kind: value})})


def _is_possible(edited: Sequence[Claim], others: Sequence[Claim]) -> bool:
    """Return whether scenes may hold such things, and the text tells them from others of the same photograph."""
    named = [(one.side, one.other if one.kind == "relation" else one.selector) for one in others]
    looks = {(side, selector.shape, selector.colour) for side, selector in named if selector.shape}
    return all(
        _is_rendered(one.selector, one.count)
        and (one.side, one.selector.shape, one.selector.colour) not in looks
        for one in edited
    )


def _is_rendered(selector: Selector, count: int) -> bool:
    kind = SHAPES.get(selector.shape or "")
    if kind is None:
        return True
    allowed = {
        "colour": colours_of(selector.shape or "", selector.material or ""),
        "material": kind.materials,
        "size": kind.sizes,
        "pose": kind.poses,
        "facing": SCENE_WORDS["facing"] if kind.front else (),
        "text": SCENE_WORDS["text"] if selector.shape == "sign" else (),
        "rests_on": SCENE_WORDS["rests_on"] if kind.rides else (),
    }
    named = {name: getattr(selector, name) for name in allowed}
    return (count < 2 or kind.repeats) and all(
        value in allowed[name] for name, value in named.items() if value
    )


STAGE = Stage(
    name="edited",
    version=8,
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=edit_texts,
    config=lambda profile: profile.complete(profile.rejected_texts),
    prompts=(TEMPLATE,),
    uses=TRUTH_USES,
)
