"""CaD-QA (paper 003): open questions about two images, whose answers a judge rates from 0 to 5."""

import re

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.as_written import as_written
from pairwright.tasks.evaluation.benchmark import LONG, Asked, Benchmark, Data, Exam, Rubric, find_file, find_image
from pairwright.tasks.evaluation.benchmarks.rated import RULE, exam_of
from pairwright.tasks.evaluation.read_json import Given, read_records

FILE = "CaD_QA_eval.jsonl"
PREFIX = "Image 1: <image>\nImage 2: <image>\n"
NOTES = (
    "the judge's words are ours, as paper 003's are not public: ratings compare models that the same judge rated here, "
    "and not with the paper's",
)
ONE_IMAGE = re.compile(r"\b(?:image [12]|(?:first|second) image)\b", re.IGNORECASE)
BOTH = re.compile(r"\b(?:both|two|each|either)\b|\bimages\b", re.IGNORECASE)


class Line(Given):
    """Be a line of the published file."""

    image: list[str]
    text: str
    answer: str
    question_id: str | int


def open_exam(data: Data) -> Exam:
    """Return the questions of the published file."""
    path = find_file(data.folder, FILE)
    asked: list[Asked] = []
    categories: dict[str, str] = {}
    for number, (line, where) in enumerate(read_records(path, Line)):
        if len(line.image) != 2 or not line.text.startswith(PREFIX):
            raise ConfigError(f"{where}: needs two images, and a text that begins with both of them")
        question = line.text.removeprefix(PREFIX)
        asked.append(
            Asked(
                name=str(number),
                item=str(number),
                text=PREFIX + as_written(question),
                images=tuple(find_image(data.folder, name, where=where) for name in line.image),
                prompt="cad-qa",
                most_tokens=LONG,
                judged={"question": question, "reference": line.answer},
                words=(question,),
                reword=lambda words: PREFIX + as_written(words[0]),
            )
        )
        categories[str(number)] = about(question)
    return exam_of(asked, name="rating (0 to 5)", categories=categories, notes=NOTES)


def about(question: str) -> str:
    """Say by its words whether a question is about one image or about both (ours)."""
    named = {match.lower()[-1] if match[-1].isdigit() else match.lower()[0] for match in ONE_IMAGE.findall(question)}
    return "about one image" if len(named) == 1 and not BOTH.search(question) else "about both images"


BENCHMARK = Benchmark(
    name="cad-qa",
    measures="open questions about what two images have in common and how they differ",
    layout=f"{FILE} and Visual Genome's images, also below images/: VG_100K_2/2406825.jpg",
    open=open_exam,
    rule=RULE,
    rubric=Rubric(prompt="judge_answer", most=5),
)
