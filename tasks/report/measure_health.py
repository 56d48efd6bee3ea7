"""Measure whether preferences teach models to look at the images, rather than the wording of rejected answers (ours).

Holds the texts of at most ``MOST_ROWS`` preferences. Needs scikit-learn.

*Told by the text*: a classifier that sees no image gets both answers and predicts the preferred
one. It is a logistic regression on words and pairs of words, tested on rows with unseen images
(five folds over the components of the splits). Half is chance; the rest can be learnt without
looking.
"""

import json
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.bounds import HealthConfig
from pairwright.schemas.checks import NO_RATING
from pairwright.schemas.claims import CLAIMS, all_hold
from pairwright.schemas.plain_text import plain_text
from pairwright.schemas.rows import GIVEN, UNCHECKED, ImageRow
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.pages.charts import Proportion
from pairwright.tasks.report.query_tables import Tables
from pairwright.tasks.store.files import Folder

MOST_ROWS, MOST_IMAGES = (
    20_000,
    200,
)  # measured preferences, the first by key, and removals, the first of the table
LEAST_ROWS, FOLDS = 40, 5  # least rows to measure, and the number of folds of their components
VISIBLE = 10  # least visible difference of a pixel, of 255
# default file of the scores of the benchmark ``preferences``; rows are beside it
JUDGED = "judged/preferences.json"
JUDGED_ROWS, REJECTED = "judged/preferences.rows.jsonl", "_rejected"
"""One line per judged text; names of questions about rejected texts have this ending."""
TRAIN, UNMEASURED = "train", "not measured"
TEXTS = (
    *("key", "subject", "component", "split", "image_keys"),
    *("chosen", "claims", "rejected", "rejected_claims", "rejected_maker", "rejected_note"),
)


class Finding(NamedTuple):
    """Measurement in words, and whether it is within its bound."""

    name: str
    value: str
    about: str
    good: bool
    found: Proportion


def measure_health(tables: Tables, bounds: HealthConfig) -> list[Finding]:
    """Return the measurements of the preferences, judged by the profile's bounds; without preferences none."""
    query = f"SELECT preferences FROM preferences ORDER BY key LIMIT {MOST_ROWS}"
    rows = [row for (row,) in tables.ask(query, {"preferences": TEXTS})]
    if not rows:
        return []
    both = [row for row in rows if row["rejected"]]
    chosen, rejected = (
        _count_true(tables, some, of) for some, of in ((rows, "claims"), (both, "rejected_claims"))
    )
    untrue = "chosen texts of known truth, these are false of their images."
    held = "rejected texts of known truth, these are true of their images."
    rated = "rejected texts rated by the judge, these were found right: they may be true."
    held_out = "held-out rows, these have a chosen text that training rejects, word for word."
    unseen = (
        "texts by models, these were not checked: switch on `controls`, `grounding` or `judging`."
    )
    unproved = "rejected texts, these were not shown to be wrong: use `judging`."
    false = Proportion(chosen.of - chosen.hits, chosen.of)
    shares = (
        ("Chosen, yet false", false, untrue, 0.0),
        ("Rejected, yet true", rejected, held, bounds.max_true_share),
        ("Rejected, yet believed", _count_believed(tables, both), rated, bounds.max_true_share),
        ("Held out, yet rejected", _count_leaked(tables, rows), held_out, bounds.max_leaked_share),
        ("Chosen, unchecked", _count_chosen_unchecked(tables, rows), unseen, 0.0),
        ("Rejected, unchecked", _count_rejected_unchecked(tables, both), unproved, 0.0),
    )
    texts = [(row["chosen"], row["rejected"]) for row in rows]
    same = sum(chosen == rejected for chosen, rejected in texts)
    repeated = Proportion(len(texts) - len(set(texts)), len(texts))
    about = f"Rows with the same two texts as another row; in {same:,}, chosen and rejected are the same."
    good = repeated.value <= bounds.max_repeated_share and not same
    return [
        *judge_wording(both, bounds),
        *(
            Finding(
                name, f"{found.value:.1%}", f"Of {found.of:,} {what}", found.value <= most, found
            )
            for name, found, what, most in shares
            if found.of
        ),
        Finding("Repeated", f"{repeated.value:.1%}", about, good, repeated),
        *_judge_changed(tables, bounds),
    ]


