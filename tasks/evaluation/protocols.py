"""Which texts are an item's references: protocols by name, and what happens to ids that one side lacks.

``coco``: all texts of an id are its references. Spot-the-Diff's files list records, and an image pair may have several;
papers differ in what they make of them (all on the test split):

- ``spot-the-diff``: single change. The sentences of all records of a pair are its references: 1,270 pairs.
- ``spot-the-diff-records``: single change. Each record is an item with its own sentences, and one prediction is scored
  once per record of its pair: 1,404 items.
- ``spot-the-diff-multi``: multiple changes. Each record is an item, and its sentences, joined by ". ", are one
  reference; the prediction tells all changes.

Numbers of different protocols are not comparable: CIDEr-D's document frequencies come from the scored items, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.read_captions import Record

MISSING = ("refuse", "empty", "leave-out")
"""What becomes of references without a prediction: an error, an empty prediction, or no item."""
SHOWN = 3


@dataclass(frozen=True)
class Item:
    """One thing to score: a prediction and its references, as they were written."""

    name: str
    prediction: str
    references: tuple[str, ...]


@dataclass(frozen=True)
class Matched:
    """What is scored, and what is not.

    Attributes:
        items: in the order of the references.
        empty: predictions without any word.
        blank: blank references, which are left out.
        unreferenced: items left out since they had blank references only.
        missing: ids of references that have no prediction.
    """

    items: list[Item]
    empty: int
    blank: int
    unreferenced: int
    missing: int


def match_captions(
    predictions: Sequence[Record], references: Sequence[Record], *, protocol: str = "coco", missing: str = "refuse"
) -> Matched:
    """Return the items of a protocol.

    Raises:
        ConfigError: the protocol is unknown or needs another form of references; an id has several predictions or none
            (unless ``missing`` says what then), or a prediction has no references.
    """
    if protocol not in PROTOCOLS:
        raise ConfigError(f"--protocol {protocol}: there is no such one. There are: {', '.join(PROTOCOLS)}")
    if missing not in MISSING:
        raise ConfigError(f"--missing {missing}: there is no such way. There are: {', '.join(MISSING)}")
    written = _index(predictions)
    known = {record.name for record in references}
    _refuse_unknown(predictions, known, references[0].where)
    lacking = [name for name in dict.fromkeys(record.name for record in references) if name not in written]
    if lacking and missing == "refuse":
        raise ConfigError(
            f"{_some(lacking)} of the references have no prediction. Score them as empty texts with --missing empty, "
            "or leave them out (numbers of a part are not comparable) with --missing leave-out"
        )
    return _match(PROTOCOLS[protocol](references), written, missing=missing, lacking=len(lacking))


def _match(
    groups: list[tuple[str, tuple[str, ...]]], written: dict[str, str], *, missing: str, lacking: int
) -> Matched:
    scored = [(name, texts) for name, texts in groups if name in written or missing == "empty"]
    kept = [(name, tuple(text for text in texts if text.strip())) for name, texts in scored]
    items = [Item(name, written.get(name, ""), texts) for name, texts in kept if texts]
    if not items:
        raise ConfigError("nothing is left to score: no prediction has a reference that is not blank")
    return Matched(
        items=items,
        empty=sum(not item.prediction.strip() for item in items),
        blank=sum(len(texts) for _, texts in scored) - sum(len(texts) for _, texts in kept),
        unreferenced=len(kept) - len(items),
        missing=lacking,
    )


def _index(predictions: Sequence[Record]) -> dict[str, str]:
    found: dict[str, Record] = {}
    for record in predictions:
        if len(record.texts) != 1:
            raise ConfigError(
                f"{record.where}: a prediction is one text, and id {record.name!r} has {len(record.texts)}"
            )
        if record.name in found:
            raise ConfigError(
                f"{record.where}: id {record.name!r} has a prediction already, in {found[record.name].where}"
            )
        found[record.name] = record
    return {name: record.texts[0] for name, record in found.items()}


def _refuse_unknown(predictions: Sequence[Record], known: set[str], where: str) -> None:
    unknown = [record for record in predictions if record.name not in known]
    if unknown:
        like = sorted(known)[0]
        raise ConfigError(
            f"{unknown[0].where}: {_some([record.name for record in unknown])} of the predictions have no references "
            f"(those are called like {like!r}, see {where})"
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"ids {', '.join(map(repr, names[:SHOWN]))}{more}"


def _by_id(references: Sequence[Record]) -> list[tuple[str, tuple[str, ...]]]:
    groups: dict[str, list[str]] = {}
    for record in references:
        groups.setdefault(record.name, []).extend(record.texts)
    return [(name, tuple(texts)) for name, texts in groups.items()]


def _by_record(references: Sequence[Record]) -> list[tuple[str, tuple[str, ...]]]:
    for record in references:
        if not record.is_list:
            raise ConfigError(
                f"{record.where}: this protocol scores records, and needs their sentences as lists "
                '({"img_id": ..., "sentences": [...]}), as in Spot-the-Diff\'s own files'
            )
    return [(record.name, record.texts) for record in references]


def _joined(references: Sequence[Record]) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (name, (". ".join(text.strip().rstrip(".") for text in texts if text.strip()),))
        for name, texts in _by_record(references)
    ]


PROTOCOLS: dict[str, Callable[[Sequence[Record]], list[tuple[str, tuple[str, ...]]]]] = {
    "coco": _by_id,
    "spot-the-diff": _by_id,
    "spot-the-diff-records": _by_record,
    "spot-the-diff-multi": _joined,
}
