"""Read the claims of any text that is composed from claims: the inverse of ``say_claims`` (ours).

Reads and writes nothing. Noun phrases, places, lights and numbers become tokens; the rest of a
clause has to be one of the wordings that writers use, whose blanks take tokens. So a wording that
is added to a file of ``prompts`` is read, too. Of descriptions in other words than ours, only what
``read_phrases`` is sure of.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from pairwright.prompts import Wordings, difference_verbs, load_wordings
from pairwright.schemas.claims import Claim, Relation, Selector
from pairwright.schemas.phrases import SPOKEN as RELATIONS
from pairwright.schemas.phrases import TAIL, plural
from pairwright.schemas.scene import PLURALS, PREPOSITIONS
from pairwright.tasks.scenes.read_phrases import (
    COUNTS,
    MOST_CHARACTERS,
    SPOKEN,
    Reading,
    either,
    read_phrases,
)
from pairwright.tasks.scenes.vocabulary import (
    DIRECTIONS,
    HEIGHTS,
    SHAPES,
    SIDES,
    TINTS,
    Light,
    view_phrase,
)
from pairwright.tasks.texts.differences import Difference, read_difference
from pairwright.tasks.texts.say_claims import (
    ADJECTIVES,
    MENTIONING,
    ORDINALS,
    SINGLE,
    UNUSUAL,
    USUAL,
    Phrased,
    do_pose,
    spot_of,
)

Side = Literal[0, 1]
BOTH: tuple[Side, Side] = (0, 1)
POSES = {pose: pose for kind in SHAPES.values() for pose in kind.poses}
PLURAL_POSES = {
    re.sub(r"\bits (lid|head)\b", r"their \1s", pose).replace(" its ", " their "): pose
    for pose in POSES
}
WORDS: Mapping[str, Mapping[str, str]] = {**SPOKEN, "pose": {**POSES, **PLURAL_POSES}}
"""Words of each attribute, with the graph's value."""
STAND_INS = ("nouna", "nounb", "nounc", "nound", "noune", "nounf", "noung", "nounh")
"""Words that stand for nouns that the caller names."""
NOUNS = {
    **{words: shape for shape, words in PLURALS.items()},
    **{shape: shape for shape in PLURALS},
    **{f"{stand_in}s": stand_in for stand_in in STAND_INS},
    **{stand_in: stand_in for stand_in in STAND_INS},
}
LIGHTS = {
    USUAL["light"],
    *(name for name in UNUSUAL if name.endswith("light")),
    *(
        Light(direction, tint, dim).phrase
        for direction in DIRECTIONS
        for tint in TINTS
        for dim in (False, True)
    ),
}
VIEWPOINTS = {
    USUAL["viewpoint"],
    *(name for name in UNUSUAL if not name.endswith("light")),
    *(view_phrase(side, height) for side in SIDES for height in HEIGHTS),
}
DOES = {do_pose(pose): pose for pose in POSES}
STATES = {pose.split()[-1] for pose in POSES}
WAYS = {
    token_words.removeprefix("facing "): value for token_words, value in WORDS["facing"].items()
}
SPOTS = {
    **{spot_of(token_words): {"column": value} for token_words, value in WORDS["column"].items()},
    **{spot_of(token_words): {"depth": value} for token_words, value in WORDS["depth"].items()},
    **{
        f"{spot_of(column_words)} {depth_words}": {"column": column, "depth": depth}
        for column_words, column in WORDS["column"].items()
        for depth_words, depth in WORDS["depth"].items()
    },
}
"""Positions as places to move from and to."""
DETERMINER = rf"the only|the (?:{either(COUNTS)})|an?|the|no|{either(COUNTS)}"


def _noun_phrase(prefix: str) -> str:
    """Return the pattern of a noun phrase without determiner; its groups begin with a prefix."""
    adjectives = "".join(rf"(?:(?P<{prefix}{name}>{either(WORDS[name])}) )?" for name in ADJECTIVES)
    tails = "".join(
        rf"(?: (?P<{prefix}{name}>{either(WORDS[name])}))?" for name in TAIL if name != "text"
    )
    text = rf"(?: that says? '(?P<{prefix}text>\w+)')?"
    return rf"{adjectives}(?P<{prefix}noun>{either(NOUNS)})(?![\w'-]){tails}{text}"


