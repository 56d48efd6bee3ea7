"""Descriptions of a collection as rejected texts of other pairs, and whether they are true there.

A text comes from the pair's own split, and occurs word for word in no other, or is a common
sentence (``common_texts``): training must not reject texts that are right of a held-out pair.
People's texts get people's texts. The makers "retrieved" and "random" choose from this pool.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairwright.schemas.arrow import from_table, schema_of
from pairwright.schemas.claims import CLAIMS, Claim
from pairwright.schemas.plain_text import plain_text
from pairwright.schemas.rows import DifferenceRow, Dropped, RejectedTextRow, SplitRow
from pairwright.tasks.rejected.check_texts import (
    TRUTH_USES,
    KnownContent,
    is_as_true,
    rejected_row,
)
from pairwright.tasks.store.stage import Uses
from pairwright.tasks.texts.common_texts import find_common, may_say_no_change

DRAWN = ("subject", "split", "component")
NOWHERE = ("", "")  # split and component of a pair without any
SEVERAL = "several"  # split of a text that occurs in several splits
COMMON = "common"  # split of a common sentence
NO_OTHER = "no other description"
Numbers = NDArray[Any]
Drawn = Mapping[str, tuple[str, str]]  # split and component by pair
Candidate = tuple[DifferenceRow, float | None]
"""Description of another pair with its similarity; ``None``: not measured."""


@dataclass(frozen=True, slots=True)
class TextPool:
    """Different descriptions of a collection, ordered by key."""

    rows: list[DifferenceRow]
    by_pair: Mapping[str, Sequence[DifferenceRow]]  # all descriptions of each pair
    drawn: Drawn
    subjects: NDArray[np.str_]
    splits: NDArray[np.str_]
    is_given: NDArray[np.bool_]
    no_change: NDArray[np.bool_]
    components: NDArray[np.str_]  # component of its pair: of rendered scenes, the world
    _groups: dict[tuple[str, bool, bool], Numbers] = field(
        default_factory=dict[tuple[str, bool, bool], Numbers], repr=False
    )

    def split_of(self, row: DifferenceRow) -> str:
        """Return the split of a description's pair."""
        return self.drawn.get(row.subject, NOWHERE)[0]

    def component_of(self, row: DifferenceRow) -> str:
        """Return the component of a description's pair."""
        return self.drawn.get(row.subject, NOWHERE)[1]

    def allowed(self, row: DifferenceRow, indices: Numbers) -> NDArray[np.bool_]:
        """Return which of some texts may be rejected texts of a description."""
        allowed = (self.splits[indices] == self.split_of(row)) | (self.splits[indices] == COMMON)
        allowed &= self.subjects[indices] != row.subject
        allowed &= self.is_given[indices] == row.is_given
        if states_no_change(row):
            allowed &= ~self.no_change[indices]
        return allowed

    def descriptions_of(self, row: DifferenceRow) -> list[DifferenceRow]:
        """Return the descriptions of a description's pair, itself first."""
        others = [other for other in self.by_pair.get(row.subject, ()) if other.key != row.key]
        return [row, *others]

    def draw(self, row: DifferenceRow, rng: Random, count: int) -> list[Candidate]:
        """Return at most ``count`` allowed texts, drawn at random; changes for an unchanged pair.

        Every text is equally likely, however many pairs have it.
        """
        group = self._group_of(row)
        own = len(self.by_pair.get(row.subject, ()))  # at most so many of the group are not allowed
        drawn = rng.sample(range(len(group)), min(count + own, len(group)))
        indices = group[drawn]
        allowed = indices[self.subjects[indices] != row.subject][:count].tolist()
        return [(self.rows[index], None) for index in allowed]

    def _group_of(self, row: DifferenceRow) -> Numbers:
        """Return the texts that descriptions like this one may get, but for their pair's own."""
        key = (self.split_of(row), row.is_given, states_no_change(row))
        if key not in self._groups:
            split, is_given, is_unchanged = key
            allowed = (self.splits == split) | (self.splits == COMMON)
            allowed &= self.is_given == is_given
            if is_unchanged:
                allowed &= ~self.no_change
            self._groups[key] = np.flatnonzero(allowed)
        return self._groups[key]


