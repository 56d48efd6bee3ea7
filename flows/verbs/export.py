"""The verb that hands a dataset over: export."""

from typing import Annotated

import typer

from flows.verbs.options import Dataset, Version, app

Names = list[str] | None
Form = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        help="hf, trl, llamafactory, ms-swift, rlaif-v, llava, webdataset or openai-batch (`pairwright formats`).",
    ),
]
Negatives = Annotated[
    str,
    typer.Option("--negatives", help="With the negatives that this ADPO run has mined (`train --set negatives=RUN`)."),
]
Licence = Annotated[
    Names,
    typer.Option(
        "--licence", help="Only rows all of whose images are under this licence; `unstated`: under none (repeatable)."
    ),
]
Source = Annotated[
    Names, typer.Option("--source", help="Only rows whose images are from a source of this kind (repeatable).")
]
Split = Annotated[Names, typer.Option("--split", help="Only this split: train, validation or test (repeatable).")]
Kind = Annotated[
    Names,
    typer.Option(
        "--kind",
        help="Only rows about a `pair` or one `image`, or whose rejected text or image was made so: `edited`, "
        "`swapped`, `retrieved`, `removal`, `crop`, ... (repeatable: any of them).",
    ),
]
Score = Annotated[
    float | None,
    typer.Option("--score", help="Only rows whose rejected images show a removal of at least this score."),
]
Model = Annotated[str, typer.Option("--model", help="openai-batch: the model that the requests ask.")]

Verify = Annotated[
    bool, typer.Option("--verify", help="Read the result as its consumer does; fail on the first row that is no good.")
]
Processor = Annotated[
    str, typer.Option("--processor", help="With --verify: measure rows in the tokens of this model (folder or name).")
]
Longest = Annotated[
    int, typer.Option("--longest", min=0, help="Most tokens of a row. Default: what the processor states.")
]


@app.command(epilog="Example: `pairwright export dataset --format trl --to dataset-trl --split train --verify`")
def export(
    dataset: Dataset,
    to: Annotated[str, typer.Option("--to", help="Folder to write: a new name, or an earlier export.")],
    form: Form = "hf",
    licence: Licence = None,
    source: Source = None,
    split: Split = None,
    kind: Kind = None,
    score: Score = None,
    version: Version = None,
    negatives: Negatives = "",
    model: Model = "",
    verify: Verify = False,
    processor: Processor = "",
    longest: Longest = 0,
) -> None:
    """Write a dataset in a form that other programs read."""
    from flows.export_dataset import Verifying, Wanted, export_dataset
    from flows.progress import count_steps
    from tasks.export.formats import find_form
    from tasks.export.select_rows import Selection
    from tasks.store.files import Folder

    selection = Selection(
        licences=tuple(licence or ()),
        sources=tuple(source or ()),
        splits=tuple(split or ()),
        kinds=tuple(kind or ()),
        score=score,
    )
    verifying = Verifying(processor=processor, longest=longest) if verify else None
    if not verify and (processor or longest):
        raise typer.BadParameter("--processor and --longest go with --verify")
    wanted = Wanted(selection=selection, version=version, negatives=negatives, model=model, verifying=verifying)
    with count_steps("Rows") as watch:
        tally = export_dataset(Folder(dataset), to, form=form, wanted=wanted, watch=watch)
    sizes = ", ".join(f"{split} {rows:,}" for split, (rows, _) in tally.sizes.items())
    left_out = f"; {tally.left_out:,} others are left out" if tally.left_out else ""
    print(f"{tally.rows:,} {find_form(form).reads} ({sizes}) are in {to}{left_out}")
    if verify:
        print("Read back as its consumer does: all rows are good")
    for why, number in tally.unheld.items():
        print(f"{number:,} more are left out: {why}")
    print(find_form(form).cannot)


@app.command(epilog="Examples: `pairwright formats`, `pairwright formats trl`")
def formats(form: Annotated[str, typer.Argument(help="One format, to see how its reader is started.")] = "") -> None:
    """List the formats of `export`: what each is, and what it cannot hold."""
    from tasks.export.formats import FORMATS, find_form

    if form:
        found = find_form(form)
        print(f"{found.name}: {found.about}\n\n{found.use}\n\n{found.cannot}")
        return
    for found in FORMATS.values():
        print(f"{found.name}\n    {found.about}\n    {found.cannot}")
