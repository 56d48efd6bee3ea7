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
  prediction is scored once per record of its pair: 1,404 items.
- ``spot-the-diff-multi``: multiple changes. Each record is an item, and its sentences, joined by
  full stops, are one reference; the prediction describes all changes.

Numbers of different protocols are not comparable: CIDEr-D's document frequencies come from the
scored items, too.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, Field

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.read_json import (
    ExternalRecord,
    number_records,
    parse_values,
    read_text,
    validate_record,
)

TEXT_CHARACTERS = 100_000
ID_CHARACTERS = 1000
ID_FIELDS = ("image_id", "img_id", "id")
TEXT_FIELDS = ("text", "caption")
LIST_FIELDS = ("sentences", "captions", "texts")
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


class _Captions(ExternalRecord):
    """Record of a file."""

    id: int | Annotated[str, Field(min_length=1, max_length=ID_CHARACTERS)] = Field(
        validation_alias=AliasChoices(*ID_FIELDS)
    )
    text: Annotated[str, Field(max_length=TEXT_CHARACTERS)] = Field(
        default="", validation_alias=AliasChoices(*TEXT_FIELDS)
    )
    texts: list[str] = Field(default_factory=list[str], validation_alias=AliasChoices(*LIST_FIELDS))


def read_captions(path: Path) -> list[Record]:
    """Return the records of a file, in order."""
    records = [_read_record(value, where) for value, where in _values(read_text(path), path)]
    if not records:
        raise ConfigError(f"{path}: has no captions")
    return records


def _read_record(value: Any, where: str) -> Record:
    captions = validate_record(value, _Captions, where)
    fields = (*TEXT_FIELDS, *LIST_FIELDS)
    if sum(field in value for field in fields) != 1:
        raise ConfigError(f"{where}: exactly one of {', '.join(fields)} is needed")
    is_list = "texts" in captions.model_fields_set
    texts = tuple(captions.texts) if is_list else (captions.text,)
    if sum(map(len, texts)) > TEXT_CHARACTERS:
        raise ConfigError(f"{where}: has more than {TEXT_CHARACTERS:,} characters of text")
    return Record(str(captions.id), texts, is_list, where)


def _values(text: str, path: Path) -> Iterator[tuple[Any, str]]:
    """Return each record's JSON and its location.

    An object is COCO's annotations, or texts by id.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        return parse_values(text, path)
    annotations = content.get("annotations")
    if isinstance(annotations, list):
        return number_records(annotations, f"{path}: annotations")
    if _is_texts_by_id(content):
        return (
            ({"id": name, "captions": texts}, f"{path}: id {name!r}")
            for name, texts in content.items()
        )
    return parse_values(text, path)


def _is_texts_by_id(content: dict[str, Any]) -> bool:
    if content.keys() & {*TEXT_FIELDS, *LIST_FIELDS}:
        return False
    return list in map(type, content.values())


def match_captions(
    predictions: Sequence[Record],
    references: Sequence[Record],
    *,
    protocol: str = "coco",
    missing: str = "refuse",
    keep_blank: bool = False,
) -> Matched:
    """Return the items of a protocol.

    Published scores of Spot-the-Diff keep its seven blank references.
    """
    _check_option("protocol", protocol, PROTOCOLS)
    _check_option("missing", missing, MISSING)
    texts_by_id = _index(predictions, references)
    unpredicted = _find_unpredicted(references, texts_by_id)
    if unpredicted and missing == "refuse":
        raise ConfigError(
            f"{_list_ids(unpredicted)} have no prediction: "
            "give --missing empty, or --missing leave-out"
        )
    groups = _group(references, protocol)
    if missing != "empty":
        groups = [(name, texts) for name, texts in groups if name in texts_by_id]
    items: list[Prediction] = []
    blank = 0
    for name, texts in groups:
        kept_texts = tuple(text for text in texts if text.strip() or keep_blank)
        blank += len(texts) - len(kept_texts)
        if kept_texts:
            items.append(Prediction(name, texts_by_id.get(name, ""), kept_texts))
    if not items:
        raise ConfigError("nothing to score: no prediction has a non-blank reference")
    return Matched(
        items=items,
        empty=sum(not item.prediction.strip() for item in items),
        blank=blank,
        unreferenced=len(groups) - len(items),
        missing=len(unpredicted),
    )


def _find_unpredicted(references: Sequence[Record], predictions: Mapping[str, str]) -> list[str]:
    """Return the ids of references without a prediction."""
    names = dict.fromkeys(record.name for record in references)
    return [name for name in names if name not in predictions]


def _check_option(
    option: str,
    value: str,
    values: Sequence[str],
) -> None:
    if value not in values:
        raise ConfigError(f"--{option} {value}: unknown; choose from {', '.join(values)}")


def _index(predictions: Sequence[Record], references: Sequence[Record]) -> dict[str, str]:
    """Return the predictions by id, each of which must have a reference."""
    records: dict[str, Record] = {}
    for record in predictions:
        name = record.name
        if len(record.texts) != 1:
            raise ConfigError(
                f"{record.where}: a prediction is one text; id {name!r} has {len(record.texts)}"
            )
        if name in records:
            raise ConfigError(
                f"{record.where}: id {name!r} has a prediction in {records[name].where}"
            )
        records[name] = record
    known_names = {record.name for record in references}
    unknown = [record for record in predictions if record.name not in known_names]
    if unknown:
        ids = _list_ids([record.name for record in unknown])
        raise ConfigError(
            f"{unknown[0].where}: {ids} of the predictions have no references "
            f"(their ids are like {min(known_names)!r}, see {references[0].where})"
        )
    return {name: record.texts[0] for name, record in records.items()}


def _list_ids(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"ids {', '.join(map(repr, names[:SHOWN]))}{more}"


def _group(references: Sequence[Record], protocol: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return each item's name with its references."""
    if protocol in ("coco", "spot-the-diff"):
        groups: dict[str, tuple[str, ...]] = {}
        for record in references:
            groups[record.name] = (*groups.get(record.name, ()), *record.texts)
        return list(groups.items())
    for record in references:
        if not record.is_list:
            raise ConfigError(
                f"{record.where}: this protocol scores records, and needs their sentences as lists"
            )
    if protocol == "spot-the-diff-records":
        return [(record.name, record.texts) for record in references]
    return [(record.name, (_join_sentences(record.texts),)) for record in references]


def _join_sentences(texts: Sequence[str]) -> str:
    return ". ".join(text.strip().rstrip(".") for text in texts if text.strip())