def pool_texts(everything: pa.Table, splits: pa.Table, limit: int) -> TextPool:
    """Return the pool of the first ``limit`` descriptions by pair; equal texts count once.

    ``splits`` has the columns ``DRAWN`` of every pair.
    """
    drawn = _read_drawn(splits)
    described = _read_descriptions(everything, limit)
    by_pair: dict[str, list[DifferenceRow]] = defaultdict(list)
    for row in described:
        by_pair[row.subject].append(row)
    # Keys are hashes: the first ones are a fair sample, whatever the order of the collection.
    by_text = {row.text: row for row in reversed(described)}
    rows = sorted(by_text.values(), key=attrgetter("key"))
    components = [drawn.get(row.subject, NOWHERE)[1] for row in rows]
    return TextPool(
        rows=rows,
        by_pair=by_pair,
        drawn=drawn,
        subjects=np.array([row.subject for row in rows], np.str_),
        splits=np.array(_splits_of_texts(rows, described, drawn), np.str_),
        is_given=np.array([row.is_given for row in rows], bool),
        no_change=np.array([states_no_change(row) for row in rows], bool),
        components=np.array(components, np.str_),
    )


def _read_drawn(splits: pa.Table) -> Drawn:
    subjects, names, components = (splits.column(name).to_pylist() for name in DRAWN)
    return dict(zip(subjects, zip(names, components, strict=True), strict=True))


def _read_descriptions(everything: pa.Table, limit: int) -> list[DifferenceRow]:
    """Return the first descriptions by pair, ordered by key."""
    by_subject = everything.sort_by([("subject", "ascending"), ("key", "ascending")])
    return sorted(from_table(by_subject[:limit], DifferenceRow), key=attrgetter("key"))


def _splits_of_texts(
    rows: Sequence[DifferenceRow], everything: Sequence[DifferenceRow], drawn: Drawn
) -> list[str]:
    """Return the split in which each text occurs; ``COMMON`` or ``SEVERAL`` of several."""
    splits_by_text = defaultdict[str, set[str]](set)
    located: list[tuple[str, str, str]] = []
    for row in everything:
        split, _ = drawn.get(row.subject, NOWHERE)
        splits_by_text[plain_text(row.text)].add(split)
        located.append((split, row.subject, row.text))
    common = find_common(located)
    splits: list[str] = []
    for row in rows:
        plain = plain_text(row.text)
        names = splits_by_text[plain]
        several = COMMON if plain in common else SEVERAL
        splits.append(min(names) if len(names) == 1 else several)
    return splits


def states_no_change(row: DifferenceRow) -> bool:
    """Return whether a description states that nothing changed; a person's, also in part."""
    return row.no_change or (row.is_given and may_say_no_change(row.text))


def take_false(
    descriptions: Sequence[DifferenceRow],
    candidates: Sequence[Candidate],
    truth: KnownContent,
    *,
    maker: str,
    limit: str,
) -> RejectedTextRow | Dropped:
    """Return the first candidate that is not true, with the number of true ones before it.

    ``descriptions`` are those of the pair, the one to reject first. ``limit``: the setting of the
    number of candidates, if there were as many; empty: fewer.
    """
    description = descriptions[0]
    for skipped, (row, score) in enumerate(candidates):
        claims = CLAIMS.validate_json(row.claims)
        true = _truth_here(row, claims, descriptions, truth)
        if not true:
            return rejected_row(
                description,
                row.text,
                maker=maker,
                note=f"of pair {row.subject}",
                true=true,
                score=score,
                skipped_true=skipped,
                claims=claims,
            )
    reason = NO_OTHER
    if candidates:
        reason = "all similar descriptions are true"
        if limit:
            reason += f" ({limit}={len(candidates)})"
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
    """Return whether a candidate is true of the described pair; ``None``: unknown.

    Of two texts without a change, one may be true of the other's pair. Of people's texts, a change
    is false of a pair of which all say that nothing changed, and the other way round.
    """
    are_unchanged = {states_no_change(description) for description in descriptions}
    is_unchanged = states_no_change(row)
    if is_unchanged and states_no_change(descriptions[0]):
        return True
    true = truth.judge(claims)
    if true is not None:
        return true
    if row.is_given and is_unchanged not in are_unchanged:
        return False
    return is_as_true(row.halves, descriptions, truth)


POOL_USES = (
    Uses(table="differences", row=DifferenceRow, kind="table", name="everything"),
    Uses(
        table="splits",
        row=SplitRow,
        kind="table",
        without=tuple(name for name in schema_of(SplitRow).names if name not in DRAWN),
    ),
    *TRUTH_USES,
)
