"""Export the preferences of a dataset to a local folder, in the format of another program.

Reads live ``PreferenceRow``, or the rows of another table with their images; writes a form's files,
``README.md`` and a marker that allows a later export to replace the folder. Rows are read one row
group at a time, in the order of the parts. Needs a local disk.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pairwright.schemas.arrow import from_table, schema_of
from pairwright.schemas.decisions import UNDECIDED, Decisions, edit_row
from pairwright.schemas.errors import ConfigError, ValidationError
from pairwright.schemas.rows import ImageRow, PairRow, PreferenceRow, SplitRow, Turn
from pairwright.tasks.export.form import (
    BrokenRowError,
    ExportSettings,
    Form,
    RowWriter,
    UnheldError,
)
from pairwright.tasks.export.formats import check_target, write_marker
from pairwright.tasks.export.forms.table import INTERNAL, ShownRow
from pairwright.tasks.export.parquet import image_cell
from pairwright.tasks.export.tally_rows import EVERYTHING, ExportedDataset, Selection, Tally
from pairwright.tasks.export.write_card import write_readme
from pairwright.tasks.store.build import Build
from pairwright.tasks.store.index import columns_without
from pairwright.tasks.store.manifest import README
from pairwright.tasks.store.scratch import replacing
from pairwright.tasks.store.snapshot import find_live, stream_live
from pairwright.tasks.store.stage import Planned


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of an export."""

    form: Form
    about: ExportedDataset
    setting: ExportSettings
    selection: Selection = EVERYTHING
    decisions: Decisions = (
        UNDECIDED  # about the rows: rejected ones are left out, edited ones have their new texts
    )
    total: int = 0  # rows of the table, selected or not
    verify: bool = False  # whether the result is read back before it replaces the target
    processor: Any = (
        None  # processor for the consumer's own code, if the form needs one to be read back
    )


def export_rows(
    groups: Iterable[Sequence[PreferenceRow]],
    target: Path,
    *,
    order: ExportOptions,
    watch: Callable[[int, int], None],
) -> Tally:
    """Write the selected rows; afterwards the folder has all of them, or is unchanged.

    ``watch`` is called with the rows read so far and their total. ``ConfigError``: the target holds
    something else, or no row is selected; ``ValidationError``: a row would not train.
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
        (folder / README).write_text(
            write_readme(folder, order.form, order.about, tally), encoding="utf-8"
        )
        write_marker(folder, form=order.form.name, version=order.about.version, rows=tally.rows)
        if order.verify:
            verify_export(folder, order.form, order.processor, tally, watch)
    return tally


def verify_export(
    folder: Path, form: Form, processor: Any, tally: Tally, watch: Callable[[int, int], None]
) -> None:
    """Read all rows as their consumer does; ``ValidationError`` names the first that would not train."""
    rows, read = sum(rows for rows, _ in tally.sizes.values()), 0
    try:
        for read, _ in enumerate(form.check(folder, processor), start=1):
            watch(read, rows)
    except BrokenRowError as error:
        raise ValidationError(
            f"--format {form.name}: a row would not train: {error}. The export is not kept"
        ) from error
    if read != rows:
        raise ValidationError(
            f"--format {form.name}: {rows:,} rows were written and {read:,} are read back. The export is not kept"
        )


def stream_preferences(build: Build, preferences: Planned) -> Iterator[list[PreferenceRow]]:
    """Yield the live preferences of a settled stage, a row group at a time."""
    for table in stream_live(build, preferences, schema_of(PreferenceRow).names):
        yield list(from_table(table, PreferenceRow))


def stream_table(
    build: Build, stages: Mapping[str, Planned], name: str, decisions: Decisions = UNDECIDED
) -> Iterator[list[ShownRow]]:
    """Yield the rows of a settled stage with their images, as preferences without a rejected side.

    The last answer of a conversation is the chosen text, the turns before it are the prompt. A row
    without a split is for training.
    """
    for table in stream_live(
        build, stages[name], columns_without(stages[name].stage.writes, INTERNAL)
    ):
        records = table.to_pylist()
        subjects = [record["subject"] for record in records]
        pairs = find_live(build, stages["pairs"], PairRow, subjects=subjects)
        about = {subject: [subject] for subject in subjects} | {
            pair.key: [pair.first, pair.second] for pair in pairs
        }
        found = (
            find_live(build, stages["splits"], SplitRow, subjects=subjects)
            if "splits" in stages
            else []
        )
        splits = {split.subject: split for split in found}
        keys = [key for both in about.values() for key in both]
        read = find_live(
            build, stages["images"], ImageRow, subjects=keys, without=("captions", "graph")
        )
        images = {image.key: image for image in read}
        yield [
            _show(
                record,
                [images[key] for key in about[record["subject"]]],
                splits.get(record["subject"]),
                decisions,
            )
            for record in records
        ]


def _show(
    record: Mapping[str, Any],
    shown: Sequence[ImageRow],
    split: SplitRow | None,
    decisions: Decisions,
) -> ShownRow:
    *asked, answer = [
        Turn(**turn) for turn in record.get("conversation", [{"role": "assistant", "text": ""}])
    ]
    row = ShownRow(
        record=record,
        key=record["key"],
        source_key=record["key"],
        subject=record["subject"],
        prompt=tuple(asked),
        images=tuple(image.image for image in shown),
        image_keys=tuple(image.key for image in shown),
        chosen=answer.text,
        chosen_model=record.get("model", ""),
        component=split.component if split else "",
        split=split.split if split else record.get("split") or "train",
        sources=tuple(image.source for image in shown),
        licences=tuple(image.licence for image in shown),
    )
    decision = decisions.about(row)
    beside = {
        "images": [image_cell(image.image, image.key) for image in shown],
        "names": [image.name for image in shown],
        "sources": row.sources,
        "licences": row.licences,
        "decision": decision.verdict if decision else "",
    }
    return replace(row, record={**record, **beside})


def _write_row(
    row: PreferenceRow, writer: RowWriter, *, order: ExportOptions, tally: Tally
) -> None:
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
