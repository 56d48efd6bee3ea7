"""Public multiple-choice benchmarks of two images: BISON, SVO-Probes, NLVR2, EqBen, COLA.

Each reads paper 003's file (one line per question, with its words and answer) or its own annotations. EqBen and COLA
are pairs of images with captions: paper 003 asks which image fits each caption, and both answers have to be right
(chance: 25 %), Winoground's image score. The text score asks for each image's caption; the group score needs all four
answers.
"""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import make_key
from pairwright.schemas.section import Count
from pairwright.tasks.evaluation.benchmark import Benchmark, Data, Exam, find_file, find_image
from pairwright.tasks.evaluation.benchmarks.choices import (
    EXACT_NOTE,
    LETTERS,
    RULE,
    TRUTHS,
    Choice,
    Right,
    all_right,
    choose_caption,
    choose_image,
    exam_of,
    judge_statement,
    score_accuracy,
    score_groups,
)
from pairwright.tasks.evaluation.measured import Measured, measure_mean
from pairwright.tasks.evaluation.read_json import Given, check_record, parse_json, read_records, read_text, read_values

CAPTION = re.compile(r'Which image suits the caption "(.*)" better\?', re.DOTALL)
STATEMENT = re.compile(r'Is the statement "(.*)" True or False\?', re.DOTALL)
BISON, SVO, NLVR2, EQBEN, COLA = (
    "bison_annotations.cocoval2014.json",
    "svo_probes.csv",
    ("test1.json", "test2.json", "dev.json", "balanced_test1.json", "balanced_test2.json"),
    "eqben_subset_10percent_final.json",
    "COLA_multiobjects_matching_benchmark.json",
)
SVO_FLAGS = {"subj_neg": "subject", "verb_neg": "verb", "obj_neg": "object"}
SVO_NOTE = "SVO-Probes' list defines no order of the two images: a hash of the line does"
NLVR2_NOTE = "consistency: share of statements judged rightly on all of their pairs"
PAIRS_NOTE = (
    "image: both captions got their image, which is what paper 003 prints; text (words ours): both images got their "
    "caption; group: all four"
)
ARRAYS_NOTE = (
    "EqBen's images of YouCook2 are NumPy arrays, and their pairs are left out; save them as PNG under the same name "
    "with .png for .npy"
)
Images = tuple[Path, Path]


class _PublishedLine(Given):
    image: list[str]
    text: str
    answer: str
    question_id: str | int
    category: str = ""


class _BisonImage(Given):
    image_id: int
    image_filename: str


class _BisonRecord(Given):
    bison_id: int
    caption: str
    true_image_id: int
    image_candidates: list[_BisonImage]


class _BisonFile(Given):
    data: list[_BisonRecord]


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


class _EqbenRecord(Given):
    image0: str
    image1: str
    caption0: str
    caption1: str


def _published(
    path: Path, pattern: re.Pattern[str] = CAPTION, options: tuple[str, ...] = LETTERS
) -> Iterator[tuple[_PublishedLine, Images, str, str]]:
    """Yield the lines of a file of paper 003, with images, caption or statement, and location."""
    for line, where in read_records(path, _PublishedLine):
        found = pattern.search(line.text)
        if found is None:
            raise ConfigError(f"{where}: text: not a question of this benchmark")
        if line.answer not in options or len(line.image) != 2:
            raise ConfigError(f"{where}: needs two images, and an answer of {', '.join(options)}")
        first, second = (find_image(path.parent, name, where=where) for name in line.image)
        yield line, (first, second), found[1], where


def _read_captions(path: Path) -> Iterator[Choice]:
    for line, images, caption, _ in _published(path):
        yield choose_image(str(line.question_id), images, caption, answer=line.answer, category=line.category)


def _read_bison(path: Path) -> Iterator[Choice]:
    held = check_record(parse_json(read_text(path), str(path)), _BisonFile, str(path))
    for number, record in enumerate(held.data, start=1):
        where = f"{path}: data record {number}"
        ids = [one.image_id for one in record.image_candidates]
        if len(ids) != 2 or ids.count(record.true_image_id) != 1:
            raise ConfigError(f"{where}: needs two image_candidates, and one of them must be true_image_id")
        first, second = (find_image(path.parent, one.image_filename, where=where) for one in record.image_candidates)
        answer = LETTERS[ids.index(record.true_image_id)]
        yield choose_image(str(record.bison_id), (first, second), record.caption, answer=answer)


