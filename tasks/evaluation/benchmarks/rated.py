"""Benchmarks rated by a judge: CaD-QA (paper 003), OmniDiff (paper 002), MMHal-Bench (Sun et al. 2023).

MMHal's judge is GPT-4, which reads the image's contents as text; any served model may judge here. OmniDiff's published
form is unknown; its lines are those of the source ``omnidiff``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from pydantic import Field

from pairwright.prompts import load
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation import benchmark
from pairwright.tasks.evaluation.benchmarks.choices import EXACT_NOTE, name_exact
from pairwright.tasks.evaluation.benchmarks.differences import References, with_references
from pairwright.tasks.evaluation.measured import Measured, measure_mean
from pairwright.tasks.evaluation.read_captions import Record
from pairwright.tasks.evaluation.read_json import Given, read_records
from pairwright.tasks.texts.conversations import SHOWN as PREFIX

RULE = (
    "A judge rates the answer; a rating is a line of JSON in the judge's own reply that repeats a number drawn for "
    "this answer alone. Without one it is asked again, twice; then the answer is unjudged, and left out of the scores. "
    "A question that the model did not answer has the worst rating."
)
CAD_QA, OMNIDIFF, MMHAL = "CaD_QA_eval.jsonl", "test.jsonl", "response_template.json"
ONE_IMAGE = re.compile(r"\b(?:image [12]|(?:first|second) image)\b", re.IGNORECASE)
BOTH = re.compile(r"\b(?:both|two|each|either)\b|\bimages\b", re.IGNORECASE)
HONEST = 3  # MMHal's ratings from here on mean no hallucination
Ratings = Mapping[str, int]  # by question name; unanswered ones have the worst, 0


class _CadLine(Given):
    image: list[str]
    text: str
    answer: str
    question_id: str | int


class _OmnidiffLine(Given):
    id: str | int
    image1: str
    image2: str
    caption: str = ""
    captions: list[str] = Field(default_factory=list[str])
    source: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the references, blank ones included."""
        return ((self.caption,) if "caption" in self.model_fields_set else ()) + tuple(self.captions)


class _MmhalRecord(Given):
    question_type: str
    image_id: str
    image_src: str
    image_content: list[str]
    question: str
    gt_answer: str


def _exam(
    asked: Sequence[tuple[benchmark.ExamQuestion, str]],
    name: str,
    notes: tuple[str, ...],
    *,
    more: Callable[[Ratings, benchmark.Replies], Sequence[Measured]] = lambda _ratings, _replies: (),
    required: bool = True,
) -> benchmark.Exam:
    """Return an exam of questions with categories: the mean rating, overall and by category, and ``more``.

    Without ratings there is no score, unless a judge is ``required``.
    """
    categories = {one.name: category for one, category in asked}

    def mark(replies: benchmark.Replies) -> benchmark.Marked:
        if not (required or replies.ratings):
            return benchmark.Marked(marks=())
        counted = [one.name for one, _ in asked if one.item in replies.items]
        rated = {name: replies.ratings.get(name) if name in replies.texts else 0 for name in counted}
        found = {name: rating for name, rating in rated.items() if rating is not None}
        marks = [measure_mean(name, list(found.values()), percent=False), *more(found, replies)]
        for category in sorted({*categories.values()} - {""}):
            own = [rating for key, rating in found.items() if categories[key] == category]
            marks.append(measure_mean(name, own, category=category, percent=False))
        return benchmark.Marked(marks=marks)

    return benchmark.Exam(questions=[one for one, _ in asked], mark=mark, read_answers=False, notes=notes)


def _open_cad_qa(data: benchmark.Data) -> benchmark.Exam:
    """Return the questions of CaD-QA, by whether they concern one image or both (ours)."""
    asked: list[tuple[benchmark.ExamQuestion, str]] = []
    for number, (line, where) in enumerate(read_records(benchmark.find_file(data.folder, CAD_QA), _CadLine)):
        if len(line.image) != 2 or not line.text.startswith(PREFIX):
            raise ConfigError(f"{where}: needs two images, and a text that begins with their placeholders")
        question = line.text.removeprefix(PREFIX)
        one = benchmark.ask_at_length(
            str(number),
            PREFIX + benchmark.as_written(question),
            tuple(benchmark.find_image(data.folder, name, where=where) for name in line.image),
            "cad-qa",
            judged={"question": question, "reference": line.answer},
            words=(question,),
            reword=lambda words: PREFIX + benchmark.as_written(words[0]),
        )
        asked.append((one, _about(question)))

    def match(_ratings: Ratings, replies: benchmark.Replies) -> list[Measured]:
        counted = [one for one, _ in asked if one.item in replies.items and one.judged]
        same = [replies.texts.get(one.name) == one.judged["reference"] for one in counted if one.judged]
        return [name_exact(measure_mean("accuracy", same))]

    return _exam(asked, "rating (0 to 5)", (
        "the judge's words are ours, as paper 003's are not public: ratings compare models that the same judge rated "
        "here, and not with the paper's",
        EXACT_NOTE,
    ), more=match)  # fmt: skip


