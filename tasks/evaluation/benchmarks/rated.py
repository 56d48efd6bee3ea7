"""Benchmarks rated by a judge: CaD-QA (paper 003), OmniDiff (paper 002), MMHal-Bench.

MMHal-Bench is by Sun et al. (2023); its judge is GPT-4, which reads the image's contents as
text; any served model may judge here. OmniDiff's published form is unknown; its lines are those of
the source ``omnidiff``.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from pydantic import Field

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation import benchmark
from pairwright.tasks.evaluation.benchmarks.choices import EXACT_NOTE, name_exact
from pairwright.tasks.evaluation.benchmarks.described_pairs import (
    References,
    ask_pair,
    with_references,
)
from pairwright.tasks.evaluation.measured import Measured, measure_mean
from pairwright.tasks.evaluation.read_captions import Record
from pairwright.tasks.evaluation.read_json import ExternalRecord, read_records
from pairwright.tasks.texts.conversations import SHOWN as PREFIX

JUDGE_RULE = (
    "A judge rates the answer; a rating is a line of JSON in the judge's own reply that repeats a "
    "number drawn for this answer alone. Without one it is asked again, twice; then the answer is "
    "unjudged, and left out of the scores. A question that the model did not answer has the worst "
    "rating."
)
CAD_QA = "CaD_QA_eval.jsonl"
OMNIDIFF = "test.jsonl"
MMHAL = "response_template.json"
CAD_QA_NOTE = (
    "the judge's prompt is ours, as paper 003's is not public: compare ratings only with those of "
    "the same judge here, not with the paper's"
)
OMNIDIFF_NOTE = (
    "the judge's instructions are paper 002's; the question to the model is ours, as the paper's "
    "is not public"
)
MMHAL_NOTE = (
    "the judge's prompt is MMHal-Bench's in other words, without its examples; published numbers "
    "are GPT-4's, and a reply that cannot be read counts 0 there"
)
HONEST = 3  # MMHal's ratings from here on mean no hallucination
Categorised = Sequence[tuple[benchmark.ExamQuestion, str]]
"""Questions with their categories."""
Measure = Callable[[Mapping[str, int], benchmark.Replies], Sequence[Measured]]
"""Measures ratings by question, and replies."""


class _CadLine(ExternalRecord):
    image: list[str] = Field(min_length=2, max_length=2)
    text: str
    answer: str
    question_id: str | int


class _OmnidiffLine(ExternalRecord):
    id: str | int
    image1: str
    image2: str
    caption: str | None = None
    captions: list[str] = Field(default_factory=list[str])
    source: str = ""


class _MmhalRecord(ExternalRecord):
    question_type: str
    image_id: str
    image_src: str
    image_content: list[str]
    question: str
    gt_answer: str


def _measure_nothing(
    _ratings: Mapping[str, int], _replies: benchmark.Replies
) -> Sequence[Measured]:
    return ()


def _exam(
    categorised: Categorised,
    name: str,
    notes: tuple[str, ...],
    measure: Measure = _measure_nothing,
    *,
    required: bool = True,
) -> benchmark.Exam:
    """Return an exam with the mean rating, overall and by category, and further measures.

    Unanswered questions have the worst rating, 0. Without ratings there is no score, unless a judge
    is ``required``.
    """
    categories = sorted({category for _, category in categorised} - {""})

    def mark(replies: benchmark.Replies) -> benchmark.Marked:
        if not (required or replies.ratings):
            return benchmark.Marked(marks=())
        ratings: dict[str, int] = {}
        by_category: dict[str, list[int]] = {category: [] for category in ("", *categories)}
        for question, category in categorised:
            rating = _rating_of(question, replies)
            if rating is not None:
                ratings[question.name] = rating
                by_category[category].append(rating)
        marks = [
            measure_mean(name, list(ratings.values()), percent=False),
            *measure(ratings, replies),
        ]
        for category in categories:
            mean = measure_mean(name, by_category[category], category=category, percent=False)
            marks.append(mean)
        return benchmark.Marked(marks=marks)

    questions = [question for question, _ in categorised]
    return benchmark.Exam(questions=questions, mark=mark, read_answers=False, notes=notes)


def _rating_of(question: benchmark.ExamQuestion, replies: benchmark.Replies) -> int | None:
    """Return a question's rating; ``None``: unrated, or not counted."""
    if question.item not in replies.items:
        return None
    if question.name not in replies.texts:
        return 0
    return replies.ratings.get(question.name)


