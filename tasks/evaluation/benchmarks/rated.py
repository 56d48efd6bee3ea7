"""Answers that a judge rates."""

from collections.abc import Sequence

from pairwright.tasks.evaluation.benchmark import Asked, Exam, Mark, Marked, Replies, mark_mean

RULE = (
    "A judge rates the answer; a rating is a line of JSON in the judge's own reply that repeats a number drawn for "
    "this answer alone. Without one it is asked again, twice; then the answer is unjudged, and left out of the scores. "
    "A question that the model did not answer has the worst rating."
)
WORST = 0


def ratings_of(asked: Sequence[Asked], replies: Replies) -> dict[str, int]:
    """Return the ratings of the questions that count: the judge's, and the worst where nothing was answered."""
    found: dict[str, int] = {}
    for one in asked:
        if one.item not in replies.items:
            continue
        if one.name not in replies.texts:
            found[one.name] = WORST
        elif one.name in replies.ratings:
            found[one.name] = replies.ratings[one.name]
    return found


def exam_of(asked: Sequence[Asked], *, name: str, categories: dict[str, str], notes: tuple[str, ...]) -> Exam:
    """Return the exam whose score is the mean rating, over all and by category.

    Args:
        asked: the questions.
        name: of the score.
        categories: of questions, by their names; those without are in none.
        notes: what has to be known of the score.
    """

    def mark(replies: Replies) -> Marked:
        found = ratings_of(asked, replies)
        marks = [_mean(found, name, category="")]
        for category in sorted(set(categories.values())):
            own = {one: rating for one, rating in found.items() if categories.get(one) == category}
            marks.append(_mean(own, name, category=category))
        return Marked(marks=marks)

    return Exam(questions=asked, mark=mark, read_answers=False, notes=notes)


def _mean(ratings: dict[str, int], name: str, *, category: str) -> Mark:
    return mark_mean(name, list(ratings.values()), category=category, percent=False)
