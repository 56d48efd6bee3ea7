"""Say which texts of the pool are true of a pair whose scene graphs are known: such a negative is no wrong text.

Reads the claims that a rendered scene's text was written with, and the graphs of the images; needs no models. Beyond
claims nothing is known: a text without them, or an image without a graph, gives no answer. State: for as many images as
were asked for, their graphs as JSON without masks (2 KB each), of which the last few thousand are read.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.claims import CLAIMS, Claim, all_hold
from pairwright.schemas.plain_text import plain_text
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.training.retriever.pool import NONE, Entry, Places, Pool

UNKNOWN, WRONG, TRUE = -1, 0, 1


@dataclass(frozen=True)
class KnownTruth:
    """Hold what is needed to check a text of the pool on a row."""

    claims: tuple[str, ...]
    """(T,) per text JSON of its claims; empty: unknown."""
    images: tuple[tuple[str, str], ...]
    """(n,) keys of each row's images."""
    graphs: Mapping[str, str]
    """By image, JSON of its graph without masks; rows with other images are not known."""

    def of(self, places: Places, ids: Places) -> NDArray[np.int8]:
        """Return ``(B, m)``: whether each text of ``ids`` (B, m) is ``TRUE`` of its row, ``WRONG``, or nobody knows."""
        rows = zip(places.tolist(), ids.tolist(), strict=True)
        found = [[self._check(place, number) for number in numbers] for place, numbers in rows]
        return np.array(found, dtype=np.int8).reshape(ids.shape)

    def _check(self, place: int, number: int) -> int:
        first, second = (self.graphs.get(key, "") for key in self.images[place])
        claims = self._read_claims(number) if number != NONE else ()
        if not (claims and first and second):
            return UNKNOWN
        return TRUE if all_hold(claims, (self._read_graph(first), self._read_graph(second))) else WRONG

    def _read_claims(self, number: int) -> tuple[Claim, ...]:
        text = self.claims[number]
        return CLAIMS.validate_json(text) if text else ()

    @cached_property
    def _read_graph(self) -> Any:
        return lru_cache(maxsize=4096)(SceneGraph.model_validate_json)


def know_truth(
    entries: Sequence[Entry], pool: Pool, *, claims: Iterable[tuple[str, str]], graphs: Mapping[str, str]
) -> KnownTruth:
    """Return what is known of some rows.

    Args:
        entries: the rows.
        pool: the texts that may be their negatives.
        claims: texts, each with JSON of its claims; of equal texts the first that has any counts.
        graphs: by image, JSON of its graph without masks (``without_masks``).
    """
    known: dict[str, str] = {}
    for text, written in claims:
        if written and written != "[]":
            known.setdefault(plain_text(text), written)
    return KnownTruth(
        claims=tuple(known.get(plain_text(text), "") for text in pool.texts),
        images=tuple(entry.images for entry in entries),
        graphs=graphs,
    )


def without_masks(graph: str) -> str:
    """Return a graph's JSON with empty masks in the place of its objects' own, which no claim is about."""
    read: dict[str, Any] = json.loads(graph)
    for thing in read["objects"]:
        thing["mask"]["counts"] = []
    return json.dumps(read, separators=(",", ":"))
