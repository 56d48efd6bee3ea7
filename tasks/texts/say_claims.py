"""Word claims as a text of a given kind: changes, a sentence per image, a list, a few words (ours).

A description fills a template with two halves; this words all of its claims as an answer to a
prompt that asks for another kind. Rejected texts are worded alike from their own claims, so that no
kind reveals them. Needs ``prompts/answer_sentences.j2``.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from random import Random
from typing import Literal, get_args

from pairwright.prompts import load_wordings
from pairwright.prompts.difference_prompts import UNCHANGED
from pairwright.schemas import phrases
from pairwright.schemas.claims import Claim
from pairwright.schemas.phrases import SPOKEN

Kind = Literal["template", "changes", "sentences", "list", "short"]
KINDS: tuple[Kind, ...] = get_args(Kind)
OF_ANY_PAIR: tuple[Kind, ...] = ("template", "sentences")
"""Kinds that do not describe one scene before and after."""
ORDINALS = ("first", "second")
MENTIONING = ("exists", "absent", "count")
POSITION = ("column", "depth")
ADJECTIVES = ("size", "colour", "material")
"""Attributes whose words stand before the noun, in order."""
SINGLE = ("colour", "material", "size", "facing", "pose", "text")
"""Attributes with wordings of their own change."""
Phrased = Literal["place", "light", "viewpoint"]
VIEWS: tuple[Phrased, ...] = ("light", "viewpoint")
SINGULAR_VERBS = {"is_": "is", "has": "has", "was": "was"}
PLURAL_VERBS = {"is_": "are", "has": "have", "was": "were"}
USUAL = {"light": "usual light", "viewpoint": "the usual view"}
UNUSUAL = {
    "dim light": "darker",
    "bright light": "brighter",
    "warm light": "warmer in colour",
    "cool light": "cooler in colour",
    "soft focus": "blurred",
    "a closer view": "a little closer",
}
"""What a photograph is beside a usual one, by its light or view."""
FRAGMENT_SHARE = 0.5  # share of short texts that are no sentences


Style = Literal["", "brief_", "short_"]
"""Prefix of the kinds of wordings: of other texts, and of fragments or sentences in short ones."""


@dataclass(frozen=True, slots=True)
class Teller:
    """Claims about two photographs, and a source of variety."""

    claims: Sequence[Claim]
    rng: Random
    style: Style = ""

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
        elif definite and claim.kind == "count":
            phrase = f"the only {phrases.bare(phrases.the(claim.selector))}"
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
    style: Style = ""
    if kind == "short":
        style = "brief_" if rng.random() < FRAGMENT_SHARE else "short_"
    teller = Teller(claims, rng, style)
    if any(claim.kind == "no_change" for claim in claims):
        return _say_unchanged(teller, kind)
    if kind == "sentences":
        second = _say_second(teller) or _say_image(teller, 1)
        return f"{_sentence(_say_image(teller, 0))} {_sentence(second)}"
    clauses = list(_say_changes(teller))
    if teller.place:
        return _join_clauses(clauses, kind, setting=phrases.within(teller.place))
    return _join_clauses(clauses, kind)


def _join_clauses(clauses: Sequence[str], kind: Kind, *, setting: str = "") -> str:
    """Return the clauses as one text; ``setting``: the place of both photographs."""
    if kind == "list":
        heading = f"{phrases.capital(setting)}:" if setting else ""
        return _number(clauses, heading)
    if setting:
        clauses = [f"{setting}, {clauses[0]}", *clauses[1:]]
    if kind == "short":
        has_commas = any(", " in clause for clause in clauses)
        return _sentence(("; " if has_commas else ", ").join(clauses))
    return " ".join(map(_sentence, clauses))


def surely_said(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims that every kind of text makes, as far as all make them.

    "The red lamp on the left is gone" is said of a lamp that disappeared, and also of one that only
    moved: no red lamp is on the left. Of a lamp to the left of a ball, it denies nothing that a
    claim can say.
    """
    teller = Teller(claims, Random(0))
    related = [claim.selector for claim in claims if teller.relation(claim)]
    return [
        claim
        for claim in _deny_as_named(claims)
        if claim.kind != "absent" or claim.selector not in related
    ]


def are_same_claims(first: Sequence[Claim], second: Sequence[Claim]) -> bool:
    """Return whether two texts say the same: equal claims in any order.

    What is gone is denied in the words of what was there, since some kinds of texts say no more.
    """
    return set(_deny_as_named(first)) == set(_deny_as_named(second))


