"""Benchmarks rated by a judge: CaD-QA (paper 003), OmniDiff (paper 002), MMHal-Bench (Sun et al. 2023).

MMHal's judge is GPT-4, which reads the image's contents as text; any served model may judge here.
OmniDiff's published form is unknown; its lines are those of the source ``omnidiff``.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from pydantic import Field

from pairwright.prompts import load
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation import benchmark
from pairwright.tasks.evaluation.benchmarks.choices import EXACT_NOTE, name_exact
from pairwright.tasks.evaluation.benchmarks.described_pairs import References, with_references
from pairwright.tasks.evaluation.measured import Measured, measure_mean
from pairwright.tasks.evaluation.read_captions import Record
from pairwright.tasks.evaluation.read_json import Given, read_records
from pairwright.tasks.texts.conversations import SHOWN as PREFIX

JUDGE_RULE = (
    "A judge rates the answer; a rating is a line of JSON in the judge's own reply that repeats a number drawn for "
    "this answer alone. Without one it is asked again, twice; then the answer is unjudged, and left out of the scores. "
    "A question that the model did not answer has the worst rating."
)
CAD_QA, OMNIDIFF, MMHAL = "CaD_QA_eval.jsonl", "test.jsonl", "response_template.json"
CAD_QA_NOTE = (
    "the judge's prompt is ours, as paper 003's is not public: compare ratings only with those of the same judge here, "
    "not with the paper's"
)
OMNIDIFF_NOTE = "the judge's instructions are paper 002's; the question to the model is ours, as the paper's is not public"
MMHAL_NOTE = (
    "the judge's prompt is MMHal-Bench's in other words, without its examples; published numbers are "
    "GPT-4's, and a reply that cannot be read counts 0 there"
)
HONEST = 3  # MMHal's ratings from here on mean no hallucination
Asked = Sequence[tuple[benchmark.ExamQuestion, str]]  # questions with their categories


class _CadLine(Given):
    image: list[str] = Field(min_length=2, max_length=2)
    text: str
    answer: str
    question_id: str | int


class _OmnidiffLine(Given):
    id: str | int
    image1: str
    image2: str
    caption: str | None = None
    captions: list[str] = Field(default_factory=list[str])
    source: str = ""


class _MmhalRecord(Given):
    question_type: str
    image_id: str
    image_src: str
    image_content: list[str]
    question: str
    gt_answer: str


def _exam(
    asked: Asked,
    name: str,
    notes: tuple[str, ...],
    more: Callable[
        [Mapping[str, int], benchmark.Replies], Sequence[Measured]
    ] = lambda _ratings, _replies: (),
    *,
    required: bool = True,
) -> benchmark.Exam:
    """Return an exam of questions with categories: the mean rating, overall and by category, and ``more``.

    ``more`` gets the ratings by question; unanswered ones have the worst, 0. Without ratings there
    is no score, unless a judge is ``required``.
    """

    def mark(replies: benchmark.Replies) -> benchmark.Marked:
        if not (required or replies.ratings):
            return benchmark.Marked(marks=())
        counted = {one.name: category for one, category in asked if one.item in replies.items}
        rated = {one: replies.ratings.get(one) if one in replies.texts else 0 for one in counted}
        found = {one: rating for one, rating in rated.items() if rating is not None}
        marks = [measure_mean(name, list(found.values()), percent=False), *more(found, replies)]
        for category in sorted({category for _, category in asked} - {""}):
            own = [rating for one, rating in found.items() if counted[one] == category]
            marks.append(measure_mean(name, own, category=category, percent=False))
        return benchmark.Marked(marks=marks)

    return benchmark.Exam(
        questions=[one for one, _ in asked], mark=mark, read_answers=False, notes=notes
    )


def open_cad_qa(data: benchmark.Data) -> benchmark.Exam:
    """Return the questions of CaD-QA, also scored by paper 003's exact matching."""
    asked: list[benchmark.ExamQuestion] = []
    answers: dict[str, str] = {}
    for number, (line, where) in enumerate(
        read_records(benchmark.find_file(data.folder, CAD_QA), _CadLine)
    ):
        if not line.text.startswith(PREFIX):
            raise ConfigError(f"{where}: text: must begin with the placeholders of two images")
        question, name = line.text.removeprefix(PREFIX), str(number)
        images = tuple(
            benchmark.find_image(data.folder, image, where=where) for image in line.image
        )
        words = {
            "words": (question,),
            "reword": lambda words: PREFIX + benchmark.as_written(words[0]),
        }
        judged, answers[name] = {"question": question, "reference": line.answer}, line.answer
        text = PREFIX + benchmark.as_written(question)
        asked.append(benchmark.ask_at_length(name, text, images, "cad-qa", judged=judged, **words))

    def match(_ratings: Mapping[str, int], replies: benchmark.Replies) -> list[Measured]:
        same = [
            replies.texts.get(one.name) == answers[one.name]
            for one in asked
            if one.item in replies.items
        ]
        return [name_exact(measure_mean("accuracy", same))]

    return _exam([(one, "") for one in asked], "rating (0 to 5)", (CAD_QA_NOTE, EXACT_NOTE), match)