def open_cad_qa(data: benchmark.Data) -> benchmark.Exam:
    """Return the questions of CaD-QA, also scored by paper 003's exact matching."""
    questions: list[benchmark.ExamQuestion] = []
    answers: dict[str, str] = {}
    lines = read_records(benchmark.find_file(data.folder, CAD_QA), _CadLine)
    for number, (line, where) in enumerate(lines):
        if not line.text.startswith(PREFIX):
            raise ConfigError(f"{where}: text: must begin with the placeholders of two images")
        text = line.text.removeprefix(PREFIX)
        name = str(number)
        answers[name] = line.answer
        images = [benchmark.find_image(data.folder, image, where=where) for image in line.image]
        question = benchmark.ask_at_length(
            name,
            _add_prefix((text,)),
            tuple(images),
            "cad-qa",
            judged={"question": text, "reference": line.answer},
            words=(text,),
            reword=_add_prefix,
        )
        questions.append(question)

    def measure_exact(_ratings: Mapping[str, int], replies: benchmark.Replies) -> list[Measured]:
        matches: list[bool] = []
        for question in questions:
            if question.item in replies.items:
                text = replies.texts.get(question.name)
                matches.append(text == answers[question.name])
        return [name_exact(measure_mean("accuracy", matches))]

    categorised = [(question, "") for question in questions]
    return _exam(categorised, "rating (0 to 5)", (CAD_QA_NOTE, EXACT_NOTE), measure_exact)


def _add_prefix(texts: Sequence[str]) -> str:
    """Return a question with the placeholders of its images."""
    return PREFIX + benchmark.as_written(texts[0])


def open_omnidiff(data: benchmark.Data) -> benchmark.Exam:
    """Return a question per pair of OmniDiff that has a reference."""
    lines = read_records(benchmark.find_file(data.folder, OMNIDIFF), _OmnidiffLine)
    captions = {str(line.id): _captions_of(line) for line, _ in lines}
    references = _omnidiff_references(lines, captions)
    names = set(references.item_names())
    categorised: list[tuple[benchmark.ExamQuestion, str]] = []
    for line, where in lines:
        name = str(line.id)
        if name not in names:
            continue
        images = (
            benchmark.find_image(data.folder, line.image1, where=where),
            benchmark.find_image(data.folder, line.image2, where=where),
        )
        reference = " ".join(filter(str.strip, captions[name]))
        question = ask_pair(name, images, judged={"reference": reference})
        categorised.append((question, line.source))
    exam = _exam(categorised, "score (0 to 100)", (OMNIDIFF_NOTE,), required=False)
    return with_references(exam, references)


def _omnidiff_references(
    lines: Sequence[tuple[_OmnidiffLine, str]], captions: Mapping[str, tuple[str, ...]]
) -> References:
    records: list[Record] = []
    groups: dict[str, str] = {}
    for line, where in lines:
        name = str(line.id)
        records.append(
            Record(
                name,
                captions[name],
                is_list=True,
                where=where,
            )
        )
        groups[name] = line.source
    return References(records=records, groups=groups)


def _captions_of(line: _OmnidiffLine) -> tuple[str, ...]:
    if line.caption is None:
        return tuple(line.captions)
    return (line.caption, *line.captions)


def open_mmhal(data: benchmark.Data) -> benchmark.Exam:
    """Return the questions of MMHal-Bench, by type."""
    categorised: list[tuple[benchmark.ExamQuestion, str]] = []
    records = read_records(benchmark.find_file(data.folder, MMHAL), _MmhalRecord)
    for number, (record, where) in enumerate(records):
        source_name = PurePosixPath(urlsplit(record.image_src).path).name
        image = benchmark.find_image(
            data.folder, f"{record.image_id}.jpg", source_name, where=where
        )
        judged = {
            "contents": ", ".join(record.image_content),
            "question": record.question,
            "reference": record.gt_answer,
        }
        question = benchmark.ask_at_length(
            str(number),
            f"<image>\n{benchmark.as_written(record.question)}",
            (image,),
            "mmhal",
            judged=judged,
        )
        categorised.append((question, record.question_type))
    return _exam(categorised, "rating (0 to 6)", (MMHAL_NOTE,), _score_mmhal)


def _score_mmhal(ratings: Mapping[str, int], _replies: benchmark.Replies) -> list[Measured]:
    hallucinated = [rating < HONEST for rating in ratings.values()]
    informative: list[float] = []
    for rating in ratings.values():
        informative.append(rating % HONEST / HONEST if rating < 2 * HONEST else 1)
    return [
        measure_mean("hallucination rate", hallucinated),
        measure_mean("informativeness", informative),
    ]
