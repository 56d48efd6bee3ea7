"""SVO-Probes (Hendricks and Nematzadeh 2021): which of two images a sentence suits; subject, verb or object differs."""

import csv
from collections.abc import Iterator
from pathlib import Path

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import make_key
from pairwright.tasks.evaluation.benchmark import Benchmark, Data, Exam, find_file, find_image
from pairwright.tasks.evaluation.benchmarks.choices import LETTERS, RULE, Choice, exam_of
from pairwright.tasks.evaluation.benchmarks.images_by_caption import choose_image
from pairwright.tasks.evaluation.benchmarks.published import CAPTION, read_published
from pairwright.tasks.evaluation.read_json import read_text

PUBLISHED, OWN = "SVO_Probes.jsonl", "svo_probes.csv"
FLAGS = {"subj_neg": "subject", "verb_neg": "verb", "obj_neg": "object"}
COLUMNS = ("sentence", "pos_image_id", "neg_image_id", *FLAGS)
NOTE = "SVO-Probes' own list does not say in which order the two images are shown: a hash of the line does"


def open_exam(data: Data) -> Exam:
    """Return the questions of paper 003's file, or of SVO-Probes' own."""
    path = find_file(data.folder, PUBLISHED, OWN)
    if path.name == OWN:
        return exam_of(list(_read(path)), notes=(NOTE,))
    lines = read_published(path, CAPTION, LETTERS)
    return exam_of(
        [choose_image(one.name, one.images, one.words, answer=one.answer, category=one.category) for one in lines]
    )


def _read(path: Path) -> Iterator[Choice]:
    rows = csv.reader(read_text(path).splitlines(), strict=True)
    try:
        head = next(rows, [])
        if missing := [name for name in COLUMNS if name not in head]:
            raise ConfigError(f"{path} line 1: has no column {' and no '.join(missing)}")
        for row in rows:
            where = f"{path} line {rows.line_num}"
            if len(row) != len(head):
                raise ConfigError(f"{where}: has {len(row)} fields, and there are {len(head)} columns")
            yield _choice(str(rows.line_num), dict(zip(head, row, strict=True)), path.parent, where=where)
    except csv.Error as error:
        raise ConfigError(f"{path} line {rows.line_num}: is no CSV: {error}") from error


def _choice(name: str, row: dict[str, str], folder: Path, *, where: str) -> Choice:
    wrong = [name for name in FLAGS if row[name].lower() == "true"]
    if len(wrong) != 1:
        raise ConfigError(f"{where}: exactly one of {', '.join(FLAGS)} must be true")
    positive, negative = (_image(row[name], folder, where) for name in ("pos_image_id", "neg_image_id"))
    first = int(make_key(row["sentence"], row["pos_image_id"], row["neg_image_id"])[:8], 16) % 2 == 0
    images = (positive, negative) if first else (negative, positive)
    return choose_image(name, images, row["sentence"], answer="A" if first else "B", category=FLAGS[wrong[0]])


def _image(number: str, folder: Path, where: str) -> Path:
    if not number.isascii() or not number.isdigit():
        raise ConfigError(f"{where}: {number!r} is no number of an image")
    return find_image(folder, f"{int(number):05d}.jpg", f"{int(number)}.jpg", where=where)


BENCHMARK = Benchmark(
    name="svo",
    measures="which of two images a sentence suits (chance: 50 %), by what differs: subject, verb, object",
    layout=f"{PUBLISHED} (paper 003: 1,500 questions) or {OWN} (all), and the images, also below images/: 00017.jpg or "
    "17.jpg, by their ids",
    open=open_exam,
    rule=RULE,
)
