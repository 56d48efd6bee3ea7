"""Public benchmarks of choices about two images: BISON, SVO-Probes, NLVR2, EqBen, COLA.

Each is read from the file that paper 003 published (one line per question, its words and its answer in it) or from its
own annotations. EqBen and COLA are pairs of images with a caption each: paper 003 asks which image suits each of the
two captions, and both have to be right (chance: 25 %): what Winoground calls the image score. The text score asks of
each image for its caption; the group score wants all four answers.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import make_key
from pairwright.tasks.evaluation.benchmark import Benchmark, Data, Exam, find_file, find_image
from pairwright.tasks.evaluation.benchmarks.choices import (
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
from pairwright.tasks.evaluation.read_json import (
    Given,
    check_record,
    number_records,
    parse_json,
    read_records,
    read_text,
    read_values,
)

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
SVO_COLUMNS = ("sentence", "pos_image_id", "neg_image_id", *SVO_FLAGS)
SVO_NOTE = "SVO-Probes' own list does not say in which order the two images are shown: a hash of the line does"
NLVR2_NOTE = "consistency: share of the statements that were judged rightly of all pairs that they are made of"
PAIRS_NOTE = (
    "image: both captions got their image, which is what paper 003 prints; text (words ours): both images got their "
    "caption; group: all four"
)
ARRAYS_NOTE = (
    "images of YouCook2 are NumPy arrays in EqBen: they are no images here, and their pairs are left out; save them as "
    "PNG under the same name with .png for .npy"
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
    data: list[Any]


class _Nlvr2Record(Given):
    sentence: str
    label: str
    identifier: str


class _EqbenRecord(Given):
    image0: str
    image1: str
    caption0: str
    caption1: str


def _published(
    path: Path, pattern: re.Pattern[str] = CAPTION, options: tuple[str, ...] = LETTERS
) -> Iterator[tuple[_PublishedLine, Images, str, str]]:
    """Yield the lines of a file of paper 003, with their images, the caption or statement, and where they are."""
    for line, where in read_records(path, _PublishedLine):
        found = pattern.search(line.text)
        if found is None:
            raise ConfigError(f"{where}: text: asks something else than this benchmark does")
        if line.answer not in options or len(line.image) != 2:
            raise ConfigError(f"{where}: needs two images, and an answer of {', '.join(options)}")
        first, second = (find_image(path.parent, name, where=where) for name in line.image)
        yield line, (first, second), found[1], where


def _open_published(path: Path) -> Exam:
    choices = [
        choose_image(str(line.question_id), images, caption, answer=line.answer, category=line.category)
        for line, images, caption, _ in _published(path)
    ]
    return exam_of(choices, score_accuracy)


def _open_bison(data: Data) -> Exam:
    path = find_file(data.folder, "BISON.jsonl", BISON)
    if path.name != BISON:
        return _open_published(path)
    held = check_record(parse_json(read_text(path), str(path)), _BisonFile, str(path))
    choices: list[Choice] = []
    for value, where in number_records(held.data, f"{path}: data"):
        record = check_record(value, _BisonRecord, where)
        ids = [one.image_id for one in record.image_candidates]
        if len(ids) != 2 or ids.count(record.true_image_id) != 1:
            raise ConfigError(f"{where}: needs two image_candidates, and one of them must be true_image_id")
        first, second = (find_image(data.folder, one.image_filename, where=where) for one in record.image_candidates)
        answer = LETTERS[ids.index(record.true_image_id)]
        choices.append(choose_image(str(record.bison_id), (first, second), record.caption, answer=answer))
    return exam_of(choices, score_accuracy)


def _open_svo(data: Data) -> Exam:
    """Return the questions of SVO-Probes, by what differs."""
    path = find_file(data.folder, "SVO_Probes.jsonl", SVO)
    if path.name != SVO:
        return _open_published(path)
    rows = csv.DictReader(read_text(path).splitlines(), strict=True)
    choices: list[Choice] = []
    try:
        if missing := [name for name in SVO_COLUMNS if name not in (rows.fieldnames or ())]:
            raise ConfigError(f"{path} line 1: has no column {' and no '.join(missing)}")
        for row in rows:
            where = f"{path} line {rows.line_num}"
            if None in row or None in row.values():
                raise ConfigError(f"{where}: has more or fewer fields than there are columns")
            choices.append(_probe(str(rows.line_num), row, path.parent, where=where))
    except csv.Error as error:
        raise ConfigError(f"{path} line {rows.line_num}: is no CSV: {error}") from error
    return exam_of(choices, score_accuracy, notes=(SVO_NOTE,))


def _probe(name: str, row: dict[str, str], folder: Path, *, where: str) -> Choice:
    wrong = [flag for flag in SVO_FLAGS if row[flag].lower() == "true"]
    if len(wrong) != 1:
        raise ConfigError(f"{where}: exactly one of {', '.join(SVO_FLAGS)} must be true")
    numbers = (row["pos_image_id"], row["neg_image_id"])
    for number in numbers:
        if not number.isascii() or not number.isdigit():
            raise ConfigError(f"{where}: {number!r} is no number of an image")
    right, other = (find_image(folder, f"{int(one):05d}.jpg", f"{int(one)}.jpg", where=where) for one in numbers)
    first = int(make_key(row["sentence"], *numbers)[:8], 16) % 2 == 0
    images, answer = ((right, other), "A") if first else ((other, right), "B")
    return choose_image(name, images, row["sentence"], answer=answer, category=SVO_FLAGS[wrong[0]])


def _open_nlvr2(data: Data) -> Exam:
    path = find_file(data.folder, "NLVR2.jsonl", *NLVR2)
    state = partial(judge_statement, prompt="judge_statement")
    choices: list[Choice] = []
    if path.name not in NLVR2:
        for line, images, statement, _ in _published(path, STATEMENT, TRUTHS):
            choices.append(state(str(line.question_id), images, statement, answer=line.answer))
    else:
        for record, where in read_records(path, _Nlvr2Record):
            parts = record.identifier.split("-")
            if len(parts) != 4 or record.label not in TRUTHS:
                raise ConfigError(f"{where}: identifier must be SPLIT-SET-PAIR-SENTENCE, and label True or False")
            names = (f"{'-'.join(parts[:3])}-img{side}.png" for side in (0, 1))
            first, second = (find_image(path.parent, name, where=where) for name in names)
            choices.append(state(record.identifier, (first, second), record.sentence, answer=record.label))
    return exam_of(choices, _score_nlvr2, notes=(NLVR2_NOTE,))


def _score_nlvr2(choices: Sequence[Choice], right: Right) -> list[Measured]:
    consistent = all_right(choices, right, lambda one: one.words[0])
    return [measure_mean("accuracy", list(right.values())), measure_mean("consistency", consistent)]


def _ask_pair(name: str, images: Images, captions: tuple[str, str], category: str = "") -> Iterator[Choice]:
    own = {"category": category, "item": name}
    for number, letter in enumerate(LETTERS):
        yield choose_image(f"{name}_{number}", images, captions[number], answer=letter, **own)
    for number, letter in enumerate(LETTERS):
        yield choose_caption(f"{name}_text_{number}", images[number], captions, answer=letter, **own)


def _open_published_pairs(path: Path) -> Exam:
    """Return the exam of a file of paper 003 in which each pair has two lines, ``N_0`` and ``N_1``."""
    pairs: dict[str, dict[str, tuple[_PublishedLine, Images, str, str]]] = {}
    for found in _published(path):
        line, _, _, where = found
        pair, _, number = str(line.question_id).rpartition("_")
        if not pair or line.answer != {"0": "A", "1": "B"}.get(number) or number in pairs.setdefault(pair, {}):
            raise ConfigError(f"{where}: question_id must be N_0, whose answer is A, or N_1, whose answer is B")
        pairs[pair][number] = found
    choices: list[Choice] = []
    for pair, lines in pairs.items():
        line, images, _, where = next(iter(lines.values()))
        if len(lines) != 2 or lines["0"][1] != lines["1"][1]:
            raise ConfigError(f"{where}: {pair}_0 and {pair}_1 must both be there, with the same images")
        category = line.category or line.image[0].rpartition("/")[0].partition("/")[0]
        choices += _ask_pair(pair, images, (lines["0"][2], lines["1"][2]), category)
    return exam_of(choices, score_groups, notes=(PAIRS_NOTE,))


def _open_eqben(data: Data) -> Exam:
    """Return the questions of EqBen, by where images are from."""
    path = find_file(data.folder, "EQBEN.jsonl", EQBEN)
    if path.name != EQBEN:
        return _open_published_pairs(path)
    choices: list[Choice] = []
    arrays = False
    for number, (record, where) in enumerate(read_records(path, _EqbenRecord)):
        names = [(f"{name.removesuffix('.npy')}.png", name) if name.endswith(".npy") else (name,)
                 for name in (record.image0, record.image1)]  # fmt: skip
        arrays |= len(names[0]) > 1
        first, second = (find_image(path.parent, *known, where=where) for known in names)
        category = record.image0.rpartition("/")[0].partition("/")[0]
        choices += _ask_pair(str(number), (first, second), (record.caption0, record.caption1), category)
    return exam_of(choices, score_groups, notes=(PAIRS_NOTE, ARRAYS_NOTE) if arrays else (PAIRS_NOTE,))


def _open_cola(data: Data) -> Exam:
    """Return the questions of COLA's multi-object pairs: address and caption of one image, then of the other."""
    path = find_file(data.folder, "COLA.jsonl", COLA)
    if path.name != COLA:
        return _open_published_pairs(path)
    choices: list[Choice] = []
    for number, (value, where) in enumerate(read_values(path)):
        if not isinstance(value, list) or len(value) != 4 or not all(isinstance(part, str) for part in value):
            raise ConfigError(f"{where}: must be a list of four texts: image, caption, image, caption")
        names = [PurePosixPath(urlsplit(value[place]).path).name for place in (0, 2)]
        first, second = (find_image(data.folder, f"{number}_{name}", name, where=where) for name in names)
        choices += _ask_pair(str(number), (first, second), (value[1], value[3]))
    return exam_of(choices, score_groups, notes=(PAIRS_NOTE,))


