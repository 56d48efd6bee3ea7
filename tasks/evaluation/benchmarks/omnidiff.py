"""OmniDiff (paper 002): descriptions of the differences of two images, which a judge compares with people's.

The form in which OmniDiff is published is not known here; the lines are of the same form that the source ``omnidiff``
reads.
"""

from pydantic import Field

from pairwright.prompts import load
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.benchmark import LONG, Asked, Benchmark, Data, Exam, Rubric, find_file, find_image
from pairwright.tasks.evaluation.benchmarks.rated import RULE, exam_of
from pairwright.tasks.evaluation.read_json import Given, read_records

FILE = "test.jsonl"
PROMPT = "describe_difference"
NOTES = (
    "the judge's instructions are paper 002's; what the model is asked is ours, as the paper's question is not public",
)


class Line(Given):
    """Be a pair with what people wrote of its differences."""

    id: str | int
    image1: str
    image2: str
    caption: str = ""
    captions: list[str] = Field(default_factory=list[str])
    source: str = ""


def open_exam(data: Data) -> Exam:
    """Return one question for each pair."""
    asked: list[Asked] = []
    categories: dict[str, str] = {}
    for line, where in read_records(find_file(data.folder, FILE), Line):
        texts = [text for text in (line.caption, *line.captions) if text.strip()]
        if not texts:
            raise ConfigError(f"{where}: caption: says nothing")
        name = str(line.id)
        asked.append(
            Asked(
                name=name,
                item=name,
                text=load(PROMPT).render(),
                images=tuple(find_image(data.folder, image, where=where) for image in (line.image1, line.image2)),
                prompt=PROMPT,
                most_tokens=LONG,
                judged={"reference": " ".join(texts)},
            )
        )
        if line.source:
            categories[name] = line.source
    return exam_of(asked, name="score (0 to 100)", categories=categories, notes=NOTES)


BENCHMARK = Benchmark(
    name="omnidiff",
    measures="how much of what people say of the differences of two images a description covers",
    layout=f'{FILE}, a line {{"id", "image1", "image2", "caption" or "captions", "source"}} per pair, and the images, '
    "also below images/",
    open=open_exam,
    rule=RULE,
    rubric=Rubric(prompt="judge_coverage", most=100, reasoned=True),
)
