"""Export the preferences of a dataset to a local folder, in the format of another program.

Reads live ``PreferenceRow``, or the rows of another table with their images; writes a form's files,
``README.md`` and a marker that allows a later export to replace the folder. Rows are read one row
group at a time, in the order of the parts. Images that other programs would show otherwise than
models saw them are written anew (``tasks.images.plain``). Needs a local disk.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pairwright.schemas.arrow import from_table, schema_of
from pairwright.schemas.decisions import UNDECIDED, Decisions, edit_row
from pairwright.schemas.errors import ConfigError, ValidationError
from pairwright.schemas.rows import (
    DifferenceRow,
    ImageRow,
    PairRow,
    PreferenceRow,
    SplitRow,
    Turn,
)
from pairwright.tasks.export.form import (
    BrokenRowError,
    ExportSettings,
    Form,
    RowWriter,
    UnheldError,
    refuse_control_rows,
)
from pairwright.tasks.export.formats import check_target, write_marker
from pairwright.tasks.export.forms.table import BYTES, INTERNAL, OF_IMAGES, ShownRow
from pairwright.tasks.export.paired_row import as_paired, find_edits
from pairwright.tasks.export.tally_rows import EVERYTHING, ExportedDataset, Selection, Tally
from pairwright.tasks.export.write_card import write_readme
from pairwright.tasks.images.regions import list_regions, same_world
from pairwright.tasks.store.index import columns_without
from pairwright.tasks.store.manifest import README
from pairwright.tasks.store.open_tables import Build
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
    decisions: Decisions = UNDECIDED
    """Decisions about the rows: rejected ones are left out, edited ones have their new texts."""
    total: int = 0
    """Rows of the table, selected or not."""
    verify: bool = False
    """Whether the result is read back before it replaces the target."""
    processor: Any = None
    """Processor for the consumer's own code, if the form needs one to be read back."""


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
        tally = Tally(notes=order.about.notes)
        with order.form.opens(folder, order.setting) as writer:
            for rows in groups:
                for row in rows:
                    _write_row(row, writer, order=order, tally=tally)
                watch(tally.seen, order.total)
        tally.sizes = dict(writer.sizes())
        if not tally.rows:
            raise ConfigError(tally.explain_empty(order.form.name))
        readme = write_readme(folder, order.form, order.about, tally)
        (folder / README).write_text(readme, encoding="utf-8")
        write_marker(folder, form=order.form.name, version=order.about.version, rows=tally.rows)
        if order.verify:
            verify_export(folder, order.form, order.processor, tally, watch)
    return tally


def verify_export(
    folder: Path, form: Form, processor: Any, tally: Tally, watch: Callable[[int, int], None]
) -> None:
    """Read all rows as their consumer does; ``ValidationError`` names one that would not train."""
    written = sum(rows for rows, _ in tally.sizes.values())
    read = 0
    try:
        for _ in form.check(folder, processor):
            read += 1
            watch(read, written)
    except BrokenRowError as error:
        raise ValidationError(
            f"--format {form.name}: a row would not train: {error}. The export is not kept"
        ) from error
    if read != written:
        raise ValidationError(
            f"--format {form.name}: {written:,} rows were written and {read:,} are read back. "
            "The export is not kept"
        )


def stream_preferences(
    build: Build, preferences: Planned, stages: Mapping[str, Planned] | None = None
) -> Iterator[list[PreferenceRow]]:
    """Yield the live preferences of a stage, a row group at a time.

    With the ``stages`` of the build, each has what is known of its pair.
    """
    for table in stream_live(build, preferences, schema_of(PreferenceRow).names):
        rows = list(from_table(table, PreferenceRow))
        if stages is None:
            yield rows
            continue
        known = find_known(build, stages, [row.subject for row in rows])
        yield [replace(as_paired(row), **known.get(row.subject, {})) for row in rows]


