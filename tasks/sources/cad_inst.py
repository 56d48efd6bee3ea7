"""Read CaD-Inst (wlin21at/CaD-Inst): pairs of images with their commonalities and differences, in all of its forms.

Reads Parquet (``id, image, conversations``; those two are Python literals in text), the JSON lists of the same, and the
question-answer set (``image, question`` or ``text, answer``; Parquet or JSON Lines). The records are read once, while
listing; each becomes one ``ItemRow`` whose locator holds all but the pixels. It is read into the ``PairRow`` of its two
images and a ``ComparisonRow``: the first answer is its text, taken apart where it follows the published layout (else
commonalities and differences are empty), and the conversation is kept as it is, ``<image>`` marks included.

The images are COCO's, Open Images' and others': they do not come with it. ``reading.images`` names the folder that
paths start from, or they start beside the file. No licence is stated.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.schemas.comparisons import Comparison, read_comparison
from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ComparisonRow, Dropped, Failed, ImageRow, ItemRow, PairRow, Turn, make_key
from pairwright.tasks.sources.folder import shown_name
from pairwright.tasks.sources.layout.pairs import About, Picture, dropped, read_pair
from pairwright.tasks.sources.layout.read_below import is_unicode, read_below, size_and_time
from pairwright.tasks.sources.parquet import image_folder
from pairwright.tasks.sources.reader import Reader
from pairwright.tasks.sources.tables.json_elements import Damaged, read_elements, read_json_lines
from pairwright.tasks.sources.tables.literals import parse_literal
from pairwright.tasks.sources.tables.read_rows import list_rows, read_rows
from pairwright.tasks.sources.tables.table_columns import need
from pairwright.tasks.sources.tables.table_files import Place, open_place

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

ENDINGS = (".json", ".jsonl")
COLUMNS = ("image", "conversations", "question", "text", "answer", "id", "question_id")
ROLES = {"human": "user", "gpt": "assistant"}
MOST_TURNS, MOST_CHARACTERS = 64, 200_000
LOOKED_AT = 1000
"""Records after which a folder that has none of the images is taken for a wrong one."""
CHUNK = 50_000
"""Rows of a table that are listed before they are read: the file is one row group, read again for each chunk."""
Records = Iterator[tuple[str, Any]]
Result = list[ImageRow | PairRow | ComparisonRow]


class _RefusedError(ValueError):
    """Say why a record is no pair with a conversation."""


def list_items(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    """Yield the records, equal ones once.

    Raises:
        SourceError: there are none, they cannot be read, or the folder of images has none of theirs.
    """
    place = open_place(config.path)
    folder = image_folder(config)
    if not folder:
        raise SourceError(f"{config.path}: brings no images; name their folder with --set reading.images=FOLDER")
    seen: set[str] = set()
    found = 0
    for number, (name, record) in enumerate(islice(_records(place, config, limit), limit), 1):
        item, is_there = _item(shown_name(name), record, folder)
        found += is_there
        if number == LOOKED_AT and not found:
            break
        if item.key not in seen:
            seen.add(item.key)
            yield item
    if not seen and limit != 0:
        raise SourceError(f"{config.path}: holds no records of CaD-Inst")
    if not found and limit != 0:
        raise SourceError(
            f"{config.path}: none of the images that it names is in {folder}; "
            "name the folder that their paths start from with --set reading.images=FOLDER"
        )
    log.info("%s: listed %d records", shown_name(config.path), len(seen))


def read_items(
    items: Sequence[ItemRow], config: SourceConfig
) -> Iterator[ImageRow | PairRow | ComparisonRow | Dropped | Failed]:
    """Yield the pair of each record with its images and its comparison, or why there is none."""
    folder = image_folder(config)
    for item in items:
        result = _read(item, config, folder)
        yield from result if isinstance(result, list) else [result]


def _records(place: Place, config: SourceConfig, limit: int | None) -> Records:
    if place.name and not place.name.lower().endswith(ENDINGS):
        yield from _rows(config, limit)
        return
    names = [place.name] if place.name else _lists(place)
    if not names:
        yield from _rows(config, limit)
        return
    if config.reading.splits:
        raise SourceError(f"{place.address}: reading.splits: JSON files have no splits; leave it empty")
    for name in names:
        yield from _elements(place, name)


def _lists(place: Place) -> list[str]:
    """Return the JSON files directly in a folder that holds no table."""
    paths = [path.rpartition("/")[2] for path in place.system.ls(place.root, detail=False)]
    has_tables = bool(place.system.glob(f"{place.root}/**/*.parquet"))
    return [] if has_tables else sorted(name for name in paths if name.lower().endswith(ENDINGS))


def _elements(place: Place, name: str) -> Records:
    try:
        with closing(place.open(name)) as file:
            read = read_json_lines if name.lower().endswith(".jsonl") else read_elements
            for number, record in enumerate(read(file)):
                yield f"{name}#{number}", record
    except OSError as error:
        raise SourceError(f"{place.address}: {name}: cannot be read: {error}") from error


def _rows(config: SourceConfig, limit: int | None) -> Records:
    items = list_rows(config, limit, choose=_choose)
    while chunk := list(islice(items, CHUNK)):
        for item, record in read_rows(chunk, config, choose=_choose):
            if isinstance(record, Failed):
                raise SourceError(f"{config.path}: {record.detail}: cannot be read")
            yield item.name, Damaged(f"{record.reason}: {record.detail}") if isinstance(record, Dropped) else record


def _choose(schema: "pa.Schema", reading: ReadingConfig) -> dict[str, str]:  # noqa: ARG001 - as for every table

    there = [name for name in COLUMNS if name in schema.names]
    return need(schema, ("image", *there) if "conversations" in there else ("image", "answer", *there))


def _item(name: str, record: Any, folder: str) -> tuple[ItemRow, bool]:
    """Return a record as an item, and whether one of its images is there."""
    place: dict[str, Any]
    is_there = False
    try:
        if not isinstance(record, dict):
            raise _RefusedError("damaged record", record if isinstance(record, Damaged) else "no object")
        images = [(path, *size_and_time(folder, path)) for path in _paths(record)]
        is_there = any(size >= 0 for _, size, _ in images)
        place = {"images": images, "turns": _turns(record)}
    except _RefusedError as refused:
        reason, *detail = refused.args
        place = {"refused": reason, "detail": shown_name("".join(detail)), "name": name}
    locator = json.dumps(place, ensure_ascii=True)
    key = make_key("cad-inst", locator)
    return ItemRow(key=key, source_key=key, subject=key, name=name, locator=locator), is_there


def _value(record: dict[str, Any], name: str) -> Any:
    """Return a field, which tables hold as a Python literal."""
    value = record.get(name)
    return parse_literal(value) if isinstance(value, str) else value


def _paths(record: dict[str, Any]) -> tuple[str, str]:
    match _value(record, "image"):
        case [str() as first, str() as second]:
            return first, second
        case _:
            raise _RefusedError("not two images")


def _turns(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the conversation as roles and texts, ours and theirs."""
    if "conversations" in record:
        turns = [_turn(turn) for turn in _list_of(_value(record, "conversations"))]
    else:
        question = record.get("question") or record.get("text")
        turns = [_turn({"from": "human", "value": question}), _turn({"from": "gpt", "value": record.get("answer")})]
    if not any(role == "assistant" for role, _ in turns):
        raise _RefusedError("no answer")
    if sum(len(text) for _, text in turns) > MOST_CHARACTERS:
        raise _RefusedError("too much text")
    return turns