def _read_svo(path: Path) -> Iterator[Choice]:
    rows = csv.DictReader(read_text(path).splitlines(), strict=True)
    try:
        for row in rows:
            where = f"{path} line {rows.line_num}"
            if None in row:
                raise ConfigError(f"{where}: has more fields than there are columns")
            yield _probe(check_record(row, _SvoRow, where), path.parent, where=where, name=str(rows.line_num))
    except csv.Error as error:
        raise ConfigError(f"{path} line {rows.line_num}: invalid CSV: {error}") from error


def _probe(row: _SvoRow, folder: Path, *, where: str, name: str) -> Choice:
    wrong = [category for flag, category in SVO_FLAGS.items() if getattr(row, flag)]
    if len(wrong) != 1:
        raise ConfigError(f"{where}: exactly one of {', '.join(SVO_FLAGS)} must be true")
    numbers = (row.pos_image_id, row.neg_image_id)
    right, other = (find_image(folder, f"{one:05d}.jpg", f"{one}.jpg", where=where) for one in numbers)
    first = int(make_key(row.sentence, *map(str, numbers))[:8], 16) % 2 == 0
    images, answer = ((right, other), "A") if first else ((other, right), "B")
    return choose_image(name, images, row.sentence, answer=answer, category=wrong[0])


def _read_statements(path: Path) -> Iterator[Choice]:
    for line, images, statement, _ in _published(path, STATEMENT, TRUTHS):
        yield judge_statement(str(line.question_id), images, statement, answer=line.answer, prompt="judge_statement")


def _read_nlvr2(path: Path) -> Iterator[Choice]:
    for one, where in read_records(path, _Nlvr2Record):
        names = (f"{one.identifier.rpartition('-')[0]}-img{side}.png" for side in (0, 1))
        first, second = (find_image(path.parent, name, where=where) for name in names)
        yield judge_statement(one.identifier, (first, second), one.sentence, answer=one.label, prompt="judge_statement")


def _score_nlvr2(choices: Sequence[Choice], right: Right) -> list[Measured]:
    consistent = all_right(choices, right, lambda one: one.words[0])
    return [measure_mean("accuracy", list(right.values())), measure_mean("consistency", consistent)]


def _ask_pair(name: str, images: Images, captions: tuple[str, str], category: str = "") -> Iterator[Choice]:
    own = {"category": category, "item": name}
    for number, letter in enumerate(LETTERS):
        yield choose_image(f"{name}_{number}", images, captions[number], answer=letter, **own)
    for number, letter in enumerate(LETTERS):
        yield choose_caption(f"{name}_text_{number}", images[number], captions, answer=letter, **own)


def _read_pairs(path: Path) -> Iterator[Choice]:
    """Yield the questions of paper 003's files with two lines per pair, ``N_0`` and ``N_1``."""
    pairs: dict[str, dict[str, tuple[_PublishedLine, Images, str, str]]] = {}
    for found in _published(path):
        line, _, _, where = found
        pair, _, number = str(line.question_id).rpartition("_")
        if not pair or line.answer != {"0": "A", "1": "B"}.get(number) or number in pairs.setdefault(pair, {}):
            raise ConfigError(f"{where}: question_id must be N_0, whose answer is A, or N_1, whose answer is B")
        pairs[pair][number] = found
    for pair, lines in pairs.items():
        line, images, _, where = next(iter(lines.values()))
        if len(lines) != 2 or lines["0"][1] != lines["1"][1]:
            raise ConfigError(f"{where}: {pair}_0 and {pair}_1 must both be there, with the same images")
        yield from _ask_pair(pair, images, (lines["0"][2], lines["1"][2]), line.category or _origin(line.image[0]))


def _origin(image: str) -> str:
    return image.rpartition("/")[0].partition("/")[0]


