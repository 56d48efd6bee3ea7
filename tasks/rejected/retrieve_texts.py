"""Make rejected texts by retrieval: the most similar description of another pair that is not true of this one.

Reads ``DifferenceRow`` (a shard's, and the whole collection's) and, to check, the pair's scene graphs; writes
``RejectedTextRow`` by the maker "retrieved". Similarity is the cosine of TF-IDF vectors of the two halves, without the
template that all descriptions share. Where claims cannot be checked, a text that says what the pair's own descriptions
or people say of it is passed over.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pairwright.schemas.claims import CLAIMS
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.rows import DifferenceRow, Dropped, Images, Pairs, RejectedTextRow
from pairwright.tasks.rejected.check_texts import TRUTH_USES, WORD, Truth, is_description_true, rejected_row, truth_of
from pairwright.tasks.store.stage import Stage, Uses

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfVectorizer

FUNCTION_WORDS = ["a", "an", "and", "at", "in", "of", "on", "or", "the", "to", "with"]
MOST_SCORES = 8_000_000
"""Scores held at once: queries are answered in batches of this many divided by the size of the collection."""


class TextIndex(NamedTuple):
    """Different descriptions of a collection, in the order of their keys, and their vectors."""

    rows: list[DifferenceRow]
    vectorizer: "TfidfVectorizer"
    vectors: "csr_matrix"


Candidate = tuple[DifferenceRow, float]
"""Description, and how similar it is."""


def retrieve_texts(
    rows: Sequence[DifferenceRow],
    config: RejectedTextsConfig,
    *,
    everything: Sequence[DifferenceRow],
    pairs: Pairs,
    images: Images,
) -> Iterator[RejectedTextRow | Dropped]:
    """Yield one text per description."""
    index = index_texts(everything, config)
    if index is None:
        yield from (Dropped(source_key=row.key, reason="no other description") for row in rows)
        return
    of_pairs: dict[str, list[DifferenceRow]] = {}
    for row in everything:
        of_pairs.setdefault(row.subject, []).append(row)
    for row, candidates in _similar(rows, index, limit=config.max_candidates):
        own = (row, *(other for other in of_pairs.get(row.subject, ()) if other.key != row.key))
        yield _retrieve(own, candidates, truth_of(row, pairs, images))


def index_texts(everything: Sequence[DifferenceRow], config: RejectedTextsConfig) -> TextIndex | None:
    """Index a collection: equal texts once, at most ``max_searched`` of them; ``None`` if it holds no words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    # Keys are hashes, so the first of them are a fair sample that does not depend on the order of the collection.
    by_text = {row.text: row for row in sorted(everything, key=lambda row: row.key, reverse=True)}
    rows = sorted(by_text.values(), key=lambda row: row.key)[: config.max_searched]
    vectorizer = TfidfVectorizer(token_pattern=WORD.pattern, stop_words=FUNCTION_WORDS, dtype=np.float64)
    try:
        vectors = vectorizer.fit_transform(_content(row) for row in rows)
    except ValueError:  # scikit-learn's word for an empty vocabulary
        return None
    return TextIndex(rows, vectorizer, vectors)


def _retrieve(own: Sequence[DifferenceRow], candidates: list[Candidate], truth: Truth) -> RejectedTextRow | Dropped:
    """Take the first candidate that is not true, counting the accidentally true ones before it."""
    for skipped, (row, score) in enumerate(candidates):
        true = is_description_true(row, own, truth)
        if not true:
            return rejected_row(
                own[0],
                row.text,
                maker="retrieved",
                note=f"of pair {row.subject}",
                true=true,
                score=score,
                skipped_true=skipped,
                claims=CLAIMS.validate_json(row.claims),
            )
    reason = "all similar descriptions are true" if candidates else "no other description"
    return Dropped(source_key=own[0].key, reason=reason, detail=f"{len(candidates)} tried")


def _similar(
    rows: Sequence[DifferenceRow], index: TextIndex, *, limit: int
) -> Iterator[tuple[DifferenceRow, list[Candidate]]]:
    batch = max(1, MOST_SCORES // len(index.rows))
    for start in range(0, len(rows), batch):
        some = rows[start : start + batch]
        scores = index.vectorizer.transform([_content(row) for row in some]) @ index.vectors.T
        for at, row in enumerate(some):
            found = scores.indices[scores.indptr[at] : scores.indptr[at + 1]]
            values = scores.data[scores.indptr[at] : scores.indptr[at + 1]]
            yield row, _best(row, index, found=found, values=values, limit=limit)


def _best(
    row: DifferenceRow, index: TextIndex, *, found: np.ndarray, values: np.ndarray, limit: int
) -> list[Candidate]:
    """Return the most similar other descriptions; equal scores by key, as rounding would decide them otherwise."""
    values = values.round(9)
    spare = limit + 2  # The description itself and, under another text, its own pair.
    if len(values) > spare:
        enough = values >= np.partition(values, -spare)[-spare]
        found, values = found[enough], values[enough]
    ranked = ((index.rows[found[i]], float(values[i])) for i in np.lexsort((found, -values)))
    return [one for one in ranked if one[0].subject != row.subject and one[0].text != row.text][:limit]


def _content(row: DifferenceRow) -> str:
    return f"{row.first_half} {row.second_half}"


STAGE = Stage(
    name="retrieved",
    version=3,
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=retrieve_texts,
    config="rejected_texts",
    whole=True,
    rows_per_shard=5000,
    uses=(
        Uses(table="differences", row=DifferenceRow, kind="all", most="max_searched", name="everything"),
        *TRUTH_USES,
    ),
)