RELATION = rf"(?P<relation>{either(RELATIONS.values())}) the {_noun_phrase('other_')}"
# Patterns are compiled when a text is first read, and kept by ``re``: most commands read none.
THING = rf"(?:(?P<determiner>{DETERMINER}) )?{_noun_phrase('')}(?: {RELATION})?"
POSITION = rf"(?P<column>{either(WORDS['column'])})?(?: ?(?P<depth>{either(WORDS['depth'])}))?"
LOOK = "|".join(rf"(?P<{name}>{either(WORDS[name])})" for name in (*ADJECTIVES, "facing"))
NEW = rf"(?:{LOOK}|(?=(?:on|in) the ){POSITION}(?: {RELATION})?)"


def _ungrouped(pattern: str) -> str:
    return re.sub(r"\(\?P<\w+>", "(?:", pattern)


TOKENS = {
    "thing": _ungrouped(THING),
    "within": rf"(?:{either(set(PREPOSITIONS.values()))}) (?:{either(PREPOSITIONS)})",
    "place": either(PREPOSITIONS),
    "light": either(LIGHTS),
    "viewpoint": either(VIEWPOINTS),
    "does": either(DOES),
    "spot": either(SPOTS),
    "pose": either(POSES),
    "new": _ungrouped(NEW),
    "text": r"'\w+'",
    "count": rf"(?<!first )(?<!second )(?:{either(COUNTS)})",
}
"""Patterns of tokens by class; where several fit, the first is taken; "the first one" is none."""
TOKEN = "|".join(
    rf"(?P<{name}>(?<![\w'-])(?:{pattern})(?![\w'-]))" for name, pattern in TOKENS.items()
)
OPEN = "⟨"
CLOSE = "⟩"


def _token(name: str) -> str:
    return rf"{OPEN}{name} \d+{CLOSE}"


THINGS = rf"{_token('thing')}(?:(?:, | and | or | but ){_token('thing')})*"
CONTENT = rf"{THINGS}(?: {_token('within')})?|{_token('place')}"
LOOKS = rf"{_token('new')}(?:(?:, | and ){_token('new')})*"
CHANGES = rf"(?:{either(UNUSUAL.values())})(?: and (?:{either(UNUSUAL.values())}))?"
SLOTS: Mapping[str, str] = {
    **dict.fromkeys(("thing", "a_thing", "bare", "new_thing", "first", "second"), _token("thing")),
    **dict.fromkeys(("first_things", "second_things"), _token("thing")),
    **dict.fromkeys(("no_things", "any_things"), THINGS),
    "things": CONTENT,
    **dict.fromkeys(("first_count", "second_count"), _token("count")),
    **dict.fromkeys(("place", "first_place", "second_place"), _token("place")),
    "within_place": _token("within"),
    **dict.fromkeys(("first_light", "second_light"), _token("light")),
    **dict.fromkeys(("first_viewpoint", "second_viewpoint"), _token("viewpoint")),
    **dict.fromkeys(("changes", "first_changes", "second_changes"), CHANGES),
    **dict.fromkeys(("it", "bare_it"), _token("thing")),
    **dict.fromkeys(("new", "old"), rf"{LOOKS}|{_token('text')}"),
    **dict.fromkeys(("new_spot", "old_spot"), _token("spot")),
    "old_way": either(WAYS),
    "old_state": either(STATES),
    "does": _token("does"),
    "with_pose": _token("pose"),
    "ordinal": either(ORDINALS),
    "is_": "is|are",
    "has": "has|have",
    "was": "was|were",
    "first_was": "was|were",
    "other": rf"an? {_token('new')} {_token('count')}"
    rf"|{_token('count')} (?:that says )?{_token('(?:new|pose|text)')}",
}
"""Patterns of the blanks of wordings."""
BLANK = re.compile(r"\{\{ (\w+) \}\}")


