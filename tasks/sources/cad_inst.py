"""Read CaD-Inst (wlin21at/CaD-Inst): pairs of images with their commonalities and differences, in all of its forms.

Reads Parquet (``id, image, conversations``; the last two are Python literals in text), JSON lists
of the same, and the question-answer set (``image, question`` or ``text, answer``; Parquet or JSON
Lines). The records are read once, while listing; each becomes one ``ItemRow`` with everything but
the pixels in its locator. It is read into the ``PairRow`` of its two images and a
``ComparisonRow``: the first answer is its text, parsed if it follows the published layout (else
commonalities and differences are empty), and the conversation is kept unchanged, ``<image>`` marks
included.

The images (COCO's, Open Images' and others') are not included. Their paths are relative to
``reading.images``, or to the file's folder. No licence is stated.
"""

import ast
import json
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ComparisonRow, Dropped, Failed, ItemRow, PairRow, Turn, make_key
from pairwright.tasks.sources.annotations import check_record, load_json, parse_record, read_lines
from pairwright.tasks.sources.layouts import AnnotatedItem, Listed, make_item, read_item
from pairwright.tasks.sources.parquet_tables import image_folder, list_rows, need, read_rows
from pairwright.tasks.sources.read_entry import check_path
from pairwright.tasks.sources.reader import (
    Given,
    Read,
    Reader,
    RefusedEntryError,
    is_unicode,
    read_one,
    shown_name,
)
from pairwright.tasks.texts.comparisons import Comparison, read_comparison

log = logging.getLogger(__name__)

ENDINGS = (".json", ".jsonl")
COLUMNS = ("image", "conversations", "question", "text", "answer", "id", "question_id")
ROLES = {"human": "user", "gpt": "assistant"}
MAX_TURNS, MAX_CHARACTERS = 64, 200_000
MAX_LITERAL = 500_000
"""Maximum characters of a Python literal; the longest conversation has some ten thousand."""
# Possessive quantifiers: each character is looked at once, whatever the text.
_LITERAL = re.compile(
    r"""(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|[\[\](){},:\s]|None|True|False|-?\d{1,20})*+""",
    re.DOTALL,
)


