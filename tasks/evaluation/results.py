"""Results of a benchmark: scores, counts, and a row per question, in files beside each other.

SCORES.json          configuration, counts, notes, scores with intervals
SCORES.rows.jsonl    a row per question: question, answer, interpretation, rating
SCORES.answers       answers so far, to resume a stopped evaluation
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

ROWS, ANSWERS = ".rows.jsonl", ".answers"  # suffixes of the scores' file name without its own


@dataclass(frozen=True, kw_only=True)
class Results:
    """Questions, answers and scores of a benchmark."""

    exam: Exam
    asked: Sequence[ExamQuestion]  # possibly a subset of the exam's questions
    replies: Mapping[str, Reply]  # by question name, for all of them
    ratings: Mapping[str, Rating]  # by question name, for those judged and answered
    resamples: int
    seed: int

    @cached_property
    def items(self) -> frozenset[str]:
        """Return the items that count: no missing image, no owed answer."""
        left_out = {
            one.item for one in self.asked if self.replies[one.name].state in ("no image", "failed")
        }
        return frozenset(one.item for one in self.asked) - left_out

    @cached_property
    def marked(self) -> Marked:
        """Return the benchmark's marking of the answers."""
        texts = {
            name: reply.text for name, reply in self.replies.items() if reply.state == "answered"
        }
        ratings = {name: one.rating for name, one in self.ratings.items() if one.rating is not None}
        return self.exam.mark(Replies(texts=texts, ratings=ratings, items=self.items))

    @cached_property
    def scores(self) -> list[Score]:
        """Return the scores with intervals."""
        return conclude(self.marked.marks, resamples=self.resamples, seed=self.seed)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Return the numbers of items and questions, by outcome."""
        states = [reply.state for reply in self.replies.values()]
        counted = [one.name for one in self.asked if one.item in self.items]
        unread = [
            name for name in counted if self.replies[name].text and name not in self.marked.taken
        ]
        return {
            "items": len({one.item for one in self.asked}),
            "scored_items": len(self.items),
            "questions": len(self.asked),
            "answered": states.count("answered"),
            "empty": sum(
                reply.state == "answered" and not reply.text for reply in self.replies.values()
            ),
            "cut": 0
            if self.exam.read_answers
            else sum(reply.cut for reply in self.replies.values()),
            "not_read": len(unread) if self.exam.read_answers else 0,
            "refused": states.count("refused"),
            "failed": states.count("failed"),
            "without_image": states.count("no image"),
            "unjudged": sum(one.rating is None for one in self.ratings.values()),
        }

    @property
    def notes(self) -> list[str]:
        """Return the caveats of the scores."""
        return [*self.exam.notes, *self.marked.notes]

    @property
    def owed(self) -> int:
        """Return how many answers and ratings are still owed."""
        return self.counts["failed"] + sum(one.failed for one in self.ratings.values())

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row per question."""
        for one in self.asked:
            reply, rating = self.replies[one.name], self.ratings.get(one.name)
            images = [
                image.name if isinstance(image, Path) else make_key(image) for image in one.images
            ]
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
    """Write the rows, then the scores into ``to``, after ``about``: the configuration."""
    folder = Folder(str(to.absolute().parent))
    folder.write(
        to.with_suffix(ROWS).name,
        "".join(f"{json.dumps(row)}\n" for row in results.rows()).encode(),
    )
    folder.write(to.name, (json.dumps({**about, **results.as_json()}, indent=1) + "\n").encode())
