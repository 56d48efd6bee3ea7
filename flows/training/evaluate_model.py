"""Evaluate a model on a benchmark: ask the open questions, judge the answers if needed, score them.

Answers are kept next to the scores, so that a killed evaluation continues with the open questions.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.flows.pipeline.read_prompts import read_prompts
from pairwright.flows.training.show_training import show_score
from pairwright.flows.versions.table import Table
from pairwright.flows.versions.version import Version, open_version
from pairwright.prompts import load_prompt, use_prompts
from pairwright.schemas.config import Profile, ReadingConfig
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.replies import Reply
from pairwright.schemas.rows import Row, make_key
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.evaluation.ask_model import ask_served, find_change, prepare_questions
from pairwright.tasks.evaluation.benchmark import (
    Benchmark,
    Data,
    ExamQuestion,
    check_questions,
    first_items,
    place_images,
)
from pairwright.tasks.evaluation.benchmark_list import find_benchmark
from pairwright.tasks.evaluation.benchmarks.own_datasets import PREFERENCES
from pairwright.tasks.evaluation.judge_answers import Rating, judge_answers
from pairwright.tasks.evaluation.measured import CONFIDENCE
from pairwright.tasks.evaluation.results import ANSWERS, ROWS, Results, write_results
from pairwright.tasks.report.measure_health import JUDGED
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.serving.probe import probe_model
from pairwright.tasks.sources.readers import READERS
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.store.evaluations import EvaluationRow, write_evaluation
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.find_model import find_model as find_checkpoint
from pairwright.tasks.training.image_size import read_max_pixels
from pairwright.tasks.training.runs import RUNS

log = logging.getLogger(__name__)
PIXELS = 448 * 448  # of models without a record, as `model.max_pixels` of a training
RESAMPLES = 1000  # bootstrap of the intervals
SEED = 0  # of the bootstrap and of perturbed questions
FINISHED = "checkpoint"  # folder of a run with its model
NOTES = {
    "empty": "answers are empty",
    "cut": "answers were cut, at the most tokens that are allowed",
    "not_read": "answers could not be read, and count as no answer",
    "refused": "questions were refused, and count as not answered",
    "failed": (
        "questions were not answered in time; their items are left out until they are: run it again"
    ),
    "without_image": (
        "questions lack an image, or have one that does not decode; their items are left out"
    ),
    "unjudged": "answers got no rating from the judge, and are left out",
}
Watch = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
Judged = dict[str, dict[str, str]]  # by question: its answer and the other fields of the rubric
Respond = Callable[[Iterable[tuple[str, Question]], Answers], Iterator[Reply]]


def find_run(model: str) -> Path | None:
    """Return the folder of a model's run; ``None``: it is not of a dataset's run."""
    path = Path(model).absolute()
    folder = path.parent if path.name == FINISHED else path
    if folder.parent.name == RUNS and (folder / "config.yaml").is_file():
        return folder
    return None


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Configuration of an evaluation: the model, the benchmark, and options.

    EvaluationConfig(model="album/runs/dpo", benchmark="scenes", data=Path("album"), limit=50)
    """

    model: str  # a checkpoint, a run's folder, a name on the Hub; or the model's name on the server
    benchmark: str
    data: Path  # folder of its annotations and images, or a dataset
    version: int | None = None  # the number of the dataset's version; none: the newest
    to: Path | None = None  # file of the scores; ``None``: below `evaluations`
    limit: int | None = None  # only the first N items
    server: ChatConfig | str = ""  # server of the model, or its address; empty: it is loaded here
    # judge: a server, its address, or a profile (its judge, else its chat)
    judge: ChatConfig | str = ""
    # the judge's name on its server; empty: the profile's, or the only model there
    judge_model: str = ""
    batch: int = 8  # questions per batch of a model that is loaded here
    # maximum pixels of an image for a model that is loaded here; larger ones are scaled down.
    # 0: those that it was trained with, or ``PIXELS``
    max_pixels: int = 0
    perturb: str = ""  # perturbation of the questions: "noise:5", "fog:5", "words:0.4"
    prompts: str = ""  # folder of prompts in place of the benchmark's; empty: its own


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """Results of an evaluation, and their files."""

    config: EvaluationConfig
    benchmark: Benchmark
    identity: str  # identity of the model
    judge: str  # the judge's name; empty: there was none
    results: Results
    to: Path
    # SHA-256 of the prompts in place of ours, by name: such scores compare with no published ones
    replaced: Mapping[str, str]

    def metadata(self) -> dict[str, Any]:
        """Return the model, the benchmark and the options."""
        return {
            "benchmark": self.benchmark.name,
            "rule": self.benchmark.rule,
            "model": {"name": self.config.model, "identity": self.identity},
            "judge": self.judge,
            "data": str(self.config.data),
            "version": self.config.version,
            "limit": self.config.limit,
            "perturbed": self.config.perturb,
            "prompts": dict(self.replaced),
        }

    def as_json(self) -> dict[str, Any]:
        """Return all of it for scripts; shares are fractions."""
        return {**self.metadata(), **self.results.as_json()}

    def table_lines(self) -> Iterator[tuple[object, ...]]:
        """Yield heads and scores with their intervals; shares are times 100."""
        yield "score", "of", ">value", f">{CONFIDENCE:.0%} interval", ">items"
        for score in self.results.scores:
            yield show_score(score)

    def summary_lines(self) -> Iterator[str]:
        """Yield the number of items, what was left out, and the files."""
        counts = self.results.counts
        yield (
            f"{counts['scored_items']:,} of {counts['items']:,} items, "
            f"{counts['questions']:,} questions"
        )
        for name, text in NOTES.items():
            if counts[name]:
                yield f"{counts[name]:,} {text}"
        yield from self.results.notes
        if self.replaced:
            yield f"prompts that are not the benchmark's: {', '.join(sorted(self.replaced))}"
        yield f"scores: {self.to}; answers: {self.to.with_suffix(ROWS)}"
        run = self.run_folder
        if run:
            yield f"`pairwright runs {run.parent.parent}` shows them beside the run {run.name}"

    @property
    def run_folder(self) -> Path | None:
        """Return the folder of the model's run; ``None``: it is not of a dataset's run."""
        return find_run(self.config.model)

    def score_rows(self, run: str) -> Iterator[EvaluationRow]:
        """Yield the scores as rows of a dataset's table."""
        metadata = self.metadata()
        names = [name for name in ("version", "limit", "perturbed", "judge") if metadata[name]]
        changed = [f"prompts {_hash_texts(self.replaced)}"] if self.replaced else []
        columns = {
            "run": run,
            "model": self.identity,
            "benchmark": self.benchmark.name,
            "asked": ", ".join([*(f"{name} {metadata[name]}" for name in names), *changed]),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "data": str(self.config.data.absolute()),
        }
        for score in self.results.scores:
            yield EvaluationRow(**columns, **asdict(score))


