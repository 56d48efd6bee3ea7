"""Read texts about rendered photographs into statements, and hold these against scene graphs.

Shares no code with what writes or validates the texts: the words are the graphs' own, the sentences
are those of ``truth_sentences.txt``. A sentence that no rule reads is returned as it is, and never
taken for true.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pairwright.schemas.scene import PREPOSITIONS, SHAPES, SceneGraph, SceneObject

Graphs = tuple[SceneGraph, SceneGraph]
Look = Mapping[str, str]  # attributes by name, as a graph has them

MANY = 10**6
SENTENCES = Path(__file__).parent / "truth_sentences.txt"
NUMBERS = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
SPOKEN = {
    "size": {"medium-sized": "medium"},
    "column": {"on the left": "left", "in the centre": "centre", "on the right": "right"},
    "depth": {
        "in the foreground": "front",
        "in the middle ground": "middle",
        "in the background": "back",
    },
    "rests_on": {f"on a {shape}": shape for shape in ("box", "book", "cube", "cylinder")},
    "facing": {
        "facing left": "left",
        "facing right": "right",
        "facing the camera": "front",
        "facing away": "back",
    },
}
"""Words that are not the graph's own."""
TEXT = r"that says? '([^']*)'"
RELATIONS = ("to the left of", "to the right of", "in front of", "behind")
DARKER = {
    "darker": "dim light",
    "brighter": "bright light",
    "warmer in colour": "warm light",
    "cooler in colour": "cool light",
    "blurred": "soft focus",
    "a little closer": "a closer view",
}
"""What a photograph is beside one in usual light and the usual view."""
BESIDE = re.compile(
    r"the second(?: image)? (?:has|shows) (.+)|there is (none) in the second"
    r"|in the second there is (none)",
    re.IGNORECASE,
)
"""Sentences about the second image that name nothing again."""
GLUE = r"and|but|or|with|a scene|lit by|seen from|from|in"
SIDES = {"first": (0,), "second": (1,), "both": (0, 1), "gone": (0,), "new": (1,)}
"""Of which photographs the groups of a rule speak."""
DENIALS = r"(?:without|that lacks|lacks|no sign of)"


