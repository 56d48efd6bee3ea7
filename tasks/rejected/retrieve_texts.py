"""Make rejected texts by retrieval: the most similar description of another pair that is not true of this one.

Reads ``DifferenceRow`` (a shard's, and the whole collection's), all ``SplitRow`` and, to check, the
pair's scene graphs; writes ``RejectedTextRow`` by the maker "retrieved". Similarity is the cosine
of TF-IDF vectors of the two halves, without the common template. A text comes from the pair's own
split, and occurs word for word in no other: training must not reject texts that are right of a
held-out pair. With graphs, texts that name an object of the images come first; among them, texts of
the same world are tried first, in turns instead of by similarity, so that each is rejected about as
often as it is chosen. People's texts get people's texts. Where claims cannot be checked, a text
that repeats the pair's own descriptions or people's texts about it is skipped.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairwright.schemas.arrow import from_table, schema_of
from pairwright.schemas.claims import CLAIMS, Selector
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.plain_text import plain_text
from pairwright.schemas.rows import DifferenceRow, Dropped, Images, Pairs, RejectedTextRow, SplitRow
from pairwright.schemas.scene import SceneObject
from pairwright.tasks.rejected.check_texts import (
    TRUTH_USES,
    WORD,
    KnownContent,
    is_as_true,
    rejected_row,
    truth_of,
)
from pairwright.tasks.store.stage import Stage, Uses

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfVectorizer

FUNCTION_WORDS = ["a", "an", "and", "at", "in", "of", "on", "or", "the", "to", "with"]
MOST_SCORES = (
    8_000_000  # scores in memory: batches have this many divided by the size of the collection
)
DRAWN = ("subject", "split", "component")
NOWHERE, SEVERAL = (
    ("", ""),
    "several",
)  # split and component of a pair without any; split of a text that several have
Numbers = NDArray[Any]


class TextIndex(NamedTuple):
    """Different descriptions of a collection, ordered by key, and their vectors."""

    rows: list[DifferenceRow]
    subjects: NDArray[np.str_]
    splits: NDArray[np.str_]
    given: NDArray[np.bool_]
    components: NDArray[np.str_]  # component of its pair: of rendered scenes, the world
    vectorizer: "TfidfVectorizer"
    vectors: "csr_matrix"


Candidate = tuple[DifferenceRow, float]
Drawn = Mapping[str, tuple[str, str]]  # split and component by pair


def retrieve_texts(
    rows: Sequence[DifferenceRow],
    config: RejectedTextsConfig,
    *,
    everything: pa.Table,
    splits: pa.Table,
    pairs: Pairs,
    images: Images,
) -> Iterator[RejectedTextRow | Dropped]:
    """Yield one text per description of ``everything``; ``splits`` has the columns ``DRAWN`` of every pair."""
    subjects, *drawn = (splits.column(name).to_pylist() for name in DRAWN)
    split_of: Drawn = dict(zip(subjects, zip(*drawn, strict=True), strict=True))
    by_subject = everything.sort_by([("subject", "ascending"), ("key", "ascending")])[
        : config.max_searched
    ]
    described = sorted(from_table(by_subject, DifferenceRow), key=attrgetter("key"))
    index = index_texts(described, config, split_of)
    if index is None:
        yield from (Dropped(source_key=row.key, reason="no other description") for row in rows)
        return
    of_pairs = defaultdict[str, list[DifferenceRow]](list)
    for row in described:
        of_pairs[row.subject].append(row)
    for row, found, scores in _similar(rows, index):
        own = (row, *(other for other in of_pairs[row.subject] if other.key != row.key))
        truth = truth_of(row, pairs, images)
        split, component = split_of.get(row.subject, NOWHERE)
        here = (index.splits[found] == split) & (index.subjects[found] != row.subject)
        here &= index.given[found] == row.is_given
        close = index.components[found] == component if truth.graphs else np.zeros(len(found), bool)
        place = bisect_left(
            index.rows, row.key, key=attrgetter("key")
        )  # its own, or where it would be inserted
        turn = np.where(close, (found - place) % len(index.rows), len(index.rows))
        best = _best(
            index, found[here], scores=scores[here], turn=turn[here], limit=config.max_candidates
        )
        yield _retrieve(own, best, truth, config.max_candidates)


def index_texts(
    everything: Sequence[DifferenceRow], config: RejectedTextsConfig, drawn: Drawn
) -> TextIndex | None:
    """Index a collection: equal texts once, at most ``max_searched`` of them; ``None`` if it holds no words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    # Keys are hashes: the first ones are a fair sample, whatever the order of the collection.
    by_text = {row.text: row for row in sorted(everything, key=lambda row: row.key, reverse=True)}
    rows = sorted(by_text.values(), key=lambda row: row.key)[: config.max_searched]
    vectorizer = TfidfVectorizer(
        token_pattern=WORD.pattern, stop_words=FUNCTION_WORDS, dtype=np.float64
    )
    try:
        vectors = vectorizer.fit_transform(" ".join(row.halves) for row in rows)
    except ValueError:  # scikit-learn's error for an empty vocabulary
        return None
    said_in = defaultdict[str, set[str]](set)
    for row in everything:
        said_in[plain_text(row.text)].add(drawn.get(row.subject, NOWHERE)[0])
    splits = [said_in[plain_text(row.text)] for row in rows]
    return TextIndex(
        rows=rows,
        subjects=np.array([row.subject for row in rows]),
        splits=np.array([min(some) if len(some) == 1 else SEVERAL for some in splits]),
        given=np.array([row.is_given for row in rows], dtype=bool),
        components=np.array([drawn.get(row.subject, NOWHERE)[1] for row in rows]),
        vectorizer=vectorizer,
        vectors=vectors,
    )