@dataclass(frozen=True, slots=True)
class NamedThing:
    """Noun phrase of a text: what it selects, how many, and its relation."""

    selector: Selector
    determiner: str
    count: int | None
    """``None``: at least one."""
    beside: tuple[Relation, Selector] | None = None

    def claims(self, side: Side) -> list[Claim]:
        """Return what the phrase claims of one photograph."""
        if self.count is None:
            claims = [Claim(side=side, kind="exists", selector=self.selector)]
        elif self.count == 0:
            claims = [Claim(side=side, kind="absent", selector=self.selector)]
        else:
            claims = [Claim(side=side, kind="count", selector=self.selector, count=self.count)]
        if self.beside:
            claims.append(_relate(side, self.selector, self.beside))
        return claims

    def denial(self, side: Side) -> Claim:
        """Return the claim that a photograph shows no such thing."""
        return Claim(side=side, kind="absent", selector=self.selector)


def _relate(side: Side, selector: Selector, beside: tuple[Relation, Selector]) -> Claim:
    relation, other = beside
    return Claim(side=side, kind="relation", selector=selector, relation=relation, other=other)


class UnreadError(ValueError):
    """Phrase that no writer uses."""


Claims = list[Claim]
NO_LOOK: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Clause:
    """Blanks of a wording as they are filled in, and the tokens that they name."""

    blanks: Mapping[str, str]
    tokens: Sequence[str]

    def look_up(self, name: str) -> str:
        """Return the words of the token in a blank."""
        return self.tokens[_token_index(self.blanks[name])]

    def thing(self, *names: str) -> NamedThing:
        """Return the noun phrase in the first of some blanks that the wording has."""
        name = next(name for name in names if name in self.blanks)
        return read_thing(self.look_up(name))

    def things(self, name: str) -> list[NamedThing]:
        """Return the noun phrases of a list; "no ball or cube" denies both."""
        things: list[NamedThing] = []
        is_denied = False
        for separator, index in re.findall(
            rf"(, | and | or | but )?{OPEN}thing (\d+){CLOSE}", self.blanks[name]
        ):
            mention = read_thing(self.tokens[int(index)])
            is_denied = mention.count == 0 or (is_denied and separator == " or ")
            if (separator == " or " and not is_denied) or (
                not mention.determiner and not is_denied
            ):
                raise UnreadError(self.blanks[name])
            if is_denied and not mention.determiner:
                mention = NamedThing(mention.selector, "no", 0)
            things.append(mention)
        return things

    def place(self) -> str:
        """Return the place of a list of things, or in a blank of its own; empty: none."""
        for name in ("things", "place", "within_place"):
            for kind, index in re.findall(
                rf"{OPEN}(within|place) (\d+){CLOSE}", self.blanks.get(name, "")
            ):
                return _bare_place(self.tokens[int(index)], kind)
        return ""

    @property
    def side(self) -> Side:
        """Return the photograph that the wording names."""
        return BOTH[ORDINALS.index(self.blanks["ordinal"])]


def _token_index(token: str) -> int:
    return int(token.strip(OPEN + CLOSE).split()[1])


def _bare_place(text: str, kind: str) -> str:
    setting_phrase = text.lower()
    if kind == "within":
        setting_phrase = setting_phrase.split(" ", 1)[1]
    return setting_phrase


def read_thing(text: str) -> NamedThing:
    """Return the meaning of one noun phrase."""
    match = re.fullmatch(THING, text, re.IGNORECASE)
    if match is None:
        raise UnreadError(text)
    determiner = (match["determiner"] or "").lower()
    count = _read_count(determiner)
    noun = match["noun"].lower()
    is_plural = NOUNS[noun] != noun
    if is_plural != (count is not None and count > 1) and determiner not in ("no", ""):
        raise UnreadError(text)
    if is_plural and not determiner:
        raise UnreadError(text)
    beside = None
    if match["relation"]:
        beside = (_read_relation(match["relation"]), _read_selector(match, "other_"))
    return NamedThing(_read_selector(match, ""), determiner, count, beside)


def _read_count(determiner: str) -> int | None:
    if determiner == "no":
        return 0
    if determiner == "the only":
        return 1
    return COUNTS.get(determiner.removeprefix("the "))


def _read_relation(token_words: str) -> Relation:
    return next(name for name, spoken in RELATIONS.items() if spoken == token_words.lower())


def _read_selector(match: re.Match[str], prefix: str) -> Selector:
    values = _read_attributes(match, prefix)
    values["shape"] = NOUNS[match[f"{prefix}noun"].lower()]
    return Selector.model_validate(values)