def open_omnidiff(data: benchmark.Data) -> benchmark.Exam:
    """Return a question per pair of OmniDiff that has a reference."""
    lines = read_records(benchmark.find_file(data.folder, OMNIDIFF), _OmnidiffLine)
    texts = {
        str(one.id): (*([] if one.caption is None else [one.caption]), *one.captions)
        for one, _ in lines
    }
    records = [
        Record(str(line.id), texts[str(line.id)], is_list=True, where=where)
        for line, where in lines
    ]
    references = References(
        records=records, groups={str(line.id): line.source for line, _ in lines}
    )
    named, prompt = set(references.names()), "describe_difference"
    asked: list[tuple[benchmark.ExamQuestion, str]] = []
    for line, where in lines:
        if (name := str(line.id)) in named:
            images = tuple(
                benchmark.find_image(data.folder, image, where=where)
                for image in (line.image1, line.image2)
            )
            judged = {"reference": " ".join(filter(str.strip, texts[name]))}
            one = benchmark.ask_at_length(
                name, load(prompt).render(), images, prompt, judged=judged
            )
            asked.append((one, line.source))
    return with_references(
        _exam(asked, "score (0 to 100)", (OMNIDIFF_NOTE,), required=False), references
    )


def open_mmhal(data: benchmark.Data) -> benchmark.Exam:
    """Return the questions of MMHal-Bench, by type."""
    asked: list[tuple[benchmark.ExamQuestion, str]] = []
    for number, (record, where) in enumerate(
        read_records(benchmark.find_file(data.folder, MMHAL), _MmhalRecord)
    ):
        source = PurePosixPath(urlsplit(record.image_src).path).name
        text = f"<image>\n{benchmark.as_written(record.question)}"
        judged = {"contents": ", ".join(record.image_content), "question": record.question}
        judged |= {"reference": record.gt_answer}
        images = (benchmark.find_image(data.folder, f"{record.image_id}.jpg", source, where=where),)
        asked.append(
            (
                benchmark.ask_at_length(str(number), text, images, "mmhal", judged=judged),
                record.question_type,
            )
        )
    return _exam(asked, "rating (0 to 6)", (MMHAL_NOTE,), _score_mmhal)


def _score_mmhal(ratings: Mapping[str, int], _replies: benchmark.Replies) -> list[Measured]:
    values = list(ratings.values())
    informative = [rating % HONEST / HONEST if rating < 2 * HONEST else 1 for rating in values]
    hallucinated = measure_mean("hallucination rate", [rating < HONEST for rating in values])
    return [hallucinated, measure_mean("informativeness", informative)]