@dataclass(frozen=True, slots=True)
class Said:
    """Statement: a photograph (0 or 1) shows ``low`` to ``high`` things of a look, or has a place,
    light or view."""

    side: int
    kind: str  # "things", "place", "light", "viewpoint", or "same" (the scene is the same in both)
    look: tuple[tuple[str, str], ...] = ()
    low: int = 1
    high: int = MANY
    definite: bool = False  # whether it speaks of one certain thing: "the ..."
    value: str = ""
    """Phrase of a place, light or viewpoint (or a pattern of it); of things, how they stand to
    ``other``."""
    other: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text says, and the sentences that could not be read."""

    said: tuple[Said, ...]
    unread: tuple[str, ...] = ()


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True)) or r"(?!)"


class Reader:
    """Reader of texts in the words of some graphs."""

    def __init__(self, graphs: Sequence[SceneGraph]) -> None:
        """Collect the words."""
        things = [thing for graph in graphs for thing in graph.objects]
        self.values = {
            name: {
                str(getattr(thing, name)): str(getattr(thing, name))
                for thing in things
                if getattr(thing, name)
            }
            for name in ("shape", "colour", "material", "size", "pose")
        }
        self.values["pose"] |= {_plural_pose(pose): pose for pose in self.values["pose"]}
        self.values["shape"] |= {
            shape: shape for shape in SHAPES
        }  # rejected texts may name others than the graphs have
        for name, spoken in SPOKEN.items():
            self.values[name] = self.values.get(name, {}) | spoken
        after = _any(
            word
            for name in ("rests_on", "column", "depth", "pose", "facing")
            for word in self.values[name]
        )
        looks = _any(word for name in ("size", "colour", "material") for word in self.values[name])
        places = _any(
            {
                re.sub("^an? ", "", place)
                for place in (*PREPOSITIONS, *(graph.place for graph in graphs))
            }
        )
        whole = _any({getattr(graph, kind) for graph in graphs for kind in ("light", "viewpoint")})
        self.kinds = {
            getattr(graph, kind): kind
            for graph in graphs
            for kind in ("light", "viewpoint", "place")
        }
        self.kinds |= dict.fromkeys(PREPOSITIONS, "place")
        counts = rf"one or more|the (?:only|{_any(NUMBERS)})|{_any(NUMBERS)}|\d+|an?|any|the"
        self._token = re.compile(
            rf"(?P<deny>{DENIALS})\b|(?P<whole>{whole})"
            rf"|(?:(?:on|in) )?(?:the same |the |an? )(?P<place>{places})\b"
            rf"|(?:(?P<count>{counts}) )?(?P<looks>(?:(?:{looks}) "
            rf")*)(?P<shape>{_any(self.values['shape'])}|object)"
            rf"(?P<plural>e?s)?(?P<tail>(?: (?:{after}|{TEXT}))*)(?![\w-])"
            rf"|(?P<beside>{_any(RELATIONS)})\b|(?P<glue>(?:{GLUE}|[,;:])(?!\w))|(?P<rest>\S+)",
            re.IGNORECASE,
        )
        self._attributes = re.compile(rf"(?:(?:{looks}|{after}|{TEXT}|and)(?: |$))+", re.IGNORECASE)
        where = rf"(?:{_any((*SPOKEN['column'], *SPOKEN['depth']))})"
        names = {
            "VERB": "[a-z]+",
            "REL": _any(RELATIONS),
            "WHERE": rf"{where}(?: {where})?",
            "COUNT": _any((*NUMBERS, "all")),
            "WAY": "left|right|away|the camera",
            "DARK": rf"(?:{_any(DARKER)})(?: and (?:{_any(DARKER)}))?",
        }
        rules = [
            line for line in SENTENCES.read_text().splitlines() if line and not line.startswith("#")
        ]
        self._sentences = [re.compile(_filled(rule, names), re.IGNORECASE) for rule in rules]

    def read(self, text: str) -> Reading:
        """Return what a text says, sentence by sentence."""
        said: list[Said] = []
        unread: list[str] = []
        for sentence in sentences_of(text):
            found = self._read_sentence(sentence)
            if found is None:
                found = self._read_beside(sentence, said)
            said += found or ()
            unread += [sentence] if found is None else []
        return Reading(tuple(said), tuple(unread))

    def skeletons(self, text: str) -> list[str]:
        """Return the sentences of a text with what is named in them left out."""

        def blank(match: re.Match[str]) -> str:
            return "_" if match["place"] or match["whole"] or match["shape"] else match[0]

        bare = [self._token.sub(blank, sentence) for sentence in sentences_of(text)]
        return [
            re.sub(r"_(?:(?:, | and | or )_)+", "_", re.sub(r"\bimage [a-z]+", "image", one))
            for one in bare
        ]

    def _read_sentence(self, sentence: str) -> list[Said] | None:
        for rule in self._sentences:
            match = rule.fullmatch(sentence.removesuffix("."))
            found = (
                self._apply({name: text for name, text in match.groupdict().items() if text})
                if match
                else None
            )
            if found is not None:
                return found
        mark = next((mark for mark in ("; ", ", ") if mark in sentence), None)
        if mark is None:
            return None
        parts = [self._read_sentence(part) for part in sentence.split(mark)]
        return None if None in parts else [said for part in parts for said in part or ()]

    def _read_beside(self, sentence: str, before: Sequence[Said]) -> list[Said] | None:
        """Read "the second has none", "two" or "a blue one" of the thing that was just named."""
        match = BESIDE.fullmatch(sentence.removesuffix("."))
        if match is None or len(before) != 1 or before[0].kind != "things" or before[0].side:
            return None
        second = replace(before[0], side=1, definite=False)
        words = next(filter(None, match.groups()))
        if words == "none":
            return [replace(second, low=0, high=0)]
        if words == "one" and before[0].high == 0:
            return [replace(second, low=1, high=MANY)]
        if words in NUMBERS:
            return [replace(second, low=_count(words), high=_count(words))]
        other = self._look(words)
        if not other or not re.fullmatch("an? .+ one|one .+", words):
            return None
        return [replace(second, look=tuple(sorted((dict(second.look) | other).items())))]

    def _apply(self, groups: Mapping[str, str]) -> list[Said] | None:
        """Read the groups of a sentence, each of its photograph; ``None`` where one holds unknown
        words."""
        here = (
            int(groups.get("h", "1")) - 1
            if "o" not in groups
            else ("first", "second").index(groups["o"].lower())
        )
        found: list[Said] = [Said(0, "same")] if "same" in groups else []
        where = self._look(groups.get("where", ""))
        for name, group in groups.items():
            for side in {**dict.fromkeys(("here", "only", "nowhere"), (here,)), **SIDES}.get(
                name, ()
            ):
                clause = self._clause(
                    f"without {group}" if name == "nowhere" else group, side, where
                )
                if clause is None:
                    return None
                found += clause
                if name in ("only", "gone", "new"):
                    beside = [
                        one.other for one in clause if one.value
                    ]  # what a thing stands beside is in both
                    missing = [one for one in clause if one.look not in beside]
                    found += [
                        replace(one, side=1 - side, low=0, high=0, definite=False)
                        for one in missing
                    ]
        things = [one for one in found if one.kind == "things"]
        rest = [self._read_sentence(groups["rest"])] if "rest" in groups else [[]]
        rest += [self._related(groups, here)] if "rel" in groups else []
        if "old" in groups and things:
            old = self._look(_as_look(groups["old"], groups["to"]))
            look = tuple(sorted((dict(things[0].look) | old).items()))
            if not old:
                return None
            found[found.index(things[0])] = things[0] = replace(things[0], look=look)
        rest += [self._became(things, _as_look(groups["to"]))] if "to" in groups else []
        rest += [self._numbers(things, groups)] if {"n1", "n2"} & groups.keys() else []
        rest += [self._parts(things, groups["parts"])] if "parts" in groups else []
        for name, side in (("darker", here), ("darker1", 0), ("darker2", 1)):
            rest += [_light_of(groups[name], side)] if name in groups else []
        return None if None in rest else found + [said for part in rest for said in part or ()]

    def _became(self, named: Sequence[Said], words: str) -> list[Said] | None:
        """Read what the thing that was named looks like in the second photograph, and what it
        stands beside there."""
        words, relation, other = re.fullmatch(
            rf"(.+?)(?: ({_any(RELATIONS)}) (.+))?", words
        ).groups(default="")
        beside = self._clause(other, 1, {})
        if (
            not named
            or not self._attributes.fullmatch(words)
            or beside is None
            or len(beside) != bool(relation)
        ):
            return None
        look = dict(named[0].look) | self._look(words)
        found = Said(1, "things", tuple(sorted(look.items())), value=relation)
        return [replace(found, other=beside[0].look), *beside] if beside else [found]

    def _numbers(self, named: Sequence[Said], groups: Mapping[str, str]) -> list[Said] | None:
        """Read how many there are of what was named, in either photograph."""
        look = next(iter(named or self._clause(groups.get("kind", ""), 0, {}) or ()), None)
        counts = [
            (side, _count(groups[name])) for side, name in enumerate(("n1", "n2")) if name in groups
        ]
        return (
            [Said(side, "things", look.look, count, count) for side, count in counts]
            if look
            else None
        )

    def _parts(self, named: Sequence[Said], parts: str) -> list[Said] | None:
        """Read "two on the left and one on the right" of the things that were named."""
        found: list[Said] = []
        for count, where in re.findall(
            rf"({_any((*NUMBERS, 'all'))}) ((?:on|in) the \w+(?: ground)?)", parts
        ):
            low = named[0].low if count == "all" else _count(count)
            look = dict(named[0].look) | self._look(where)
            found.append(replace(named[0], look=tuple(sorted(look.items())), low=low, high=low))
        return found or None

    def _related(self, groups: Mapping[str, str], side: int) -> list[Said] | None:
        a, b = (self._clause(groups[name], side, {}) for name in ("a", "b"))
        if a is None or b is None or not len(a) == len(b) == 1:
            return None
        found = [
            *a,
            *b,
            replace(a[0], definite=False, value=groups["rel"].lower(), other=b[0].look),
        ]
        if "rel2" in groups:
            again = [replace(said, side=1) for said in found]
            found += [*again[:2], replace(again[2], value=groups["rel2"].lower())]
        return found

    def _clause(self, text: str, side: int, where: Look) -> list[Said] | None:
        """Read a part of a sentence about one photograph; ``None`` where it holds unknown words."""
        found: list[Said] = []
        denied = negated = False
        beside = ""
        for match in self._token.finditer(text):
            if match["rest"]:
                return None
            if match["place"]:
                [value] = [
                    one
                    for one in self.kinds
                    if one.split(" ", 1)[1].lower() == match["place"].lower()
                ]
                found.append(Said(side, "place", value=value))
            elif match["whole"]:
                value = next(one for one in self.kinds if one.lower() == match["whole"].lower())
                found.append(Said(side, self.kinds[value], value=value))
            elif match["shape"]:
                thing = self._thing(
                    match,
                    side,
                    {} if beside else where,
                    denied=denied or (negated and not match["count"]),
                )
                if beside:
                    found[-1:] = [replace(found[-1], value=beside, other=thing.look), thing]
                else:
                    found.append(thing)
                negated = thing.high == 0 and not beside
            beside = (match["beside"] or "").lower()
            if beside and not (found and found[-1].kind == "things"):
                return None
            # A denial reaches to the next "but" ("without a ball or a cube"), "no ball or cube" to
            # the next comma.
            denied = bool(match["deny"]) or (denied and match["glue"] != "but")
            negated = negated and match["glue"] in (None, "or")
        return None if beside else found

    def _thing(self, match: re.Match[str], side: int, where: Look, *, denied: bool) -> Said:
        words = f" {(match['looks'] or '').strip()}{match['tail'] or ''}"
        shape = match["shape"].lower()
        look = dict(where) | self._look(words) | ({} if shape == "object" else {"shape": shape})
        count = (match["count"] or "").lower()
        definite = count.startswith("the")
        number = count.removeprefix("the").strip()
        low, high = (2 if match["plural"] else 1), MANY
        if number == "one or more":
            low = 1
        elif number == "only":
            low = high = 1
        elif number in NUMBERS or number.isdigit():
            low = high = _count(number)
        if denied:
            low = high = 0
        single = definite and not match["plural"]
        return Said(side, "things", tuple(sorted(look.items())), low, high, definite=single)

    def _look(self, words: str) -> dict[str, str]:
        """Return the attributes that some words name, in the order in which noun phrases have
        them."""
        found = dict.fromkeys(("text",), match[1]) if (match := re.search(TEXT, words)) else {}
        words = re.sub(TEXT, "", words).lower()
        for name in ("rests_on", "pose", "facing", "column", "depth", "size", "colour", "material"):
            for word, value in self.values[name].items():
                if re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", words):
                    found[name] = value
        return found


def _count(word: str) -> int:
    return int(word) if word.isdigit() else NUMBERS.index(word.lower())


def _as_look(words: str, like: str = "") -> str:
    """Return what a thing is like as words that follow its noun; ``like``: such words of the other
    photograph."""
    if words.startswith("'"):
        return f"that says {words}"
    if words.startswith("its "):
        return f"with {words}"
    if re.match("the (?:left|right)", words):
        return f"on {words}"
    if words.startswith("the ") and not like.startswith("facing"):
        return f"in {words}"
    if like.startswith("facing") and not words.startswith("facing"):
        return f"facing {words}"
    if re.match("its|with its|lying", like):
        return _as_look(" ".join([*like.split()[:-1], words]))
    return words


def _light_of(words: str, side: int) -> list[Said]:
    """Read how a photograph differs from one in usual light and the usual view."""
    found: list[Said] = []
    for part in words.lower().split(" and "):
        kind, usual = (
            ("light", "usual light")
            if DARKER[part].endswith("light")
            else ("viewpoint", "the usual view")
        )
        found += [Said(side, kind, value=DARKER[part]), Said(1 - side, kind, value=usual)]
    return found


def _plural_pose(pose: str) -> str:
    return re.sub(r"their (lid|head)\b", r"their \1s", pose.replace("its", "their"))


def _filled(rule: str, names: Mapping[str, str]) -> str:
    for name, words in names.items():
        rule = rule.replace(name, f"(?:{words})")
    return rule


LABEL = re.compile(
    r"^(?:Commonalities:|Differences:|(?:[-*]|\d+\.) (?:(?!Only |The viewpoint and)[A-Z][a-z]+(?: [a-z]+){0,3}:)?)"
)
"""Mark of a list, and a heading."""


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a text, without the labels of lists."""
    for line in text.splitlines():
        yield from (
            part for part in re.split(r"(?<=[.!?])\s+", LABEL.sub("", line.strip()).strip()) if part
        )