def _read_attributes(match: re.Match[str], prefix: str) -> dict[str, str]:
    groups = match.groupdict()
    values: dict[str, str] = {}
    for name, values_by_phrase in WORDS.items():
        phrase = groups.get(f"{prefix}{name}")
        if phrase:
            values[name] = values_by_phrase[phrase.lower()]
    if groups.get(f"{prefix}text"):
        values["text"] = groups[f"{prefix}text"]
    return values


def _read_image(clause: Clause) -> Claims:
    side = clause.side
    return [*_things_claims(clause, "things", side), *_place_claims(clause.place(), (side,))]


def _things_claims(clause: Clause, name: str, side: Side) -> Claims:
    claims: Claims = []
    for mention in clause.things(name):
        claims += mention.claims(side)
    return claims


def _place_claims(setting_phrase: str, sides: Iterable[Side]) -> Claims:
    if not setting_phrase:
        return []
    return [Claim(side=side, kind="place", value=setting_phrase) for side in sides]


def _read_gone(clause: Clause) -> Claims:
    mention = clause.thing("thing", "a_thing", "bare")
    return _lose(mention, 0)


def _read_new(clause: Clause) -> Claims:
    return _lose(clause.thing("a_thing", "bare"), 1)


def _lose(mention: NamedThing, side: Side) -> Claims:
    """Return the claims about a thing that only one photograph shows."""
    if mention.count == 0:
        raise UnreadError("no thing is lost")
    return [*mention.claims(side), mention.denial(BOTH[1 - side])]


def _read_numbers(clause: Clause) -> Claims:
    named = clause.thing("second_things", "first_things")
    claims: Claims = []
    for side, name in enumerate(("first", "second")):
        if f"{name}_count" in clause.blanks:
            count = COUNTS[clause.look_up(f"{name}_count").lower()]
        else:
            count = named.count
        mention = NamedThing(named.selector, named.determiner, count)
        claims += mention.claims(BOTH[side])
    return claims


def _read_versus(clause: Clause) -> Claims:
    return [*clause.thing("first").claims(0), *clause.thing("second").claims(1)]


def _read_places(clause: Clause) -> Claims:
    claims: Claims = []
    for side, name in zip(BOTH, ("first_place", "second_place"), strict=True):
        claims += _place_claims(clause.look_up(name).lower(), (side,))
    return claims


def _read_replaced(clause: Clause) -> Claims:
    before = clause.thing("thing", "a_thing", "bare")
    after = clause.thing("new_thing")
    if before.count is not None or after.count is not None:
        raise UnreadError("one thing becomes another one")
    return [*before.claims(0), *after.claims(1)]


def _read_became(clause: Clause) -> Claims:
    """Return the claims about an object of which some attributes changed."""
    before = clause.thing("thing", "bare", "it", "bare_it")
    if before.count is not None:
        raise UnreadError("one thing becomes another one")
    new, beside = _read_look(clause, ("new", "new_spot", "does", "with_pose"))
    old, _ = _read_look(clause, ("old", "old_spot", "old_way", "old_state"), new)
    if any(getattr(before.selector, name) not in (None, value) for name, value in old.items()):
        raise UnreadError("named by two values")
    selector = before.selector.model_copy(update=old)
    if not _are_other(new, selector) or (old and old.keys() != new.keys()):
        raise UnreadError("nothing becomes another")
    claims = NamedThing(selector, "", None, before.beside).claims(0)
    return [*claims, *NamedThing(selector.model_copy(update=new), "", None, beside).claims(1)]


Beside = tuple[Relation, Selector]
Look = tuple[Mapping[str, str], Beside | None]


def _read_look(clause: Clause, names: Sequence[str], new: Mapping[str, str] = NO_LOOK) -> Look:
    """Return the attributes in the blanks of these names, and what the object stands beside."""
    values: dict[str, str] = {}
    beside: Beside | None = None
    for name in names:
        token_words = clause.blanks.get(name, "")
        if name == "old_way" and token_words:
            values["facing"] = WAYS[token_words]
        elif name == "old_state" and token_words:
            values["pose"] = _read_state(token_words, new.get("pose", ""))
        else:
            for index in re.findall(rf"{OPEN}\w+ (\d+){CLOSE}", token_words):
                more, beside = _read_attribute_token(clause.tokens[int(index)])
                values.update(more)
    return values, beside


