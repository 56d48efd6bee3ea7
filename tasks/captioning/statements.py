"""Statements: pieces of text with the claims that they make, and the mentions of objects that they are made from."""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Literal

from pairwright.schemas.claims import Claim, Graphs, Selector, all_hold
from pairwright.schemas.phrases import some
from pairwright.schemas.rows import make_key
from pairwright.schemas.scene import SceneGraph, SceneObject

Side = Literal[0, 1]
SIDES: tuple[Side, Side] = (0, 1)
CORE = ("shape", "colour", "material")


@dataclass(frozen=True, slots=True)
class Statement:
    """Be a text and everything that it claims."""

    text: str
    claims: tuple[Claim, ...] = ()

    def true_of(self, graphs: Graphs) -> bool:
        """Say whether the pair of photographs bears the text out."""
        return all_hold(self.claims, graphs)


@dataclass(frozen=True, slots=True)
class Mention:
    """Say that one photograph shows what a selector chooses: at least one, or exactly ``count`` (0: none)."""

    side: Side
    selector: Selector
    count: int | None = None

    @property
    def text(self) -> str:
        """Return the indefinite noun phrase."""
        return some(self.selector, self.count)

    @property
    def claim(self) -> Claim:
        """Return what the phrase claims."""
        if self.count is None:
            return Claim(side=self.side, kind="exists", selector=self.selector)
        if self.count == 0:
            return Claim(side=self.side, kind="absent", selector=self.selector)
        return Claim(side=self.side, kind="count", selector=self.selector, count=self.count)


def claims_of(mentions: Iterable[Mention]) -> tuple[Claim, ...]:
    """Return the claims of some mentions."""
    return tuple(mention.claim for mention in mentions)


def describe(thing: SceneObject, *attributes: str) -> Selector:
    """Return a selector of the object's shape, colour and material, and of further attributes by name."""
    return Selector(**{name: getattr(thing, name) for name in (*CORE, *attributes)})


def selects(selector: Selector, graph: SceneGraph) -> int:
    """Return how many objects of the photograph match."""
    return len(selector.select(graph))


def shown(side: Side, selector: Selector, graph: SceneGraph) -> Mention:
    """Mention what the photograph shows of a selector's choice: one thing as such, several with their number."""
    count = selects(selector, graph)
    return Mention(side, selector, count if count > 1 else None)


def row_random(*parts: str | float) -> Random:
    """Return the generator that belongs to a row: seeded by names and seeds only, never by a position."""
    return Random(make_key(*parts))


def capital(text: str) -> str:
    """Return the text with its first letter a capital."""
    return text[:1].upper() + text[1:]
