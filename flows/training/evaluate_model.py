"""Evaluate a model on a benchmark: ask the open questions, judge answers if a judge is needed, and score them.

Answers are kept beside the scores, so that a killed evaluation continues with the open questions.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.flows.training.show_training import show_score
from pairwright.flows.versions.table import Table
from pairwright.flows.versions.version import Version, open_version
from pairwright.schemas.config import Profile, ReadingConfig
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.replies import Reply
from pairwright.schemas.rows import Row, make_key
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.evaluation.ask_model import ask_served, find_change, prepare_questions
from pairwright.tasks.evaluation.benchmark import Benchmark, Data, check_questions, first_items
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
from pairwright.tasks.training.runs import RUNS

PIXELS = 448 * 448  # as `model.max_pixels` of a training
RESAMPLES, SEED = (
    1000,
    0,
)  # bootstrap of the intervals; the seed is that of perturbed questions, too
FINISHED = "checkpoint"  # folder of a run with its model
SAID = {
    "empty": "answers are empty",
    "cut": "answers were cut, at the most tokens that are allowed",
    "not_read": "answers could not be read, and count as no answer",
    "refused": "questions were refused, and count as not answered",
    "failed": "questions were not answered in time; their items are left out until they are: run it again",
    "without_image": "questions lack an image, or have one that does not decode; their items are left out",
    "unjudged": "answers got no rating from the judge, and are left out",
}
Watch = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
Respond = Callable[[Iterable[tuple[str, Question]], Answers], Iterator[Reply]]


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
    judge: ChatConfig | str = (
        ""  # judge: a server, its address, or a profile (its judge, else its chat)
    )
    judge_model: str = (
        ""  # the judge's name on its server; empty: the profile's, or the only model there
    )
    batch: int = 8  # questions per batch of a model that is loaded here
    # maximum pixels of an image for a model that is loaded here; larger ones are scaled down
    max_pixels: int = PIXELS
    perturb: str = ""  # perturbation of the questions: "noise:5", "fog:5", "words:0.4"


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """Results of an evaluation, and their files."""

    config: EvaluationConfig
    benchmark: Benchmark
    identity: str  # identity of the model
    judge: str  # the judge's name; empty: there was none
    results: Results
    to: Path

    def about(self) -> dict[str, Any]:
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
        }

    def as_json(self) -> dict[str, Any]:
        """Return all of it for scripts; shares are fractions."""
        return {**self.about(), **self.results.as_json()}

    def cells(self) -> Iterator[tuple[object, ...]]:
        """Yield heads and scores with their intervals; shares are times 100."""
        yield "score", "of", ">value", f">{CONFIDENCE:.0%} interval", ">items"
        for score in self.results.scores:
            yield show_score(score)

    def notes(self) -> Iterator[str]:
        """Yield the number of items, what was left out, and the files."""
        counts = self.results.counts
        yield f"{counts['scored_items']:,} of {counts['items']:,} items, {counts['questions']:,} questions"
        yield from (f"{counts[name]:,} {text}" for name, text in SAID.items() if counts[name])
        yield from self.results.notes
        yield f"scores: {self.to}; answers: {self.to.with_suffix(ROWS)}"
        if run := self.run:
            yield f"`pairwright runs {run.parent.parent}` shows them beside the run {run.name}"

    @property
    def run(self) -> Path | None:
        """Return the folder of the model's run; ``None``: it is not of a dataset's run."""
        place = Path(self.config.model).absolute()
        folder = place.parent if place.name == FINISHED else place
        return folder if folder.parent.name == RUNS and (folder / "config.yaml").is_file() else None

    def rows(self, run: str) -> Iterator[EvaluationRow]:
        """Yield the scores as rows of a dataset's table."""
        about = self.about()
        asked = ", ".join(
            f"{name} {about[name]}"
            for name in ("version", "limit", "perturbed", "judge")
            if about[name]
        )
        at = datetime.now(UTC).isoformat(timespec="seconds")
        whose = {
            "run": run,
            "model": self.identity,
            "benchmark": self.benchmark.name,
            "asked": asked,
            "at": at,
        }
        for score in self.results.scores:
            yield EvaluationRow(**whose, data=str(self.config.data.absolute()), **asdict(score))


