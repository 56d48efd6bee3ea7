"""BISON (Hu et al. 2019): which of two similar COCO images a caption was written for."""

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.benchmark import Benchmark, Data, Exam, find_file, find_image
from pairwright.tasks.evaluation.benchmarks.choices import LETTERS, RULE, Choice, exam_of
from pairwright.tasks.evaluation.benchmarks.images_by_caption import choose_image
from pairwright.tasks.evaluation.benchmarks.published import CAPTION, read_published
from pairwright.tasks.evaluation.read_json import Given, check_record, number_records, parse_json, read_text

PUBLISHED, OWN = "BISON.jsonl", "bison_annotations.cocoval2014.json"


class Candidate(Given):
    """Be one of the two images."""

    image_id: int
    image_filename: str


class Record(Given):
    """Be a caption and its candidates."""

    bison_id: int
    caption: str
    true_image_id: int
    image_candidates: list[Candidate]


class Annotations(Given):
    """Be BISON's own file."""

    data: list[object]


def open_exam(data: Data) -> Exam:
    """Return the questions of paper 003's file, or of BISON's own."""
    path = find_file(data.folder, PUBLISHED, OWN)
    if path.name == PUBLISHED:
        lines = read_published(path, CAPTION, LETTERS)
        return exam_of([choose_image(one.name, one.images, one.words, answer=one.answer) for one in lines])
    held = check_record(parse_json(read_text(path), str(path)), Annotations, str(path))
    records = number_records(held.data, f"{path}: data")
    return exam_of([_choice(check_record(value, Record, where), where, data) for value, where in records])


def _choice(record: Record, where: str, data: Data) -> Choice:
    ids = [one.image_id for one in record.image_candidates]
    if len(ids) != 2 or ids.count(record.true_image_id) != 1:
        raise ConfigError(f"{where}: needs two image_candidates, and one of them must be true_image_id")
    first, second = (find_image(data.folder, one.image_filename, where=where) for one in record.image_candidates)
    answer = LETTERS[ids.index(record.true_image_id)]
    return choose_image(str(record.bison_id), (first, second), record.caption, answer=answer)


BENCHMARK = Benchmark(
    name="bison",
    measures="which of two similar images a caption suits (chance: 50 %)",
    layout=f"{PUBLISHED} (paper 003: 150 questions) or {OWN} (all), and COCO's val2014 images, also below images/",
    open=open_exam,
    rule=RULE,
)