def _retrieve(
    own: Sequence[DifferenceRow], candidates: list[Candidate], truth: KnownContent, limit: int
) -> RejectedTextRow | Dropped:
    """Return the first candidate that is not true, with the number of true ones before it.

    Candidates that name an object of the images are tried first.
    """
    if truth.graphs is not None:
        looks = (_look(thing) for graph in truth.graphs for thing in graph.objects)
        # Texts may omit colour or material; preferring those with all would reveal them.
        shown = {
            look
            for shape, *rest in looks
            for look in product((shape,), *((word, None) for word in rest))
        }
        candidates = sorted(candidates, key=lambda one: shown.isdisjoint(_named(one[0])))
    for skipped, (row, score) in enumerate(candidates):
        claims = CLAIMS.validate_json(row.claims)
        # Of two texts without a change, one may be true of the other's pair.
        true = True if own[0].no_change and row.no_change else truth.of(claims)
        if true is None:
            true = is_as_true(row.halves, own, truth)
        if not true:
            return rejected_row(
                own[0],
                row.text,
                maker="retrieved",
                note=f"of pair {row.subject}",
                true=true,
                score=score,
                skipped_true=skipped,
                claims=claims,
            )
    bound = f" (rejected_texts.max_candidates={limit})" * (len(candidates) >= limit)
    reason = f"all similar descriptions are true{bound}" if candidates else "no other description"
    return Dropped(source_key=own[0].key, reason=reason, detail=f"{len(candidates)} tried")


def _named(row: DifferenceRow) -> list[tuple[str | None, ...]]:
    """Return the looks of all things that a text names or denies."""
    claims = CLAIMS.validate_json(row.claims)
    return [
        _look(thing) for claim in claims for thing in (claim.selector, claim.other) if thing.shape
    ]


def _look(thing: Selector | SceneObject) -> tuple[str | None, ...]:
    return thing.shape, thing.colour, thing.material


def _similar(
    rows: Sequence[DifferenceRow], index: TextIndex
) -> Iterator[tuple[DifferenceRow, Numbers, Numbers]]:
    """Yield each row with the indices and similarities of the descriptions that share a word with it."""
    batch = max(1, MOST_SCORES // len(index.rows))
    for start in range(0, len(rows), batch):
        some = rows[start : start + batch]
        scores = index.vectorizer.transform(" ".join(row.halves) for row in some) @ index.vectors.T
        for at, row in enumerate(some):
            own = slice(scores.indptr[at], scores.indptr[at + 1])
            yield row, scores.indices[own], scores.data[own].round(9)


def _best(
    index: TextIndex, found: Numbers, *, scores: Numbers, turn: Numbers, limit: int
) -> list[Candidate]:
    """Return at most ``limit`` descriptions by turn, then similarity, then key, which rounding does not change."""
    if len(scores) > limit:
        enough = (turn < len(index.rows)) | (scores >= np.partition(scores, -limit)[-limit])
        found, scores, turn = found[enough], scores[enough], turn[enough]
    order = np.lexsort((found, -scores, turn))[:limit]
    return [(index.rows[found[place]], float(scores[place])) for place in order]


STAGE = Stage(
    name="retrieved",
    version=7,
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=retrieve_texts,
    config=lambda profile: profile.complete(profile.rejected_texts),
    whole=True,
    rows_per_shard=5000,
    uses=(
        Uses(table="differences", row=DifferenceRow, kind="table", name="everything"),
        Uses(
            table="splits",
            row=SplitRow,
            kind="table",
            without=tuple(name for name in schema_of(SplitRow).names if name not in DRAWN),
        ),
        *TRUTH_USES,
    ),
)
