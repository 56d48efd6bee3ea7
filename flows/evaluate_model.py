"""Evaluate a model on a benchmark: ask what is owed, have answers judged where a judge is needed, and score them.

Beside the scores lie the answers: one file that a killed evaluation goes on from, and one to read.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from flows.read_rows import read_rows
from schemas.errors import ConfigError
from schemas.replies import Reply
from schemas.rows import make_key
from schemas.served import ChatConfig
from tasks.evaluation.benchmark import Asked, Benchmark, Data, Exam, Marked, Replies, Score, check_questions, conclude
from tasks.evaluation.benchmark_list import find_benchmark
from tasks.evaluation.judge_answers import Judged, Rating
from tasks.evaluation.perturb_questions import find_change
from tasks.evaluation.prepare_questions import Change, prepare_questions
from tasks.serving.chat import Question
from tasks.store.answers import Answers
from tasks.store.files import Folder

log = logging.getLogger(__name__)
PIXELS = 448 * 448
"""As ``model.most_pixels`` of a training."""
FOLDER = "evaluations"
Watch = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
Respond = Callable[[Iterable[tuple[str, Question]], Answers], Iterator[Reply]]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Say what is evaluated, and how."""

    model: str
    """A checkpoint, a run's folder, a name on the Hub; or the model's name on the server."""
    benchmark: str
    data: Path
    to: Path | None = None
    """Where the scores go; ``None``: below ``evaluations``."""
    limit: int | None = None
    """Only so many items, the first ones."""
    server: ChatConfig | None = None
    """Who serves the model; ``None``: it is loaded here."""
    judge: ChatConfig | None = None
    batch: int = 8
    most_pixels: int = PIXELS
    perturb: str = ""
    resamples: int = 1000
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """Be what was found."""

    wanted: Wanted
    benchmark: Benchmark
    identity: str
    exam: Exam
    replies: dict[str, Reply]
    ratings: dict[str, Rating]
    items: frozenset[str]
    marked: Marked
    scores: Sequence[Score]
    to: Path
    judge: str = ""
    counts: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def owed(self) -> int:
        """Return how many questions were not answered or judged, and may be at the next call."""
        failed = sum(reply.state == "failed" for reply in self.replies.values())
        return failed + sum(rating.failed for rating in self.ratings.values())

    def as_json(self) -> dict[str, Any]:
        """Return it for scripts; shares are fractions."""
        return {
            "benchmark": self.benchmark.name,
            "model": {"name": self.wanted.model, "identity": self.identity},
            "judge": self.judge,
            "data": str(self.wanted.data),
            "perturbed": self.wanted.perturb,
            "counts": self.counts,
            "rule": self.benchmark.rule,
            "notes": [*self.exam.notes, *self.marked.notes],
            "bootstrap": {"resamples": self.wanted.resamples, "seed": self.wanted.seed},
            "scores": [asdict(score) for score in self.scores],
        }


def evaluate_model(wanted: Wanted, *, watch: Watch) -> Evaluated:
    """Ask a model a benchmark's questions, and write its scores; what was answered before is not asked again.

    Args:
        wanted: what is evaluated.
        watch: gives, for a kind of work, who hears how much of it is done.

    Raises:
        ConfigError: an option or a file of the benchmark is wrong, or a judge is needed and not named.
        ModelError: the checkpoint cannot be loaded.
        ServerError: a server does not answer.
        StoreError: the disk refuses.
    """
    benchmark = find_benchmark(wanted.benchmark)
    judge = _find_judge(benchmark, wanted)
    exam = benchmark.open(Data(folder=wanted.data, rows=partial(read_rows, str(wanted.data))))
    asked = _first(exam.questions, wanted.limit)
    check_questions(asked)
    change = find_change(wanted.perturb, asked, seed=wanted.seed)
    respond, identity = _open_model(wanted, images=max((len(one.images) for one in asked), default=0))
    to = wanted.to or _default(wanted, identity)
    with Answers(to.with_suffix(".answers")) as answers:
        replies = _ask(asked, respond, answers, change=change, watch=watch)
        ratings = _judge(asked, replies, benchmark, judge, answers=answers, watch=watch) if judge else {}
    items = _counted(asked, replies)
    marked = exam.mark(_replies(replies, ratings, items))
    found = Evaluated(
        wanted=wanted,
        benchmark=benchmark,
        identity=identity,
        exam=exam,
        replies=replies,
        ratings=ratings,
        items=items,
        marked=marked,
        scores=list(conclude(marked.marks, resamples=wanted.resamples, seed=wanted.seed)),
        to=to,
        judge=judge.model if judge else "",
        counts=_count(asked, replies, ratings, exam=exam, marked=marked, items=items),
    )
    _write(found, asked)
    return found


def _first(questions: Sequence[Asked], limit: int | None) -> list[Asked]:
    names = list(dict.fromkeys(one.item for one in questions))[:limit]
    wanted = set(names)
    return [one for one in questions if one.item in wanted]


def _find_judge(benchmark: Benchmark, wanted: Wanted) -> ChatConfig | None:
    if benchmark.rubric is None:
        return None
    if wanted.judge is None:
        raise ConfigError(
            f"--benchmark {benchmark.name}: its answers are rated by a judge: name a served model with --judge URL, or "
            "a profile that has one"
        )
    from tasks.serving.probe import find_model

    return find_model(wanted.judge, field="--judge")