def list_items(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    """Yield the records; ``SourceError`` if there is none, or none of their images is found."""
    folder = image_folder(config)
    hint = "name the folder that their paths are relative to with --set reading.images=FOLDER"
    if not folder:
        raise SourceError(f"{config.path}: has no images; {hint}")
    count, found = 0, False
    for listed in islice(_entries(config, limit), limit):
        item = make_item("cad-inst", Path(folder), *listed)
        count += 1
        found = found or any(size >= 0 for _, size, _ in json.loads(item.locator).get("images", ()))
        yield item
    if not found and limit != 0:
        fault = (
            f"none of its images is in {folder}; {hint}"
            if count
            else "holds no records of CaD-Inst"
        )
        raise SourceError(f"{config.path}: {fault}")
    log.info("%s: listed %d records", shown_name(config.path), count)


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[Read]:
    """Yield the pair of each record with its images and its comparison, or why there is none."""
    folder = Path(image_folder(config)).resolve()
    for item in items:
        yield from read_one(item, _read, folder, config)


def _read(item: ItemRow, folder: Path, config: SourceConfig) -> list[Given]:
    rows = read_item(item, folder, config)
    pair = rows[-1].key
    turns = tuple(Turn(role=role, text=text) for role, text in json.loads(item.locator)["turns"])
    text = next(turn.text for turn in turns if turn.role == "assistant")
    read = read_comparison(text)
    parts = read if isinstance(read, Comparison) else Comparison((), ())
    comparison = ComparisonRow(
        key=make_key(
            "comparison", pair, *(part for turn in turns for part in (turn.role, turn.text))
        ),
        source_key=item.key,
        subject=pair,
        text=text,
        commonalities=parts.commonalities,
        differences=tuple(one.text for one in parts.differences),
        axes=tuple(", ".join(one.axes) for one in parts.differences),
        conversation=turns,
        model="CaD-Inst",
    )
    return [*rows, comparison]


def _entries(config: SourceConfig, limit: int | None) -> Iterator[Listed]:
    """Yield the records of the JSON files of a local source without tables, or else of its tables."""
    source, paths = Path(config.path), list[Path]()
    if "://" not in config.path and source.suffix.lower() in ENDINGS:
        paths = [source]
    elif "://" not in config.path and not any(source.rglob("*.parquet")):
        paths = sorted(
            one for one in source.glob("*") if one.suffix.lower() in ENDINGS and one.name[0] != "."
        )
    if paths and config.reading.splits:
        raise SourceError(
            f"{config.path}: reading.splits: JSON files have no splits; leave it empty"
        )
    for path in paths:
        records = (
            (line for _, line in read_lines(path))
            if path.suffix == ".jsonl"
            else load_json(path, list)
        )
        for number, record in enumerate(records):
            yield f"{path.name}#{number}", partial(_entry, record), ""
    if paths:
        return
    items = list(list_rows(config, limit, choose=_choose))  # the file is one row group, read once
    for item, record in read_rows(items, config, choose=_choose):
        if isinstance(record, Failed):
            raise SourceError(f"{config.path}: {record.detail}: cannot be read")
        if isinstance(record, Dropped):
            yield (
                item.name,
                RefusedEntryError("damaged record", f"{record.reason}: {record.detail}"),
                "",
            )
        else:
            yield item.name, partial(_entry, record), ""


def _choose(schema: pa.Schema, _: ReadingConfig) -> dict[str, str]:
    there = [name for name in COLUMNS if name in schema.names]
    return need(
        schema, ("image", *there) if "conversations" in there else ("image", "answer", *there)
    )


def _entry(found: object) -> AnnotatedItem:
    record = parse_record(found) if isinstance(found, bytes | None) else check_record(found)
    match _value(record, "image"):
        case [str() as first, str() as second]:
            return AnnotatedItem(
                images=(check_path(first), check_path(second)), turns=read_turns(record)
            )
        case _:
            raise RefusedEntryError("not two images")


def read_turns(record: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return roles and texts of a record's conversation, with at least one answer, or of its question and answer."""
    if "conversations" in record:
        said = _value(record, "conversations")
        if not isinstance(said, list | tuple) or not 0 < len(said) <= MAX_TURNS:
            raise RefusedEntryError("damaged conversation")
        turns = tuple(map(_turn, said))
    else:
        question = record.get("question") or record.get("text")
        turns = (
            _turn({"from": "human", "value": question}),
            _turn({"from": "gpt", "value": record.get("answer")}),
        )
    if not any(role == "assistant" for role, _ in turns):
        raise RefusedEntryError("no answer")
    if sum(len(text) for _, text in turns) > MAX_CHARACTERS:
        raise RefusedEntryError("too much text")
    return turns


def _turn(turn: Any) -> tuple[str, str]:
    match turn:
        case {"from": ("human" | "gpt") as who, "value": str() as text} if (
            text.strip() and is_unicode(text)
        ):
            return ROLES[who], text.strip()
        case _:
            raise RefusedEntryError("damaged conversation")


def _value(record: dict[str, Any], name: str) -> Any:
    value = record.get(name)
    return parse_literal(value) if isinstance(value, str) else value


def parse_literal(text: str) -> Any:
    """Return the value of a Python literal (lists, dicts, strings, whole numbers), or ``None`` for any other text.

    Anything else is refused before Python's parser sees it, since exceeding its limits ends the
    process, not the row.
    """
    if len(text) > MAX_LITERAL or not _LITERAL.fullmatch(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unknown escapes in strings
            return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


READER = Reader(
    kind="cad-inst",
    about="CaD-Inst: pairs with commonalities and differences, Parquet or JSON; you provide the images",
    example="cad-inst:phase1_278K.parquet --set reading.images=IMAGES",
    details=__doc__ or "",
    list_items=list_items,
    read_items=read_items,
    brings=(PairRow, ComparisonRow),
    recognises=lambda path: bool(
        re.search(r"(^|/)(phase[12]_|cad_qa_eval)[^/]*\.(jsonl?|parquet)$", path.lower())
    ),
)
