"""Read CaD-Inst (wlin21at/CaD-Inst): pairs of images with their commonalities and differences.

Reads all of its forms: Parquet (``id, image, conversations``; the last two are Python literals in
text), JSON lists of the same, and the question-answer set (``image, question`` or ``text,
answer``; Parquet or JSON Lines). The records are read once, while listing; each becomes one
``ItemRow`` with everything but the pixels in its locator. It is read into the ``PairRow`` of its
two images and a ``ComparisonRow``: the first answer is its text, parsed if it follows the
published layout (else commonalities and differences are empty), and the conversation is kept
unchanged, ``<image>`` marks included.

The images (COCO's, Open Images' and others') are not included. Their paths are relative to
``reading.images``, or to the file's folder. No licence is stated.
"""

import ast
import json
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ComparisonRow, Dropped, Failed, ItemRow, PairRow, Turn, make_key
from pairwright.tasks.sources.annotations import check_record, load_json, parse_record, stream_lines
from pairwright.tasks.sources.layouts import AnnotatedItem, Listed, make_item, read_item
from pairwright.tasks.sources.parquet_tables import (
    image_folder,
    list_rows,
    read_table_rows,
    require_columns,
)
from pairwright.tasks.sources.read_entry import check_path
from pairwright.tasks.sources.reader import (
    Reader,
    ReadResult,
    RefusedEntryError,
    SourceRow,
    escape_name,
    is_unicode,
    read_one,
)
from pairwright.tasks.texts.comparisons import Comparison, read_comparison

log = logging.getLogger(__name__)

ENDINGS = (".json", ".jsonl")
COLUMNS = ("image", "conversations", "question", "text", "answer", "id", "question_id")
CONVERSATIONS = ("conversations", "messages")
"""Names of the field of a conversation, LLaVA's and ShareGPT's, and OpenAI's."""
ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "assistant"), "assistant"),
    "system": "system",
}
MAX_TURNS = 64
MAX_CHARACTERS = 200_000
MAX_LITERAL = 500_000
"""Maximum characters of a Python literal; the longest conversation has some ten thousand."""
# Possessive quantifiers: each character is looked at once, whatever the text.
_LITERAL = re.compile(
    r"""(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|[\[\](){},:\s]|None|True|False|-?\d{1,20})*+""",
    re.DOTALL,
)


