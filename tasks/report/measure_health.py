"""Measure whether preferences teach models to look at images, rather than at the wording (ours).

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
from typing import Any, NamedTuple, TypeAlias

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
from pairwright.tasks.store.audits import WRITER, mark_writer, read_audit, say_worth
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.texts.common_texts import find_common

MOST_ROWS = 20_000  # measured preferences, the first by key
MOST_IMAGES = 200  # measured removals, the first of the table
LEAST_ROWS = 40  # rows needed to measure
FOLDS = 5  # folds of the rows' components
VISIBLE = 10  # least visible difference of a pixel, of 255
JUDGED = "judged/preferences.json"
"""Default file of the scores of the benchmark ``preferences``."""
JUDGED_ROWS = "judged/preferences.rows.jsonl"
"""Its rows, one per judged text."""
REJECTED = "_rejected"
"""Ending of the names of questions about rejected texts."""
TRAIN = "train"
UNMEASURED = "not measured"
AUDITED = "Chosen, true by audit"
TEXTS = (
    *("key", "subject", "component", "split", "image_keys"),
    *("chosen", "claims", "rejected", "rejected_claims", "rejected_maker", "rejected_note"),
)
NO_CLAIMS = ("", "[]", None)
TextRow: TypeAlias = Mapping[str, Any]
"""Columns ``TEXTS`` of a preference."""


class Finding(NamedTuple):
    """Measurement in words, and whether it is within its bound."""

    name: str
    value: str
    about: str
    good: bool
    proportion: Proportion


def measure_health(tables: Tables, bounds: HealthConfig) -> list[Finding]:
    """Return the measurements of the preferences, judged by the profile's bounds.

    Without preferences there is only the audit of served texts, without these none.
    """
    query = f"SELECT preferences FROM preferences ORDER BY key LIMIT {MOST_ROWS}"
    rows = [row for (row,) in tables.query(query, {"preferences": TEXTS})]
    audited = list(judge_audit(tables.build.folder, tables.build.planned))
    if not rows:
        return audited
    both = [row for row in rows if row["rejected"]]
    return [
        *judge_wording(both, bounds),
        *_judge_blind(tables, rows, bounds),
        *audited,
        *_judge_truth(tables, rows, both, bounds),
        *_judge_checks(tables, rows, both),
        _judge_repetition(rows, bounds),
        *_judge_changed(tables, bounds),
    ]


def judge_audit(folder: Folder, planned: Sequence[Planned]) -> Iterator[Finding]:
    """Yield how many of the chosen texts are true by the last audit, if a served model wrote them.

    It is measured on planted changes; without an audit of the same writer and checks it is not
    known.
    """
    described = next((step for step in planned if step.stage.name == WRITER), None)
    if described is None or not getattr(described.config, "is_served", False):
        return
    audit = read_audit(folder)
    if audit is None:
        yield _unaudited("Nobody knows how many are true: pairwright audit DATASET measures it.")
        return
    if audit.mark != mark_writer(planned):
        yield _unaudited(
            "The last audit was of another writer or other checks: pairwright audit DATASET."
        )
        return
    chosen = audit.worth["chosen"]
    proportion = Proportion(chosen["hits"], chosen["of"])
    yield Finding(
        name=AUDITED,
        value=f"{proportion.value:.0%}" if proportion.of else UNMEASURED,
        about=f"{say_worth(audit.worth)}.",
        good=proportion.of > 0,
        proportion=proportion,
    )


def _judge_blind(
    tables: Tables, rows: Sequence[TextRow], bounds: HealthConfig
) -> Iterator[Finding]:
    """Yield how many rows a model answers right without the images, if it was asked."""
    makers = {row["key"]: row["rejected_maker"] or "unnamed" for row in rows}
    expected: dict[str, list[bool]] = {}
    for preference, hardness in _rows(tables, "hardness", "preference", "hardness"):
        if preference in makers:
            expected.setdefault(makers[preference], []).append(hardness < 0.5)
    verdicts = [verdict for of_maker in expected.values() for verdict in of_maker]
    if not verdicts:
        return
    proportion = Proportion(sum(verdicts), len(verdicts))
    parts = [f"{maker} {statistics.mean(expected[maker]):.0%}" for maker in sorted(expected)]
    yield Finding(
        name="Expected blind",
        value=f"{proportion.value:.0%}",
        about=f"Of {proportion.of:,} rows, a model prefers the chosen text without the images: "
        f"these teach nothing about images. By maker: {', '.join(parts)}.",
        good=proportion.value <= bounds.max_blind_share,
        proportion=proportion,
    )


def _unaudited(about: str) -> Finding:
    return Finding(
        name=AUDITED, value=UNMEASURED, about=about, good=False, proportion=Proportion(0, 0)
    )


def _judge_truth(
    tables: Tables,
    rows: Sequence[TextRow],
    both: Sequence[TextRow],
    bounds: HealthConfig,
) -> Iterator[Finding]:
    """Yield the shares of texts on the wrong side; ``both`` are the rows with a rejected text."""
    chosen = _count_true(tables, rows, "claims")
    yield from _judge_share(
        "Chosen, yet false",
        Proportion(chosen.of - chosen.hits, chosen.of),
        "chosen texts of known truth, these are false of their images.",
        bound=0.0,
    )
    yield from _judge_share(
        "Rejected, yet true",
        _count_true(tables, both, "rejected_claims"),
        "rejected texts of known truth, these are true of their images.",
        bound=bounds.max_true_share,
    )
    yield from _judge_share(
        "Rejected, yet believed",
        _count_believed(tables, both),
        "rejected texts rated by the judge, these were found right: they may be true.",
        bound=bounds.max_true_share,
    )
    yield from _judge_share(
        "Held out, yet rejected",
        _count_leaked(tables, rows),
        "held-out rows, these have a chosen text that training rejects, word for word.",
        bound=bounds.max_leaked_share,
    )


def _judge_checks(
    tables: Tables, rows: Sequence[TextRow], both: Sequence[TextRow]
) -> Iterator[Finding]:
    """Yield the shares of unchecked texts."""
    yield from _judge_share(
        "Chosen, unchecked",
        _count_chosen_unchecked(tables, rows),
        "texts by models, these were not checked: switch on `confirming`, `controls`, `grounding` "
        "or `judging`.",
        bound=0.0,
    )
    yield from _judge_share(
        "Rejected, unchecked",
        _count_rejected_unchecked(tables, both),
        "rejected texts, these were not shown to be wrong: use `judging`.",
        bound=0.0,
    )


def _judge_share(
    name: str, proportion: Proportion, explanation: str, *, bound: float
) -> Iterator[Finding]:
    """Yield the finding about a proportion, if it has rows."""
    if proportion.of:
        yield Finding(
            name=name,
            value=f"{proportion.value:.1%}",
            about=f"Of {proportion.of:,} {explanation}",
            good=proportion.value <= bound,
            proportion=proportion,
        )


def _judge_repetition(rows: Sequence[TextRow], bounds: HealthConfig) -> Finding:
    texts = [(row["chosen"], row["rejected"]) for row in rows]
    same = sum(chosen == rejected for chosen, rejected in texts)
    repeated = Proportion(len(texts) - len(set(texts)), len(texts))
    return Finding(
        name="Repeated",
        value=f"{repeated.value:.1%}",
        about="Rows with the same two texts as another row; "
        f"in {same:,}, chosen and rejected are the same.",
        good=repeated.value <= bounds.max_repeated_share and not same,
        proportion=repeated,
    )


def judge_wording(rows: Sequence[TextRow], bounds: HealthConfig) -> Iterator[Finding]:
    """Yield how often the words, and the length, of a row's two texts reveal the chosen one."""
    if rows:
        yield _judge_classifier(rows, bounds)
        yield _judge_lengths(rows, bounds)