def _about(question: str) -> str:
    named = {match.lower()[-1] if match[-1].isdigit() else match.lower()[0] for match in ONE_IMAGE.findall(question)}
    return "about one image" if len(named) == 1 and not BOTH.search(question) else "about both images"


def _open_omnidiff(data: benchmark.Data) -> benchmark.Exam:
    lines = read_records(benchmark.find_file(data.folder, OMNIDIFF), _OmnidiffLine)
    records = [Record(str(line.id), line.texts, is_list=True, where=where) for line, where in lines]
    references = References(records=records, blank=data.blank, groups={str(line.id): line.source for line, _ in lines})
    asked: list[tuple[benchmark.ExamQuestion, str]] = []
    named = set(references.names())
    for line, where in ((line, where) for line, where in lines if str(line.id) in named):
        images = tuple(benchmark.find_image(data.folder, image, where=where) for image in (line.image1, line.image2))
        text, judged = load("describe_difference").render(), {"reference": " ".join(filter(str.strip, line.texts))}
        asked.append(
            (benchmark.ask_at_length(str(line.id), text, images, "describe_difference", judged=judged), line.source)
        )
    exam = _exam(asked, "score (0 to 100)", (
        "the judge's instructions are paper 002's; what the model is asked is ours, as the paper's question is not "
        "public",
    ), required=False)  # fmt: skip
    return with_references(exam, references)


def _open_mmhal(data: benchmark.Data) -> benchmark.Exam:
    asked: list[tuple[benchmark.ExamQuestion, str]] = []
    for number, (record, where) in enumerate(read_records(benchmark.find_file(data.folder, MMHAL), _MmhalRecord)):
        source = PurePosixPath(urlsplit(record.image_src).path).name
        text = f"<image>\n{benchmark.as_written(record.question)}"
        judged = {"contents": ", ".join(record.image_content), "question": record.question}
        judged |= {"reference": record.gt_answer}
        images = (benchmark.find_image(data.folder, f"{record.image_id}.jpg", source, where=where),)
        asked.append((benchmark.ask_at_length(str(number), text, images, "mmhal", judged=judged), record.question_type))
    return _exam(asked, "rating (0 to 6)", (
        "the judge is told and asked what MMHal-Bench's is, in other words and without its examples; published numbers "
        "are GPT-4's, and a reply that cannot be read counts 0 there",
    ), more=_score_mmhal)  # fmt: skip


def _score_mmhal(ratings: Ratings, _replies: benchmark.Replies) -> list[Measured]:
    values = list(ratings.values())
    informative = [rating % HONEST / HONEST if rating < 2 * HONEST else 1 for rating in values]
    hallucinated = measure_mean("hallucination rate", [rating < HONEST for rating in values])
    return [hallucinated, measure_mean("informativeness", informative)]


BENCHMARKS = (
    benchmark.Benchmark(
        name="cad-qa",
        measures="open questions about what two images have in common and how they differ",
        layout=f"{CAD_QA} and Visual Genome's images, also below images/: VG_100K_2/2406825.jpg",
        open=_open_cad_qa,
        rule=RULE,
        rubric=benchmark.Rubric(prompt="judge_answer", best=5),
    ),
    benchmark.Benchmark(
        name="omnidiff",
        measures="how near a description of what differs comes to what people wrote, and with a judge how much of that "
        "it covers",
        layout=f'{OMNIDIFF}, a line {{"id", "image1", "image2", "caption" or "captions", "source"}} per pair, and the '
        "images, also below images/",
        open=_open_omnidiff,
        rule=RULE,
        rubric=benchmark.Rubric(prompt="judge_coverage", best=100, reasoned=True, required=False),
    ),
    benchmark.Benchmark(
        name="mmhal",
        measures="whether answers about an image say what is not in it, by eight kinds of questions",
        layout=f"{MMHAL} (96 questions), and its images, also below images/: IMAGE_ID.jpg, or named as their addresses "
        "end",
        open=_open_mmhal,
        rule=RULE,
        rubric=benchmark.Rubric(prompt="judge_hallucination", best=6, reasoned=True),
    ),
)
