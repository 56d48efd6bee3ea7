"""Word claims as a given kind of text: changes one by one, a sentence per image, a list, a few words (ours).

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
from pairwright.schemas.claims import Claim, Selector
from pairwright.schemas.phrases import SPOKEN

Kind = Literal["template", "changes", "sentences", "list", "short"]
KINDS: tuple[Kind, ...] = get_args(Kind)
OF_ANY_PAIR: tuple[Kind, ...] = (
    "template",
    "sentences",
)  # kinds that do not tell of one scene before and after
ORDINALS = ("first", "second")
MENTIONING = ("exists", "absent", "count")
PLACED = ("rests_on", "column", "depth")
Phrased = Literal["place", "light", "viewpoint"]
VIEWS: tuple[Phrased, ...] = ("light", "viewpoint")
LIGHT = re.compile(r"(dim|bright) (\w+) light (from .+)")
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

    def mentions(self, side: int) -> list[Claim]:
        """Return the claims about the things of one photograph."""
        return [
            a
            for a in self.claims
            if a.side == side and a.kind in MENTIONING and a.selector != Selector()
        ]

    def totals(self, side: int) -> list[str]:
        """Return the phrases of the numbers of all things of one photograph."""
        found = (
            a
            for a in self.claims
            if a.side == side and a.kind == "count" and a.selector == Selector()
        )
        return [phrases.some(claim.selector, claim.count) for claim in found]

    def of_kind(self, kind: Phrased) -> dict[int, str]:
        """Return the light, the viewpoint or the place by side."""
        return {claim.side: claim.value for claim in self.claims if claim.kind == kind}

    @property
    def place(self) -> str:
        """Return the place of both photographs; empty: none is named, or two are."""
        places = set(self.of_kind("place").values())
        return places.pop() if len(places) == 1 else ""

    def phrase(self, claim: Claim, *, definite: bool = False) -> str:
        """Return the noun phrase of a claim, with the thing's relation."""
        if claim.kind == "absent":
            return phrases.some(claim.selector, 0)
        count = claim.count if claim.count > 1 else None
        if not definite:
            words = phrases.some(claim.selector, claim.count if claim.kind == "count" else count)
        else:
            words = (
                f"the {phrases.some(claim.selector, count)}"
                if count
                else phrases.the(claim.selector)
            )
        return words + self.beside(claim)

    def beside(self, claim: Claim) -> str:
        """Return the claimed relation of a thing, as in " to the left of the blue lamp"; empty: none."""
        for one in self.claims:
            if one.relation and (one.side, one.selector) == (claim.side, claim.selector):
                return f" {SPOKEN[one.relation]} {phrases.the(one.other)}"
        return ""


def say_claims(claims: Sequence[Claim], kind: Kind, rng: Random) -> str:
    """Return a text of the kind with all claims; the template itself is only for unchanged scenes."""
    teller = Teller(claims, rng, "brief_" if kind == "short" else "")
    if any(claim.kind == "no_change" for claim in claims):
        return _say_unchanged(teller, kind)
    if kind == "sentences":
        return " ".join(_sentence(_say_image(teller, side)) for side in (0, 1))
    clauses = list(_say_changes(teller))
    setting = phrases.within(teller.place) if teller.place else ""
    if kind == "short":
        return _sentence("; ".join(clauses) + (f", {setting}" if setting else ""))
    if kind == "list":
        return _number(clauses, f"{phrases.capital(setting)}:" if setting else "")
    if setting:
        clauses[0] = f"{setting}, {clauses[0]}"
    return " ".join(map(_sentence, clauses))


