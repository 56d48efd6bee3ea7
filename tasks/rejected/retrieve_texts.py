"""Make rejected texts by retrieval: the most similar description of another pair that is not true.

Reads ``DifferenceRow`` (a shard's, and the whole collection's), all ``SplitRow`` and, to check, the
pair's scene graphs; writes ``RejectedTextRow`` by the maker "retrieved". Similarity is the cosine
of TF-IDF vectors of the two halves, without the common template. Which texts a pair may get is in
``text_pool``. With graphs, texts that name an object of the images come first; among them, texts of
the same world are tried first, in turns instead of by similarity, so that each is rejected about as
often as it is chosen. Where claims cannot be checked, a text that repeats the pair's own
descriptions or people's texts about it is skipped. A text that says that nothing changed shares
its words with no other: after the similar ones, changes are drawn for it.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import product
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from pairwright.schemas.claims import CLAIMS, Graphs, Selector
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.rows import (
    DifferenceRow,
    Dropped,
    Images,
    Pairs,
    RejectedTextRow,
    make_key,
)
from pairwright.schemas.scene import SceneObject
from pairwright.tasks.rejected.check_texts import WORD, KnownContent, truth_of
from pairwright.tasks.rejected.text_pool import (
    NO_OTHER,
    POOL_USES,
    Candidate,
    Numbers,
    TextPool,
    pool_texts,
    states_no_change,
    take_false,
)
from pairwright.tasks.store.stage import Stage

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfVectorizer

FUNCTION_WORDS = ["a", "an", "and", "at", "in", "of", "on", "or", "the", "to", "with"]
# scores in memory: batches have this many divided by the size of the collection
MOST_SCORES = 8_000_000
SETTING = "rejected_texts.max_candidates"
Look = tuple[str | None, ...]


class TextIndex(NamedTuple):
    """Pool of texts with their vectors."""

    pool: TextPool
    vectorizer: "TfidfVectorizer"
    vectors: "csr_matrix"


class Match(NamedTuple):
    """Row with the descriptions that share a word with it: their indices and similarities."""

    row: DifferenceRow
    indices: Numbers
    scores: Numbers


def retrieve_texts(
    rows: Sequence[DifferenceRow],
    config: RejectedTextsConfig,
    *,
    everything: pa.Table,
    splits: pa.Table,
    pairs: Pairs,
    images: Images,
) -> Iterator[RejectedTextRow | Dropped]:
    """Yield one text per description; ``splits`` has the columns ``DRAWN`` of every pair."""
    pool = pool_texts(everything, splits, config.max_searched)
    index = index_texts(pool)
    if index is None:
        yield from (Dropped(source_key=row.key, reason=NO_OTHER) for row in rows)
        return
    for match in _similar(rows, index):
        row = match.row
        truth = truth_of(row, pairs, images)
        candidates = _find_candidates(index, match, truth, config)
        yield take_false(
            pool.descriptions_of(row),
            candidates,
            truth,
            maker="retrieved",
            limit=SETTING if len(candidates) >= config.max_candidates else "",
        )


def index_texts(pool: TextPool) -> TextIndex | None:
    """Return the pool's vectors; ``None`` if the collection has no words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(
        token_pattern=WORD.pattern,
        stop_words=FUNCTION_WORDS,
        dtype=np.float64,
    )
    try:
        vectors = vectorizer.fit_transform(" ".join(row.halves) for row in pool.rows)
    except ValueError:  # scikit-learn's error for an empty vocabulary
        return None
    return TextIndex(pool, vectorizer, vectors)


def _find_candidates(
    index: TextIndex, match: Match, truth: KnownContent, config: RejectedTextsConfig
) -> list[Candidate]:
    """Return the similar descriptions that a row may get, those that name an object first.

    With graphs, those of its world come before the others; an unchanged pair gets changes.
    """
    row = match.row
    pool = index.pool
    limit = config.max_candidates
    indices = match.indices
    allowed = pool.allowed(row, indices)
    if truth.graphs:
        same_world = pool.components[indices] == pool.component_of(row)
    else:
        same_world = np.zeros(len(indices), bool)
    # The row's own position, or where it would be inserted.
    position = bisect_left(pool.rows, row.key, key=attrgetter("key"))
    turn = (indices - position) % len(pool.rows)
    turn = np.where(same_world, turn, len(pool.rows))
    candidates = _best(
        pool,
        indices[allowed],
        scores=match.scores[allowed],
        turn=turn[allowed],
        limit=limit,
    )
    if truth.graphs is not None:
        looks = _object_looks(truth.graphs)
        candidates.sort(key=lambda candidate: not _names_any(candidate[0], looks))
    if states_no_change(row):
        rng = Random(make_key("retrieved", config.seed, row.key))
        candidates += pool.draw(row, rng, limit - len(candidates))
    return candidates


def _object_looks(graphs: Graphs) -> set[Look]:
    """Return the looks by which a text may name an object of the images.

    Texts may omit colour or material; preferring those with all would reveal them.
    """
    looks: set[Look] = set()
    for graph in graphs:
        for item in graph.objects:
            looks.update(product((item.shape,), (item.colour, None), (item.material, None)))
    return looks


def _names_any(row: DifferenceRow, looks: set[Look]) -> bool:
    """Return whether a text names, or denies, an object with one of these looks."""
    for claim in CLAIMS.validate_json(row.claims):
        for selector in (claim.selector, claim.other):
            if selector.shape and _look(selector) in looks:
                return True
    return False


def _look(item: Selector | SceneObject) -> Look:
    return item.shape, item.colour, item.material


def _similar(rows: Sequence[DifferenceRow], index: TextIndex) -> Iterator[Match]:
    """Yield each row with the descriptions that share a word with it."""
    size = max(1, MOST_SCORES // len(index.pool.rows))
    for start in range(0, len(rows), size):
        batch = rows[start : start + size]
        vectors = index.vectorizer.transform(" ".join(row.halves) for row in batch)
        scores = vectors @ index.vectors.T
        for row_index, row in enumerate(batch):
            span = slice(scores.indptr[row_index], scores.indptr[row_index + 1])
            yield Match(row, scores.indices[span], scores.data[span].round(9))


def _best(
    pool: TextPool,
    indices: Numbers,
    *,
    scores: Numbers,
    turn: Numbers,
    limit: int,
) -> list[Candidate]:
    """Return at most ``limit`` descriptions by turn, then similarity, then key."""
    if len(scores) > limit:
        least = np.partition(scores, -limit)[-limit]
        enough = (turn < len(pool.rows)) | (scores >= least)
        indices = indices[enough]
        scores = scores[enough]
        turn = turn[enough]
    order = np.lexsort((indices, -scores, turn))[:limit]
    return [(pool.rows[indices[rank]], float(scores[rank])) for rank in order]


STAGE = Stage(
    name="retrieved",
    version=9,
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=retrieve_texts,
    config=lambda profile: profile.complete(profile.rejected_texts),
    rows_per_shard=5000,
    uses=POOL_USES,
)
