"""MMHal-Bench (Sun et al. 2023): 96 questions about images; a judge says how informative answers are, and how made up.

Its judge is GPT-4, which reads what is in the image, not the image. Any served model may judge here; ratings of
different judges are not comparable.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from pairwright.tasks.evaluation.as_written import as_written
from pairwright.tasks.evaluation.benchmark import (
    LONG,
    Asked,
    Benchmark,
    Data,
    Exam,
    Mark,
    Marked,
    Replies,
    Rubric,
    find_file,
    find_image,
    mark_mean,
)
from pairwright.tasks.evaluation.benchmarks.rated import RULE, ratings_of
from pairwright.tasks.evaluation.read_json import Given, read_records

FILE = "response_template.json"
HONEST = 3
"""Ratings from here on mean no hallucination."""
NOTES = (
    "the judge is told and asked what MMHal-Bench's is, in other words and without its examples; published numbers are "
    "GPT-4's, and a reply that cannot be read counts 0 there",
)


class Record(Given):
    """Be a question of the published file."""

    question_type: str
    image_id: str
    image_src: str
    image_content: list[str]
    question: str
    gt_answer: str


def open_exam(data: Data) -> Exam:
    """Return the questions of the published file."""
    asked: list[Asked] = []
    types: dict[str, str] = {}
    for number, (record, where) in enumerate(read_records(find_file(data.folder, FILE), Record)):
        source = PurePosixPath(urlsplit(record.image_src).path).name
        name = str(number)
        asked.append(
            Asked(
                name=name,
                item=name,
                text=f"<image>\n{as_written(record.question)}",
                images=(find_image(data.folder, f"{record.image_id}.jpg", source, where=where),),
                prompt="mmhal",
                most_tokens=LONG,
                judged={
                    "contents": ", ".join(record.image_content),
                    "question": record.question,
                    "reference": record.gt_answer,
                },
            )
        )
        types[name] = record.question_type

    def mark(replies: Replies) -> Marked:
        found = ratings_of(asked, replies)
        return Marked(marks=_marks(found, types))

    return Exam(questions=asked, mark=mark, read_answers=False, notes=NOTES)


def _marks(ratings: Mapping[str, int], types: Mapping[str, str]) -> list[Mark]:
    values = list(ratings.values())
    marks = [
        mark_mean("rating (0 to 6)", values, percent=False),
        mark_mean("hallucination rate", [rating < HONEST for rating in values]),
        mark_mean("informativeness", [rating % HONEST / HONEST if rating < 2 * HONEST else 1 for rating in values]),
    ]
    for kind in sorted(set(types.values())):
        own = [rating for name, rating in ratings.items() if types[name] == kind]
        marks.append(mark_mean("rating (0 to 6)", own, category=kind, percent=False))
    return marks


BENCHMARK = Benchmark(
    name="mmhal",
    measures="whether answers about an image say what is not in it, by eight kinds of questions",
    layout=f"{FILE} (96 questions), and its images, also below images/: IMAGE_ID.jpg, or named as their addresses end",
    open=open_exam,
    rule=RULE,
    rubric=Rubric(prompt="judge_hallucination", most=6, reasoned=True),
)