def judge_wording(rows: Sequence[Mapping[str, Any]], bounds: HealthConfig) -> Iterator[Finding]:
    """Yield how often the words, and the length, of a row's two texts reveal which one is chosen."""
    if not rows:
        return
    right = tell(rows)
    if right is None:
        few = f"A classifier needs {LEAST_ROWS} rows with both texts, of {FOLDS} groups of pairs that share no image."
        yield Finding("Told by the text", UNMEASURED, few, good=False, found=Proportion(0, 0))
    else:
        told, makers = (
            Proportion(float(right.sum()), len(rows)),
            np.array([row["rejected_maker"] for row in rows]),
        )
        means = {maker: right[makers == maker].mean() for maker in sorted(set(makers.tolist()))}
        by = ", ".join(f"{maker or 'unnamed'} {mean:.0%}" for maker, mean in means.items())
        low, high = told.interval()
        about = f"A classifier that sees no image finds the chosen text ({low:.0%} to {high:.0%}; chance: 50%): {by}."
        yield Finding(
            "Told by the text",
            f"{told.value:.0%}",
            about,
            low <= bounds.max_text_only_accuracy,
            told,
        )
    lengths = np.array(
        [[len(row[side].split()) for side in ("chosen", "rejected")] for row in rows]
    )
    longer = Proportion(float(_score(lengths[:, 0] - lengths[:, 1]).sum()), len(rows))
    chosen, rejected = lengths.mean(axis=0)
    about = f"Rows whose chosen text is the longer one; {chosen:.1f} words against {rejected:.1f}."
    good = max(longer.value, 1 - longer.value) <= bounds.max_longer_share
    yield Finding("Longer", f"{longer.value:.0%}", about, good, longer)


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
    for component, count in sorted(
        Counter(components).items(), key=lambda item: (-item[1], item[0])
    ):
        fold_of[component] = sizes.index(min(sizes))
        sizes[fold_of[component]] += count
    return np.array([fold_of[component] for component in components], dtype=np.int64)


def _count_true(tables: Tables, rows: Sequence[Mapping[str, Any]], of: str) -> Proportion:
    """Count the texts that are true of their images, of those with scene graphs and claims (the column ``of``)."""
    wanted = [
        row for row in rows if row[of] not in ("", "[]", None) and len(row["image_keys"]) == 2
    ]
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
            found |= wanted.intersection(
                map(plain_text, (rejected, *(one["text"] for one in negatives)))
            )
    return Proportion(sum(answer in found for answer in answers), len(answers))


def _count_believed(tables: Tables, rows: Sequence[Mapping[str, Any]]) -> Proportion:
    """Count the rejected texts that a judge found right, of those that it rated.

    It was asked about the preferences themselves, or about the texts as descriptions.
    """
    ratings = _rows(tables, "judged", "description", "passed", "why")
    verdicts = {key: passed for key, passed, why in ratings if why != NO_RATING}
    described = _rows(tables, "described", "key", "subject", "text") if verdicts else ()
    said = {
        (pair, plain_text(text)): verdicts[key] for key, pair, text in described if key in verdicts
    }
    asked = read_judged(tables.build.folder)
    verdict = [
        asked.get(row["key"], said.get((row["subject"], plain_text(row["rejected"]))))
        for row in rows
    ]
    found = [taken for taken in verdict if taken is not None]
    return Proportion(sum(found), len(found))


def _count_chosen_unchecked(tables: Tables, rows: Sequence[Mapping[str, Any]]) -> Proportion:
    """Count the chosen texts of models that have neither claims nor a check's score."""
    written = _rows(tables, "differences", "subject", "text", "model", "checks")
    wanted = {row["subject"] for row in rows}
    checked = {
        (pair, text): bool(checks)
        for pair, text, model, checks in written
        if pair in wanted and model != GIVEN
    }
    unknown = (
        checked.get((row["subject"], row["chosen"]))
        for row in rows
        if row["claims"] in ("", "[]", None)
    )
    found = [one for one in unknown if one is not None]
    return Proportion(found.count(False), len(found))


def _count_rejected_unchecked(tables: Tables, rows: Sequence[Mapping[str, Any]]) -> Proportion:
    """Count the rejected texts marked unchecked that no judge was asked about."""
    judged = {row["subject"] for row in rows}.intersection(
        p for (p,) in _rows(tables, "judged_rejected", "subject")
    )
    asked = read_judged(tables.build.folder)
    unchecked = (row["rejected_note"].endswith(UNCHECKED) for row in rows)
    known = (row["subject"] in judged or row["key"] in asked for row in rows)
    return Proportion(
        sum(one and not other for one, other in zip(unchecked, known, strict=True)), len(rows)
    )


def _rows(tables: Tables, name: str, *columns: str) -> Iterator[tuple[Any, ...]]:
    for table in tables.chunks(name, columns):
        yield from zip(*(table[column].to_pylist() for column in columns), strict=True)


def _judge_changed(tables: Tables, bounds: HealthConfig) -> Iterator[Finding]:
    """Yield the share of visibly changed pixels in the median of some rejected images; crops do not count."""
    columns = ["images", "rejected_images", "rejected_image_maker"]
    index = tables.index("preferences")
    rows = (row for table in (index.batches(columns) if index else ()) for row in table.to_pylist())
    removed = (row for row in rows if row["rejected_image_maker"] == "removal")
    both = (
        zip(row["images"], row["rejected_images"], strict=True)
        for row in islice(removed, MOST_IMAGES)
    )
    shares = [
        next((_changed_share(*pair) for pair in pairs if pair[0] != pair[1]), 0.0) for pairs in both
    ]
    if shares:
        middle = statistics.median(shares)
        about = f"Pixels that differ in the median of {len(shares):,} rejected images; the least: {min(shares):.2%}."
        good = middle >= bounds.min_changed_share
        yield Finding("Rejected images differ", f"{middle:.1%}", about, good, Proportion(middle, 1))


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
