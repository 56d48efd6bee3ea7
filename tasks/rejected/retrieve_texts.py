"""Make rejected texts by retrieval: the most similar description of another pair that is not true.

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
from pairwright.schemas.claims import CLAIMS, Claim, Graphs, Selector
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
# scores in memory: batches have this many divided by the size of the collection
MOST_SCORES = 8_000_000
DRAWN = ("subject", "split", "component")
NOWHERE = ("", "")  # split and component of a pair without any
SEVERAL = "several"  # split of a text that occurs in several splits
NO_OTHER = "no other description"
Numbers = NDArray[Any]
Look = tuple[str | None, ...]


class TextIndex(NamedTuple):
    """Different descriptions of a collection, ordered by key, and their vectors."""

    rows: list[DifferenceRow]
    subjects: NDArray[np.str_]
    splits: NDArray[np.str_]
    given: NDArray[np.bool_]
    components: NDArray[np.str_]  # component of its pair: of rendered scenes, the world
    vectorizer: "TfidfVectorizer"
    vectors: "csr_matrix"


class Match(NamedTuple):
    """Row with the descriptions that share a word with it: their indices and similarities."""

    row: DifferenceRow
    indices: Numbers
    scores: Numbers


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
    """Yield one text per description; ``splits`` has the columns ``DRAWN`` of every pair."""
    drawn = _read_drawn(splits)
    described = _read_descriptions(everything, config.max_searched)
    index = index_texts(described, config, drawn)
    if index is None:
        yield from (Dropped(source_key=row.key, reason=NO_OTHER) for row in rows)
        return
    by_pair = defaultdict[str, list[DifferenceRow]](list)
    for row in described:
        by_pair[row.subject].append(row)
    for match in _similar(rows, index):
        row = match.row
        descriptions = _put_first(row, by_pair[row.subject])
        truth = truth_of(row, pairs, images)
        candidates = _find_candidates(
            index,
            match,
            drawn,
            truth,
            limit=config.max_candidates,
        )
        yield _retrieve(descriptions, candidates, truth, config.max_candidates)


def _put_first(row: DifferenceRow, rows: Sequence[DifferenceRow]) -> list[DifferenceRow]:
    return [row, *(other for other in rows if other.key != row.key)]


def _read_drawn(splits: pa.Table) -> Drawn:
    subjects, names, components = (splits.column(name).to_pylist() for name in DRAWN)
    return dict(zip(subjects, zip(names, components, strict=True), strict=True))


def _read_descriptions(everything: pa.Table, limit: int) -> list[DifferenceRow]:
    """Return the first descriptions by pair, ordered by key."""
    by_subject = everything.sort_by([("subject", "ascending"), ("key", "ascending")])
    return sorted(from_table(by_subject[:limit], DifferenceRow), key=attrgetter("key"))


def index_texts(
    everything: Sequence[DifferenceRow], config: RejectedTextsConfig, drawn: Drawn
) -> TextIndex | None:
    """Index equal texts once, at most ``max_searched``; ``None`` if the collection has no words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    # Keys are hashes: the first ones are a fair sample, whatever the order of the collection.
    by_text = {row.text: row for row in sorted(everything, key=attrgetter("key"), reverse=True)}
    rows = sorted(by_text.values(), key=attrgetter("key"))[: config.max_searched]
    vectorizer = TfidfVectorizer(
        token_pattern=WORD.pattern,
        stop_words=FUNCTION_WORDS,
        dtype=np.float64,
    )
    try:
        vectors = vectorizer.fit_transform(" ".join(row.halves) for row in rows)
    except ValueError:  # scikit-learn's error for an empty vocabulary
        return None
    components = [drawn.get(row.subject, NOWHERE)[1] for row in rows]
    return TextIndex(
        rows=rows,
        subjects=np.array([row.subject for row in rows]),
        splits=np.array(_splits_of_texts(rows, everything, drawn)),
        given=np.array([row.is_given for row in rows], dtype=bool),
        components=np.array(components),
        vectorizer=vectorizer,
        vectors=vectors,
    )