def _deny_as_named(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims; a denial of what the other photograph shows is in the words for that."""
    said: list[Claim] = []
    for claim in claims:
        present = [other for other in claims if other.side != claim.side and _denies(other, claim)]
        if not present:
            said.append(claim)
        for other in present:
            said.append(claim.model_copy(update={"selector": other.selector}))
    return list(dict.fromkeys(said))


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
    present = [claim for claim in mentions if claim.kind != "absent"]
    missing = [teller.phrase_claim(claim) for claim in mentions if claim.kind == "absent"]
    missing_phrase = phrases.joined(missing, "or").replace("or no ", "or ")
    parts = [phrases.joined([teller.phrase_claim(claim) for claim in present]), missing_phrase]
    content = " but ".join(filter(None, parts))
    place = teller.of_kind("place").get(side)
    if place:
        content = f"{content} {phrases.within(place)}"
    kind = "image_second" if side == 1 else "image"
    if not present:
        kind = f"{kind}_without"
    is_plural = bool(present) and present[0].count > 1
    verbs = PLURAL_VERBS if is_plural else SINGULAR_VERBS
    return teller.say(kind, ordinal=ORDINALS[side], things=content, is_=verbs["is_"])


def _say_second(teller: Teller) -> str:
    """Word the second photograph by what differs from the first: "the second has none".

    Empty where that would leave open which object is meant, or a place or relation unsaid.
    """
    before, after = (teller.object_claims(side) for side in (0, 1))
    if len(before) != 1 or len(after) != 1 or teller.of_kind("place"):
        return ""
    return _say_beside(before[0], after[0], teller)


def _say_beside(before: Claim, after: Claim, teller: Teller) -> str:
    if teller.relation(before) or teller.relation(after):
        return ""
    if _denies(before, after):
        return teller.say("image_second_none")
    if before.selector == after.selector:
        count = _count_anew(before, after)
        return teller.say("image_second_count", second_count=count) if count else ""
    if before.kind == after.kind == "exists":
        other = _name_other(before, after)
        return teller.say("image_second_other", other=other) if other else ""
    return ""


def _count_anew(before: Claim, after: Claim) -> str:
    """Return how many of the same objects there are now, as a word; empty: not by one word.

    After "no ball", "one" is any number.
    """
    if before.kind == "absent" and after.kind == "exists":
        return phrases.spell_number(1)
    if before.kind == "absent" and after.count > 1:
        return phrases.spell_number(after.count)
    if before.kind == "count" and after.kind == "count":
        return phrases.spell_number(after.count)
    return ""


def _name_other(before: Claim, after: Claim) -> str:
    """Return "a blue one" or "one on the right"; empty unless one attribute has another value."""
    old = before.selector.model_dump()
    new = after.selector.model_dump()
    changed = {name for name in old if old[name] != new[name]}
    is_named = all(old[name] and new[name] for name in changed)
    if not is_named or (len(changed) > 1 and not changed <= set(POSITION)):
        return ""
    phrase = _name_attributes(after, changed)
    if changed <= set(ADJECTIVES):
        return f"{phrases.with_article(phrase)} one"
    return f"one {phrase}" if phrase else ""


def _say_changes(teller: Teller) -> Iterator[str]:
    """Yield one clause per change, then the places, if they differ."""
    for before, after in zip_longest(teller.object_claims(0), teller.object_claims(1)):
        yield _say_change(before, after, teller)
    places = teller.of_kind("place")
    if places and not teller.place:
        yield teller.say("places", first_place=places[0], second_place=places[1])


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
        return teller.say("gone", **_wording_values(before, teller))
    if _denies(after, before):
        return teller.say("new", **_wording_values(after, teller))
    has_same_words = before.selector == after.selector
    kinds = {before.kind, after.kind}
    if has_same_words and kinds == {"count"}:
        return _say_numbers(before, after, teller)
    if not has_same_words and kinds == {"exists"}:
        return _say_became(before, after, teller)
    return teller.say(
        "versus", first=teller.phrase_claim(before), second=teller.phrase_claim(after)
    )


def _say_single(claim: Claim, teller: Teller) -> str:
    """Word a change that has a claim about one image only."""
    values = _wording_values(claim, teller)
    return teller.say("single", ordinal=ORDINALS[claim.side], things=values["a_thing"], **values)


def _say_numbers(
    before: Claim,
    after: Claim,
    teller: Teller,
) -> str:
    selector = before.selector
    verbs = SINGULAR_VERBS if after.count == 1 else PLURAL_VERBS
    first_verbs = SINGULAR_VERBS if before.count == 1 else PLURAL_VERBS
    return teller.say(
        "numbers",
        first_count=phrases.spell_number(before.count),
        second_count=phrases.spell_number(after.count),
        first_things=phrases.some(selector, before.count),
        second_things=phrases.some(selector, after.count),
        is_=verbs["is_"],
        first_was=first_verbs["was"],
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
    changed = {name for name in old if old[name] != new[name]}
    relation = teller.relation(after)
    values = _wording_values(before, teller)
    values["new_thing"] = teller.phrase_claim(after)
    if "shape" in changed:
        return teller.say("replaced", **values)
    is_named = all(old[name] and new[name] for name in changed)
    is_beside = bool(relation) and changed.isdisjoint(POSITION)
    if not is_named or is_beside or not changed <= {*SINGLE, *POSITION}:
        return teller.say("became", **values)
    values["new"] = _name_attributes(after, changed) + relation
    if changed <= set(POSITION):
        if relation:
            return teller.say("became_place_beside", **values)
        return teller.say("became_place", **values | _contrast_values(before, after, teller))
    if len(changed) > 1:
        kind = "became" if changed & {"pose", "text"} else "became_several"
        return teller.say(kind, **values)
    [name] = changed
    return teller.say(f"became_{name}", **values | _contrast_values(before, after, teller))


def _name_attributes(claim: Claim, names: Collection[str]) -> str:
    """Return the words of some attributes: "small and on the left in the background".

    A new column is named with the depth, and a new depth with the column.
    """
    words: list[str] = []
    selector = claim.selector
    for name in SINGLE:
        value = getattr(selector, name)
        if name in names and value:
            words.append(phrases.surface(name, value))
    if not set(POSITION).isdisjoint(names):
        values = [(name, getattr(selector, name)) for name in POSITION]
        words.append(" ".join(phrases.surface(name, value) for name, value in values if value))
    return phrases.joined(words)


def _contrast_values(before: Claim, after: Claim, teller: Teller) -> dict[str, str]:
    """Return the words for a change of one attribute or of the position.

    ``it`` is the object without them: "the duck is facing away instead of left".
    """
    old = before.selector
    new = after.selector
    changed = [name for name in type(old).model_fields if getattr(old, name) != getattr(new, name)]
    names = POSITION if changed[0] in POSITION else (changed[0],)
    rest = old.model_copy(update=dict.fromkeys(names))
    relation = teller.relation(before)
    if changed[0] == "text":
        return {
            "it": phrases.the(rest) + relation,
            "bare_it": phrases.bare(phrases.the(rest)) + relation,
            "old": f"'{old.text}'",
            "new": f"'{new.text}'",
        }
    old_words = _name_attributes(before, names)
    new_words = _name_attributes(after, names)
    return {
        "it": phrases.the(rest) + relation,
        "bare_it": phrases.bare(phrases.the(rest)) + relation,
        "old": old_words,
        "new": new_words,
        "old_way": old_words.removeprefix("facing "),
        "old_spot": spot_of(old_words),
        "new_spot": spot_of(new_words),
        "old_state": old_words.split()[-1],
        "does": do_pose(new_words),
        "with_pose": new_words,
    }


def spot_of(position: str) -> str:
    """Return a position as a place to move from: "the left in the background"."""
    return position.removeprefix("on ").removeprefix("in ")


def do_pose(pose: str) -> str:
    """Return a pose as a verb phrase: "has its lid open", "is lying open"."""
    if pose.startswith("with "):
        return f"has {pose.removeprefix('with ')}"
    return f"is {pose}"


def _say_unchanged(teller: Teller, kind: Kind) -> str:
    content = _say_content(teller)
    same = [teller.say("unchanged"), *_say_views(teller)]
    if kind == "template":
        return UNCHANGED.format(first=content, second=phrases.capital("; ".join(same)))
    mentions = teller.object_claims(0)
    is_plural = bool(mentions) and mentions[0].count > 1
    verbs = PLURAL_VERBS if is_plural else SINGULAR_VERBS
    both = teller.say("both", things=content, is_=verbs["is_"])
    if kind == "sentences":
        return _join_clauses([both, *same], kind)
    return _join_clauses([*same, both], kind)


def _say_content(teller: Teller) -> str:
    """Return the objects of both photographs and their place."""
    objects = phrases.joined([teller.phrase_claim(claim) for claim in teller.object_claims(0)])
    if objects and teller.place:
        return f"{objects} {phrases.within(teller.place)}"
    return objects or teller.place


def _say_views(teller: Teller) -> list[str]:
    """Return a clause about light and viewpoint, if any of them differs."""
    differing: dict[Phrased, tuple[str, str]] = {}
    for name in VIEWS:
        by_side = teller.of_kind(name)
        if len(set(by_side.values())) > 1:
            differing[name] = (by_side[0], by_side[1])
    if not differing:
        return []
    unusual = _find_unusual(differing)
    if unusual:
        return [_say_photographs(unusual, teller)]
    values: dict[str, str] = {}
    for name, (first, second) in differing.items():
        values[f"first_{name}"] = first
        values[f"second_{name}"] = second
    kind = "view_both" if len(differing) > 1 else f"view_{next(iter(differing))}"
    return [teller.say(kind, **values)]


def _find_unusual(differing: Mapping[Phrased, tuple[str, str]]) -> dict[int, list[str]]:
    """Return by side what the photograph is beside a usual one; none unless all words say so."""
    unusual: dict[int, list[str]] = {}
    for name, (first, second) in differing.items():
        if first == USUAL[name] and second in UNUSUAL:
            unusual.setdefault(1, []).append(UNUSUAL[second])
        elif second == USUAL[name] and first in UNUSUAL:
            unusual.setdefault(0, []).append(UNUSUAL[first])
        else:
            return {}
    return unusual


def _say_photographs(unusual: Mapping[int, list[str]], teller: Teller) -> str:
    changes = {side: phrases.joined(names) for side, names in unusual.items()}
    if len(changes) == 2:
        return teller.say("view_photographs", first_changes=changes[0], second_changes=changes[1])
    [side] = changes
    return teller.say("view_photograph", ordinal=ORDINALS[side], changes=changes[side])
