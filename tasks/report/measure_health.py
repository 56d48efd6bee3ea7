"""Measure whether preferences teach models to look at the images, rather than the wording of rejected answers (ours).

Holds the texts of at most ``MOST_ROWS`` preferences. Needs scikit-learn.

*Told by the text*: a classifier that sees no image gets both answers and predicts the preferred one. It is a logistic
regression on words and pairs of words, tested on rows with unseen images (five folds over the components of the
splits). Half is chance; the rest can be learnt without looking.
"""

import json
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.bounds import HealthConfig
from pairwright.schemas.checks import NO_RATING
from pairwright.schemas.claims import CLAIMS, all_hold
from pairwright.schemas.plain_text import plain_text
from pairwright.schemas.rows import GIVEN, UNCHECKED, ImageRow
from pairwright.tasks.pages.charts import Proportion
from pairwright.tasks.report.tables import Tables
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.images import decode_rgb

MOST_ROWS, MOST_IMAGES = 20_000, 200
"""Measured preferences, the first by key, and measured removals, the first of the table."""
LEAST_ROWS, FOLDS = 40, 5
"""Least rows to measure, and the number of folds of their components."""
VISIBLE = 10
"""Least visible difference of a pixel, of 255."""
JUDGED = "judged/preferences.json"
"""Default file of the scores of the benchmark ``preferences``, with its rows beside it."""
JUDGED_ROWS, REJECTED = "judged/preferences.rows.jsonl", "_rejected"
"""One line per judged text; names of questions about rejected texts have this ending."""
TRAIN, UNMEASURED = "train", "not measured"
TEXTS = (
    *("key", "subject", "component", "split", "image_keys"),
    *("chosen", "claims", "rejected", "rejected_claims", "rejected_maker", "rejected_note"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Measurements of the preferences of a dataset."""

    rows: int
    words: tuple[float, float]
    """Mean number of words of chosen and of rejected texts, of rows with both."""
    longer: Proportion
    """Rows with a longer chosen text; equal lengths count half."""
    told: Proportion | None
    """Chosen texts that a classifier finds without the images; ``None``: too few rows."""
    told_by: Mapping[str, Proportion]
    """The same by maker of the rejected text."""
    false: Proportion
    """Chosen texts that are false of their images, of those with known truth."""
    true: Proportion
    """Rejected texts that are true of their images, of those with known truth."""
    repeated: Proportion
    """Rows with both texts of an earlier row."""
    same: int
    """Rows with equal chosen and rejected texts."""
    changed: tuple[float, ...]
    """Shares of visibly changed pixels of some rejected images, rising; without crops."""
    leaked: Proportion
    """Held-out rows with a chosen text that training rejects word for word."""
    believed: Proportion
    """Rejected texts that a judge found right, of those that it rated."""
    chosen_unchecked: Proportion
    """Unchecked chosen texts, of those that a model wrote."""
    rejected_unchecked: Proportion


class Finding(NamedTuple):
    """Measurement in words, and whether it is within its bound."""

    name: str
    value: str
    about: str
    good: bool


def judge_health(health: Health, bounds: HealthConfig) -> Iterator[Finding]:
    """Yield the measurements with their meaning, judged by the profile's bounds."""
    if told := health.told:
        low, high = told.interval()
        by = ", ".join(f"{maker or 'unnamed'} {share.value:.0%}" for maker, share in health.told_by.items())
        about = f"A classifier that sees no image finds the chosen text ({low:.0%} to {high:.0%}; chance: 50%): {by}."
        yield Finding("Told by the text", f"{told.value:.0%}", about, low <= bounds.max_text_only_accuracy)
    elif health.longer.of:
        few = f"A classifier needs {LEAST_ROWS} rows with both texts, of {FOLDS} groups of pairs that share no image."
        yield Finding("Told by the text", UNMEASURED, few, good=False)
    if health.longer.of:
        share = health.longer.value
        about = f"Rows whose chosen text is the longer one; {health.words[0]:.1f} words against {health.words[1]:.1f}."
        yield Finding("Longer", f"{share:.0%}", about, max(share, 1 - share) <= bounds.max_longer_share)
    known = "rejected texts of which it is known, these hold of their images."
    rated = "rejected texts that the judge rated, it found these right: they may be true."
    held_out = "held-out rows, training rejects the chosen text of these, word for word."
    false = "chosen texts of which it is known, these do not hold of their images."
    for name, found, what, most in (
        ("Chosen, yet false", health.false, false, 0.0),
        ("Rejected, yet true", health.true, known, bounds.max_true_share),
        ("Rejected, yet believed", health.believed, rated, bounds.max_true_share),
        ("Held out, yet rejected", health.leaked, held_out, bounds.max_leaked_share),
    ):
        if found.of:
            yield Finding(name, f"{found.value:.1%}", f"Of {found.of:,} {what}", found.value <= most)
    for name, found, what in (
        ("Chosen, unchecked", health.chosen_unchecked, "texts that models wrote, no check looked at these: switch on"),
        ("Rejected, unchecked", health.rejected_unchecked, "rejected texts, nothing showed these to be wrong: use"),
    ):
        if found.of:
            ways = "`controls`, `grounding` or `judging`." if what.endswith("on") else "`judging`."
            yield Finding(name, f"{found.value:.1%}", f"Of {found.of:,} {what} {ways}", not found.hits)
    share = health.repeated.value
    about = f"Rows whose two texts another row has, too; in {health.same:,} chosen and rejected are the same."
    yield Finding("Repeated", f"{share:.1%}", about, share <= bounds.max_repeated_share and not health.same)
    if health.changed:
        middle, least = statistics.median(health.changed), health.changed[0]
        about = f"Pixels that differ in the median of {len(health.changed):,} rejected images; the least: {least:.2%}."
        yield Finding("Rejected images differ", f"{middle:.1%}", about, middle >= bounds.min_changed_share)


def measure_health(tables: Tables) -> Health | None:
    """Measure the preferences; ``None``: none."""
    query = f"SELECT preferences FROM preferences ORDER BY key LIMIT {MOST_ROWS}"
    rows = [row for (row,) in tables.ask(query, {"preferences": TEXTS})]
    if not rows:
        return None
    texts = [(row["chosen"], row["rejected"]) for row in rows]
    both = [row for row in rows if row["rejected"]]
    chosen, rejected = (_count_true(tables, some, of) for some, of in ((rows, "claims"), (both, "rejected_claims")))
    lengths = np.array([[len(row[side].split()) for side in ("chosen", "rejected")] for row in both]).reshape(-1, 2)
    right = tell(both)
    told, told_by = None, dict[str, Proportion]()
    if right is not None:
        told, makers = Proportion(float(right.sum()), len(both)), np.array([row["rejected_maker"] for row in both])
        for maker in sorted(set(makers.tolist())):
            own = makers == maker
            told_by[maker] = Proportion(float(right[own].sum()), int(own.sum()))
    return Health(
        rows=len(rows),
        words=(float(lengths[:, 0].mean()), float(lengths[:, 1].mean())) if both else (0.0, 0.0),
        longer=Proportion(float(_score(lengths[:, 0] - lengths[:, 1]).sum()), len(both)),
        told=told,
        told_by=told_by,
        false=Proportion(chosen.of - chosen.hits, chosen.of),
        true=rejected,
        repeated=Proportion(len(texts) - len(set(texts)), len(texts)),
        same=sum(chosen == rejected for chosen, rejected in texts),
        changed=tuple(sorted(_changed_shares(tables))),
        leaked=_count_leaked(tables, rows),
        believed=_count_believed(tables, both),
        chosen_unchecked=_count_chosen_unchecked(tables, rows),
        rejected_unchecked=_count_rejected_unchecked(tables, both),
    )


def _score(differences: NDArray[Any]) -> NDArray[np.float64]:
    """Return 1 for positive differences, 1/2 for zero, else 0."""
    return (np.sign(differences) + 1) / 2


def tell(rows: Sequence[Mapping[str, Any]]) -> NDArray[np.float64] | None:
    """Return for each row ``(rows,)`` whether a classifier finds the chosen text without the images; 1/2: a draw.

    ``None``: too few rows or components to learn and to test.
    """
    from scipy import sparse
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    folds = _assign_folds([row["component"] for row in rows])
    if len(rows) < LEAST_ROWS or len(set(folds)) < FOLDS:
        return None
    words = CountVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]", binary=True)
    words.fit(row[side] for row in rows for side in ("chosen", "rejected"))
    # Words of one of the texts only, in both orders of each row, so that no side is likelier.
    shown = sparse.csr_matrix(words.transform(row["chosen"] for row in rows))
    shown = shown - words.transform(row["rejected"] for row in rows)
    found = np.zeros(len(rows))
    for fold in range(FOLDS):
        learnt, tested = shown[folds != fold], shown[folds == fold]
        model = LogisticRegression(fit_intercept=False, solver="liblinear", random_state=0)
        model.fit(sparse.vstack([learnt, -learnt]), np.repeat([1, 0], learnt.shape[0]))
        found[folds == fold] = _score(np.round(tested @ model.coef_[0], 9))
    return found


def _assign_folds(components: Sequence[str]) -> NDArray[np.int64]:
    """Return a fold per row; components go, the largest first, to the smallest fold."""
    sizes = [0] * FOLDS
    fold_of: dict[str, int] = {}
    for component, count in sorted(Counter(components).items(), key=lambda item: (-item[1], item[0])):
        fold_of[component] = sizes.index(min(sizes))
        sizes[fold_of[component]] += count
    return np.array([fold_of[component] for component in components], dtype=np.int64)


def _count_true(tables: Tables, rows: Sequence[Mapping[str, Any]], of: str) -> Proportion:
    """Count the texts that are true of their images, of those with claims (a column) and scene graphs."""
    wanted = [row for row in rows if row[of] not in ("", "[]", None) and len(row["image_keys"]) == 2]
    keys = sorted({key for row in wanted for key in row["image_keys"]})
    images = tables.find("images", ImageRow, keys, without=["image"])
    graphs = {row.key: row.graph for row in images if row.graph}
    held = [
        all_hold(CLAIMS.validate_json(row[of]), (graphs[first], graphs[second]))
        for row in wanted
        for first, second in [row["image_keys"]]
        if first in graphs and second in graphs
    ]
    return Proportion(sum(held), len(held))


def _count_leaked(tables: Tables, rows: Sequence[Mapping[str, Any]]) -> Proportion:
    """Count the held-out rows with a chosen text that training rejects, first or as a further negative."""
    answers = [plain_text(row["chosen"]) for row in rows if row["split"] != TRAIN]
    wanted, found = set(answers), set[str]()
    columns = ("split", "rejected", "negatives")
    for split, rejected, negatives in _rows(tables, "preferences", *columns) if answers else ():
        if split == TRAIN:
            found |= wanted.intersection(map(plain_text, (rejected, *(one["text"] for one in negatives))))
    return Proportion(sum(answer in found for answer in answers), len(answers))


def _count_believed(tables: Tables, rows: Sequence[Mapping[str, Any]]) -> Proportion:
    """Count the rejected texts that a judge found right, of those that it rated.

    It was asked about the preferences themselves, or about the texts as descriptions.
    """
    ratings = _rows(tables, "judged", "description", "passed", "why")
    verdicts = {key: passed for key, passed, why in ratings if why != NO_RATING}
    described = _rows(tables, "described", "key", "subject", "text") if verdicts else ()
    said = {(pair, plain_text(text)): verdicts[key] for key, pair, text in described if key in verdicts}
    asked = read_judged(tables.build.folder)
    verdict = [asked.get(row["key"], said.get((row["subject"], plain_text(row["rejected"])))) for row in rows]
    found = [taken for taken in verdict if taken is not None]
    return Proportion(sum(found), len(found))


def _count_chosen_unchecked(tables: Tables, rows: Sequence[Mapping[str, Any]]) -> Proportion:
    """Count the chosen texts of models without claims or a check's score."""
    written = _rows(tables, "differences", "subject", "text", "model", "checks")
    wanted = {row["subject"] for row in rows}
    checked = {(pair, text): bool(checks) for pair, text, model, checks in written if pair in wanted and model != GIVEN}
    unknown = (checked.get((row["subject"], row["chosen"])) for row in rows if row["claims"] in ("", "[]", None))
    found = [one for one in unknown if one is not None]
    return Proportion(found.count(False), len(found))


def _count_rejected_unchecked(tables: Tables, rows: Sequence[Mapping[str, Any]]) -> Proportion:
    """Count the rejected texts marked unchecked that no judge was asked about."""
    judged = {row["subject"] for row in rows}.intersection(p for (p,) in _rows(tables, "judged_rejected", "subject"))
    asked = read_judged(tables.build.folder)
    unchecked = (row["rejected_note"].endswith(UNCHECKED) for row in rows)
    known = (row["subject"] in judged or row["key"] in asked for row in rows)
    return Proportion(sum(one and not other for one, other in zip(unchecked, known, strict=True)), len(rows))


def _rows(tables: Tables, name: str, *columns: str) -> Iterator[tuple[Any, ...]]:
    for table in tables.chunks(name, columns):
        yield from zip(*(table[column].to_pylist() for column in columns), strict=True)


def _changed_shares(tables: Tables) -> Iterator[float]:
    """Yield the share of visibly changed pixels of some rejected images."""
    columns = ["images", "rejected_images", "rejected_image_maker"]
    index = tables.index("preferences")
    rows = (row for table in (index.batches(columns) if index else ()) for row in table.to_pylist())
    removed = (row for row in rows if row["rejected_image_maker"] == "removal")
    for row in islice(removed, MOST_IMAGES):
        pairs = zip(row["images"], row["rejected_images"], strict=True)
        yield next((_changed_share(before, after) for before, after in pairs if before != after), 0.0)


def _changed_share(before: bytes, after: bytes) -> float:
    one, other = (decode_rgb(data).astype(np.int16) for data in (before, after))
    if one.shape != other.shape:
        return 1.0
    return float((np.abs(one - other).max(axis=2) > VISIBLE).mean())


def read_judged(folder: Folder) -> dict[str, bool]:
    """Return, by preference, whether the judge of the benchmark ``preferences`` took its rejected text for true."""
    if not folder.exists(JUDGED_ROWS):
        return {}
    rows = [json.loads(line) for line in folder.read(JUDGED_ROWS).splitlines()]
    return {
        row["name"].removesuffix(REJECTED): row["taken_for"] == "True"
        for row in rows
        if row["name"].endswith(REJECTED) and row["taken_for"]
    }