def evaluate_model(
    config: EvaluationConfig, *, watch: Watch, opened: Version | None = None
) -> Evaluated:
    """Ask a model a benchmark's questions, and write its scores; answered questions are not asked again.

    ``watch`` returns a progress callback for a kind of work. ``opened`` is the version of the
    dataset, if the questions are of one that is open.
    """
    benchmark = find_benchmark(config.benchmark)
    judge = _find_judge(benchmark, config)

    def rows(table: str, *, without: Sequence[str] = ()) -> Iterator[Row]:
        version = opened or open_version(Folder(str(config.data)), config.version)
        yield from Table[Row](version, table).rows(without=without)

    def entries(kind: str, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
        source = Profile(
            source=f"{kind}:{config.data}", reading=ReadingConfig(splits=(split,))
        ).sources
        yield from (
            (item.name, json.loads(item.locator)) for item in READERS[kind].list_items(source, None)
        )

    exam = benchmark.open(Data(folder=config.data, rows=rows, entries=entries))
    asked = first_items(exam.questions, config.limit)
    check_questions(asked)
    change = find_change(config.perturb, asked, seed=SEED)
    respond, identity = _open_model(
        config, images=max((len(one.images) for one in asked), default=0)
    )
    named = [part for part in Path(config.model).parts if part != FINISHED]
    name = "-".join(filter(None, [config.benchmark, *named[-1:], config.perturb, identity[:8]]))
    to = config.to or Path("evaluations", re.sub(r"[^\w.-]+", "_", name) + ".json")
    if config.benchmark == PREFERENCES and not config.to:
        to = config.data / JUDGED  # the report looks there
    replies, ratings = dict[str, Reply](), dict[str, Rating]()

    def ready() -> Iterator[tuple[str, Question]]:
        for one in prepare_questions(asked, change):
            if isinstance(one, Reply):
                replies[one.name] = one
            else:
                yield one

    with Answers(to.with_suffix(ANSWERS)) as answers:
        with watch("answers") as tell:
            for reply in respond(ready(), answers):
                replies[reply.name] = reply
                tell(len(replies), len(asked))
        if judge and benchmark.rubric:
            judged = {
                one.name: {**one.judged, "answer": replies[one.name].text}
                for one in asked
                if one.judged is not None and replies[one.name].state == "answered"
            }
            with watch("ratings") as tell:
                for rating in judge_answers(judged, benchmark.rubric, judge, answers=answers):
                    ratings[rating.key] = rating
                    tell(len(ratings), len(judged))
    results = Results(
        exam=exam, questions=asked, replies=replies, ratings=ratings, resamples=RESAMPLES, seed=SEED
    )
    about: dict[str, Any] = {
        "benchmark": benchmark,
        "identity": identity,
        "judge": judge.model if judge else "",
    }
    found = Evaluated(config=config, **about, results=results, to=to)
    write_results(results, to, found.about())
    if run := found.run:
        write_evaluation(Folder(str(run.parent.parent)), list(found.rows(run.name)))
    return found


def _find_judge(benchmark: Benchmark, config: EvaluationConfig) -> ChatConfig | None:
    if benchmark.rubric is None or not (config.judge or benchmark.rubric.required):
        return None
    if not config.judge:
        raise ConfigError(
            f"--benchmark {benchmark.name}: needs a judge to rate its answers: give a served model with --judge URL, "
            "or a profile that has one"
        )
    judge = config.judge
    if isinstance(judge, str):
        judge = (
            ChatConfig(endpoint=(judge,)) if "://" in judge else load_profile(judge).served["judge"]
        )
    if config.judge_model:
        judge = judge.model_copy(update={"model": config.judge_model})
    return probe_model(judge, field="--judge")


def _open_model(config: EvaluationConfig, *, images: int) -> tuple[Respond, str]:
    if server := config.server:
        if isinstance(server, str):  # greedily, in the words of the benchmark alone
            server = ChatConfig(endpoint=(server,), model=config.model, temperature=0.0, top_p=1.0)
        server = probe_model(server, field="--server", images=images)
        return partial(ask_served, model=server), make_key("served", server.model)
    # As in a training: threads that spin while they wait take five times as long beside other work.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from pairwright.tasks.training.answer_questions import LocalModel, answer_questions
    from pairwright.tasks.training.namc.captioner import answer_pairs, identify, is_namc

    finished = Path(config.model, FINISHED)
    name = str(finished) if finished.is_dir() else config.model
    if is_namc(Path(name)):

        def respond(questions: Iterable[tuple[str, Question]], answers: Answers) -> Iterator[Reply]:
            del answers  # it is as fast to ask again
            return answer_pairs(questions, folder=Path(name), batch=config.batch)

        return respond, identify(Path(name))
    local = LocalModel(find_checkpoint(name, field="CHECKPOINT"), config.max_pixels)
    return partial(answer_questions, local=local, batch=config.batch), local.identity