def evaluate_model(
    config: EvaluationConfig, *, watch: Watch, opened: Version | None = None
) -> Evaluated:
    """Ask a model a benchmark's questions, and write its scores.

    Answered questions are not asked again. ``watch`` returns a progress callback for a kind of
    work. ``opened`` is the version of the dataset, if the questions are of one that is open.
    """
    texts = read_prompts(config.prompts) if config.prompts else {}
    with use_prompts(texts):
        return _evaluate(config, watch, opened, _hash_replaced(texts))


def _hash_replaced(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the SHA-256 of each text that is not ours to the letter."""
    hashes = {name: load_prompt(name).sha256 for name in texts}
    with use_prompts({}):
        return {name: sha for name, sha in hashes.items() if load_prompt(name).sha256 != sha}


def _hash_texts(replaced: Mapping[str, str]) -> str:
    """Return a short hash of replaced prompts, by their own."""
    return make_key(*(f"{name} {replaced[name]}" for name in sorted(replaced)))[:8]


def _evaluate(
    config: EvaluationConfig, watch: Watch, opened: Version | None, replaced: Mapping[str, str]
) -> Evaluated:
    """Evaluate with the prompts that are in use; ``replaced``: the hashes of a user's."""
    benchmark = find_benchmark(config.benchmark)
    judge = _find_judge(benchmark, config)
    exam = benchmark.open(_open_data(config, opened))
    asked = first_items(exam.questions, config.limit)
    questions = [place_images(question) for question in asked]
    check_questions(questions)
    prepared = prepare_questions(questions, find_change(config.perturb, questions, seed=SEED))
    respond, identity = _open_model(config, images=_count_images(questions))
    to = _choose_target(config, identity, _hash_texts(replaced) if replaced else "")
    with Answers(to.with_suffix(ANSWERS)) as answers:
        replies = _collect_replies(prepared, respond, answers, watch=watch, total=len(questions))
        ratings: dict[str, Rating] = {}
        if judge and benchmark.rubric:
            rate = partial(judge_answers, rubric=benchmark.rubric, judge=judge, answers=answers)
            ratings = _collect_ratings(rate, _list_judged(questions, replies), watch)
    evaluated = Evaluated(
        config=config,
        benchmark=benchmark,
        identity=identity,
        judge=judge.model if judge else "",
        results=Results(
            exam=exam,
            questions=questions,
            replies=replies,
            ratings=ratings,
            resamples=RESAMPLES,
            seed=SEED,
        ),
        to=to,
        replaced=replaced,
    )
    _write(evaluated)
    return evaluated


def _open_data(config: EvaluationConfig, opened: Version | None) -> Data:
    """Return the data of a benchmark: a dataset's tables, or the entries of a folder."""

    def rows(table: str, *, without: Sequence[str] = ()) -> Iterator[Row]:
        version = opened or open_version(Folder(str(config.data)), config.version)
        yield from Table[Row](version, table).rows(without=without)

    def entries(kind: str, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
        reading = ReadingConfig(splits=(split,))
        source = Profile(source=f"{kind}:{config.data}", reading=reading).source_config
        for item in READERS[kind].list_items(source, None):
            yield item.name, json.loads(item.locator)

    return Data(folder=config.data, rows=rows, entries=entries)


def _count_images(questions: Iterable[ExamQuestion]) -> int:
    """Return the images of the question with the most."""
    return max((len(question.images) for question in questions), default=0)


def _choose_target(config: EvaluationConfig, identity: str, prompts: str) -> Path:
    """Return the file of the scores; ``prompts``: a hash of replaced ones."""
    if config.to:
        return config.to
    if config.benchmark == PREFERENCES:
        return config.data / JUDGED  # the report looks there
    parts = [part for part in Path(config.model).parts if part != FINISHED]
    names = [config.benchmark, *parts[-1:], config.perturb, prompts, identity[:8]]
    name = re.sub(r"[^\w.-]+", "_", "-".join(filter(None, names)))
    return Path("evaluations", f"{name}.json")


def _collect_replies(
    prepared: Iterable[Reply | tuple[str, Question]],
    respond: Respond,
    answers: Answers,
    *,
    watch: Watch,
    total: int,
) -> dict[str, Reply]:
    """Return the replies by question; some are known without asking the model."""
    replies: dict[str, Reply] = {}

    def open_questions() -> Iterator[tuple[str, Question]]:
        for item in prepared:
            if isinstance(item, Reply):
                replies[item.name] = item
            else:
                yield item

    with watch("answers") as advance:
        for reply in respond(open_questions(), answers):
            replies[reply.name] = reply
            advance(len(replies), total)
    return replies


def _list_judged(questions: Sequence[ExamQuestion], replies: dict[str, Reply]) -> Judged:
    """Return the answers to rate, each with its fields of the rubric."""
    judged: Judged = {}
    for question in questions:
        reply = replies[question.name]
        if question.judged is not None and reply.state == "answered":
            judged[question.name] = {**question.judged, "answer": reply.text}
    return judged


def _collect_ratings(
    rate: Callable[[Judged], Iterator[Rating]], judged: Judged, watch: Watch
) -> dict[str, Rating]:
    """Return the ratings by question."""
    ratings: dict[str, Rating] = {}
    with watch("ratings") as advance:
        for rating in rate(judged):
            ratings[rating.key] = rating
            advance(len(ratings), len(judged))
    return ratings


def _write(evaluated: Evaluated) -> None:
    """Write the scores, and add them to the dataset of the model's run."""
    write_results(evaluated.results, evaluated.to, evaluated.metadata())
    run = evaluated.run_folder
    if run:
        dataset = Folder(str(run.parent.parent))
        write_evaluation(dataset, list(evaluated.score_rows(run.name)))


def _find_judge(benchmark: Benchmark, config: EvaluationConfig) -> ChatConfig | None:
    """Return the served judge; ``None``: the benchmark's answers are not rated."""
    judge = config.judge
    if benchmark.rubric is None or not (judge or benchmark.rubric.required):
        return None
    if not judge:
        raise ConfigError(
            f"--benchmark {benchmark.name}: needs a judge to rate its answers: give a served model "
            "with --judge URL, or a profile that has one"
        )
    if isinstance(judge, str):
        if "://" in judge:
            judge = ChatConfig(endpoint=(judge,))
        else:
            judge = load_profile(judge).chat_models["judge"]
    if config.judge_model:
        judge = judge.model_copy(update={"model": config.judge_model})
    return probe_model(judge, field="--judge")


def _open_model(config: EvaluationConfig, *, images: int) -> tuple[Respond, str]:
    """Return the function that answers questions, and the model's identity."""
    server = config.server
    if not server:
        return _load_model(config)
    if isinstance(server, str):  # greedily, with the benchmark's prompts alone
        server = ChatConfig(
            endpoint=(server,),
            model=config.model,
            temperature=0.0,
            top_p=1.0,
        )
    server = probe_model(server, field="--server", images=images)
    return partial(ask_served, model=server), make_key("served", server.model)


def _load_model(config: EvaluationConfig) -> tuple[Respond, str]:
    """Return the function that answers questions by a model on this machine, and its identity."""
    # As in a training: threads that spin while they wait take five times as long beside other work.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from pairwright.tasks.training.answer_questions import LocalModel, answer_questions
    from pairwright.tasks.training.namc.captioner import answer_pairs, identify_captioner, is_namc

    finished = Path(config.model, FINISHED)
    name = str(finished) if finished.is_dir() else config.model
    folder = Path(name)
    if is_namc(folder):

        def respond(questions: Iterable[tuple[str, Question]], answers: Answers) -> Iterator[Reply]:
            del answers  # it is as fast to ask again
            return answer_pairs(questions, folder=folder, batch=config.batch)

        return respond, identify_captioner(folder)
    found = find_checkpoint(name, field="CHECKPOINT")
    trained = read_max_pixels(found.folder)
    max_pixels = config.max_pixels or trained or PIXELS
    if trained and max_pixels != trained:
        log.warning(
            "%s: trained with images of at most %s pixels, evaluated with %s (--max-pixels)",
            name,
            f"{trained:,}",
            f"{max_pixels:,}",
        )
    local = LocalModel(found, max_pixels, is_told=bool(config.max_pixels or trained))
    return partial(answer_questions, local=local, batch=config.batch), local.identity