def select(look: Iterable[tuple[str, str]], graph: SceneGraph) -> list[SceneObject]:
    """Return the objects of a look."""
    return [
        thing
        for thing in graph.objects
        if all(getattr(thing, name) == value for name, value in look)
    ]


def is_true(said: Said, graphs: Graphs) -> bool:
    """Return whether a statement is true."""
    graph = graphs[said.side]
    if said.kind == "same":
        return graphs[0].world == graphs[1].world and not find_changes(graphs)
    if said.kind in ("place", "light", "viewpoint"):
        return re.fullmatch(said.value, getattr(graph, said.kind)) is not None
    return said.low <= len(_chosen(said, graph)) <= said.high


def _chosen(said: Said, graph: SceneGraph) -> list[SceneObject]:
    found, others = select(said.look, graph), select(said.other, graph)
    if not said.value:
        return found
    return [a for a in found if any(_stands(a, said.value, b) for b in others if b.id != a.id)]


def is_ambiguous(said: Said, graphs: Graphs) -> bool:
    """Return whether "the ..." could mean several things."""
    return said.definite and len(_chosen(said, graphs[said.side])) > 1


def decode(thing: SceneObject) -> np.ndarray:
    """Return the visible pixels of an object, from its run lengths."""
    counts = np.array(thing.mask.counts)
    values = np.arange(len(counts)) % 2 == 1
    return np.repeat(values, counts).reshape(thing.mask.width, thing.mask.height).T