def _splits_of_texts(
    rows: Sequence[DifferenceRow], everything: Sequence[DifferenceRow], drawn: Drawn
) -> list[str]:
    """Return the split in which each text occurs, or ``SEVERAL``."""
    splits_by_text = defaultdict[str, set[str]](set)
    for row in everything:
        split, _ = drawn.get(row.subject, NOWHERE)
        splits_by_text[plain_text(row.text)].add(split)
    splits: list[str] = []
    for row in rows:
        names = splits_by_text[plain_text(row.text)]
        splits.append(min(names) if len(names) == 1 else SEVERAL)
    return splits


def _find_candidates(
    index: TextIndex,
    match: Match,
    drawn: Drawn,
    truth: KnownContent,
    *,
    limit: int,
) -> list[Candidate]:
    """Return the similar descriptions of the pair's split; with graphs, its world comes first."""
    row = match.row
    indices = match.indices
    split, component = drawn.get(row.subject, NOWHERE)
    allowed = (index.splits[indices] == split) & (index.subjects[indices] != row.subject)
    allowed &= index.given[indices] == row.is_given
    if truth.graphs:
        same_world = index.components[indices] == component
    else:
        same_world = np.zeros(len(indices), bool)
    # The row's own position, or where it would be inserted.
    position = bisect_left(index.rows, row.key, key=attrgetter("key"))
    turn = (indices - position) % len(index.rows)
    turn = np.where(same_world, turn, len(index.rows))
    return _best(
        index,
        indices[allowed],
        scores=match.scores[allowed],
        turn=turn[allowed],
        limit=limit,
    )


def _retrieve(
    descriptions: Sequence[DifferenceRow],
    candidates: list[Candidate],
    truth: KnownContent,
    limit: int,
) -> RejectedTextRow | Dropped:
    """Return the first candidate that is not true, with the number of true ones before it.

    ``descriptions`` are those of the pair, the one to reject first. Candidates that name an object
    of the images are tried first.
    """
    description = descriptions[0]
    if truth.graphs is not None:
        looks = _object_looks(truth.graphs)
        candidates = sorted(candidates, key=lambda candidate: not _names_any(candidate[0], looks))
    for skipped, (row, score) in enumerate(candidates):
        claims = CLAIMS.validate_json(row.claims)
        true = _truth_here(row, claims, descriptions, truth)
        if not true:
            return rejected_row(
                description,
                row.text,
                maker="retrieved",
                note=f"of pair {row.subject}",
                true=true,
                score=score,
                skipped_true=skipped,
                claims=claims,
            )
    reason = NO_OTHER
    if candidates:
        reason = "all similar descriptions are true"
        if len(candidates) >= limit:
            reason += f" (rejected_texts.max_candidates={limit})"
    return Dropped(
        source_key=description.key,
        reason=reason,
        detail=f"{len(candidates)} tried",
    )


def _truth_here(
    row: DifferenceRow,
    claims: tuple[Claim, ...],
    descriptions: Sequence[DifferenceRow],
    truth: KnownContent,
) -> bool | None:
    """Return whether a candidate is true of the described pair; ``None``: unknown."""
    # Of two texts without a change, one may be true of the other's pair.
    if descriptions[0].no_change and row.no_change:
        return True
    true = truth.judge(claims)
    return is_as_true(row.halves, descriptions, truth) if true is None else true


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
    size = max(1, MOST_SCORES // len(index.rows))
    for start in range(0, len(rows), size):
        batch = rows[start : start + size]
        vectors = index.vectorizer.transform(" ".join(row.halves) for row in batch)
        scores = vectors @ index.vectors.T
        for row_index, row in enumerate(batch):
            span = slice(scores.indptr[row_index], scores.indptr[row_index + 1])
            yield Match(row, scores.indices[span], scores.data[span].round(9))


def _best(
    index: TextIndex,
    indices: Numbers,
    *,
    scores: Numbers,
    turn: Numbers,
    limit: int,
) -> list[Candidate]:
    """Return at most ``limit`` descriptions by turn, then similarity, then key."""
    if len(scores) > limit:
        least = np.partition(scores, -limit)[-limit]
        enough = (turn < len(index.rows)) | (scores >= least)
        indices = indices[enough]
        scores = scores[enough]
        turn = turn[enough]
    order = np.lexsort((indices, -scores, turn))[:limit]
    return [(index.rows[indices[rank]], float(scores[rank])) for rank in order]


STAGE = Stage(
    name="retrieved",
    version=8,
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=retrieve_texts,
    config=lambda profile: profile.complete(profile.rejected_texts),
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