def _read_state(word: str, pose: str) -> str:
    """Return the pose of the same object that ends in a word."""
    other = " ".join([*pose.split()[:-1], word])
    if other not in POSES:
        raise UnreadError(word)
    return other


def _read_attribute_token(token: str) -> Look:
    token_words = token.lower()
    if token_words.startswith("'"):
        return {"text": token.strip("'")}, None
    if token_words in DOES:
        return {"pose": DOES[token_words]}, None
    if token_words in POSES:
        return {"pose": token_words}, None
    if token_words in SPOTS:
        return SPOTS[token_words], None
    match = re.fullmatch(NEW, token, re.IGNORECASE)
    if match is None:
        raise UnreadError(token)
    beside = None
    if match["relation"]:
        beside = (_read_relation(match["relation"]), _read_selector(match, "other_"))
    return _read_attributes(match, ""), beside


def _are_other(new: Mapping[str, str], old: Selector) -> bool:
    """Return whether the attributes were named before, and some have another value now."""
    values = [(getattr(old, name), value) for name, value in new.items()]
    return all(before for before, _ in values) and any(before != now for before, now in values)


def _read_unchanged(clause: Clause) -> Claims:
    del clause
    return [Claim(side=0, kind="no_change")]


def _read_views(clause: Clause) -> Claims:
    claims: Claims = []
    kinds: tuple[Phrased, ...] = ("light", "viewpoint")
    for kind in kinds:
        for side, name in zip(BOTH, ("first", "second"), strict=True):
            if f"{name}_{kind}" in clause.blanks:
                value = clause.look_up(f"{name}_{kind}").lower()
                claims.append(Claim(side=side, kind=kind, value=value))
    return claims


def _read_photograph(clause: Clause) -> Claims:
    return _read_unusual(clause.blanks["changes"], clause.side)


def _read_photographs(clause: Clause) -> Claims:
    first = _read_unusual(clause.blanks["first_changes"], 0)
    return [*first, *_read_unusual(clause.blanks["second_changes"], 1)]


def _read_unusual(changes: str, side: Side) -> Claims:
    claims: Claims = []
    for token_words in changes.split(" and "):
        value = next(name for name, spoken in UNUSUAL.items() if spoken == token_words)
        kind: Phrased = "light" if value.endswith("light") else "viewpoint"
        claims.append(Claim(side=side, kind=kind, value=value))
        claims.append(Claim(side=BOTH[1 - side], kind=kind, value=USUAL[kind]))
    return claims


def _read_both(clause: Clause) -> Claims:
    claims: Claims = []
    for side in BOTH:
        claims += _things_claims(clause, "things", side)
    return [*claims, *_place_claims(clause.place(), BOTH)]


READERS: Mapping[str, Callable[[Clause], Claims]] = {
    "image": _read_image,
    "image_without": _read_image,
    "image_second": _read_image,
    "image_second_without": _read_image,
    "single": _read_image,
    "gone": _read_gone,
    "new": _read_new,
    "numbers": _read_numbers,
    "versus": _read_versus,
    "places": _read_places,
    "replaced": _read_replaced,
    "became": _read_replaced,
    **{f"became_{name}": _read_became for name in (*SINGLE, "several", "place", "place_beside")},
    "unchanged": _read_unchanged,
    "view_light": _read_views,
    "view_viewpoint": _read_views,
    "view_both": _read_views,
    "view_photograph": _read_photograph,
    "view_photographs": _read_photographs,
    "both": _read_both,
}
"""Readers of clauses by the kind of their wording."""


def _read_none(clause: Clause, before: Claim) -> Claims:
    del clause
    if before.kind == "absent":
        raise UnreadError("no thing is lost")
    return [before.model_copy(update={"side": 1, "kind": "absent", "count": 0})]


def _read_count_anew(clause: Clause, before: Claim) -> Claims:
    count: int | None = COUNTS[clause.look_up("second_count").lower()]
    if before.kind == "absent" and count == 1:
        count = None
    return NamedThing(before.selector, "", count).claims(1)