def _read_eqben(path: Path) -> Iterator[Choice]:
    for number, (record, where) in enumerate(read_records(path, _EqbenRecord)):
        names = [(re.sub(r"\.npy$", ".png", name), name) for name in (record.image0, record.image1)]
        first, second = (find_image(path.parent, *known, where=where) for known in names)
        yield from _ask_pair(str(number), (first, second), (record.caption0, record.caption1), _origin(record.image0))


def _read_cola(path: Path) -> Iterator[Choice]:
    """Yield the questions of COLA's multi-object pairs: address and caption of one image, then of the other."""
    for number, (value, where) in enumerate(read_values(path)):
        if not isinstance(value, list) or len(value) != 4 or not all(isinstance(part, str) for part in value):
            raise ConfigError(f"{where}: must be a list of four texts: image, caption, image, caption")
        names = [PurePosixPath(urlsplit(value[place]).path).name for place in (0, 2)]
        first, second = (find_image(path.parent, f"{number}_{name}", name, where=where) for name in names)
        yield from _ask_pair(str(number), (first, second), (value[1], value[3]))


Reader = Callable[[Path], Iterator[Choice]]


def _opener(
    published: tuple[str, Reader],
    own: tuple[tuple[str, ...], Reader],
    score: Callable[[Sequence[Choice], Right], Iterable[Measured]] = score_accuracy,
    *,
    notes: tuple[str, ...] = (),
    own_notes: tuple[str, ...] = (),
) -> Callable[[Data], Exam]:
    """Return the ``open`` of a benchmark with paper 003's file or one of its own, each with its reader."""

    def open_exam(data: Data) -> Exam:
        path = find_file(data.folder, published[0], *own[0])
        is_own = path.name in own[0]
        choices = list((own if is_own else published)[1](path))
        return exam_of(choices, score, notes=(EXACT_NOTE, *notes, *(own_notes if is_own else ())), exact=True)

    return open_exam


BENCHMARKS = (
    Benchmark(
        name="bison",
        measures="which of two similar images a caption suits (chance: 50 %)",
        layout=f"BISON.jsonl (paper 003: 150 questions) or {BISON} (all), and COCO's val2014 images",
        open=_opener(("BISON.jsonl", _read_captions), ((BISON,), _read_bison)),
        rule=RULE,
    ),
    Benchmark(
        name="svo",
        measures="which of two images a sentence suits (chance: 50 %), by what differs: subject, verb, object",
        layout=f"SVO_Probes.jsonl (paper 003: 1,500 questions) or {SVO} (all), and the images, also below images/: "
        "00017.jpg or 17.jpg, by their ids",
        open=_opener(("SVO_Probes.jsonl", _read_captions), ((SVO,), _read_svo), own_notes=(SVO_NOTE,)),
        rule=RULE,
    ),
    Benchmark(
        name="nlvr2",
        measures="whether a statement about two photographs is true (chance: 50 %)",
        layout=f"NLVR2.jsonl (paper 003: 150 questions) or one of {', '.join(NLVR2)}, and the images, also below "
        "images/: test1-463-0-img0.png",
        open=_opener(("NLVR2.jsonl", _read_statements), (NLVR2, _read_nlvr2), _score_nlvr2, notes=(NLVR2_NOTE,)),
        rule=RULE,
    ),
    Benchmark(
        name="eqben",
        measures="which of two almost equal images a caption suits, and the other way round, by where they are from",
        layout=f"EQBEN.jsonl (paper 003: 120 pairs) or {EQBEN} (EqBen's tenth), and the images, also below images/: "
        "eqbensd/844/image0.png",
        open=_opener(
            ("EQBEN.jsonl", _read_pairs),
            ((EQBEN,), _read_eqben),
            score_groups,
            notes=(PAIRS_NOTE,),
            own_notes=(ARRAYS_NOTE,),
        ),
        rule=RULE,
    ),
    Benchmark(
        name="cola",
        measures="which of two images a caption of objects and attributes suits, and the other way round",
        layout=f"COLA.jsonl (paper 003) or {COLA} (COLA's own list), and the images, also below images/: "
        "2390970.jpg or 0_2390970.jpg",
        open=_opener(("COLA.jsonl", _read_pairs), ((COLA,), _read_cola), score_groups, notes=(PAIRS_NOTE,)),
        rule=RULE,
    ),
)
