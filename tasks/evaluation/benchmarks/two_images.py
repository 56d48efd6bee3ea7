"""Public multiple-choice benchmarks of two images: BISON, SVO-Probes, NLVR2, EqBen, COLA.

All are read from paper 003's files, one line per question with its words and answer; SVO-Probes,
NLVR2 and COLA also from their own annotations. EqBen and COLA are pairs of images with captions:
paper 003 asks which image fits each caption, and both answers have to be right (chance: 25 %),
Winoground's image score.
"""

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal
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
    Given,
    check_record,
    parse_values,
    read_records,
    read_text,
)

CAPTION = re.compile(r'Which image suits the caption "(.*)" better\?', re.DOTALL)
STATEMENT = re.compile(r'Is the statement "(.*)" True or False\?', re.DOTALL)
SVO, COLA = "svo_probes.csv", "COLA_multiobjects_matching_benchmark.json"
NLVR2 = ("test1.json", "test2.json", "dev.json", "balanced_test1.json", "balanced_test2.json")
SVO_FLAGS = {"subj_neg": "subject", "verb_neg": "verb", "obj_neg": "object"}
Images = tuple[Path, Path]
Reader = Callable[[Path], Iterator[Choice]]


class _Line(Given):
    """Question of paper 003's files."""

    image: Annotated[list[str], Field(min_length=2, max_length=2)]
    text: str
    answer: Literal["A", "B", "True", "False"]
    question_id: str | int
    category: str = ""


class _SvoRow(Given, strict=False):
    sentence: str
    pos_image_id: Count
    neg_image_id: Count
    subj_neg: bool
    verb_neg: bool
    obj_neg: bool


class _Nlvr2Record(Given):
    sentence: str
    label: Literal["True", "False"]
    identifier: Annotated[str, Field(pattern=r"^([^-]+-){3}[^-]+$")]  # SPLIT-SET-PAIR-SENTENCE


class _ColaPair(Given):
    """Addresses and captions of two images, as COLA lists them."""

    pair: Annotated[list[str], Field(min_length=4, max_length=4)]


def _find_both(path: Path, names: list[str], where: str) -> Images:
    first, second = (find_image(path.parent, name, where=where) for name in names)
    return first, second


def _published(
    path: Path, pattern: re.Pattern[str] = CAPTION
) -> Iterator[tuple[_Line, Images, str, str]]:
    """Yield the lines of a file of paper 003, with images, caption or statement, and location."""
    for line, where in read_records(path, _Line):
        found = pattern.search(line.text)
        if found is None or (line.answer in LETTERS) != (pattern is CAPTION):
            raise ConfigError(f"{where}: text and answer: not a question of this benchmark")
        yield line, _find_both(path, line.image, where), found[1], where


def _read_captions(path: Path) -> Iterator[Choice]:
    for line, images, caption, _ in _published(path):
        yield choose_image(
            str(line.question_id), images, caption, answer=line.answer, category=line.category
        )


def _read_statements(path: Path) -> Iterator[Choice]:
    for line, images, statement, _ in _published(path, STATEMENT):
        yield judge_statement(
            str(line.question_id), images, statement, answer=line.answer, prompt="judge_statement"
        )


def _ask_pair(
    name: str, images: Images, captions: list[str], category: str = ""
) -> Iterator[Choice]:
    for number, letter in enumerate(LETTERS):
        own = {"item": name, "answer": letter, "category": category}
        yield choose_image(f"{name}_{number}", images, captions[number], **own)


def _read_pairs(path: Path) -> Iterator[Choice]:
    """Yield the questions of paper 003's files with two lines per pair, ``N_0`` and ``N_1``."""
    pairs: dict[str, list[tuple[_Line, Images, str, str]]] = {}
    for found in _published(path):
        pairs.setdefault(str(found[0].question_id).rpartition("_")[0], []).append(found)
    for pair, lines in pairs.items():
        lines.sort(key=lambda found: str(found[0].question_id))
        line, images, _, where = lines[0]
        said = [(str(one.question_id), one.answer, both) for one, both, _, _ in lines]
        if said != [(f"{pair}_0", "A", images), (f"{pair}_1", "B", images)]:
            raise ConfigError(
                f"{where}: question_id: needs N_0 (answer A) and N_1 (answer B), with the same images"
            )
        origin = line.image[0].rpartition("/")[0].partition("/")[0]
        yield from _ask_pair(
            pair, images, [caption for _, _, caption, _ in lines], line.category or origin
        )


def _read_svo(path: Path) -> Iterator[Choice]:
    rows = csv.DictReader(read_text(path).splitlines())
    for row in rows:
        where = f"{path} line {rows.line_num}"
        one = check_record(row, _SvoRow, where)
        wrong = [category for flag, category in SVO_FLAGS.items() if getattr(one, flag)]
        if len(wrong) != 1:
            raise ConfigError(f"{where}: exactly one of {', '.join(SVO_FLAGS)} must be true")
        numbers = (one.pos_image_id, one.neg_image_id)
        right, other = (
            find_image(path.parent, f"{n:05d}.jpg", f"{n}.jpg", where=where) for n in numbers
        )
        first = int(make_key(one.sentence, *map(str, numbers))[:8], 16) % 2 == 0
        images, answer = ((right, other), "A") if first else ((other, right), "B")
        yield choose_image(
            str(rows.line_num), images, one.sentence, answer=answer, category=wrong[0]
        )


def _read_nlvr2(path: Path) -> Iterator[Choice]:
    for one, where in read_records(path, _Nlvr2Record):
        images = _find_both(
            path, [f"{one.identifier.rpartition('-')[0]}-img{side}.png" for side in (0, 1)], where
        )
        yield judge_statement(
            one.identifier, images, one.sentence, answer=one.label, prompt="judge_statement"
        )


def _read_cola(path: Path) -> Iterator[Choice]:
    for number, (value, where) in enumerate(parse_values(read_text(path), path)):
        address, caption, other_address, other = check_record(
            {"pair": value}, _ColaPair, where
        ).pair
        names = [PurePosixPath(urlsplit(one).path).name for one in (address, other_address)]
        first, second = (
            find_image(path.parent, f"{number}_{name}", name, where=where) for name in names
        )
        yield from _ask_pair(str(number), (first, second), [caption, other])


def _opener(
    readers: dict[str, Reader], units: choices.Units = ACCURACY, *notes: str
) -> Callable[[Data], Exam]:
    """Return the ``open`` of a benchmark whose folder holds one of some files."""

    def open_exam(data: Data) -> Exam:
        path = find_file(data.folder, *readers)
        return choices.exam_of(
            list(readers[path.name](path)), units, notes=(choices.EXACT_NOTE, *notes), exact=True
        )

    return open_exam


PAIRS: choices.Units = {"image": lambda one: one.item}
STATEMENTS: choices.Units = {**ACCURACY, "consistency": lambda one: one.words[0]}
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