BENCHMARKS = (
    Benchmark(
        name="bison",
        measures="which of two similar images a caption suits (chance: 50 %)",
        layout=f"BISON.jsonl (paper 003: 150 questions) or {BISON} (all), and COCO's val2014 images",
        open=_open_bison,
        rule=RULE,
    ),
    Benchmark(
        name="svo",
        measures="which of two images a sentence suits (chance: 50 %), by what differs: subject, verb, object",
        layout=f"SVO_Probes.jsonl (paper 003: 1,500 questions) or {SVO} (all), and the images, also below images/: "
        "00017.jpg or 17.jpg, by their ids",
        open=_open_svo,
        rule=RULE,
    ),
    Benchmark(
        name="nlvr2",
        measures="whether a statement about two photographs is true (chance: 50 %)",
        layout=f"NLVR2.jsonl (paper 003: 150 questions) or one of {', '.join(NLVR2)}, and the images, also below "
        "images/: test1-463-0-img0.png",
        open=_open_nlvr2,
        rule=RULE,
    ),
    Benchmark(
        name="eqben",
        measures="which of two almost equal images a caption suits, and the other way round, by where they are from",
        layout=f"EQBEN.jsonl (paper 003: 120 pairs) or {EQBEN} (EqBen's tenth), and the images, also below images/: "
        "eqbensd/844/image0.png",
        open=_open_eqben,
        rule=RULE,
    ),
    Benchmark(
        name="cola",
        measures="which of two images a caption of objects and attributes suits, and the other way round",
        layout=f"COLA.jsonl (paper 003) or {COLA} (COLA's own list), and the images, also below images/: "
        "2390970.jpg or 0_2390970.jpg",
        open=_open_cola,
        rule=RULE,
    ),
)
