"""Public multiple-choice benchmarks of two images: BISON, SVO-Probes, NLVR2, EqBen, COLA.

All are read from paper 003's files, one line per question with its words and answer; SVO-Probes,
NLVR2 and COLA also from their own annotations. EqBen and COLA are pairs of images with captions:
paper 003 asks which image fits each caption, and both answers have to be right (chance: 25 %),
Winoground's image score.
"""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import Field

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import make_key
from pairwright.schemas.section import Count
from pairwright.tasks.evaluation.benchmark import Data, Exam, find_file, find_image
from pairwright.tasks.evaluation.benchmarks import choices
from pairwright.tasks.evaluation.benchmarks.choices import (
    ACCURACY,
    LETTERS,
    Choice,
    choose_image,
    judge_statement,
)
from pairwright.tasks.evaluation.read_json import (
    ExternalRecord,
    parse_values,
    read_records,
    read_text,
    validate_record,
)

CAPTION = re.compile(r'Which image suits the caption "(.*)" better\?', re.DOTALL)
STATEMENT = re.compile(r'Is the statement "(.*)" True or False\?', re.DOTALL)
SVO = "svo_probes.csv"
COLA = "COLA_multiobjects_matching_benchmark.json"
NLVR2 = ("test1.json", "test2.json", "dev.json", "balanced_test1.json", "balanced_test2.json")
SVO_FLAGS = {"subj_neg": "subject", "verb_neg": "verb", "obj_neg": "object"}
Images = tuple[Path, Path]
Reader = Callable[[Path], Iterator[Choice]]


class _Line(ExternalRecord):
    """Question of paper 003's files."""

    image: Annotated[list[str], Field(min_length=2, max_length=2)]
    text: str
    answer: Literal["A", "B", "True", "False"]
    question_id: str | int
    category: str = ""


class _SvoRow(ExternalRecord, strict=False):
    sentence: str
    pos_image_id: Count
    neg_image_id: Count
    subj_neg: bool
    verb_neg: bool
    obj_neg: bool


class _Nlvr2Record(ExternalRecord):
    sentence: str
    label: Literal["True", "False"]
    identifier: Annotated[str, Field(pattern=r"^([^-]+-){3}[^-]+$")]  # SPLIT-SET-PAIR-SENTENCE


class _ColaPair(ExternalRecord):
    """Addresses and captions of two images, as COLA lists them."""

    pair: Annotated[list[str], Field(min_length=4, max_length=4)]


class PublishedLine(NamedTuple):
    """Line of paper 003's files with what it refers to."""

    line: _Line
    images: Images
    text: str  # caption or statement
    where: str

    @property
    def name(self) -> str:
        """Return the question's name."""
        return str(self.line.question_id)


def _find_both(
    path: Path,
    names: Sequence[str],
    where: str,
) -> Images:
    first, second = names
    return (
        find_image(path.parent, first, where=where),
        find_image(path.parent, second, where=where),
    )


def _published(path: Path, pattern: re.Pattern[str] = CAPTION) -> Iterator[PublishedLine]:
    """Yield the lines of a file of paper 003."""
    for line, where in read_records(path, _Line):
        match = pattern.search(line.text)
        is_lettered = line.answer in LETTERS
        if match is None or is_lettered != (pattern is CAPTION):
            raise ConfigError(f"{where}: text and answer: not a question of this benchmark")
        images = _find_both(path, line.image, where)
        yield PublishedLine(line, images, match[1], where)


def _read_captions(path: Path) -> Iterator[Choice]:
    for published in _published(path):
        line = published.line
        yield choose_image(
            published.name,
            published.images,
            published.text,
            answer=line.answer,
            category=line.category,
        )


def _read_statements(path: Path) -> Iterator[Choice]:
    for published in _published(path, STATEMENT):
        yield judge_statement(
            published.name,
            published.images,
            published.text,
            answer=published.line.answer,
            prompt="judge_statement",
        )


def _ask_pair(
    name: str,
    images: Images,
    captions: Sequence[str],
    category: str = "",
) -> Iterator[Choice]:
    for number, letter in enumerate(LETTERS):
        yield choose_image(
            f"{name}_{number}",
            images,
            captions[number],
            item=name,
            answer=letter,
            category=category,
        )