def _judge_classifier(rows: Sequence[TextRow], bounds: HealthConfig) -> Finding:
    name = "Told by the text"
    right = predict_chosen(rows)
    if right is None:
        return Finding(
            name=name,
            value=UNMEASURED,
            about=f"A classifier needs {LEAST_ROWS} rows with both texts, "
            f"of {FOLDS} groups of pairs that share no image.",
            good=False,
            proportion=Proportion(0, 0),
        )
    proportion = Proportion(float(right.sum()), len(rows))
    makers = np.array([row["rejected_maker"] for row in rows])
    parts: list[str] = []
    for maker in sorted(set(makers.tolist())):
        mean = right[makers == maker].mean()
        parts.append(f"{maker or 'unnamed'} {mean:.0%}")
    low, high = proportion.interval()
    return Finding(
        name=name,
        value=f"{proportion.value:.0%}",
        about="A classifier that sees no image finds the chosen text "
        f"({low:.0%} to {high:.0%}; chance: 50%): {', '.join(parts)}.",
        good=low <= bounds.max_text_only_accuracy,
        proportion=proportion,
    )


def _judge_lengths(rows: Sequence[TextRow], bounds: HealthConfig) -> Finding:
    pairs = [(len(row["chosen"].split()), len(row["rejected"].split())) for row in rows]
    lengths = np.array(pairs)
    scores = _score(lengths[:, 0] - lengths[:, 1])
    longer = Proportion(float(scores.sum()), len(rows))
    chosen, rejected = lengths.mean(axis=0)
    return Finding(
        name="Longer",
        value=f"{longer.value:.0%}",
        about=f"Rows whose chosen text is the longer one; "
        f"{chosen:.1f} words against {rejected:.1f}.",
        good=max(longer.value, 1 - longer.value) <= bounds.max_longer_share,
        proportion=longer,
    )