def _list_of(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple) or not 0 < len(value) <= MOST_TURNS:
        raise _RefusedError("damaged conversation")
    return list(value)


def _turn(turn: Any) -> tuple[str, str]:
    match turn:
        case {"from": ("human" | "gpt") as who, "value": str() as text} if text.strip() and is_unicode(text):
            return ROLES[who], text.strip()
        case _:
            raise _RefusedError("damaged conversation")


def _read(item: ItemRow, config: SourceConfig, folder: str) -> Result | Dropped | Failed:
    place: dict[str, Any] = json.loads(item.locator)
    if "refused" in place:
        return dropped(item, place["refused"], place["detail"])
    pictures: list[Picture] = []
    for path, *listed in place["images"]:
        data = read_below(item, folder, path, config.images, listed=listed)
        if not isinstance(data, bytes):
            return data
        pictures.append(Picture(data=data, name=shown_name(path)))
    first, second = pictures
    found = read_pair(item, first, second, config, about=About())
    if isinstance(found, Dropped):
        return found
    return [*found, _comparison(item, found[-1].key, [Turn(role=role, text=text) for role, text in place["turns"]])]


def _comparison(item: ItemRow, pair: str, turns: Sequence[Turn]) -> ComparisonRow:
    text = next(turn.text for turn in turns if turn.role == "assistant")
    read = read_comparison(text)
    parts = read if isinstance(read, Comparison) else Comparison((), ())
    return ComparisonRow(
        key=make_key("comparison", pair, *(part for turn in turns for part in (turn.role, turn.text))),
        source_key=item.key,
        subject=pair,
        text=text,
        commonalities=parts.commonalities,
        differences=tuple(one.text for one in parts.differences),
        axes=tuple(", ".join(one.axes) for one in parts.differences),
        conversation=tuple(turns),
        model="CaD-Inst",
    )


def _recognises(path: str) -> bool:
    name = Path(path).name.lower()
    return name.startswith(("phase1_", "phase2_", "cad_qa_eval")) and name.endswith((*ENDINGS, ".parquet"))


READER = Reader(
    kind="cad-inst",
    about="CaD-Inst: pairs with commonalities and differences, Parquet or JSON; the images are yours to bring",
    example="cad-inst:phase1_278K.parquet --set reading.images=IMAGES",
    list_items=list_items,
    read_items=read_items,
    brings=(PairRow, ComparisonRow),
    recognises=_recognises,
)