def _stands(a: SceneObject, relation: str, b: SceneObject) -> bool:
    """Compare the middles of the visible pixels; in depth, the lowest ones."""
    (ya, xa), (yb, xb) = (np.nonzero(decode(thing)) for thing in (a, b))
    across, deep = float(xb.mean() - xa.mean()), int(ya.max()) - int(yb.max())
    signs = {
        "to the left of": across,
        "to the right of": -across,
        "in front of": deep,
        "behind": -deep,
    }
    return signs[relation] > 0


ATTRIBUTES = ("shape", "colour", "material", "size", "facing", "pose", "text")
Change = tuple[SceneObject | None, SceneObject | None]


def find_changes(graphs: Graphs) -> list[Change]:
    """Return the objects of one world that differ where a change was made: what a viewpoint turns
    or hides is none."""
    made = [
        change
        for graph in graphs
        for change in graph.changes
        if change.type not in ("viewpoint", "illumination")
    ]
    names = sorted(
        {name for change in made for name in (change.object_id, *change.object_ids) if name}
    )
    before, after = ({thing.id: thing for thing in graph.objects} for graph in graphs)
    spots = [_spots(graph) for graph in graphs]
    return [
        (before.get(name), after.get(name))
        for name in names
        if (_looks(before.get(name)), spots[0].get(name))
        != (_looks(after.get(name)), spots[1].get(name))
    ]


def _looks(thing: SceneObject | None) -> tuple[str | None, ...]:
    return tuple(getattr(thing, name) for name in ATTRIBUTES) if thing else ()


def _spots(graph: SceneGraph) -> dict[str, tuple[float, float]]:
    """Return where the things stand, in metres."""
    things = json.loads(graph.exposure)["scene"]["things"] if graph.exposure else []
    return {thing["id"]: (round(thing["x"], 3), round(thing["y"], 3)) for thing in things}


def tells(said: Said, change: Change, graphs: Graphs) -> bool:
    """Return whether a statement is about the changed object, and false of the other photograph."""
    thing = change[said.side] if said.high else change[1 - said.side]
    looks = [look for look in (said.look, said.other) if look] or [()]
    about = thing is not None and any(
        all(getattr(thing, n) == v for n, v in look) for look in looks
    )
    return (
        about and said.kind == "things" and not is_true(replace(said, side=1 - said.side), graphs)
    )