def _score(differences: NDArray[Any]) -> NDArray[np.float64]:
    """Return 1 for positive differences, 1/2 for zero, else 0."""
    return (np.sign(differences) + 1) / 2


def predict_chosen(rows: Sequence[TextRow]) -> NDArray[np.float64] | None:
    """Return for each row ``(rows,)`` whether a classifier finds the chosen text; 1/2: a draw.

    It sees no images. ``None``: too few rows or components to learn and to test.
    """
    from scipy import sparse
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    folds = _assign_folds([row["component"] for row in rows])
    if len(rows) < LEAST_ROWS or len(set(folds)) < FOLDS:
        return None
    vectorizer = CountVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]", binary=True)
    chosen = [row["chosen"] for row in rows]
    rejected = [row["rejected"] for row in rows]
    vectorizer.fit(chosen + rejected)
    # Words of one of the texts only, in both orders of each row, so that no side is likelier.
    features = sparse.csr_matrix(vectorizer.transform(chosen))
    features = features - vectorizer.transform(rejected)
    scores = np.zeros(len(rows))
    for fold in range(FOLDS):
        train = features[folds != fold]
        test = features[folds == fold]
        model = LogisticRegression(fit_intercept=False, solver="liblinear", random_state=0)
        labels = np.repeat([1, 0], train.shape[0])
        model.fit(sparse.vstack([train, -train]), labels)
        scores[folds == fold] = _score(np.round(test @ model.coef_[0], 9))
    return scores


def _assign_folds(components: Sequence[str]) -> NDArray[np.int64]:
    """Return a fold per row; components go, the largest first, to the smallest fold."""
    counts = Counter(components)
    sizes = [0] * FOLDS
    fold_of: dict[str, int] = {}
    for component, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        fold = sizes.index(min(sizes))
        fold_of[component] = fold
        sizes[fold] += count
    return np.array([fold_of[component] for component in components], dtype=np.int64)


def _count_true(
    tables: Tables,
    rows: Sequence[TextRow],
    column: str,
) -> Proportion:
    """Count the texts that are true of their images.

    Texts without claims (``column``) or without scene graphs do not count.
    """
    claimed = [row for row in rows if row[column] not in NO_CLAIMS and len(row["image_keys"]) == 2]
    keys: set[str] = set()
    for row in claimed:
        keys.update(row["image_keys"])
    images = tables.find_rows("images", ImageRow, sorted(keys), without=["image"])
    graphs = {row.key: row.graph for row in images if row.graph}
    verdicts: list[bool] = []
    for row in claimed:
        first, second = row["image_keys"]
        if first in graphs and second in graphs:
            claims = CLAIMS.validate_json(row[column])
            verdicts.append(all_hold(claims, (graphs[first], graphs[second])))
    return Proportion(sum(verdicts), len(verdicts))


def _count_leaked(tables: Tables, rows: Sequence[TextRow]) -> Proportion:
    """Count the held-out rows whose chosen text is rejected, or a further negative, in training.

    Common sentences, which training prefers for several pairs, give nothing away.
    """
    answers = [plain_text(row["chosen"]) for row in rows if row["split"] != TRAIN]
    if not answers:
        return Proportion(0, 0)
    texts = [(row["split"], row["subject"], row["chosen"]) for row in rows]
    held_out = set(answers) - find_common(texts)
    leaked: set[str] = set()
    columns = ("split", "rejected", "negatives")
    for split, rejected, negatives in _rows(tables, "preferences", *columns):
        if split == TRAIN:
            texts = [rejected, *(negative["text"] for negative in negatives)]
            leaked |= held_out.intersection(map(plain_text, texts))
    return Proportion(sum(answer in leaked for answer in answers), len(answers))


