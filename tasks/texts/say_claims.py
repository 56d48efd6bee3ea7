"""Say in a given kind of text what claims say: changes one by one, an image per sentence, a list, a few words.

A description is a template with two halves; this says the same, every claim of it, as an answer to a prompt that asks
for another kind. Rejected texts go through it with their own claims, so that no kind gives them away. Needs
``prompts/answer_sentences.j2``. Ours.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from random import Random
from typing import Literal, get_args

from pairwright.prompts import load_wordings
from pairwright.schemas.claims import Claim, Selector
from pairwright.schemas.phrases import (
    SPOKEN,
    bare,
    capital,
    joined,
    noun,
    number,
    some,
    surface,
    tail,
    the,
    with_article,
    within,
)

Kind = Literal["template", "changes", "sentences", "list", "short"]
KINDS: tuple[Kind, ...] = get_args(Kind)
OF_ANY_PAIR: tuple[Kind, ...] = ("template", "sentences")
"""Kinds that do not take the two photographs for one scene before and after."""
ORDINALS = ("first", "second")
MENTIONING = ("exists", "absent", "count")
PLACED = ("rests_on", "column", "depth")
"""Attributes that say where a thing is."""
Phrased = Literal["place", "light", "viewpoint"]
VIEWS: tuple[Phrased, ...] = ("light", "viewpoint")
LIGHT = re.compile(r"(dim|bright) (\w+) light (from .+)")
VERSUS_SHARE = 0.12
"""How often a change is said as what the one image shows and what the other."""
Pair = tuple[Claim | None, Claim | None]


@dataclass(frozen=True, slots=True)
class Teller:
    """What claims say of two photographs, and a source of variety."""

    claims: Sequence[Claim]
    rng: Random
    style: Literal["", "brief_"] = ""

    def say(self, kind: str, **values: object) -> str:
        """Choose a wording."""
        return load_wordings("answer_sentences").say(f"{self.style}{kind}", self.rng, **values)

    def mentions(self, side: int) -> list[Claim]:
        """Return what is said of the things of one photograph."""
        return [a for a in self.claims if a.side == side and a.kind in MENTIONING and a.selector != Selector()]

    def of_kind(self, kind: Phrased) -> dict[int, str]:
        """Return the light, the viewpoint or the place by side."""
        return {claim.side: claim.value for claim in self.claims if claim.kind == kind}

    @property
    def place(self) -> str:
        """Return the one place of both photographs; empty: none is named, or two are."""
        places = set(self.of_kind("place").values())
        return places.pop() if len(places) == 1 else ""

    def phrase(self, claim: Claim, *, definite: bool = False) -> str:
        """Return the noun phrase of a claim, with what the thing stands beside."""
        if claim.kind == "absent":
            return some(claim.selector, 0)
        count = claim.count if claim.count > 1 else None
        if not definite:
            return some(claim.selector, claim.count if claim.kind == "count" else count) + self.beside(claim)
        return (the(claim.selector) if count is None else f"the {some(claim.selector, count)}") + self.beside(claim)

    def beside(self, claim: Claim) -> str:
        """Return " to the left of the blue lamp" where that is claimed of the thing."""
        for one in self.claims:
            if one.relation and (one.side, one.selector) == (claim.side, claim.selector):
                return f" {SPOKEN[one.relation]} {the(one.other)}"
        return ""


def say_claims(claims: Sequence[Claim], kind: Kind, rng: Random) -> str:
    """Return a text of the kind that says all of the claims; the template itself is of unchanged scenes only."""
    teller = Teller(claims, rng, "brief_" if kind == "short" else "")
    if any(claim.kind == "no_change" for claim in claims):
        return _unchanged(teller, kind)
    if kind == "sentences":
        return " ".join(_sentence(_image(teller, side)) for side in (0, 1))
    clauses = list(_clauses(teller))
    setting = within(teller.place) if teller.place else ""
    if kind == "short":
        return _sentence("; ".join(clauses) + (f", {setting}" if setting else ""))
    if kind == "list":
        return _listed(clauses, f"{capital(setting)}:" if setting else "")
    if setting:
        clauses[0] = f"{setting}, {clauses[0]}"
    return " ".join(map(_sentence, clauses))


def surely_said(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims that every kind of text makes as strongly.

    "The red lamp on the left is gone" is said where there is no red lamp any more; and of one that only has moved.
    """
    teller = Teller(claims, Random(0))
    weaker: list[Claim] = []
    for pair in zip(teller.mentions(0), teller.mentions(1), strict=False):
        for thing, absent in (pair, pair[::-1]):
            more = thing.selector != absent.selector or bool(teller.beside(thing))
            if absent.kind == "absent" and _names(thing, absent) and more:
                weaker.append(absent)
    return [claim for claim in claims if claim not in weaker]