def _read_pairs(path: Path) -> Iterator[Choice]:
    """Yield the questions of paper 003's files with two lines per pair, ``N_0`` and ``N_1``."""
    pairs: dict[str, list[PublishedLine]] = {}
    for published in _published(path):
        pair, _, _ = published.name.rpartition("_")
        pairs.setdefault(pair, []).append(published)
    for pair, lines in pairs.items():
        lines.sort(key=lambda published: published.name)
        first = lines[0]
        answers = [(line.name, line.line.answer, line.images) for line in lines]
        if answers != [(f"{pair}_0", "A", first.images), (f"{pair}_1", "B", first.images)]:
            raise ConfigError(
                f"{first.where}: question_id: needs N_0 (answer A) and N_1 (answer B), "
                "with the same images"
            )
        origin = first.line.image[0].rpartition("/")[0].partition("/")[0]
        captions = [line.text for line in lines]
        yield from _ask_pair(pair, first.images, captions, first.line.category or origin)


def _read_svo(path: Path) -> Iterator[Choice]:
    rows = csv.DictReader(read_text(path).splitlines())
    for row in rows:
        where = f"{path} line {rows.line_num}"
        record = validate_record(row, _SvoRow, where)
        categories = [category for flag, category in SVO_FLAGS.items() if getattr(record, flag)]
        if len(categories) != 1:
            raise ConfigError(f"{where}: exactly one of {', '.join(SVO_FLAGS)} must be true")
        right = _find_svo_image(path, record.pos_image_id, where)
        other = _find_svo_image(path, record.neg_image_id, where)
        key = make_key(record.sentence, str(record.pos_image_id), str(record.neg_image_id))
        is_first = int(key[:8], 16) % 2 == 0
        yield choose_image(
            str(rows.line_num),
            (right, other) if is_first else (other, right),
            record.sentence,
            answer="A" if is_first else "B",
            category=categories[0],
        )


def _find_svo_image(path: Path, number: int, where: str) -> Path:
    return find_image(path.parent, f"{number:05d}.jpg", f"{number}.jpg", where=where)


def _read_nlvr2(path: Path) -> Iterator[Choice]:
    for record, where in read_records(path, _Nlvr2Record):
        pair, _, _ = record.identifier.rpartition("-")
        images = _find_both(path, [f"{pair}-img0.png", f"{pair}-img1.png"], where)
        yield judge_statement(
            record.identifier,
            images,
            record.sentence,
            answer=record.label,
            prompt="judge_statement",
        )


def _read_cola(path: Path) -> Iterator[Choice]:
    for number, (value, where) in enumerate(parse_values(read_text(path), path)):
        record = validate_record({"pair": value}, _ColaPair, where)
        address, caption, other_address, other_caption = record.pair
        images: list[Path] = []
        for url in (address, other_address):
            name = PurePosixPath(urlsplit(url).path).name
            images.append(find_image(path.parent, f"{number}_{name}", name, where=where))
        yield from _ask_pair(str(number), (images[0], images[1]), [caption, other_caption])


def _opener(
    readers: dict[str, Reader], units: choices.Units = ACCURACY, *notes: str
) -> Callable[[Data], Exam]:
    """Return the ``open`` of a benchmark whose folder holds one of some files."""

    def open_exam(data: Data) -> Exam:
        path = find_file(data.folder, *readers)
        read = readers[path.name]
        all_notes = (choices.EXACT_NOTE, *notes)
        return choices.exam_of(
            list(read(path)),
            units,
            notes=all_notes,
            exact=True,
        )

    return open_exam


PAIRS: choices.Units = {"image": lambda choice: choice.item}
STATEMENTS: choices.Units = {**ACCURACY, "consistency": lambda choice: choice.words[0]}
open_bison = _opener({"BISON.jsonl": _read_captions})
open_svo = _opener(
    {"SVO_Probes.jsonl": _read_captions, SVO: _read_svo},
    ACCURACY,
    f"the order of the two images is given by a hash of the line, as {SVO} defines none",
)
open_nlvr2 = _opener(
    {"NLVR2.jsonl": _read_statements, **dict.fromkeys(NLVR2, _read_nlvr2)},
    STATEMENTS,
    "consistency: share of statements judged rightly on all of their pairs",
)
open_eqben = _opener({"EQBEN.jsonl": _read_pairs}, PAIRS)
open_cola = _opener({"COLA.jsonl": _read_pairs, COLA: _read_cola}, PAIRS)
