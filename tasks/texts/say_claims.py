"""Word claims as a text of a given kind: changes, a sentence per image, a list, a few words (ours).

A description fills a template with two halves; this words all of its claims as an answer to a
prompt that asks for another kind. Rejected texts are worded alike from their own claims, so that no
kind reveals them. Needs ``prompts/answer_sentences.j2``.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from random import Random
from typing import Literal, get_args

from pairwright.prompts import load_wordings
from pairwright.schemas import phrases
from pairwright.schemas.claims import Claim
from pairwright.schemas.phrases import SPOKEN

Kind = Literal["template", "changes", "sentences", "list", "short"]
KINDS: tuple[Kind, ...] = get_args(Kind)
OF_ANY_PAIR: tuple[Kind, ...] = ("template", "sentences")
"""Kinds that do not describe one scene before and after."""
ORDINALS = ("first", "second")
MENTIONING = ("exists", "absent", "count")
PLACED = ("rests_on", "column", "depth")
Phrased = Literal["place", "light", "viewpoint"]
VIEWS: tuple[Phrased, ...] = ("light", "viewpoint")
LIGHT = re.compile(r"(dim|bright) (\w+) light (from .+)")
SINGULAR_VERBS = {"is_": "is", "has": "has", "was": "was"}
PLURAL_VERBS = {"is_": "are", "has": "have", "was": "were"}
PHOTOGRAPHS: dict[tuple[str, str], str] = {
    ("usual light", "dim light"): "is darker",
    ("dim light", "usual light"): "is brighter",
    ("usual light", "bright light"): "is brighter",
    ("bright light", "usual light"): "is darker",
    ("usual light", "warm light"): "has warmer colours",
    ("warm light", "usual light"): "has cooler colours",
    ("usual light", "cool light"): "has cooler colours",
    ("cool light", "usual light"): "has warmer colours",
    ("the usual view", "soft focus"): "is blurred",
    ("soft focus", "the usual view"): "is sharper",
    ("the usual view", "a closer view"): "shows a little less of the scene",
    ("a closer view", "the usual view"): "shows a little more of the scene",
}
"""What the second of two photographs does, by the light or the view of both."""
VERSUS_SHARE = 0.12  # share of changes worded as a contrast of the two images


@dataclass(frozen=True, slots=True)
class Teller:
    """Claims about two photographs, and a source of variety."""

    claims: Sequence[Claim]
    rng: Random
    style: Literal["", "brief_"] = ""

    def say(self, kind: str, **values: object) -> str:
        """Choose a wording."""
        return load_wordings("answer_sentences").say(f"{self.style}{kind}", self.rng, **values)

    def object_claims(self, side: int) -> list[Claim]:
        """Return the claims about the objects of one photograph."""
        return [claim for claim in self.claims if claim.side == side and claim.kind in MENTIONING]

    def of_kind(self, kind: Phrased) -> dict[int, str]:
        """Return the light, the viewpoint or the place by side."""
        return {claim.side: claim.value for claim in self.claims if claim.kind == kind}

    @property
    def place(self) -> str:
        """Return the place of both photographs; empty: none is named, or two are."""
        places = set(self.of_kind("place").values())
        return places.pop() if len(places) == 1 else ""

    def phrase_claim(self, claim: Claim, *, definite: bool = False) -> str:
        """Return the noun phrase of a claim, with the object's relation."""
        if claim.kind == "absent":
            return phrases.some(claim.selector, 0)
        is_plural = claim.count > 1
        if definite and is_plural:
            phrase = f"the {phrases.some(claim.selector, claim.count)}"
        elif definite:
            phrase = phrases.the(claim.selector)
        elif is_plural or claim.kind == "count":
            phrase = phrases.some(claim.selector, claim.count)
        else:
            phrase = phrases.some(claim.selector)
        return phrase + self.relation(claim)

    def relation(self, claim: Claim) -> str:
        """Return the claimed relation, as in " to the left of the blue lamp"; empty: none."""
        for related in self.claims:
            is_same = related.side == claim.side and related.selector == claim.selector
            if related.relation and is_same:
                return f" {SPOKEN[related.relation]} {phrases.the(related.other)}"
        return ""


