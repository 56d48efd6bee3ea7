"""Results of a benchmark in three files: scores with counts, a row per question, and answers.

SCORES.json          configuration, counts, notes, scores with intervals
SCORES.rows.jsonl    a row per question: question, answer, interpretation, rating
SCORES.answers       answers so far, to resume a stopped evaluation
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pairwright.schemas.replies import Reply
from pairwright.schemas.rows import make_key
from pairwright.tasks.evaluation.benchmark import Exam, ExamQuestion, Marked, Replies
from pairwright.tasks.evaluation.judge_answers import Rating
from pairwright.tasks.evaluation.measured import Score, compute_scores
from pairwright.tasks.store.files import Folder

ROWS = ".rows.jsonl"  # replaces the suffix of the scores' file name
ANSWERS = ".answers"


@dataclass(frozen=True, kw_only=True)
class Results:
    """Questions, answers and scores of a benchmark."""

    exam: Exam
    questions: Sequence[ExamQuestion]  # possibly a subset of the exam's questions
    replies: Mapping[str, Reply]  # by question name, for all of them
    ratings: Mapping[str, Rating]  # by question name, for those judged and answered
    resamples: int
    seed: int

    @cached_property
    def items(self) -> frozenset[str]:
        """Return the items that count: no missing image, no pending answer."""
        items: set[str] = set()
        left_out: set[str] = set()
        for question in self.questions:
            items.add(question.item)
            if self.replies[question.name].state in ("no image", "failed"):
                left_out.add(question.item)
        return frozenset(items - left_out)

    @cached_property
    def marked(self) -> Marked:
        """Return the benchmark's marking of the answers."""
        texts: dict[str, str] = {}
        for name, reply in self.replies.items():
            if reply.state == "answered":
                texts[name] = reply.text
        ratings: dict[str, int] = {}
        for name, rating in self.ratings.items():
            if rating.rating is not None:
                ratings[name] = rating.rating
        return self.exam.mark(
            Replies(
                texts=texts,
                ratings=ratings,
                items=self.items,
            )
        )

    @cached_property
    def scores(self) -> list[Score]:
        """Return the scores with intervals."""
        return compute_scores(self.marked.marks, resamples=self.resamples, seed=self.seed)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Return the numbers of items and questions, by outcome."""
        replies = list(self.replies.values())
        states = Counter(reply.state for reply in replies)
        cut = 0
        not_read = 0
        if self.exam.read_answers:
            not_read = self._count_unread()
        else:
            cut = sum(reply.cut for reply in replies)
        return {
            "items": len({question.item for question in self.questions}),
            "scored_items": len(self.items),
            "questions": len(self.questions),
            "answered": states["answered"],
            "empty": sum(reply.state == "answered" and not reply.text for reply in replies),
            "cut": cut,
            "not_read": not_read,
            "refused": states["refused"],
            "failed": states["failed"],
            "without_image": states["no image"],
            "unjudged": sum(rating.rating is None for rating in self.ratings.values()),
        }

    def _count_unread(self) -> int:
        """Return the number of unreadable answers about items that count."""
        unread = 0
        for question in self.questions:
            name = question.name
            is_counted = question.item in self.items
            if is_counted and self.replies[name].text and name not in self.marked.taken:
                unread += 1
        return unread

    @property
    def notes(self) -> list[str]:
        """Return the caveats of the scores."""
        return [*self.exam.notes, *self.marked.notes]

    @property
    def pending(self) -> int:
        """Return the number of pending answers and ratings."""
        ratings = sum(rating.failed for rating in self.ratings.values())
        return self.counts["failed"] + ratings

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row per question."""
        for question in self.questions:
            reply = self.replies[question.name]
            row: dict[str, Any] = {
                "name": question.name,
                "item": question.item,
                "images": [_name_image(image) for image in question.images],
                "question": question.text,
                "state": reply.state,
                "answer": reply.text,
                "taken_for": self.marked.taken.get(question.name),
                "detail": reply.detail,
            }
            if reply.cut:
                row["cut"] = True
            rating = self.ratings.get(question.name)
            if rating:
                row["rating"] = rating.rating
                row["judge"] = rating.text
            yield row

    def as_json(self) -> dict[str, Any]:
        """Return counts, notes and scores for scripts; shares are fractions."""
        return {
            "counts": self.counts,
            "notes": self.notes,
            "bootstrap": {"resamples": self.resamples, "seed": self.seed},
            "scores": [asdict(score) for score in self.scores],
        }


def _name_image(image: Path | bytes) -> str:
    return image.name if isinstance(image, Path) else make_key(image)


def write_results(
    results: Results,
    to: Path,
    config: Mapping[str, Any],
) -> None:
    """Write the rows, then the configuration and the scores into ``to``."""
    folder = Folder(str(to.absolute().parent))
    lines = [f"{json.dumps(row)}\n" for row in results.rows()]
    folder.write(to.with_suffix(ROWS).name, "".join(lines).encode())
    content = {**config, **results.as_json()}
    folder.write(to.name, (json.dumps(content, indent=1) + "\n").encode())
