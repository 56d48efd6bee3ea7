"""The verb that hands a dataset over: export."""

from typing import Annotated

import typer

from flows.verbs.options import Dataset, Version, app

Negatives = Annotated[
    str,
    typer.Option("--negatives", help="With the negatives that this ADPO run has mined (`train --set negatives=RUN`)."),
]


@app.command(epilog="Example: `pairwright export dataset --format hf --to dataset-hf`")
def export(
    dataset: Dataset,
    to: Annotated[str, typer.Option("--to", help="Folder to write: a new name, or an earlier export.")],
    form: Annotated[str, typer.Option("--format", "-f", help="hf: Parquet that `datasets.load_dataset` reads.")] = "hf",
    licence: Annotated[
        list[str] | None,
        typer.Option(
            "--licence",
            help="Only rows all of whose images are under this licence; `unstated`: under none (repeatable).",
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="Only rows whose images are from a source of this kind (repeatable)."),
    ] = None,
    version: Version = None,
    negatives: Negatives = "",
) -> None:
    """Write a dataset in a form that other programs read."""
    from flows.export_dataset import export_dataset
    from tasks.export.select_rows import Selection
    from tasks.store.files import Folder

    selection = Selection(licences=tuple(licence or ()), sources=tuple(source or ()))
    tally = export_dataset(Folder(dataset), to, form=form, selection=selection, version=version, negatives=negatives)
    sizes = ", ".join(f"{split} {rows:,}" for split, (rows, _) in tally.sizes.items())
    left_out = f"; {tally.left_out:,} others are left out" if tally.left_out else ""
    print(f"{tally.rows:,} preferences ({sizes}) are in {to}{left_out}")
