"""Find the things that a text says are in a rendered scene, by their nouns and the adjectives before them.

Nouns are those of the rendered shapes, singular and plural, and a few other words for them (``ALSO``, ours). What is
denied ("but no mug") is left out.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from pairwright.schemas.affirmed import affirmed
from pairwright.schemas.claims import Selector
from pairwright.schemas.scene import PLURALS, SceneGraph

ALSO = {
    "sphere": "ball", "orb": "ball", "block": "cube", "torus": "ring", "hoop": "ring", "cup": "mug", "chest": "box",
    "automobile": "car", "duckling": "duck", "kettle": "teapot",
}  # fmt: skip
"""Other words, whose plural has an s more, and the shapes that they mean."""
SHAPES: dict[str, str] = {
    **{shape: shape for shape in PLURALS},
    **{plural: shape for shape, plural in PLURALS.items()},
    **ALSO,
    **{f"{word}s": shape for word, shape in ALSO.items()},
}
"""Every noun that is found, and the shape that it means."""
SIZES = {
    "small": "small",
    "tiny": "small",
    "medium": "medium",
    "medium-sized": "medium",
    "large": "large",
    "big": "large",
}


@dataclass(frozen=True)
class Words:
    """Be the adjectives that tell things apart."""

    colours: frozenset[str]
    materials: frozenset[str]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        adjectives = "|".join(map(re.escape, sorted({*SIZES, *self.colours, *self.materials}, key=len, reverse=True)))
        nouns = "|".join(map(re.escape, sorted(SHAPES, key=len, reverse=True)))
        return re.compile(rf"\b((?:(?:{adjectives}),?\s+)*)({nouns})\b", re.IGNORECASE)

    def find(self, text: str) -> Iterator[Selector]:
        """Yield each thing that the text says is there, in its order, as often as it says so."""
        for match in self._pattern.finditer(affirmed(text)):
            said = re.findall(r"[\w-]+", match[1].lower())
            yield Selector(
                shape=SHAPES[match[2].lower()],
                size=next((SIZES[word] for word in said if word in SIZES), None),
                colour=next((word for word in said if word in self.colours), None),
                material=next((word for word in said if word in self.materials), None),
            )


def words_of(graphs: Iterable[SceneGraph]) -> Words:
    """Return the adjectives of some scenes."""
    things = [thing for graph in graphs for thing in graph.objects]
    return Words(frozenset(thing.colour for thing in things), frozenset(thing.material for thing in things))


def is_described(thing: Selector) -> bool:
    """Say whether a text said more of a thing than what it is."""
    return bool(thing.size or thing.colour or thing.material)