def _open_model(wanted: Wanted, *, images: int) -> tuple[Respond, str]:
    """Return who answers, and what tells it from others."""
    if wanted.server:
        from tasks.evaluation.ask_served import ask_served
        from tasks.serving.probe import find_model

        config = find_model(wanted.server, field="--server", images=images)
        return lambda questions, answers: ask_served(questions, config, answers), make_key("served", config.model)
    from tasks.training.answer_questions import LocalModel, answer_questions
    from tasks.training.find_model import find_model as find_checkpoint

    local = LocalModel(find_checkpoint(find_folder(wanted.model), field="CHECKPOINT"), wanted.most_pixels)
    return partial(_answer_here, answer_questions, local, wanted.batch), local.identity


def _answer_here(
    answer: Callable[..., Iterator[Reply]],
    local: Any,
    batch: int,
    questions: Iterable[tuple[str, Question]],
    answers: Answers,
) -> Iterator[Reply]:
    return answer(questions, local, answers, batch=batch)


def find_folder(model: str) -> str:
    """Return the finished model of a run where the run's folder is named, else what is named."""
    finished = Path(model) / "checkpoint"
    return str(finished) if finished.is_dir() else model


def _default(wanted: Wanted, identity: str) -> Path:
    """Return where scores go that nobody named a file for."""
    parts = [part for part in Path(wanted.model).parts if part != "checkpoint"]
    name = "-".join(filter(None, [wanted.benchmark, parts[-1] if parts else "", wanted.perturb, identity[:8]]))
    return Path(FOLDER, re.sub(r"[^\w.-]+", "_", name) + ".json")


def _ask(
    asked: Sequence[Asked], respond: Respond, answers: Answers, *, change: Change, watch: Watch
) -> dict[str, Reply]:
    found: dict[str, Reply] = {}
    with watch("answers") as tell:

        def ready() -> Iterator[tuple[str, Question]]:
            for one in prepare_questions(asked, change):
                if isinstance(one, Reply):
                    found[one.name] = one
                else:
                    yield one

        for reply in respond(ready(), answers):
            found[reply.name] = reply
            tell(len(found), len(asked))
    return found


def _judge(
    asked: Sequence[Asked],
    replies: dict[str, Reply],
    benchmark: Benchmark,
    judge: ChatConfig,
    *,
    answers: Answers,
    watch: Watch,
) -> dict[str, Rating]:
    from tasks.evaluation.judge_answers import judge_answers

    if benchmark.rubric is None:
        return {}
    judged = [
        Judged(name=one.name, values={**one.judged, "answer": replies[one.name].text})
        for one in asked
        if one.judged is not None and replies[one.name].state == "answered"
    ]
    found: dict[str, Rating] = {}
    with watch("ratings") as tell:
        for rating in judge_answers(judged, benchmark.rubric, judge, answers=answers):
            found[rating.name] = rating
            tell(len(found), len(judged))
    return found


def _counted(asked: Sequence[Asked], replies: dict[str, Reply]) -> frozenset[str]:
    """Return the items of which no image is missing and no answer is owed."""
    left_out = {one.item for one in asked if replies[one.name].state in ("no image", "failed")}
    return frozenset(one.item for one in asked) - left_out


def _replies(replies: dict[str, Reply], ratings: dict[str, Rating], items: frozenset[str]) -> Replies:
    return Replies(
        texts={name: reply.text for name, reply in replies.items() if reply.state == "answered"},
        ratings={name: one.rating for name, one in ratings.items() if one.rating is not None},
        items=items,
    )


def _count(
    asked: Sequence[Asked],
    replies: dict[str, Reply],
    ratings: dict[str, Rating],
    *,
    exam: Exam,
    marked: Marked,
    items: frozenset[str],
) -> dict[str, int]:
    states = [reply.state for reply in replies.values()]
    scored = [one for one in asked if one.item in items]
    unread = [one for one in scored if replies[one.name].state == "answered" and one.name not in marked.taken]
    return {
        "items": len({one.item for one in asked}),
        "scored_items": len(items),
        "questions": len(asked),
        "answered": states.count("answered"),
        "not_read": len(unread) if exam.read_answers else 0,
        "refused": states.count("refused"),
        "failed": states.count("failed"),
        "without_image": states.count("no image"),
        "unjudged": sum(rating.rating is None for rating in ratings.values()),
    }


def _write(found: Evaluated, asked: Sequence[Asked]) -> None:
    """Write the answers to read, and, when they are there, the scores."""
    folder = Folder(str(found.to.absolute().parent))
    lines = "".join(json.dumps(_row(found, one)) + "\n" for one in asked)
    folder.write(found.to.with_suffix(".rows.jsonl").name, lines.encode())
    folder.write(found.to.name, (json.dumps(found.as_json(), indent=1) + "\n").encode())


def _row(found: Evaluated, asked: Asked) -> dict[str, Any]:
    reply, rating = found.replies[asked.name], found.ratings.get(asked.name)
    images = [image.name if isinstance(image, Path) else make_key(image) for image in asked.images]
    row: dict[str, Any] = {"name": asked.name, "item": asked.item, "images": images, "question": asked.text}
    row |= {"state": reply.state, "answer": reply.text, "taken_for": found.marked.taken.get(asked.name)}
    if reply.detail:
        row["detail"] = reply.detail
    if rating:
        row |= {"rating": rating.rating, "judge": rating.text}
    return row
