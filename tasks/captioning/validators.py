"""What the writers share: validators of plugins that a profile names, and the scene graphs of a pair."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pairwright.schemas.claims import Graphs
from pairwright.schemas.plugins import Registry
from pairwright.schemas.rows import Dropped, ImageRow, PairRow
from pairwright.schemas.writing import WrittenSection


@dataclass(frozen=True, slots=True, kw_only=True)
class Validator:
    """Validator: a rule that says why a text will not do."""

    name: str
    """What ``captions.validators``, ``differences.validators`` and ``comparisons.validators`` call it."""
    version: int
    """Raise it when it refuses other texts: they are written anew."""
    refuse: Callable[[str], str]
    """``refuse(text)`` returns why a text is refused, in a short constant phrase that is counted; empty: it is not."""


VALIDATORS = Registry("validators", Validator, ())


def refuse_text(text: str, config: WrittenSection) -> str:
    """Return why a validator refuses a text; empty: none does."""
    return next(filter(None, (VALIDATORS[name].refuse(text) for name in config.validators)), "")


def name_validators(config: WrittenSection) -> tuple[str, ...]:
    """Return the validators with their versions, for the table's fingerprint."""
    return tuple(f"validator {name} {VALIDATORS[name].version}" for name in config.validators)


def pair_graphs(row: PairRow, images: Mapping[str, ImageRow]) -> Graphs | Dropped:
    """Return both scene graphs, or why there are none."""
    first, second = images.get(row.first), images.get(row.second)
    if first is None or second is None:
        return Dropped(source_key=row.key, reason="image is missing", detail=row.second if first else row.first)
    if first.graph is None or second.graph is None:
        return Dropped(source_key=row.key, reason="no scene graph", detail=first.name if second.graph else second.name)
    return first.graph, second.graph
