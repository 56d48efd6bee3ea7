"""The verb that hands a dataset over: export."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pairwright.flows.verbs.options import STOPPED, DatasetUrl, Version, app, open_dataset, refuse_empty, shown_size

if TYPE_CHECKING:
    from pairwright.tasks.export.push_to_hub import Destination

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
    typer.Option(
        "--negatives", help="With the negatives that this ADPO run has mined (`train --set negatives_from=RUN`)."
    ),
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
        help="Only rows about a `pair` or one `image`, whose texts are of this kind (`template`, `list`, ...), or "
        "whose rejected text or image was made so: `edited`, `swapped`, `retrieved`, `removal`, `crop`, ... "
        "(repeatable: any of them).",
    ),
]
Score = Annotated[
    float | None,
    typer.Option("--score", help="Only rows whose rejected images show a removal of at least this score."),
]
Accepted = Annotated[
    bool, typer.Option("--accepted", help="Only rows that people accepted or edited (`pairwright decide`).")
]
Model = Annotated[str, typer.Option("--model", help="openai-batch: the model that the requests ask.")]

Verify = Annotated[
    bool, typer.Option("--verify", help="Read the result as its consumer does; fail on the first row that is no good.")
]
Processor = Annotated[
    str, typer.Option("--processor", help="With --verify: measure rows in the tokens of this model (folder or name).")
]
MaxLength = Annotated[
    int, typer.Option("--max-length", min=0, help="Most tokens of a row. Default: what the processor states.")
]
Push = Annotated[
    str,
    typer.Option(
        "--push-to-hub",
        help="Then send the folder to this dataset repository of Hugging Face's Hub, OWNER/NAME; made where there is "
        "none. Sent again, only what the Hub lacks goes out.",
    ),
]
Private = Annotated[bool, typer.Option("--private", help="With --push-to-hub: only its owner may see it.")]
Revision = Annotated[str, typer.Option("--revision", help="With --push-to-hub: a branch; made where there is none.")]


@app.command(
    epilog="Examples: `pairwright export dataset --format trl --to dataset-trl --split train --verify`, "
    "`pairwright export dataset --to dataset-hf --push-to-hub me/dataset --private`"
)
def export(
    dataset: DatasetUrl,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FOLDER",
            callback=refuse_empty,
            help="Folder to write: a new name, or an earlier export.",
        ),
    ],
    form: Form = "hf",
    licence: Licence = None,
    source: Source = None,
    split: Split = None,
    kind: Kind = None,
    score: Score = None,
    accepted: Accepted = False,
    version: Version = None,
    negatives: Negatives = "",
    model: Model = "",
    verify: Verify = False,
    processor: Processor = "",
    max_length: MaxLength = 0,
    push: Push = "",
    private: Private = False,
    revision: Revision = "",
) -> None:
    """Write a dataset in a form that other programs read."""
    from pairwright.flows.export_dataset import ExportConfig, Selection, Verifying
    from pairwright.flows.progress import show_steps
    from pairwright.tasks.export.formats import find_form

    selection = Selection(
        licences=tuple(licence or ()),
        sources=tuple(source or ()),
        splits=tuple(split or ()),
        kinds=tuple(kind or ()),
        score=score,
        accepted=accepted,
    )
    verifying = Verifying(processor=processor, max_length=max_length) if verify else None
    if not verify and (processor or max_length):
        raise typer.BadParameter("--processor and --max-length go with --verify")
    destination = _find_destination(push, private=private, revision=revision)
    config = ExportConfig(selection=selection, negatives=negatives, model=model, verifying=verifying)
    with show_steps("Rows") as watch:
        tally = open_dataset(dataset, version).export(form, to, config=config, watch=watch)
    sizes = ", ".join(f"{split} {rows:,}" for split, (rows, _) in tally.sizes.items())
    left_out = f"; {tally.left_out:,} others are left out" if tally.left_out else ""
    print(f"{tally.rows:,} {find_form(form).reads} ({sizes}) are in {to}{left_out}")
    if said := tally.say_decided():
        print(f"People said of the selected rows: {said}")
    if verify:
        print("Read back as its consumer does: all rows are good")
    for why, number in tally.unheld.items():
        print(f"{number:,} more are left out: {why}")
    print(find_form(form).cannot)
    if destination:
        _push(to, destination)


def _find_destination(repository: str, *, private: bool, revision: str) -> "Destination | None":
    from pairwright.tasks.export.push_to_hub import Destination, check_destination

    if not repository:
        if private or revision:
            raise typer.BadParameter("--private and --revision go with --push-to-hub")
        return None
    destination = Destination(repository=repository, private=private, branch=revision or "main")
    check_destination(destination)
    return destination


def _push(folder: str, destination: "Destination") -> None:
    from pairwright.tasks.export.push_to_hub import push_folder

    try:
        pushed = push_folder(Path(folder), destination)
    except KeyboardInterrupt:
        print("Stopped. What was sent is kept; the same command goes on with it.", file=sys.stderr)
        raise typer.Exit(STOPPED) from None
    seen_by = "private" if pushed.private else "public"
    removed = f"; {pushed.removed:,} of an earlier export were removed" if pushed.removed else ""
    print(f"{pushed.address} ({seen_by}) has all {pushed.files:,} files ({shown_size(pushed.size_bytes)}){removed}")


@app.command(epilog="Examples: `pairwright formats`, `pairwright formats trl`")
def formats(form: Annotated[str, typer.Argument(help="One format, to see how its reader is started.")] = "") -> None:
    """List the formats of `export`: what each is, and what it cannot hold."""
    from pairwright.tasks.export.formats import FORMATS, find_form

    if form:
        found = find_form(form)
        print(f"{found.name}: {found.about}\n\n{found.use}\n\n{found.cannot}")
        return
    for found in FORMATS.values():
        print(f"{found.name}\n    {found.about}\n    {found.cannot}")
