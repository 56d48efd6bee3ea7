"""Make rejected texts by one small edit: an attribute, a number, a place or an object becomes another plausible one.

Reads ``DifferenceRow`` and, to check, the scene graphs of its pair; writes ``RejectedTextRow`` by the maker "edited".
Edits are made where a claim's own phrase stands once in its half, so that text and claims change alike. CPU, no
network.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from pairwright.prompts import load
from pairwright.schemas.claims import Claim
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.phrases import noun, number, some, tail, with_article, within
from pairwright.schemas.rows import DifferenceRow, Dropped, ImageRow, PairRow, RejectedTextRow, make_key
from pairwright.schemas.scene import PREPOSITIONS
from pairwright.tasks.rejected.check_texts import Truth, likeness, read_claims, rejected_row, truth_of
from pairwright.tasks.rejected.compare_words import SCENE_WORDS
from pairwright.tasks.store.stage import Stage, Uses

OPPOSITES = (
    ("lid open", "lid closed"),
    ("lying open", "lying closed"),
    ("arms raised", "arms lowered"),
    ("head raised", "head bowed"),
)
MENTIONING = ("exists", "absent", "count")
SIGNS = ("text", "pose", "facing")
"""Attributes that only some shapes have: an object that is described by one keeps its shape."""
HARD_TO_SEE = ("material", "size")
"""Kinds of edits that a look at the photographs hardly refutes: made only where no other edit is possible (ours)."""
MOST_ALTERNATIVES = 3
"""How many other words are tried for one attribute of one claim."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Be one change of a description: a phrase that becomes another, and a claim that becomes another."""

    kind: str
    phrase: str
    becomes: str
    old: Claim
    new: Claim
    note: str

    def applied(self, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
        """Return what the text claims after the edit: all that it says of the phrase's object changes alike."""
        if self.old.selector == self.new.selector:
            return tuple(self.new if claim == self.old else claim for claim in claims)
        return tuple(
            claim.model_copy(update={"selector": self.new.selector}) if self._concerns(claim) else claim
            for claim in claims
        )

    def _concerns(self, claim: Claim) -> bool:
        return claim.side == self.old.side and claim.selector == self.old.selector and claim.kind in MENTIONING


def edit_texts(
    rows: Sequence[DifferenceRow],
    config: RejectedTextsConfig,
    *,
    pairs: Mapping[str, PairRow],
    images: Mapping[str, ImageRow],
) -> Iterator[RejectedTextRow | Dropped]:
    """Yield one edited text per description, or ``Dropped`` where no edit makes it false."""
    for row in rows:
        yield _edit(row, Random(make_key("edited", config.seed, row.key)), truth_of(row, pairs, images))


def _edit(row: DifferenceRow, rng: Random, truth: Truth) -> RejectedTextRow | Dropped:
    claims = read_claims(row)
    if not claims:
        return Dropped(source_key=row.key, reason="no claims to edit")
    skipped = 0
    for edit in _dealt([edit for claim in dict.fromkeys(claims) for edit in _edits(claim, rng)], rng):
        text = _rewritten(row, edit)
        true = truth.of(edit.applied(claims)) if text else None
        if text and not true:
            note = edit.note + (", unchecked" if true is None else "")
            score = likeness(row.text, text)
            return rejected_row(row, text, maker="edited", note=note, score=score, skipped_true=skipped)
        skipped += bool(true)
    return Dropped(source_key=row.key, reason="no edit makes it false", detail=f"{skipped} left it true")


def _dealt(edits: list[Edit], rng: Random) -> list[Edit]:
    """Order the edits at random, kind by kind, so that what has many alternatives (shapes) is not most of them.

    What is hard to see comes last.
    """
    rng.shuffle(edits)
    turns: dict[str, int] = {}
    order: list[tuple[bool, int, float, Edit]] = []
    for edit in edits:
        turns[edit.kind] = turns.get(edit.kind, 0) + 1
        order.append((edit.kind in HARD_TO_SEE, turns[edit.kind], rng.random(), edit))
    return [entry[-1] for entry in sorted(order, key=lambda entry: entry[:-1])]


def _rewritten(row: DifferenceRow, edit: Edit) -> str | None:
    """Return the text with the edit; ``None`` where its phrase does not stand once in its half, or the new one does."""
    halves = [row.first_half, row.second_half]
    pattern = re.compile(rf"(?<![\w-])(?P<article>an? )?{re.escape(edit.phrase)}(?![\w-])")
    if len(pattern.findall(halves[edit.old.side])) != 1 or edit.becomes in halves[edit.old.side]:
        return None
    halves[edit.old.side] = pattern.sub(
        lambda match: with_article(edit.becomes) if match["article"] else edit.becomes, halves[edit.old.side]
    )
    values = {"first_verb": row.verbs[0], "first": halves[0], "second_verb": row.verbs[1], "second": halves[1]}
    text = load("difference_template").render(**values)
    return None if halves[0] == halves[1] else text


def _edits(claim: Claim, rng: Random) -> Iterator[Edit]:
    """Yield edits of what one claim says."""
    if claim.kind == "place":
        yield from _place_edits(claim, rng)
    if claim.kind == "count":
        yield from _count_edits(claim)
    if claim.kind in MENTIONING:
        yield from _attribute_edits(claim, rng)


def _place_edits(claim: Claim, rng: Random) -> Iterator[Edit]:
    for place in _some([place for place in PREPOSITIONS if place != claim.value], rng):
        new = claim.model_copy(update={"value": place})
        for words in (within, str):
            yield Edit("place", words(claim.value), words(place), claim, new, f"place {claim.value} -> {place}")


def _count_edits(claim: Claim) -> Iterator[Edit]:
    for count in (claim.count - 1, claim.count + 1):
        if count > 0:
            new = claim.model_copy(update={"count": count})
            note = f"count {number(claim.count)} -> {number(count)}"
            yield Edit("count", some(claim.selector, claim.count), some(claim.selector, count), claim, new, note)


def _attribute_edits(claim: Claim, rng: Random) -> Iterator[Edit]:
    count = claim.count if claim.kind == "count" else 1
    phrase = noun(claim.selector, count) + tail(claim.selector, count)
    for name, value in vars(claim.selector).items():
        if value is None or (name == "shape" and any(getattr(claim.selector, sign) for sign in SIGNS)):
            continue
        for other in _some(_others(name, value), rng):
            selector = claim.selector.model_copy(update={name: other})
            becomes = noun(selector, count) + tail(selector, count)
            new = claim.model_copy(update={"selector": selector})
            yield Edit(name, phrase, becomes, claim, new, f"{name} {value} -> {other}")


def _others(name: str, value: str) -> list[str]:
    if name == "pose":
        turned = [value.replace(a, b) for pair in OPPOSITES for a, b in (pair, pair[::-1])]
        return [pose for pose in dict.fromkeys(turned) if pose != value]
    return [word for word in SCENE_WORDS[name] if word != value]


def _some(words: list[str], rng: Random) -> list[str]:
    return rng.sample(words, min(len(words), MOST_ALTERNATIVES))


STAGE = Stage(
    name="edited",
    version=2,
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=edit_texts,
    config="rejected_texts",
    prompts=("difference_template",),
    uses=(
        Uses(table="pairs", row=PairRow),
        Uses(table="images", row=ImageRow, on="images", of="pairs", without=("image",)),
    ),
)
