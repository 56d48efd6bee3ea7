"""The verbs of export: export, formats."""

from typing import Annotated

import typer
from typer import Argument, Option

from pairwright.flows.verbs import options
from pairwright.flows.verbs.options import app

Names = list[str] | None


@app.command(
    epilog="Examples: `pairwright export dataset --format trl --to dataset-trl --split train "
    "--verify`, `pairwright export dataset --table pairs --to dataset-pairs`, `pairwright export "
    "dataset --to dataset-hf --push-to-hub me/dataset --private`"
)
def export(
    dataset: options.DatasetUrl,
    to: Annotated[
        str,
        Option(
            metavar="FOLDER",
            callback=options.refuse_empty,
            help="Folder to write: a new name, or an earlier export.",
        ),
    ],
    form: Annotated[
        str,
        Option(
            "--format",
            "-f",
            help="hf, trl, llamafactory, ms-swift, rlaif-v, llava, webdataset, openai-batch, grpo, "
            "edit, omniedit, fiftyone or label-studio (`pairwright formats`).",
        ),
    ] = "hf",
    table: Annotated[
        str,
        Option(
            help="hf: another table with its images: images, masks, pairs, captions, differences, "
            "comparisons or questions."
        ),
    ] = "",
    licence: Annotated[
        Names,
        Option(
            help="Only rows with all images under this licence; `unstated`: without one "
            "(repeatable)."
        ),
    ] = None,
    source: Annotated[
        Names, Option(help="Only rows with images from this kind of source (repeatable).")
    ] = None,
    split: Annotated[
        Names, Option(help="Only this split: train, validation or test (repeatable).")
    ] = None,
    kind: Annotated[
        Names,
        Option(
            help="Only rows about a `pair` or one `image`, with texts of this kind (`list`, ...), "
            "or with a rejected text or image from this maker: `edited`, `removal`, ... "
            "(repeatable: any of them)."
        ),
    ] = None,
    score: Annotated[
        float | None, Option(help="Only rows with a rejected image of at least this score.")
    ] = None,
    accepted: Annotated[
        bool,
        Option(
            "--accepted", help="Only rows that people accepted or edited (`pairwright decide`)."
        ),
    ] = False,
    version: options.Version = None,
    model: Annotated[str, Option(help="openai-batch: model of the requests.")] = "",
    verify: Annotated[
        bool,
        Option(
            "--verify", help="Read the result as its consumer does; fail on the first invalid row."
        ),
    ] = False,
    push_to_hub: options.PushToHub = "",
    private: options.Private = False,
    revision: Annotated[str, Option(help="With --push-to-hub: a branch, created if missing.")] = "",
) -> None:
    """Export a dataset in the format of another program."""
    from pairwright.flows.building.progress import show_steps
    from pairwright.flows.versions.export_dataset import ExportConfig, Selection
    from pairwright.tasks.export.formats import choose_form

    if revision and not push_to_hub:
        raise typer.BadParameter("--revision needs --push-to-hub")
    send = options.to_hub(push_to_hub, private=private, revision=revision)
    selection = Selection(
        licences=tuple(licence or ()),
        sources=tuple(source or ()),
        splits=tuple(split or ()),
        kinds=tuple(kind or ()),
        score=score,
        accepted=accepted,
    )
    config = ExportConfig(selection=selection, table=table, model=model, verify=verify)
    with show_steps("Rows") as watch:
        tally = options.open_dataset(dataset, version).export(form, to, config=config, watch=watch)
    chosen = choose_form(form, table)
    sizes = ", ".join(f"{split} {rows:,}" for split, (rows, _) in tally.sizes.items())
    left_out = f"; {tally.left_out:,} others are left out" if tally.left_out else ""
    print(f"{tally.rows:,} {chosen.reads} ({sizes}) are in {to}{left_out}")
    rewritten = tally.say_rewritten()
    if rewritten:
        print(f"{rewritten}: other programs would show them otherwise than models saw them")
    for note in tally.notes:
        print(f"Note: {note}")
    decided = tally.say_decided()
    if decided:
        print(f"Decisions about the selected rows: {decided}")
    if verify:
        print("Read back as its consumer does: all rows are valid")
    for why, number in tally.unheld.items():
        print(f"{number:,} more are left out: {why}")
    print(chosen.cannot)
    send(to)


@app.command(epilog="Examples: `pairwright formats`, `pairwright formats trl`")
def formats(form: Annotated[str, Argument(help="One format, to see how to use it.")] = "") -> None:
    """List the formats of `export`, with what each cannot hold."""
    from pairwright.tasks.export.formats import FORMATS, find_form

    if form:
        chosen = find_form(form)
        print(f"{chosen.name}: {chosen.about}\n\n{chosen.use}\n\n{chosen.cannot}")
        return
    for listed in FORMATS.values():
        print(f"{listed.name}\n    {listed.about}\n    {listed.cannot}")
