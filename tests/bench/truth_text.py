"""Read texts about rendered photographs into statements, and hold these against scene graphs.

Shares no code with what writes or validates the texts: the words are the graphs' own, the sentences are those of
``truth_sentences.txt``. A sentence that no rule reads is returned as it is, and never taken for true.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pairwright.schemas.scene import SceneGraph, SceneObject

Graphs = tuple[SceneGraph, SceneGraph]
Look = Mapping[str, str]
"""Attributes by name, as a graph has them."""

MANY = 10**6
SENTENCES = Path(__file__).parent / "truth_sentences.txt"
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
SPOKEN = {
    "size": {"medium-sized": "medium"},
    "column": {"on the left": "left", "in the centre": "centre", "on the right": "right"},
    "depth": {"in the foreground": "front", "in the middle ground": "middle", "in the background": "back"},
    "rests_on": {f"on top of a {shape}": shape for shape in ("box", "book", "cube", "cylinder")},
    "facing": {"facing left": "left", "facing right": "right", "facing the viewer": "front", "facing away": "back"},
}
"""Words that are not the graph's own."""
TEXT = r"reading '([^']*)'"
RELATIONS = ("to the left of", "to the right of", "in front of", "behind")
SAME = (
    r"(?:the|an) (?:very same|same|unchanged) scene|unchanged|in which no object has changed|no change in the scene"
    r"|without any change to its objects|with nothing added, taken away or altered|with not one object changed"
    r"|with every object just as it was|since nothing in the scene has changed"
)
"""Phrases that say that nothing has changed."""
GLUE = (
    r"and|but|or|with|that has|has|that|where one sees|where the camera has caught|a scene|at all|in all|again"
    r"|all of it|including|included|just as well|photographed|lit by|lit|from|under"
    r"|arranged there|serves as the setting for"
)
DENIALS = r"(?:without|that lacks|lacks|no sign of)"