def _read_other(clause: Clause, before: Claim) -> Claims:
    """Return the claims about the second photograph's object: the first's but for one attribute."""
    tokens = [clause.tokens[int(index)] for index in re.findall(r"\d+", clause.blanks["other"])]
    others = [token for token in tokens if token.lower() != "one"]
    if before.kind != "exists" or len(others) != 1:
        raise UnreadError(clause.blanks["other"])
    values, beside = _read_attribute_token(others[0])
    if beside or not _are_other(values, before.selector):
        raise UnreadError(clause.blanks["other"])
    return NamedThing(before.selector.model_copy(update=values), "", None).claims(1)


ELIDED: Mapping[str, Callable[[Clause, Claim], Claims]] = {
    "image_second_none": _read_none,
    "image_second_count": _read_count_anew,
    "image_second_other": _read_other,
}
"""Readers of clauses that leave out what the sentence before them claims of the first image."""


def reader_of_kind(kind: str) -> Callable[..., Claims]:
    """Return the reader of a kind of wordings of ``answer_sentences``."""
    if kind in ELIDED:
        return ELIDED[kind]
    return READERS[kind.removeprefix("brief_").removeprefix("short_")]


Wording = tuple[str, re.Pattern[str]]


def _wordings(name: str) -> Sequence[Wording]:
    """Return the wordings of a file of prompts as patterns, with their kinds."""
    return _compile_wordings(load_wordings(name))


@cache
def _compile_wordings(file: Wordings) -> Sequence[Wording]:
    wordings: list[Wording] = []
    for kind, prompts in file.kinds.items():
        for prompt in prompts:
            wordings.append((kind, re.compile(_as_pattern(prompt.text))))
    return wordings


def _as_pattern(wording: str) -> str:
    parts = BLANK.split(wording)
    pattern = ""
    for text, blank in zip(parts[::2], [*parts[1::2], ""], strict=True):
        pattern += re.escape(text.lower())
        if blank:
            pattern += rf"(?P<{blank}>{SLOTS[blank]})"
    return pattern


def read_claims(text: str, nouns: Iterable[str] = ()) -> Reading:
    """Return the claims of a text of any kind; not understood: some clause is not in our words.

    Such a text gives the claims of its other clauses. ``nouns`` names things that are not rendered
    ones, at most ``len(STAND_INS)``: those cut out of photographs.
    """
    named = dict(zip(sorted(set(nouns) - set(PLURALS)), STAND_INS, strict=False))
    if not named:
        return _read_text(text)
    for noun, stand_in in named.items():
        text = re.sub(rf"\b{re.escape(plural(noun))}\b", f"{stand_in}s", text, flags=re.IGNORECASE)
        text = re.sub(rf"\b{re.escape(noun)}\b", stand_in, text, flags=re.IGNORECASE)
    reading = _read_text(text)
    nouns_of = {stand_in: noun for noun, stand_in in named.items()}
    claims = tuple(_with_nouns(claim, nouns_of) for claim in reading.claims)
    return replace(reading, claims=claims)


def _with_nouns(claim: Claim, nouns: Mapping[str, str]) -> Claim:
    """Return the claim with nouns for their stand-ins."""
    updates: dict[str, Selector] = {}
    for name, selector in (("selector", claim.selector), ("other", claim.other)):
        noun = nouns.get(selector.shape or "")
        if noun is not None:
            updates[name] = selector.model_copy(update={"shape": noun})
    return claim.model_copy(update=updates)


def _read_text(text: str) -> Reading:
    text = " ".join(text.split()) if "\n" not in text.strip() else text.strip()
    if len(text) > MOST_CHARACTERS or OPEN in text or CLOSE in text:
        return Reading((), understood=False, unread=1)
    difference = read_difference(text, difference_verbs())
    if isinstance(difference, Difference):
        return _read_template(difference)
    claims: Claims = []
    unread = 0
    for sentence in _sentences(text):
        numbered, tokens = _tokenize(sentence)
        sentence_claims = _read_sentence(numbered, tokens)
        if sentence_claims is None:
            sentence_claims = _read_elided(numbered, tokens, claims)
        claims += sentence_claims or []
        unread += sentence_claims is None
    understood = bool(claims) and not unread
    return Reading(tuple(dict.fromkeys(claims)), understood, unread)


def _sentences(text: str) -> Iterator[str]:
    for line in text.splitlines():
        unnumbered = re.sub(r"^\s*\d+\. ", "", line).strip()
        for sentence in re.split(r"\. ", unnumbered):
            if sentence:
                yield sentence.removesuffix(".")


