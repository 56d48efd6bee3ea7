"""Read captions by id, and match predictions with references by a protocol.

Files are JSON Lines, a JSON list, COCO's results and annotations, or pycocoevalcap's form: one
object of lists of texts, ``{"7": ["a car", ...]}``. A record has an id (``image_id``, ``img_id`` or
``id``: a text or a whole number, and 7 is "7") and a text (``text`` or ``caption``) or several
(``sentences``, ``captions`` or ``texts``). Files are untrusted: sizes, types and characters are
checked.

Protocols define an item's references. ``coco``: all texts of an id. Spot-the-Diff's files list
records, several per image pair; papers use them in three ways (all on the test split):

- ``spot-the-diff``: single change. The sentences of all records of a pair are its references: 1,270
  pairs.
- ``spot-the-diff-records``: single change. Each record is an item with its own sentences, and a
  prediction is scored
  once per record of its pair: 1,404 items.
- ``spot-the-diff-multi``: multiple changes. Each record is an item, and its sentences, joined by ".
  ", are one
  reference; the prediction describes all changes.

Numbers of different protocols are not comparable: CIDEr-D's document frequencies come from the
scored items, too.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, Field

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.read_json import (
    Given,
    check_record,
    number_records,
    parse_values,
    read_text,
)

TEXT_CHARACTERS, ID_CHARACTERS = 100_000, 1000
IDS, ONE, SEVERAL = (
    ("image_id", "img_id", "id"),
    ("text", "caption"),
    ("sentences", "captions", "texts"),
)
PROTOCOLS = ("coco", "spot-the-diff", "spot-the-diff-records", "spot-the-diff-multi")
MISSING = ("refuse", "empty", "leave-out")
"""Treatment of references without a prediction: an error, an empty prediction, or no item."""
SHOWN = 3  # ids named in a message


@dataclass(frozen=True)
class Record:
    """Texts of one id, possibly blank. ``is_list``: given as a list; ``where``: file and line."""

    name: str
    texts: tuple[str, ...]
    is_list: bool
    where: str


@dataclass(frozen=True)
class Prediction:
    """Unit of scoring: a prediction and its references, unprocessed."""

    name: str
    prediction: str
    references: tuple[str, ...]


@dataclass(frozen=True)
class Matched:
    """Items to score, in the order of the references, and counts of the rest."""

    items: list[Prediction]
    empty: int  # predictions without words
    blank: int  # blank references left out
    unreferenced: int  # items left out for lack of non-blank references
    missing: int  # reference ids without a prediction


class _Captions(Given):
    """Record of a file."""

    id: int | Annotated[str, Field(min_length=1, max_length=ID_CHARACTERS)] = Field(
        validation_alias=AliasChoices(*IDS)
    )
    text: Annotated[str, Field(max_length=TEXT_CHARACTERS, validation_alias=AliasChoices(*ONE))] = (
        ""
    )
    texts: Annotated[list[str], Field(validation_alias=AliasChoices(*SEVERAL))] = Field(
        default_factory=list[str]
    )


def read_captions(path: Path) -> list[Record]:
    """Return the records of a file, in order."""
    records: list[Record] = []
    for value, where in _values(read_text(path), path):
        found = check_record(value, _Captions, where)
        if sum(key in value for key in (*ONE, *SEVERAL)) != 1:
            raise ConfigError(f"{where}: exactly one of {', '.join((*ONE, *SEVERAL))} is needed")
        is_list = "texts" in found.model_fields_set
        texts = tuple(found.texts) if is_list else (found.text,)
        if sum(map(len, texts)) > TEXT_CHARACTERS:
            raise ConfigError(f"{where}: has more than {TEXT_CHARACTERS:,} characters of text")
        records.append(Record(str(found.id), texts, is_list, where))
    if not records:
        raise ConfigError(f"{path}: has no captions")
    return records


def _values(text: str, path: Path) -> Iterator[tuple[Any, str]]:
    """Yield each record's JSON and its location; an object is COCO's annotations, or texts by id."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and isinstance(annotations := found.get("annotations"), list):
        return number_records(annotations, f"{path}: annotations")
    if (
        isinstance(found, dict)
        and not found.keys() & {*ONE, *SEVERAL}
        and list in map(type, found.values())
    ):
        return (
            ({"id": name, "captions": texts}, f"{path}: id {name!r}")
            for name, texts in found.items()
        )
    return parse_values(text, path)


def match_captions(
    predictions: Sequence[Record],
    references: Sequence[Record],
    *,
    protocol: str = "coco",
    missing: str = "refuse",
    keep_blank: bool = False,
) -> Matched:
    """Return the items of a protocol; published scores of Spot-the-Diff keep its seven blank references."""
    options = (("protocol", protocol, PROTOCOLS), ("missing", missing, MISSING))
    for option, value, known in options:
        if value not in known:
            raise ConfigError(f"--{option} {value}: unknown; choose from {', '.join(known)}")
    written = _index(predictions, references)
    lacking = [
        name for name in dict.fromkeys(record.name for record in references) if name not in written
    ]
    if lacking and missing == "refuse":
        raise ConfigError(
            f"{_list_ids(lacking)} have no prediction: give --missing empty, or --missing leave-out"
        )
    groups = _group(references, protocol)
    scored = [(name, texts) for name, texts in groups if name in written or missing == "empty"]
    kept = [
        (name, tuple(text for text in texts if text.strip() or keep_blank))
        for name, texts in scored
    ]
    items = [Prediction(name, written.get(name, ""), texts) for name, texts in kept if texts]
    if not items:
        raise ConfigError("nothing to score: no prediction has a non-blank reference")
    return Matched(
        items=items,
        empty=sum(not item.prediction.strip() for item in items),
        blank=sum(len(texts) for _, texts in scored) - sum(len(texts) for _, texts in kept),
        unreferenced=len(kept) - len(items),
        missing=len(lacking),
    )


def _index(predictions: Sequence[Record], references: Sequence[Record]) -> dict[str, str]:
    known = {record.name for record in references}
    found: dict[str, Record] = {}
    for record in predictions:
        if len(record.texts) != 1:
            raise ConfigError(
                f"{record.where}: a prediction is one text; id {record.name!r} has {len(record.texts)}"
            )
        if record.name in found:
            raise ConfigError(
                f"{record.where}: id {record.name!r} has a prediction in {found[record.name].where}"
            )
        found[record.name] = record
    if unknown := [record for record in predictions if record.name not in known]:
        raise ConfigError(
            f"{unknown[0].where}: {_list_ids([record.name for record in unknown])} of the predictions have no "
            f"references (their ids are like {min(known)!r}, see {references[0].where})"
        )
    return {name: record.texts[0] for name, record in found.items()}


def _list_ids(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"ids {', '.join(map(repr, names[:SHOWN]))}{more}"


def _group(references: Sequence[Record], protocol: str) -> list[tuple[str, tuple[str, ...]]]:
    if protocol in ("coco", "spot-the-diff"):
        groups: dict[str, tuple[str, ...]] = {}
        for record in references:
            groups[record.name] = (*groups.get(record.name, ()), *record.texts)
        return list(groups.items())
    if single := next((record for record in references if not record.is_list), None):
        raise ConfigError(
            f"{single.where}: this protocol scores records, and needs their sentences as lists"
        )
    if protocol == "spot-the-diff-records":
        return [(record.name, record.texts) for record in references]
    joined = (
        ". ".join(text.strip().rstrip(".") for text in one.texts if text.strip())
        for one in references
    )
    return [(record.name, (text,)) for record, text in zip(references, joined, strict=True)]