def _sentence(text: str) -> str:
    return f"{capital(text)}."


def _listed(clauses: Sequence[str], head: str = "") -> str:
    return "\n".join([*filter(None, [head]), *(f"{n}. {_sentence(text)}" for n, text in enumerate(clauses, 1))])


def _image(teller: Teller, side: int) -> str:
    """Say in one sentence what one photograph shows and lacks."""
    said = teller.mentions(side)
    there = [teller.phrase(claim) for claim in said if claim.kind != "absent"]
    missing = [teller.phrase(claim) for claim in said if claim.kind == "absent"]
    there += [some(claim.selector, claim.count) + " in all" for claim in _totals(teller, side)]
    things = " but ".join(filter(None, [joined(there), joined(missing, "or").replace("or no ", "or ")]))
    place = "" if side == 1 and teller.place else teller.of_kind("place").get(side, "")
    return teller.say(
        "image" if there else "image_without",
        ordinal=ORDINALS[side],
        things=f"{things} {within(place)}" if place else things,
    )


def _totals(teller: Teller, side: int) -> list[Claim]:
    return [a for a in teller.claims if a.side == side and a.kind == "count" and a.selector == Selector()]


def _clauses(teller: Teller) -> Iterator[str]:
    """Yield one clause per change, then what is said of all objects, and of places that differ."""
    for pair in zip_longest(teller.mentions(0), teller.mentions(1)):
        yield _clause(pair, teller)
    for side in (0, 1):
        for claim in _totals(teller, side):
            yield teller.say("total", ordinal=ORDINALS[side], things=some(claim.selector, claim.count))
    places = teller.of_kind("place")
    if places and not teller.place:
        yield teller.say("places", first=places[0], second=places[1])


def _clause(pair: Pair, teller: Teller) -> str:
    before, after = pair
    if before is None or after is None:
        only = before or after
        assert only is not None
        return teller.say("single", ordinal=ORDINALS[only.side], things=teller.phrase(only))
    if after.kind == "absent" and _names(before, after):
        return _gone(before, teller)
    if before.kind == "absent" and _names(after, before):
        return teller.say("new", **_subject(after, teller))
    plain = teller.rng.random() < VERSUS_SHARE
    if not plain and before.selector == after.selector and {before.kind, after.kind} == {"count"}:
        return _numbers(before, after, teller)
    if not plain and {before.kind, after.kind} == {"exists"} and before.selector != after.selector:
        return _became(before, after, teller)
    return teller.say("versus", first=teller.phrase(before), second=teller.phrase(after))


def _gone(claim: Claim, teller: Teller) -> str:
    """Say that a thing has gone: from where it stood, or off another on which it rested (and it is nowhere else)."""
    carrier = claim.selector.rests_on
    if carrier is None:
        return teller.say("gone", **_subject(claim, teller))
    where = f" {surface('rests_on', carrier)}"
    values = {name: words.replace(where, "") for name, words in _subject(claim, teller).items()}
    return teller.say("taken", carrier=with_article(carrier), **values)