def list_items(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    """Yield the records; ``SourceError`` if there is none, or none of their images exists."""
    folder = image_folder(config)
    hint = "name the folder that their paths are relative to with --set reading.images=FOLDER"
    if not folder:
        raise SourceError(f"{config.path}: has no images; {hint}")
    count = 0
    has_image = False
    for listed in islice(_list_records(config, limit), limit):
        item = make_item("cad-inst", Path(folder), *listed)
        count += 1
        has_image = has_image or _has_image(item)
        yield item
    if not has_image and limit != 0:
        fault = f"none of its images is in {folder}; {hint}"
        if not count:
            fault = "holds no records of CaD-Inst"
        raise SourceError(f"{config.path}: {fault}")
    log.info("%s: listed %d records", escape_name(config.path), count)


def _has_image(item: ItemRow) -> bool:
    """Return whether a file of one of the item's images was readable when it was listed."""
    images = json.loads(item.locator).get("images", ())
    return any(size >= 0 for _, size, _ in images)


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[ReadResult]:
    """Yield the pair of each record with its images and its comparison, or why there is none."""
    folder = Path(image_folder(config)).resolve()
    for item in items:
        yield from read_one(item, _read, folder, config)


def _read(item: ItemRow, folder: Path, config: SourceConfig) -> list[SourceRow]:
    rows = read_item(item, folder, config)
    pair_key = rows[-1].key
    turns: list[Turn] = []
    key_parts: list[str] = []
    for role, text in json.loads(item.locator)["turns"]:
        turns.append(Turn(role=role, text=text))
        key_parts += [role, text]
    answer = next(turn.text for turn in turns if turn.role == "assistant")
    parsed = read_comparison(answer)
    if not isinstance(parsed, Comparison):
        parsed = Comparison((), ())
    comparison = ComparisonRow(
        key=make_key("comparison", pair_key, *key_parts),
        source_key=item.key,
        subject=pair_key,
        text=answer,
        commonalities=parsed.commonalities,
        differences=tuple(difference.text for difference in parsed.differences),
        axes=tuple(", ".join(difference.axes) for difference in parsed.differences),
        conversation=tuple(turns),
        model="CaD-Inst",
    )
    return [*rows, comparison]


def _list_records(config: SourceConfig, limit: int | None) -> Iterator[Listed]:
    """Yield the records of a local source's JSON files, or else of its tables."""
    paths = _find_json(config.path)
    if not paths:
        yield from _list_table_records(config, limit)
        return
    if config.reading.splits:
        raise SourceError(
            f"{config.path}: reading.splits: JSON files have no splits; leave it empty"
        )
    for path in paths:
        for number, record in enumerate(_load_records(path)):
            yield f"{path.name}#{number}", partial(_entry, record), ""


def _find_json(address: str) -> list[Path]:
    """Return the JSON files of a source; none if it is remote or has tables."""
    path = Path(address)
    if "://" in address:
        return []
    if path.suffix.lower() in ENDINGS:
        return [path]
    if any(path.rglob("*.parquet")):
        return []
    visible = [file for file in path.glob("*") if file.name[0] != "."]
    return sorted(file for file in visible if file.suffix.lower() in ENDINGS)


def _load_records(path: Path) -> Iterable[object]:
    if path.suffix == ".jsonl":
        return (line for _, line in stream_lines(path))
    return load_json(path, list)


def _list_table_records(config: SourceConfig, limit: int | None) -> Iterator[Listed]:
    items = list(list_rows(config, limit, choose=_choose))  # the file is one row group, read once
    for item, record in read_table_rows(items, config, choose=_choose):
        if isinstance(record, Failed):
            raise SourceError(f"{config.path}: {record.detail}: cannot be read")
        if isinstance(record, Dropped):
            detail = f"{record.reason}: {record.detail}"
            yield item.name, RefusedEntryError("damaged record", detail), ""
        else:
            yield item.name, partial(_entry, record), ""


def _choose(schema: pa.Schema, _: ReadingConfig) -> dict[str, str]:
    present = [name for name in COLUMNS if name in schema.names]
    required = ["image"] if "conversations" in present else ["image", "answer"]
    return require_columns(schema, (*required, *present))


def _entry(value: object) -> AnnotatedItem:
    record = parse_record(value) if isinstance(value, bytes | None) else check_record(value)
    match _value(record, "image"):
        case [str() as first, str() as second]:
            images = (check_path(first), check_path(second))
            return AnnotatedItem(images=images, turns=read_turns(record))
        case _:
            raise RefusedEntryError("not two images")


def read_turns(record: dict[str, Any], *, with_system: bool = False) -> tuple[tuple[str, str], ...]:
    """Return roles and texts of a record's conversation, or of its question and answer.

    At least one is an answer. ``with_system``: a system message may come first.
    """
    name = next((name for name in CONVERSATIONS if name in record), "")
    if name:
        conversation = _value(record, name)
        if not isinstance(conversation, list | tuple):
            raise RefusedEntryError("damaged conversation")
        if not 0 < len(conversation) <= MAX_TURNS:
            raise RefusedEntryError("damaged conversation")
        turns = tuple(map(_turn, conversation))
        if any(role == "system" for role, _ in turns[int(with_system) :]):
            raise RefusedEntryError("damaged conversation", "a system message that is not first")
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
        case {"from": str() as role, "value": str() as text}:
            pass
        case {"role": str() as role, "content": str() as text}:
            pass
        case _:
            raise RefusedEntryError("damaged conversation")
    if role not in ROLES or not is_unicode(text):
        raise RefusedEntryError("damaged conversation", f"role {escape_name(role[:50])}")
    if not text.strip():
        reason = "empty answer" if ROLES[role] == "assistant" else "empty question"
        raise RefusedEntryError(reason)
    return ROLES[role], text.strip()


def _value(record: dict[str, Any], name: str) -> Any:
    value = record.get(name)
    return parse_literal(value) if isinstance(value, str) else value


def parse_literal(text: str) -> Any:
    """Return the value of a Python literal, or ``None`` for any other text.

    A literal has lists, dicts, strings and whole numbers. Anything else is refused before Python's
    parser sees it, since exceeding its limits ends the process, not the row.
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
    about=(
        "CaD-Inst: pairs with commonalities and differences, Parquet or JSON; "
        "you provide the images"
    ),
    example="cad-inst:phase1_278K.parquet --set reading.images=IMAGES",
    details=__doc__ or "",
    list_items=list_items,
    read_items=read_items,
    brings=(PairRow, ComparisonRow),
    recognises=lambda path: bool(
        re.search(r"(^|/)(phase[12]_|cad_qa_eval)[^/]*\.(jsonl?|parquet)$", path.lower())
    ),
)