@dataclass(frozen=True, slots=True)
class Said:
    """Statement: a photograph (0 or 1) shows ``low`` to ``high`` things of a look, or has a place, light or view."""

    side: int
    kind: str
    """"things", "place", "light", "viewpoint", "relation", or "same" (the scene is the same in both)."""
    look: tuple[tuple[str, str], ...] = ()
    low: int = 1
    high: int = MANY
    definite: bool = False
    """Whether it speaks of one certain thing: "the ..."."""
    value: str = ""
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
            name: {str(getattr(thing, name)): str(getattr(thing, name)) for thing in things if getattr(thing, name)}
            for name in ("shape", "colour", "material", "size", "pose")
        }
        self.values["pose"] |= {_plural_pose(pose): pose for pose in self.values["pose"]}
        for name, spoken in SPOKEN.items():
            self.values[name] = self.values.get(name, {}) | spoken
        after = _any(word for name in ("rests_on", "column", "depth", "pose", "facing") for word in self.values[name])
        looks = _any(word for name in ("size", "colour", "material") for word in self.values[name])
        places = _any({re.sub("^an? ", "", graph.place) for graph in graphs})
        whole = _any({getattr(graph, kind) for graph in graphs for kind in ("light", "viewpoint")})
        self.kinds = {getattr(graph, kind): kind for graph in graphs for kind in ("light", "viewpoint", "place")}
        counts = rf"one or more|the (?:{_any(NUMBERS)})|{_any(NUMBERS)}|\d+|an?|any|the"
        self._token = re.compile(
            rf"(?P<same>{SAME})(?![\w-])|(?:(?:on|in) )?(?:the same |the |an? )(?P<place>{places})\b|(?P<whole>{whole})"
            rf"|(?:(?P<count>{counts}) )?(?P<looks>(?:(?:{looks}) )*)(?P<shape>{_any(self.values['shape'])}|object)"
            rf"(?P<plural>e?s)?(?P<tail>(?: (?:{after}|{TEXT}))*)(?![\w-])"
            rf"|(?P<deny>{DENIALS})\b|(?P<glue>(?:{GLUE}|[,;:])(?!\w))|(?P<rest>\S+)",
            re.IGNORECASE,
        )
        relations = _any(RELATIONS)
        where = rf"(?:{_any((*SPOKEN['column'], *SPOKEN['depth']))})"
        names = {
            "VERB": "[a-z]+",
            "REL": relations,
            "WHERE": rf"{where}(?: {where})?",
            "COUNT": _any((*NUMBERS, "all")),
        }
        rules = [line for line in SENTENCES.read_text().splitlines() if line and not line.startswith("#")]
        self._sentences = [re.compile(_filled(rule, names), re.IGNORECASE) for rule in rules]

    def read(self, text: str) -> Reading:
        """Return what a text says, sentence by sentence."""
        said: list[Said] = []
        unread: list[str] = []
        for sentence in sentences_of(text):
            found = self._read_sentence(sentence)
            said += found or ()
            unread += [sentence] if found is None else []
        return Reading(tuple(said), tuple(unread))

    def skeletons(self, text: str) -> list[str]:
        """Return the sentences of a text with what is named in them left out."""

        def blank(match: re.Match[str]) -> str:
            return "_" if match["place"] or match["whole"] or match["shape"] else match[0]

        bare = [self._token.sub(blank, sentence) for sentence in sentences_of(text)]
        return [re.sub(r"_(?:(?:, | and | or )_)+", "_", re.sub(r"\bimage [a-z]+", "image", one)) for one in bare]

    def _read_sentence(self, sentence: str) -> list[Said] | None:
        for rule in self._sentences:
            match = rule.fullmatch(sentence.removesuffix("."))
            found = self._apply({name: text for name, text in match.groupdict().items() if text}) if match else None
            if found is not None:
                return found
        return None

    def _apply(self, groups: Mapping[str, str]) -> list[Said] | None:
        """Read the groups of a sentence, each of its photograph; ``None`` where one holds unknown words."""
        here = int(groups.get("h", "1")) - 1
        sides = {"here": (here,), "only": (here,), "first": (0,), "second": (1,), "both": (0, 1)}
        found: list[Said] = []
        for name, group in groups.items():
            for side in sides.get(name, ()):
                clause = self._clause(group, side, self._look(groups.get("where", "")))
                if clause is None:
                    return None
                found += clause
                found += [replace(one, side=1 - side, low=0, high=0) for one in clause if name == "only"]
        if "parts" in groups:
            found += self._parts(found[0], groups["parts"])
        if "same" in groups:
            found.append(Said(0, "same"))
        if "rel" in groups:
            found += self._related(groups, here)
        return found

    def _parts(self, whole: Said, parts: str) -> list[Said]:
        """Read "two on the left and one on the right" of things that were named before."""
        found: list[Said] = []
        for count, where in re.findall(rf"({_any((*NUMBERS, 'all'))}) ((?:on|in) the \w+(?: ground)?)", parts):
            low = whole.low if count == "all" else NUMBERS.index(count)
            look = dict(whole.look) | self._look(where)
            found.append(replace(whole, look=tuple(sorted(look.items())), low=low, high=low))
        return found

    def _related(self, groups: Mapping[str, str], side: int) -> list[Said]:
        things = [self._clause(groups[name], side, {}) for name in ("a", "b")]
        if any(clause is None or len(clause) != 1 for clause in things):
            return [Said(side, "relation", value="unread")]
        a, b = (clause[0] for clause in things if clause)
        found = [a, b, Said(side, "relation", a.look, value=groups["rel"].lower(), other=b.look)]
        if "rel2" in groups:
            turned = Said(1, "relation", a.look, value=groups["rel2"].lower(), other=b.look)
            found += [replace(a, side=1), replace(b, side=1), turned]
        return found

    def _clause(self, text: str, side: int, where: Look) -> list[Said] | None:
        """Read a part of a sentence about one photograph; ``None`` where it holds unknown words."""
        found: list[Said] = []
        denied = False
        for match in self._token.finditer(text):
            if match["rest"]:
                return None
            if match["same"]:
                found.append(Said(side, "same"))
            elif match["place"]:
                [value] = [one for one in self.kinds if one.split(" ", 1)[1].lower() == match["place"].lower()]
                found.append(Said(side, "place", value=value))
            elif match["whole"]:
                value = next(one for one in self.kinds if one.lower() == match["whole"].lower())
                found.append(Said(side, self.kinds[value], value=value))
            elif match["shape"]:
                found.append(self._thing(match, side, where, denied=denied))
            # A denial reaches to the next "but": "without a ball or a cube but with two mugs".
            denied = bool(match["deny"]) or (denied and match["glue"] != "but")
        return found

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
        elif number in NUMBERS or number.isdigit():
            low = high = NUMBERS.index(number) if number in NUMBERS else int(number)
        if denied:
            low = high = 0
        single = definite and not match["plural"]
        return Said(side, "things", tuple(sorted(look.items())), low, high, definite=single)

    def _look(self, words: str) -> dict[str, str]:
        """Return the attributes that some words name, in the order in which noun phrases have them."""
        found = dict.fromkeys(("text",), match[1]) if (match := re.search(TEXT, words)) else {}
        words = re.sub(TEXT, "", words).lower()
        for name in ("rests_on", "pose", "facing", "column", "depth", "size", "colour", "material"):
            for word, value in self.values[name].items():
                if re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", words):
                    found[name] = value
        return found


