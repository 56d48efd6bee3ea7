"""Make rejected texts by one small edit: an attribute, a number, a place or an object becomes another plausible one.

Reads ``DifferenceRow`` and, to check, the scene graphs of its pair; writes ``RejectedTextRow`` by the maker "edited".
Edits are made where a claim's own phrase stands once in its half, so that text and claims change alike.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from pairwright.prompts.differences import TEMPLATE, fill_template
from pairwright.schemas.claims import CLAIMS, Claim
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.phrases import noun, number, some, tail, with_article, within
from pairwright.schemas.rows import DifferenceRow, Dropped, Images, Pairs, RejectedTextRow, make_key
from pairwright.schemas.scene import PREPOSITIONS
from pairwright.tasks.rejected.check_texts import TRUTH_USES, Truth, rejected_row, truth_of
from pairwright.tasks.rejected.compare_words import SCENE_WORDS
from pairwright.tasks.store.stage import Stage

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
    """Change of a description: a phrase that becomes another, and a claim that becomes another."""

    kind: str
    phrase: str
    becomes: str
    old: Claim
    new: Claim
    note: str

    def apply(self, claim: Claim) -> Claim:
        """Return the claim after the edit: all that a text says of the phrase's object changes alike."""
        old, new = self.old, self.new
        if old.selector == new.selector:
            return new if claim == old else claim
        told = claim.kind in MENTIONING or claim.kind == "relation"
        concerned = told and (claim.side, claim.selector) == (old.side, old.selector)
        return claim.model_copy(update={"selector": new.selector}) if concerned else claim


def edit_texts(
    rows: Sequence[DifferenceRow], config: RejectedTextsConfig, *, pairs: Pairs, images: Images
) -> Iterator[RejectedTextRow | Dropped]:
    """Yield one edited text per description, or ``Dropped`` where no edit makes it false."""
    for row in rows:
        yield _edit(row, Random(make_key("edited", config.seed, row.key)), truth_of(row, pairs, images))


def _edit(row: DifferenceRow, rng: Random, truth: Truth) -> RejectedTextRow | Dropped:
    claims = CLAIMS.validate_json(row.claims)
    if not claims:
        return Dropped(source_key=row.key, reason="no claims to edit")
    skipped = 0
    for edit in _dealt([edit for claim in dict.fromkeys(claims) for edit in _edits(claim, rng)], rng):
        text = _rewritten(row, edit)
        if text is None:
            continue
        edited = tuple(map(edit.apply, claims))
        true = truth.of(edited)
        if not true:
            return rejected_row(
                row, text, maker="edited", note=edit.note, true=true, skipped_true=skipped, claims=edited
            )
        skipped += 1
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
    halves = [*row.halves]
    pattern = re.compile(rf"(?<![\w-])(?P<article>an? )?{re.escape(edit.phrase)}(?![\w-])")
    if len(pattern.findall(halves[edit.old.side])) != 1 or edit.becomes in halves[edit.old.side]:
        return None
    halves[edit.old.side] = pattern.sub(
        lambda match: with_article(edit.becomes) if match["article"] else edit.becomes, halves[edit.old.side]
    )
    return None if halves[0] == halves[1] else fill_template(row.verbs, *halves)


def _edits(claim: Claim, rng: Random) -> Iterator[Edit]:
    if claim.kind == "place":
        for place in _some([place for place in PREPOSITIONS if place != claim.value], rng):
            new = claim.model_copy(update={"value": place})
            for words in (within, str):
                yield Edit("place", words(claim.value), words(place), claim, new, f"place {claim.value} -> {place}")
    if claim.kind == "count":
        for count in (count for count in (claim.count - 1, claim.count + 1) if count > 0):
            new = claim.model_copy(update={"count": count})
            note = f"count {number(claim.count)} -> {number(count)}"
            yield Edit("count", some(claim.selector, claim.count), some(claim.selector, count), claim, new, note)
    if claim.kind in MENTIONING:
        yield from _attribute_edits(claim, rng)


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
    turned = (value.replace(a, b) for pair in OPPOSITES for a, b in (pair, pair[::-1]))
    return [word for word in (dict.fromkeys(turned) if name == "pose" else SCENE_WORDS[name]) if word != value]


def _some(words: list[str], rng: Random) -> list[str]:
    return rng.sample(words, min(len(words), MOST_ALTERNATIVES))


STAGE = Stage(
    name="edited",
    version=3,
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=edit_texts,
    config="rejected_texts",
    prompts=(TEMPLATE,),
    uses=TRUTH_USES,
)
