"""Export the preferences of a dataset to a local folder, in one of the forms that other programs read.

Reads live ``PreferenceRow``, or ``ComparisonRow`` with the images of their pairs; writes a form's files, ``README.md``
and a marker by which a later export knows that it may replace the folder. Rows pass by one row group at a time, in the
order of the parts. Needs a local disk.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pairwright.schemas.arrow import from_table, schema_of
from pairwright.schemas.decisions import UNDECIDED, Decisions, edit_row
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import ComparisonRow, ImageRow, PairRow, PreferenceRow, SplitRow
from pairwright.tasks.export.form import Form, RowWriter, Setting, UnheldError
from pairwright.tasks.export.formats import README, check_target, write_marker
from pairwright.tasks.export.tally_rows import EVERYTHING, About, Selection, Tally
from pairwright.tasks.export.verify import Verifier
from pairwright.tasks.export.write_card import write_readme
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.scratch import replacing
from pairwright.tasks.store.snapshot import find_live, stream_live
from pairwright.tasks.store.stage import Planned


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is exported, and how."""

    form: Form
    about: About
    setting: Setting
    selection: Selection = EVERYTHING
    decisions: Decisions = UNDECIDED
    """What people said of the rows: rejected ones are left out, edited ones have their new texts."""
    total: int = 0
    """Rows that pass by, selected or not."""
    verifier: Verifier | None = None
    """Reads what was written before it takes the target's place; None: nobody does."""


def export_rows(
    groups: Iterable[Sequence[PreferenceRow]], target: Path, *, order: Order, watch: Callable[[int, int], None]
) -> Tally:
    """Write rows, or those selected; the folder has them all under its final name, or is as it was.

    ``watch`` hears how many rows have passed by, of how many. ``ConfigError``: the target holds something else, or
    there are no such rows; ``ValidationError``: a row would not train.
    """
    check_target(target)
    with replacing(target) as folder:
        tally = Tally()
        with order.form.opens(folder, order.setting) as writer:
            for rows in groups:
                for row in rows:
                    _write_row(row, writer, order=order, tally=tally)
                watch(tally.seen, order.total)
        tally.sizes = dict(writer.sizes())
        if not tally.rows:
            raise ConfigError(tally.why_nothing(order.form.name))
        (folder / README).write_text(write_readme(folder, order.form, order.about, tally), encoding="utf-8")
        write_marker(folder, form=order.form.name, version=order.about.version, rows=tally.rows)
        if order.verifier:
            order.verifier.verify(folder, sum(rows for rows, _ in tally.sizes.values()), watch)
    return tally


def stream_preferences(build: Build, preferences: Planned) -> Iterator[list[PreferenceRow]]:
    """Yield the live preferences of a settled stage, a row group at a time."""
    for table in stream_live(build, preferences, schema_of(PreferenceRow).names):
        yield list(from_table(table, PreferenceRow))


def stream_conversations(build: Build, stages: Mapping[str, Planned]) -> Iterator[list[PreferenceRow]]:
    """Yield the conversations of settled stages as preferences that reject nothing; without splits, for training."""
    for table in stream_live(build, stages["comparisons"], schema_of(ComparisonRow).names):
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
        pair, split = pairs[row.subject], splits.get(row.subject)
        shown = [images[pair.first], images[pair.second]]
        *asked, answer = row.conversation
        yield PreferenceRow(
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


def _write_row(row: PreferenceRow, writer: RowWriter, *, order: Order, tally: Tally) -> None:
    """Write a row unless it is not selected, a person rejected it, or the form cannot hold it."""
    decision = order.decisions.about(row)
    verdict = decision.verdict if decision else ""
    if not order.selection.keeps(row, decision):
        tally.leave_out(row, verdict)
        return
    if verdict == "reject":
        tally.decided[verdict] += 1
        return
    try:
        final = edit_row(row, decision) if decision else row
        if verdict == "edit" and final.rejected.strip() == final.chosen.strip():
            raise UnheldError("an edit made the chosen and the rejected text the same")
        writer.add(final)
    except UnheldError as why:
        tally.unheld[str(why)] += 1
    else:
        tally.add(final)
        tally.decided[verdict] += 1