def _plural_pose(pose: str) -> str:
    return re.sub(r"their (lid|head)\b", r"their \1s", pose.replace("its", "their"))


def _filled(rule: str, names: Mapping[str, str]) -> str:
    for name, words in names.items():
        rule = rule.replace(name, f"(?:{words})")
    return rule


LABEL = re.compile(r"^(?:Commonalities:|Differences:|(?:[-*]|\d+\.) (?:(?!.*differs?:)[A-Z][a-z]+(?: [a-z]+){0,3}:)?)")
"""Mark of a list, and a heading."""


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a text, without the labels of lists."""
    for line in text.splitlines():
        yield from (part for part in re.split(r"(?<=[.!?])\s+", LABEL.sub("", line.strip()).strip()) if part)


def select(look: Iterable[tuple[str, str]], graph: SceneGraph) -> list[SceneObject]:
    """Return the objects of a look."""
    return [thing for thing in graph.objects if all(getattr(thing, name) == value for name, value in look)]


def is_true(said: Said, graphs: Graphs) -> bool:
    """Say whether a statement is true."""
    graph = graphs[said.side]
    if said.kind == "same":
        return graphs[0].world == graphs[1].world and not find_changes(graphs)
    if said.kind in ("place", "light", "viewpoint"):
        return getattr(graph, said.kind) == said.value
    if said.kind == "relation":
        pairs = [(a, b) for a in select(said.look, graph) for b in select(said.other, graph)]
        return any(_stands(a, said.value, b) for a, b in pairs if a.id != b.id)
    return said.low <= len(select(said.look, graph)) <= said.high


def is_ambiguous(said: Said, graphs: Graphs) -> bool:
    """Say whether "the ..." fits several things."""
    return said.definite and len(select(said.look, graphs[said.side])) > 1


def decode(thing: SceneObject) -> np.ndarray:
    """Return the visible pixels of an object, from its run lengths."""
    counts = np.array(thing.mask.counts)
    values = np.arange(len(counts)) % 2 == 1
    return np.repeat(values, counts).reshape(thing.mask.width, thing.mask.height).T


def _stands(a: SceneObject, relation: str, b: SceneObject) -> bool:
    """Compare the middles of the visible pixels; in depth, the lowest ones."""
    if relation == "unread":
        return False
    (ya, xa), (yb, xb) = (np.nonzero(decode(thing)) for thing in (a, b))
    across, deep = float(xb.mean() - xa.mean()), int(ya.max()) - int(yb.max())
    signs = {"to the left of": across, "to the right of": -across, "in front of": deep, "behind": -deep}
    return signs[relation] > 0


ATTRIBUTES = ("shape", "colour", "material", "size", "facing", "pose", "text")
Change = tuple[SceneObject | None, SceneObject | None]


def find_changes(graphs: Graphs) -> list[Change]:
    """Return the objects of one world that differ where a change was made: what a viewpoint turns or hides is none."""
    made = [change for graph in graphs for change in graph.changes if change.type not in ("viewpoint", "illumination")]
    names = sorted({name for change in made for name in (change.object_id, *change.object_ids) if name})
    before, after = ({thing.id: thing for thing in graph.objects} for graph in graphs)
    spots = [_spots(graph) for graph in graphs]
    return [
        (before.get(name), after.get(name))
        for name in names
        if (_looks(before.get(name)), spots[0].get(name)) != (_looks(after.get(name)), spots[1].get(name))
    ]


def _looks(thing: SceneObject | None) -> tuple[str | None, ...]:
    return tuple(getattr(thing, name) for name in ATTRIBUTES) if thing else ()


def _spots(graph: SceneGraph) -> dict[str, tuple[float, float]]:
    """Return where the things stand, in metres."""
    things = json.loads(graph.exposure)["scene"]["things"] if graph.exposure else []
    return {thing["id"]: (round(thing["x"], 3), round(thing["y"], 3)) for thing in things}


def tells(said: Said, change: Change, graphs: Graphs) -> bool:
    """Say whether a statement is about the changed object, and false of the other photograph."""
    thing = change[said.side] if said.high else change[1 - said.side]
    looks = [look for look in (said.look, said.other) if look] or [()]
    about = thing is not None and any(all(getattr(thing, n) == v for n, v in look) for look in looks)
    return about and said.kind in ("things", "relation") and not is_true(replace(said, side=1 - said.side), graphs)
