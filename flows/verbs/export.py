"""The verb that hands a dataset over: export."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from pairwright.flows.verbs.options import (
    DatasetUrl,
    Private,
    PushToHub,
    Version,
    app,
    open_dataset,
    refuse_empty,
    to_hub,
)

if TYPE_CHECKING:
    from pairwright.tasks.export.form import Form
    from pairwright.tasks.export.tally_rows import Tally

Names = list[str] | None


@app.command(
    epilog="Examples: `pairwright export dataset --format trl --to dataset-trl --split train --verify`, "
    "`pairwright export dataset --table pairs --to dataset-pairs`, "
    "`pairwright export dataset --to dataset-hf --push-to-hub me/dataset --private`"
)
def export(
    dataset: DatasetUrl,
    to: Annotated[
        str, Option(metavar="FOLDER", callback=refuse_empty, help="Folder to write: a new name, or an earlier export.")
    ],
    form: Annotated[
        str,
        Option(
            "--format",
            "-f",
            help="hf, trl, llamafactory, ms-swift, rlaif-v, llava, webdataset or openai-batch (`pairwright formats`).",
        ),
    ] = "hf",
    table: Annotated[
        str,
        Option(
            help="hf: another table with its images: pairs, captions, differences, comparisons or questions. "
            "Default: what the format holds."
        ),
    ] = "",
    licence: Annotated[
        Names, Option(help="Only rows all of whose images are under this licence; `unstated`: under none (repeatable).")
    ] = None,
    source: Annotated[Names, Option(help="Only rows whose images are from a source of this kind (repeatable).")] = None,
    split: Annotated[Names, Option(help="Only this split: train, validation or test (repeatable).")] = None,
    kind: Annotated[
        Names,
        Option(
            help="Only rows about a `pair` or one `image`, whose texts are of this kind (`template`, `list`, ...), or "
            "whose rejected text or image was made so: `edited`, `swapped`, `retrieved`, `removal`, `crop`, ... "
            "(repeatable: any of them)."
        ),
    ] = None,
    score: Annotated[
        float | None, Option(help="Only rows whose rejected images show a removal of at least this score.")
    ] = None,
    accepted: Annotated[
        bool, Option("--accepted", help="Only rows that people accepted or edited (`pairwright decide`).")
    ] = False,
    version: Version = None,
    negatives: Annotated[
        str, Option(help="With the negatives that this ADPO run has mined (`train --set negatives_from=RUN`).")
    ] = "",
    model: Annotated[str, Option(help="openai-batch: the model that the requests ask.")] = "",
    verify: Annotated[
        bool, Option("--verify", help="Read the result as its consumer does; fail on the first row that is no good.")
    ] = False,
    processor: Annotated[
        str, Option(help="With --verify: measure rows in the tokens of this model (folder or name).")
    ] = "",
    max_length: Annotated[int, Option(min=0, help="Most tokens of a row. Default: what the processor states.")] = 0,
    push_to_hub: PushToHub = "",
    private: Private = False,
    revision: Annotated[str, Option(help="With --push-to-hub: a branch; made where there is none.")] = "",
) -> None:
    """Write a dataset in a form that other programs read."""
    from pairwright.flows.export_dataset import ExportConfig, Selection
    from pairwright.flows.progress import show_steps
    from pairwright.tasks.export.formats import choose_form

    named = {"licences": licence, "sources": source, "splits": split, "kinds": kind}
    some: dict[str, Any] = {name: tuple(values or ()) for name, values in named.items()}
    if not verify and (processor or max_length):
        raise typer.BadParameter("--processor and --max-length go with --verify")
    if revision and not push_to_hub:
        raise typer.BadParameter("--revision goes with --push-to-hub")
    send = to_hub(push_to_hub, private=private, revision=revision)
    selection = Selection(**some, score=score, accepted=accepted)
    verifying: dict[str, Any] = {"verify": verify, "processor": processor, "max_length": max_length}
    config = ExportConfig(selection=selection, table=table, negatives=negatives, model=model, **verifying)
    with show_steps("Rows") as watch:
        tally = open_dataset(dataset, version).export(form, to, config=config, watch=watch)
    _print_tally(tally, choose_form(form, table), to, verified=verify)
    send(to)


def _print_tally(tally: "Tally", form: "Form", to: str, *, verified: bool) -> None:
    sizes = ", ".join(f"{split} {rows:,}" for split, (rows, _) in tally.sizes.items())
    left_out = f"; {tally.left_out:,} others are left out" if tally.left_out else ""
    print(f"{tally.rows:,} {form.reads} ({sizes}) are in {to}{left_out}")
    if said := tally.say_decided():
        print(f"People said of the selected rows: {said}")
    if verified:
        print("Read back as its consumer does: all rows are good")
    for why, number in tally.unheld.items():
        print(f"{number:,} more are left out: {why}")
    print(form.cannot)


@app.command(epilog="Examples: `pairwright formats`, `pairwright formats trl`")
def formats(form: Annotated[str, Argument(help="One format, to see how its reader is started.")] = "") -> None:
    """List the formats of `export`: what each is, and what it cannot hold."""
    from pairwright.tasks.export.formats import FORMATS, find_form

    if form:
        found = find_form(form)
        print(f"{found.name}: {found.about}\n\n{found.use}\n\n{found.cannot}")
        return
    for found in FORMATS.values():
        print(f"{found.name}\n    {found.about}\n    {found.cannot}")