def _names(thing: Claim, absent: Claim) -> bool:
    """Say whether what is denied is the thing in other, perhaps fewer, words."""
    named = absent.selector.model_dump(exclude_none=True)
    return thing.kind != "absent" and named.items() <= thing.selector.model_dump().items()


def _subject(claim: Claim, teller: Teller) -> dict[str, str]:
    many = claim.count > 1
    return {
        "thing": teller.phrase(claim, definite=True),
        "a_thing": teller.phrase(claim),
        "bare": bare(teller.phrase(claim)),
        "is_": "are" if many else "is",
        "has": "have" if many else "has",
        "was": "were" if many else "was",
    }


def _numbers(before: Claim, after: Claim, teller: Teller) -> str:
    selector = before.selector
    return teller.say(
        "numbers",
        things=noun(selector, 2) + tail(selector, 2),
        first=number(before.count),
        second=number(after.count),
        first_things=some(selector, before.count),
        second_things=some(selector, after.count),
        is_="is" if after.count == 1 else "are",
    )


def _became(before: Claim, after: Claim, teller: Teller) -> str:
    """Say what a thing has become: by the one attribute that differs, or as another thing."""
    old, new = before.selector.model_dump(), after.selector.model_dump()
    differ = [name for name in old if old[name] != new[name]]
    name = differ[0]
    values = {**_subject(before, teller), "new_thing": teller.phrase(after)}
    if set(differ) <= {*PLACED} and all(old[name] and new[name] for name in differ):
        where = " ".join(surface(name, new[name]) for name in PLACED if name in differ)
        return teller.say("became_place", **values, new=where + teller.beside(after))
    if "shape" in differ:
        return teller.say("replaced", **values)
    if len(differ) > 1 or old[name] is None or new[name] is None or teller.beside(after):
        return teller.say("became", **values)
    return teller.say(f"became_{name}", **values, new=surface(name, new[name]))


def _unchanged(teller: Teller, kind: Kind) -> str:
    """Say that nothing has changed, how light and viewpoint differ, and what both photographs show."""
    same = teller.say("unchanged")
    views = _views(teller)
    things = joined([teller.phrase(claim) for claim in teller.mentions(0)])
    where = within(teller.place) if things and teller.place else teller.place
    shows = f"both images show {' '.join(filter(None, [things, where]))}"
    if kind == "list":
        return _listed([same, *views, shows])
    if kind == "short":
        return _sentence(f"{', '.join([same, *views])}: {shows.removeprefix('both images show ')}")
    said = [_sentence("; ".join([same, *views])), _sentence(shows)]
    return " ".join(said[::-1] if kind == "sentences" else said)


def _views(teller: Teller) -> list[str]:
    """Say how the light, the viewpoint or both differ, if either does."""
    views = {name: teller.of_kind(name) for name in VIEWS}
    differ = {name: (both[0], both[1]) for name, both in views.items() if len(set(both.values())) > 1}
    values: dict[str, str] = {}
    if "light" in differ:
        values["light"] = _say_light(*differ["light"])
    if "viewpoint" in differ:
        values["first_viewpoint"], values["second_viewpoint"] = differ["viewpoint"]
    return [teller.say("view_both" if len(differ) > 1 else f"view_{next(iter(differ))}", **values)] if differ else []


def _say_light(first: str, second: str) -> str:
    """Return what follows "the light": "is dimmer and comes from the left"."""
    old, new = LIGHT.fullmatch(first), LIGHT.fullmatch(second)
    if old is None or new is None:
        return f"differs, {first} in the first image and {second} in the second"
    said = ["is dimmer" if new[1] == "dim" else "is brighter"] if old[1] != new[1] else []
    said += [f"is {new[2]} instead of {old[2]}"] if old[2] != new[2] else []
    return joined([*said, f"comes {new[3]}"] if old[3] != new[3] else said)