def surely_said(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims that every kind of text makes equally strongly.

    "The red lamp on the left is gone" is said of a lamp that disappeared, and also of one that only
    moved.
    """
    teller = Teller(claims, Random(0))
    weaker: list[Claim] = []
    for pair in zip(teller.mentions(0), teller.mentions(1), strict=False):
        for thing, absent in (pair, pair[::-1]):
            more = thing.selector != absent.selector or bool(teller.beside(thing))
            if absent.kind == "absent" and _denies(thing, absent) and more:
                weaker.append(absent)
    return [claim for claim in claims if claim not in weaker]


def _sentence(text: str) -> str:
    return f"{phrases.capital(text)}."


def _number(clauses: Sequence[str], head: str = "") -> str:
    return "\n".join(
        [*filter(None, [head]), *(f"{n}. {_sentence(text)}" for n, text in enumerate(clauses, 1))]
    )


def _say_image(teller: Teller, side: int) -> str:
    said = teller.mentions(side)
    there = [teller.phrase(claim) for claim in said if claim.kind != "absent"]
    missing = [teller.phrase(claim) for claim in said if claim.kind == "absent"]
    there += [f"{things} in all" for things in teller.totals(side)]
    things = " but ".join(
        filter(
            None, [phrases.joined(there), phrases.joined(missing, "or").replace("or no ", "or ")]
        )
    )
    place = "" if side == 1 and teller.place else teller.of_kind("place").get(side, "")
    return teller.say(
        "image" if there else "image_without",
        ordinal=ORDINALS[side],
        things=f"{things} {phrases.within(place)}" if place else things,
    )


def _say_changes(teller: Teller) -> Iterator[str]:
    """Yield one clause per change, then the numbers of all objects, and places that differ."""
    for pair in zip_longest(teller.mentions(0), teller.mentions(1)):
        yield _say_change(*pair, teller)
    for side in (0, 1):
        for things in teller.totals(side):
            yield teller.say("total", ordinal=ORDINALS[side], things=things)
    places = teller.of_kind("place")
    if places and not teller.place:
        yield teller.say("places", first=places[0], second=places[1])


def _say_change(before: Claim | None, after: Claim | None, teller: Teller) -> str:
    if before is None or after is None:
        only = before or after
        assert only is not None
        return teller.say("single", ordinal=ORDINALS[only.side], things=teller.phrase(only))
    if after.kind == "absent" and _denies(before, after):
        values, carrier = _wording_values(before, teller), before.selector.rests_on
        if carrier is None:
            return teller.say("gone", **values)
        # it was taken off the thing that it rested on
        where = f" {phrases.surface('rests_on', carrier)}"
        values = {name: words.replace(where, "") for name, words in values.items()}
        return teller.say("taken", carrier=phrases.with_article(carrier), **values)
    if before.kind == "absent" and _denies(after, before):
        return teller.say("new", **_wording_values(after, teller))
    plain, kinds, selector = (
        teller.rng.random() < VERSUS_SHARE,
        {before.kind, after.kind},
        before.selector,
    )
    if not plain and selector == after.selector and kinds == {"count"}:
        return teller.say(
            "numbers",
            things=phrases.noun(selector, 2) + phrases.tail(selector, 2),
            first=phrases.number(before.count),
            second=phrases.number(after.count),
            first_things=phrases.some(selector, before.count),
            second_things=phrases.some(selector, after.count),
            is_="is" if after.count == 1 else "are",
        )
    if not plain and kinds == {"exists"} and selector != after.selector:
        return _say_became(before, after, teller)
    return teller.say("versus", first=teller.phrase(before), second=teller.phrase(after))


def _denies(thing: Claim, absent: Claim) -> bool:
    """Return whether a denied thing is this thing in the same or fewer words."""
    named = absent.selector.model_dump(exclude_none=True)
    return thing.kind != "absent" and named.items() <= thing.selector.model_dump().items()


def _wording_values(claim: Claim, teller: Teller) -> dict[str, str]:
    many = claim.count > 1
    return {
        "thing": teller.phrase(claim, definite=True),
        "a_thing": teller.phrase(claim),
        "bare": phrases.bare(teller.phrase(claim)),
        "is_": "are" if many else "is",
        "has": "have" if many else "has",
        "was": "were" if many else "was",
    }


def _say_became(before: Claim, after: Claim, teller: Teller) -> str:
    old, new = before.selector.model_dump(), after.selector.model_dump()
    differ = [name for name in old if old[name] != new[name]]
    name = differ[0]
    values = {**_wording_values(before, teller), "new_thing": teller.phrase(after)}
    if set(differ) <= {*PLACED} and all(old[name] and new[name] for name in differ):
        where = " ".join(phrases.surface(name, new[name]) for name in PLACED if name in differ)
        return teller.say("became_place", **values, new=where + teller.beside(after))
    if "shape" in differ:
        return teller.say("replaced", **values)
    if len(differ) > 1 or old[name] is None or new[name] is None or teller.beside(after):
        return teller.say("became", **values)
    return teller.say(f"became_{name}", **values, new=phrases.surface(name, new[name]))


def _say_unchanged(teller: Teller, kind: Kind) -> str:
    same = teller.say("unchanged")
    views = _say_views(teller)
    things = phrases.joined([teller.phrase(claim) for claim in teller.mentions(0)])
    where = phrases.within(teller.place) if things and teller.place else teller.place
    shows = f"both images show {' '.join(filter(None, [things, where]))}"
    if kind == "list":
        return _number([same, *views, shows])
    if kind == "short":
        return _sentence(f"{', '.join([same, *views])}: {shows.removeprefix('both images show ')}")
    said = [_sentence("; ".join([same, *views])), _sentence(shows)]
    return " ".join(said[::-1] if kind == "sentences" else said)


def _say_views(teller: Teller) -> list[str]:
    views = {name: teller.of_kind(name) for name in VIEWS}
    differ = {
        name: (both[0], both[1]) for name, both in views.items() if len(set(both.values())) > 1
    }
    values: dict[str, str] = {}
    if "viewpoint" in differ:
        values["first_viewpoint"], values["second_viewpoint"] = differ["viewpoint"]
    if "light" in differ:
        first, second = differ["light"]
        values["light"] = f"differs, {first} in the first image and {second} in the second"
        old, new = LIGHT.fullmatch(first), LIGHT.fullmatch(second)
        if old and new:  # "is dimmer and comes from the left"
            said = ["is dimmer" if new[1] == "dim" else "is brighter"] if old[1] != new[1] else []
            said += [f"is {new[2]} instead of {old[2]}"] if old[2] != new[2] else []
            values["light"] = phrases.joined(
                [*said, f"comes {new[3]}"] if old[3] != new[3] else said
            )
    return (
        [teller.say("view_both" if len(differ) > 1 else f"view_{next(iter(differ))}", **values)]
        if differ
        else []
    )