def _tokenize(text: str) -> tuple[str, Sequence[str]]:
    """Return a text in lower case with its tokens numbered, and the words of each."""
    tokens: list[str] = []

    def number(match: re.Match[str]) -> str:
        tokens.append(match[0])
        return f"{OPEN}{match.lastgroup} {len(tokens) - 1}{CLOSE}"

    numbered = re.sub(TOKEN, number, text, flags=re.IGNORECASE)
    return numbered.lower(), tokens


def _read_sentence(sentence: str, tokens: Sequence[str]) -> Claims | None:
    """Return the claims of a sentence: clauses, and the place of both photographs."""
    setting = re.fullmatch(rf"({_token('within')})(?:, (.+)|:?)", sentence)
    if setting:
        setting_phrase = _bare_place(tokens[_token_index(setting[1])], "within")
        rest: Claims | None = []
        if setting[2]:
            rest = _read_sentence(setting[2], tokens)
        return None if rest is None else [*_place_claims(setting_phrase, BOTH), *rest]
    claims = _read_clause(sentence, tokens)
    if claims is not None:
        return claims
    for separator in ("; ", ", "):
        if separator in sentence:
            return _read_parts(sentence.split(separator), tokens)
    return None


def _read_parts(parts: Sequence[str], tokens: Sequence[str]) -> Claims | None:
    claims: Claims = []
    for part in parts:
        part_claims = _read_sentence(part, tokens)
        if part_claims is None:
            return None
        claims += part_claims
    return claims


def _read_elided(text: str, tokens: Sequence[str], before: Claims) -> Claims | None:
    """Return the claims of a sentence after one claim about the first image; ``None``: not one."""
    if len(before) != 1 or before[0].side != 0 or before[0].kind not in MENTIONING:
        return None
    for kind, pattern in _wordings("answer_sentences"):
        match = pattern.fullmatch(text) if kind in ELIDED else None
        if match is not None:
            try:
                return ELIDED[kind](Clause(match.groupdict(), tokens), before[0])
            except UnreadError:
                return None
    return None


def _read_clause(text: str, tokens: Sequence[str]) -> Claims | None:
    """Return the claims of a clause; ``None`` unless all wordings that it fits claim the same."""
    readings: list[Claims] = []
    for kind, pattern in _wordings("answer_sentences"):
        match = None if kind in ELIDED else pattern.fullmatch(text)
        if match is None:
            continue
        clause = Clause(match.groupdict(), tokens)
        try:
            claims = reader_of_kind(kind)(clause)
        except UnreadError:
            continue
        if claims not in readings:
            readings.append(claims)
    return readings[0] if len(readings) == 1 else None


def _read_template(difference: Difference) -> Reading:
    """Read both halves by our phrases, or else only what is sure."""
    claims: Claims = []
    for side, half in zip(BOTH, (difference.first_half, difference.second_half), strict=True):
        half_claims = _read_half(half, side)
        if half_claims is None:
            return read_phrases(difference.first_half, difference.second_half)
        claims += half_claims
    return Reading(tuple(dict.fromkeys(claims)), understood=True)


def _read_half(half: str, side: Side) -> Claims | None:
    text, tokens = _tokenize(half)
    for _, pattern in _wordings("difference_phrases"):
        match = pattern.fullmatch(text)
        if match is None:
            continue
        clause = Clause(match.groupdict(), tokens)
        try:
            return _read_content(clause, side)
        except UnreadError:
            continue
    return None


def _read_content(clause: Clause, side: Side) -> Claims:
    claims: Claims = []
    for name in ("things", "no_things"):
        if name in clause.blanks:
            claims += _things_claims(clause, name, side)
    if "any_things" in clause.blanks:
        claims += [mention.denial(side) for mention in _any_things(clause)]
    return [*claims, *_place_claims(clause.place(), (side,))]


def _any_things(clause: Clause) -> list[NamedThing]:
    """Return the things of "without a ball or a cube"."""
    indices = re.findall(rf"{OPEN}thing (\d+){CLOSE}", clause.blanks["any_things"])
    things = [read_thing(clause.tokens[int(index)]) for index in indices]
    if any(mention.count is not None or not mention.determiner for mention in things):
        raise UnreadError(clause.blanks["any_things"])
    return things