def find_known(
    build: Build, stages: Mapping[str, Planned], subjects: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return what is known of some pairs, as fields of ``PairedRow``."""
    if "pairs" not in stages:
        return {}
    pairs = list(find_live(build, stages["pairs"], PairRow, subjects=subjects))
    image_keys: list[str] = []
    for pair in pairs:
        image_keys += (pair.first, pair.second)
    rows = find_live(
        build, stages["images"], ImageRow, subjects=image_keys, without=("image", "captions")
    )
    images = {row.key: row for row in rows}
    texts: dict[str, str] = {}
    if "differences" in stages:
        for row in find_live(build, stages["differences"], DifferenceRow, subjects=subjects):
            texts[row.subject] = row.text
    known: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        both = (images[pair.first], images[pair.second])
        graphs = (both[0].graph, both[1].graph)
        sources = [image.source for image in both]
        known[pair.key] = {
            "regions": list_regions(pair, graphs),
            "edits": find_edits(pair, graphs, sources),
            "difference": texts.get(pair.key, ""),
            "graphs": same_world(graphs),
        }
    return known


def stream_table(
    build: Build, stages: Mapping[str, Planned], name: str, decisions: Decisions = UNDECIDED
) -> Iterator[list[ShownRow]]:
    """Yield the rows of a table with their images, as preferences without a rejected side.

    The last answer of a conversation is the chosen text, the turns before it are the prompt. A row
    without a split is for training.
    """
    table_stage = stages[name]
    columns = columns_without(table_stage.stage.writes, (*INTERNAL, *BYTES))
    for table in stream_live(build, table_stage, columns):
        records = table.to_pylist()
        subjects = [record["subject"] for record in records]
        images = _find_images(build, stages, subjects)
        splits = _find_splits(build, stages, subjects)
        known: dict[str, dict[str, Any]] = {}
        if name not in OF_IMAGES:
            known = find_known(build, stages, subjects)
        rows: list[ShownRow] = []
        for record in records:
            subject = record["subject"]
            row = _show_row(record, images[subject], splits.get(subject), decisions)
            rows.append(replace(row, **known.get(subject, {})))
        yield rows


def _find_images(
    build: Build, stages: Mapping[str, Planned], subjects: Sequence[str]
) -> dict[str, list[ImageRow]]:
    """Return the two images of each subject that is a pair, or the image of any other."""
    keys = {subject: [subject] for subject in subjects}
    if "pairs" in stages:
        for pair in find_live(build, stages["pairs"], PairRow, subjects=subjects):
            keys[pair.key] = [pair.first, pair.second]
    image_keys = [key for subject_keys in keys.values() for key in subject_keys]
    rows = find_live(
        build, stages["images"], ImageRow, subjects=image_keys, without=("captions", "graph")
    )
    by_key = {image.key: image for image in rows}
    images: dict[str, list[ImageRow]] = {}
    for subject in subjects:
        images[subject] = [by_key[key] for key in keys[subject]]
    return images


def _find_splits(
    build: Build, stages: Mapping[str, Planned], subjects: Sequence[str]
) -> dict[str, SplitRow]:
    """Return the splits of the subjects; empty without a table of splits."""
    if "splits" not in stages:
        return {}
    rows = find_live(build, stages["splits"], SplitRow, subjects=subjects)
    return {row.subject: row for row in rows}


def _show_row(
    record: Mapping[str, Any],
    images: Sequence[ImageRow],
    split: SplitRow | None,
    decisions: Decisions,
) -> ShownRow:
    no_text = [{"role": "assistant", "text": ""}]
    conversation = [Turn(**turn) for turn in record.get("conversation", no_text)]
    *prompt, answer = conversation
    component = ""
    split_name = record.get("split") or "train"
    if split:
        component = split.component
        split_name = split.split
    row = ShownRow(
        record=record,
        key=record["key"],
        source_key=record["key"],
        subject=record["subject"],
        prompt=tuple(prompt),
        images=tuple(image.image for image in images),
        image_keys=tuple(image.key for image in images),
        chosen=answer.text,
        chosen_model=record.get("model", ""),
        component=component,
        split=split_name,
        sources=tuple(image.source for image in images),
        licences=tuple(image.licence for image in images),
    )
    decision = decisions.decision_on(row)
    shown_columns = {
        "names": [image.name for image in images],
        "sources": row.sources,
        "licences": row.licences,
        "decision": decision.verdict if decision else "",
    }
    return replace(row, record={**record, **shown_columns})


def _write_row(
    row: PreferenceRow, writer: RowWriter, *, order: ExportOptions, tally: Tally
) -> None:
    """Write a row unless it is not selected, a person rejected it, or the form cannot hold it."""
    decision = order.decisions.decision_on(row)
    verdict = decision.verdict if decision else ""
    if not order.selection.keeps(row, decision):
        tally.count_left_out(row, verdict)
        return
    if verdict == "reject":
        tally.decided[verdict] += 1
        return
    try:
        final = edit_row(row, decision) if decision else row
        if verdict == "edit" and final.rejected.strip() == final.chosen.strip():
            raise UnheldError("an edit made the chosen and the rejected text the same")
        refuse_control_rows(final)
        plain = tally.plain.make_row(final)
        writer.add(plain)
    except UnheldError as why:
        tally.unheld[str(why)] += 1
    else:
        tally.count_row(plain)
        tally.decided[verdict] += 1