def _count_believed(tables: Tables, rows: Sequence[TextRow]) -> Proportion:
    """Count the rejected texts that a judge found right, of those that it rated.

    It was asked about the preferences themselves, or about the texts as descriptions.
    """
    judged = read_judged(tables.build.folder)
    described = _read_description_verdicts(tables)
    verdicts: list[bool] = []
    for row in rows:
        description = (row["subject"], plain_text(row["rejected"]))
        verdict = judged.get(row["key"], described.get(description))
        if verdict is not None:
            verdicts.append(verdict)
    return Proportion(sum(verdicts), len(verdicts))


def _read_description_verdicts(tables: Tables) -> dict[tuple[str, str], bool]:
    """Return, by pair and text, whether the judge passed a description."""
    judged = _rows(tables, "judged", "description", "passed", "why")
    verdicts = {key: passed for key, passed, why in judged if why != NO_RATING}
    if not verdicts:
        return {}
    described = _rows(tables, "described", "key", "subject", "text")
    return {
        (pair, plain_text(text)): verdicts[key] for key, pair, text in described if key in verdicts
    }


def _count_chosen_unchecked(tables: Tables, rows: Sequence[TextRow]) -> Proportion:
    """Count the chosen texts of models that have neither claims nor a check's score."""
    pairs = {row["subject"] for row in rows}
    checked: dict[tuple[str, str], bool] = {}
    columns = ("subject", "text", "model", "checks")
    for pair, text, model, checks in _rows(tables, "differences", *columns):
        if pair in pairs and model != GIVEN:
            checked[pair, text] = bool(checks)
    without_claims = [row for row in rows if row["claims"] in NO_CLAIMS]
    states = [checked.get((row["subject"], row["chosen"])) for row in without_claims]
    by_models = [state for state in states if state is not None]
    return Proportion(by_models.count(False), len(by_models))


def _count_rejected_unchecked(tables: Tables, rows: Sequence[TextRow]) -> Proportion:
    """Count the rejected texts marked unchecked that no judge was asked about."""
    pairs = {pair for (pair,) in _rows(tables, "judged_rejected", "subject")}
    judged = read_judged(tables.build.folder)
    unchecked = 0
    for row in rows:
        is_judged = row["subject"] in pairs or row["key"] in judged
        if row["rejected_note"].endswith(UNCHECKED) and not is_judged:
            unchecked += 1
    return Proportion(unchecked, len(rows))


def _rows(tables: Tables, name: str, *columns: str) -> Iterator[tuple[Any, ...]]:
    for table in tables.chunks(name, columns):
        yield from zip(*(table[column].to_pylist() for column in columns), strict=True)


def _judge_changed(tables: Tables, bounds: HealthConfig) -> Iterator[Finding]:
    """Yield the share of visibly changed pixels in the median of some rejected images.

    Crops do not count.
    """
    removed = islice(_removed_images(tables), MOST_IMAGES)
    shares = [_first_change(before, after) for before, after in removed]
    if shares:
        median = statistics.median(shares)
        yield Finding(
            name="Rejected images differ",
            value=f"{median:.1%}",
            about=f"Pixels that differ in the median of {len(shares):,} rejected images; "
            f"the least: {min(shares):.2%}.",
            good=median >= bounds.min_changed_share,
            proportion=Proportion(median, 1),
        )


def _removed_images(tables: Tables) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yield the images, and the rejected images, of preferences with a removal."""
    index = tables.index("preferences")
    if index is None:
        return
    for table in index.batches(["images", "rejected_images", "rejected_image_maker"]):
        for row in table.to_pylist():
            if row["rejected_image_maker"] == "removal":
                yield row["images"], row["rejected_images"]


def _first_change(images: Sequence[bytes], rejected: Sequence[bytes]) -> float:
    """Return the share of changed pixels of the first image that was replaced."""
    for before, after in zip(images, rejected, strict=True):
        if before != after:
            return _changed_share(before, after)
    return 0.0


def _changed_share(before: bytes, after: bytes) -> float:
    first = decode_rgb(before).astype(np.int16)
    second = decode_rgb(after).astype(np.int16)
    if first.shape != second.shape:
        return 1.0
    differences = np.abs(first - second).max(axis=2)
    return float((differences > VISIBLE).mean())


def read_judged(folder: Folder) -> dict[str, bool]:
    """Return, by preference, whether the judge took its rejected text for true.

    Reads the answers of the benchmark ``preferences``.
    """
    if not folder.exists(JUDGED_ROWS):
        return {}
    verdicts: dict[str, bool] = {}
    for line in folder.read(JUDGED_ROWS).splitlines():
        row = json.loads(line)
        if row["name"].endswith(REJECTED) and row["taken_for"]:
            verdicts[row["name"].removesuffix(REJECTED)] = row["taken_for"] == "True"
    return verdicts
