"""What came of a benchmark: scores, counts, and a row per question; written beside each other.

SCORES.json          what was asked of whom, counts, notes, scores with their intervals
SCORES.rows.jsonl    a row per question: what was asked, answered, taken for, rated
SCORES.answers       what was said so far, for an evaluation that was stopped to go on from
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pairwright.schemas.replies import Reply
from pairwright.schemas.rows import make_key
from pairwright.tasks.evaluation.benchmark import Exam, ExamQuestion, Marked, Replies
from pairwright.tasks.evaluation.judge_answers import Rating
from pairwright.tasks.evaluation.measured import Score, conclude
from pairwright.tasks.store.files import Folder

ROWS, ANSWERS = ".rows.jsonl", ".answers"
"""What follows the name of the scores' file, without its own ending."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """Questions of a benchmark, what was answered, and the scores."""

    exam: Exam
    asked: Sequence[ExamQuestion]
    """Perhaps some of the exam's questions."""
    replies: Mapping[str, Reply]
    """By the questions' names, to each of them."""
    ratings: Mapping[str, Rating]
    """By the questions' names, of those that are judged and answered."""
    resamples: int
    seed: int

    @cached_property
    def items(self) -> frozenset[str]:
        """Return the items that count: no image of theirs is missing, and no answer is owed."""
        left_out = {one.item for one in self.asked if self.replies[one.name].state in ("no image", "failed")}
        return frozenset(one.item for one in self.asked) - left_out

    @cached_property
    def marked(self) -> Marked:
        """Return what the benchmark makes of the answers."""
        texts = {name: reply.text for name, reply in self.replies.items() if reply.state == "answered"}
        ratings = {name: one.rating for name, one in self.ratings.items() if one.rating is not None}
        return self.exam.mark(Replies(texts=texts, ratings=ratings, items=self.items))

    @cached_property
    def scores(self) -> list[Score]:
        """Return the scores with their intervals."""
        return conclude(self.marked.marks, resamples=self.resamples, seed=self.seed)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Return how many items and questions there are, and what became of them."""
        states = [reply.state for reply in self.replies.values()]
        counted = [one.name for one in self.asked if one.item in self.items]
        unread = [name for name in counted if self.replies[name].text and name not in self.marked.taken]
        return {
            "items": len({one.item for one in self.asked}),
            "scored_items": len(self.items),
            "questions": len(self.asked),
            "answered": states.count("answered"),
            "empty": sum(reply.state == "answered" and not reply.text for reply in self.replies.values()),
            "cut": 0 if self.exam.read_answers else sum(reply.cut for reply in self.replies.values()),
            "not_read": len(unread) if self.exam.read_answers else 0,
            "refused": states.count("refused"),
            "failed": states.count("failed"),
            "without_image": states.count("no image"),
            "unjudged": sum(one.rating is None for one in self.ratings.values()),
        }

    @property
    def notes(self) -> list[str]:
        """Return what has to be known of the scores."""
        return [*self.exam.notes, *self.marked.notes]

    @property
    def owed(self) -> int:
        """Return how many questions were not answered or judged, and may be at the next call."""
        return self.counts["failed"] + sum(one.failed for one in self.ratings.values())

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row per question."""
        for one in self.asked:
            reply, rating = self.replies[one.name], self.ratings.get(one.name)
            images = [image.name if isinstance(image, Path) else make_key(image) for image in one.images]
            yield {
                "name": one.name,
                "item": one.item,
                "images": images,
                "question": one.text,
                "state": reply.state,
                "answer": reply.text,
                "taken_for": self.marked.taken.get(one.name),
                "detail": reply.detail,
                **({"cut": True} if reply.cut else {}),
                **({"rating": rating.rating, "judge": rating.text} if rating else {}),
            }

    def as_json(self) -> dict[str, Any]:
        """Return counts, notes and scores for scripts; shares are fractions."""
        return {
            "counts": self.counts,
            "notes": self.notes,
            "bootstrap": {"resamples": self.resamples, "seed": self.seed},
            "scores": [asdict(score) for score in self.scores],
        }


def write_results(results: Results, to: Path, about: Mapping[str, Any]) -> None:
    """Write the rows, and, when they are there, the scores into ``to``, after ``about``: what was asked of whom."""
    folder = Folder(str(to.absolute().parent))
    folder.write(to.with_suffix(ROWS).name, "".join(f"{json.dumps(row)}\n" for row in results.rows()).encode())
    folder.write(to.name, (json.dumps({**about, **results.as_json()}, indent=1) + "\n").encode())