def say_claims(
    claims: Sequence[Claim],
    kind: Kind,
    rng: Random,
) -> str:
    """Return a text of the kind with all claims; the template only words unchanged scenes."""
    teller = Teller(claims, rng, "brief_" if kind == "short" else "")
    if any(claim.kind == "no_change" for claim in claims):
        return _say_unchanged(teller, kind)
    if kind == "sentences":
        return " ".join(_sentence(_say_image(teller, side)) for side in (0, 1))
    clauses = list(_say_changes(teller))
    if teller.place:
        return _join_clauses(clauses, kind, setting=phrases.within(teller.place))
    if kind == "short":
        return _sentence("; ".join(clauses))
    if kind == "list":
        return _number(clauses)
    return " ".join(map(_sentence, clauses))


def _join_clauses(clauses: Sequence[str], kind: Kind, *, setting: str) -> str:
    """Return the clauses as one text that names the place of both photographs."""
    if kind == "short":
        return _sentence(f"{'; '.join(clauses)}, {setting}")
    if kind == "list":
        return _number(clauses, f"{phrases.capital(setting)}:")
    first, *others = clauses
    return " ".join(map(_sentence, [f"{setting}, {first}", *others]))


def surely_said(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims that every kind of text makes equally strongly.

    "The red lamp on the left is gone" is said of a lamp that disappeared, and also of one that only
    moved.
    """
    teller = Teller(claims, Random(0))
    weaker: list[Claim] = []
    for first, second in zip(teller.object_claims(0), teller.object_claims(1), strict=False):
        for present, absent in ((first, second), (second, first)):
            if not _denies(present, absent):
                continue
            if present.selector != absent.selector or teller.relation(present):
                weaker.append(absent)
    return [claim for claim in claims if claim not in weaker]


def _sentence(text: str) -> str:
    return f"{phrases.capital(text)}."


def _number(clauses: Sequence[str], heading: str = "") -> str:
    lines: list[str] = []
    if heading:
        lines.append(heading)
    for number, clause in enumerate(clauses, 1):
        lines.append(f"{number}. {_sentence(clause)}")
    return "\n".join(lines)


def _say_image(teller: Teller, side: int) -> str:
    mentions = teller.object_claims(side)
    present = [teller.phrase_claim(claim) for claim in mentions if claim.kind != "absent"]
    missing = [teller.phrase_claim(claim) for claim in mentions if claim.kind == "absent"]
    missing_phrase = phrases.joined(missing, "or").replace("or no ", "or ")
    parts = [phrases.joined(present), missing_phrase]
    content = " but ".join(filter(None, parts))
    place = teller.of_kind("place").get(side)
    is_mentioned = side == 1 and teller.place  # by the first image's sentence
    if place and not is_mentioned:
        content = f"{content} {phrases.within(place)}"
    kind = "image" if present else "image_without"
    return teller.say(kind, ordinal=ORDINALS[side], things=content)


def _say_changes(teller: Teller) -> Iterator[str]:
    """Yield one clause per change, then the places, if they differ."""
    for before, after in zip_longest(teller.object_claims(0), teller.object_claims(1)):
        yield _say_change(before, after, teller)
    places = teller.of_kind("place")
    if places and not teller.place:
        yield teller.say("places", first=places[0], second=places[1])


def _say_change(
    before: Claim | None,
    after: Claim | None,
    teller: Teller,
) -> str:
    if before is None:
        assert after is not None
        return _say_single(after, teller)
    if after is None:
        return _say_single(before, teller)
    if _denies(before, after):
        return _say_gone(before, teller)
    if _denies(after, before):
        return teller.say("new", **_wording_values(after, teller))
    is_versus = teller.rng.random() < VERSUS_SHARE
    has_same_words = before.selector == after.selector
    kinds = {before.kind, after.kind}
    if is_versus:
        return _say_versus(before, after, teller)
    if has_same_words and kinds == {"count"}:
        return _say_numbers(before, after, teller)
    if not has_same_words and kinds == {"exists"}:
        return _say_became(before, after, teller)
    return _say_versus(before, after, teller)


def _say_versus(before: Claim, after: Claim, teller: Teller) -> str:
    return teller.say(
        "versus", first=teller.phrase_claim(before), second=teller.phrase_claim(after)
    )


def _say_single(claim: Claim, teller: Teller) -> str:
    """Word a change that has a claim about one image only."""
    return teller.say("single", ordinal=ORDINALS[claim.side], things=teller.phrase_claim(claim))


def _say_gone(claim: Claim, teller: Teller) -> str:
    values = _wording_values(claim, teller)
    carrier = claim.selector.rests_on
    if carrier is None:
        return teller.say("gone", **values)
    # It was taken off the object that it rested on.
    support = f" {phrases.surface('rests_on', carrier)}"
    values = {name: value.replace(support, "") for name, value in values.items()}
    return teller.say("taken", carrier=phrases.with_article(carrier), **values)


def _say_numbers(
    before: Claim,
    after: Claim,
    teller: Teller,
) -> str:
    selector = before.selector
    verbs = SINGULAR_VERBS if after.count == 1 else PLURAL_VERBS
    return teller.say(
        "numbers",
        things=phrases.noun(selector, 2) + phrases.tail(selector, 2),
        first=phrases.spell_number(before.count),
        second=phrases.spell_number(after.count),
        first_things=phrases.some(selector, before.count),
        second_things=phrases.some(selector, after.count),
        is_=verbs["is_"],
    )


def _denies(present: Claim, absent: Claim) -> bool:
    """Return whether a denied object is a present one, described in the same or fewer words."""
    if present.kind == "absent" or absent.kind != "absent":
        return False
    denied = absent.selector.model_dump(exclude_none=True)
    attributes = present.selector.model_dump()
    return denied.items() <= attributes.items()


def _wording_values(claim: Claim, teller: Teller) -> dict[str, str]:
    verbs = PLURAL_VERBS if claim.count > 1 else SINGULAR_VERBS
    return {
        "thing": teller.phrase_claim(claim, definite=True),
        "a_thing": teller.phrase_claim(claim),
        "bare": phrases.bare(teller.phrase_claim(claim)),
        **verbs,
    }


def _say_became(
    before: Claim,
    after: Claim,
    teller: Teller,
) -> str:
    old = before.selector.model_dump()
    new = after.selector.model_dump()
    changed = [name for name in old if old[name] != new[name]]
    is_named = all(old[name] and new[name] for name in changed)
    relation = teller.relation(after)
    values = _wording_values(before, teller)
    values["new_thing"] = teller.phrase_claim(after)
    if is_named and set(changed) <= set(PLACED):
        positions = [phrases.surface(name, new[name]) for name in PLACED if name in changed]
        return teller.say("became_place", **values, new=" ".join(positions) + relation)
    if "shape" in changed:
        return teller.say("replaced", **values)
    name = changed[0]
    if len(changed) > 1 or old[name] is None or new[name] is None or relation:
        return teller.say("became", **values)
    return teller.say(f"became_{name}", **values, new=phrases.surface(name, new[name]))


def _say_unchanged(teller: Teller, kind: Kind) -> str:
    same = teller.say("unchanged")
    statements = [same, *_say_views(teller)]
    objects = phrases.joined([teller.phrase_claim(claim) for claim in teller.object_claims(0)])
    setting = teller.place
    if objects and setting:
        setting = phrases.within(setting)
    content = " ".join(filter(None, [objects, setting]))
    shows = f"both images show {content}"
    if kind == "list":
        return _number([*statements, shows])
    if kind == "short":
        return _sentence(f"{', '.join(statements)}: {content}")
    sentences = [_sentence("; ".join(statements)), _sentence(shows)]
    if kind == "sentences":
        sentences.reverse()
    return " ".join(sentences)


def _say_views(teller: Teller) -> list[str]:
    """Return a clause about light and viewpoint, if any of them differs."""
    differing: dict[str, tuple[str, str]] = {}
    for name in VIEWS:
        by_side = teller.of_kind(name)
        if len(set(by_side.values())) > 1:
            differing[name] = (by_side[0], by_side[1])
    if not differing:
        return []
    contrasts = [PHOTOGRAPHS.get(pair) for pair in differing.values()]
    if all(contrasts):
        return [
            teller.say("view_photograph", changes=phrases.joined(list(filter(None, contrasts))))
        ]
    values: dict[str, str] = {}
    if "viewpoint" in differing:
        values["first_viewpoint"], values["second_viewpoint"] = differing["viewpoint"]
    if "light" in differing:
        values["light"] = _contrast_lights(*differing["light"])
    kind = "view_both" if len(differing) > 1 else f"view_{next(iter(differing))}"
    return [teller.say(kind, **values)]


def _contrast_lights(first: str, second: str) -> str:
    """Return how the second light differs: "is dimmer and comes from the left"."""
    old = LIGHT.fullmatch(first)
    new = LIGHT.fullmatch(second)
    if not old or not new:
        return f"differs, {first} in the first image and {second} in the second"
    changes: list[str] = []
    if old[1] != new[1]:
        changes.append("is dimmer" if new[1] == "dim" else "is brighter")
    if old[2] != new[2]:
        changes.append(f"is {new[2]} instead of {old[2]}")
    if old[3] != new[3]:
        changes.append(f"comes {new[3]}")
    return phrases.joined(changes)
