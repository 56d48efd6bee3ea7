"""Read the conversations of a dataset as rows to export: a conversation is a preference that rejects nothing.

Reads live ``ComparisonRow``, and of their pairs ``PairRow``, ``ImageRow`` and ``SplitRow``; a row group at a time.
"""

from collections.abc import Iterator, Mapping, Sequence

from pairwright.schemas.arrow import from_table, schema_of
from pairwright.schemas.rows import ComparisonRow, ImageRow, PairRow, PreferenceRow, SplitRow
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.snapshot import find_live, stream_live
from pairwright.tasks.store.stage import Planned

TABLE = "comparisons"


def stream_conversations(build: Build, stages: Mapping[str, Planned]) -> Iterator[list[PreferenceRow]]:
    """Yield the conversations of settled stages, by name; where pairs have no split, all are for training."""
    for table in stream_live(build, stages[TABLE], schema_of(ComparisonRow).names):
        yield list(_with_images(build, stages, list(from_table(table, ComparisonRow))))


def _with_images(build: Build, stages: Mapping[str, Planned], rows: Sequence[ComparisonRow]) -> Iterator[PreferenceRow]:
    subjects = [row.subject for row in rows]
    pairs = {pair.key: pair for pair in find_live(build, stages["pairs"], PairRow, subjects=subjects)}
    found = find_live(build, stages["splits"], SplitRow, subjects=subjects) if "splits" in stages else []
    splits = {split.subject: split for split in found}
    keys = [key for pair in pairs.values() for key in (pair.first, pair.second)]
    images = {
        image.key: image
        for image in find_live(build, stages["images"], ImageRow, subjects=keys, without=("captions", "graph"))
    }
    for row in rows:
        pair = pairs[row.subject]
        yield _conversation(row, [images[pair.first], images[pair.second]], splits.get(row.subject))


def _conversation(row: ComparisonRow, shown: Sequence[ImageRow], split: SplitRow | None) -> PreferenceRow:
    *asked, answer = row.conversation
    return PreferenceRow(
        key=row.key,
        source_key=row.source_key,
        subject=row.subject,
        prompt=tuple(asked),
        images=tuple(image.image for image in shown),
        image_keys=tuple(image.key for image in shown),
        chosen=answer.text,
        chosen_model=row.model,
        rejected="",
        rejected_maker="",
        rejected_note="",
        negatives=(),
        rejected_images=(),
        removal_scores=(),
        component=split.component if split else "",
        split=split.split if split else "train",
        sources=tuple(image.source for image in shown),
        licences=tuple(image.licence for image in shown),
    )
