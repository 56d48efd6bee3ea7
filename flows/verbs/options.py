"""What the verbs have in common: the application that they belong to, their options, their exit codes."""

import gc
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pairwright.flows.dataset import Dataset

app = typer.Typer(rich_markup_mode=None)
"""Where the modules of this folder register their verbs."""

OWED, WRONG, STOPPED = 1, 2, 130


def refuse_empty(context: typer.Context, param: typer.CallbackParam, value: str | None) -> str | None:
    """Refuse a place whose name is empty: most likely a shell variable that is not set."""
    source = context.get_parameter_source(param.name or "")
    if value == "" and source and source.name == "COMMANDLINE":
        raise typer.BadParameter("the name is empty; give a folder or a URL")
    return value


def load_plugins(files: list[str]) -> None:
    """Load the files of `--plugin`."""
    if files:
        from pairwright.schemas.plugins import load_plugin

        for file in files:
            load_plugin(file)


Source = Annotated[
    str | None,
    typer.Argument(callback=refuse_empty, help="A folder of images, or kind:path. Default: the profile's own source."),
]
Out = Annotated[
    str,
    typer.Option(
        "--out",
        "-o",
        metavar="FOLDER",
        callback=refuse_empty,
        help="Folder or URL of the dataset; made if missing, else continued.",
    ),
]
DatasetUrl = Annotated[
    str, typer.Argument(callback=refuse_empty, help="Folder of a dataset (what `build --out` made).")
]
ProfileName = Annotated[str, typer.Option("--profile", "-p", help="A profile's name, or a .yaml file.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Set a field: mining.min_similarity=0.8 (repeatable)."),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N images of the source.")]
Until = Annotated[
    str,
    typer.Option(
        "--until", metavar="STAGE", help="Stop after this stage: sources, mining, captioning, ... or a table."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]

Version = Annotated[int | None, typer.Option("--version", min=1, help="A version's number. Default: the newest.")]


def load_dataset() -> "type[Dataset]":
    """Return ``Dataset``, with which all stages are loaded: an option that is refused does not wait for them."""
    gc.disable()  # some 300 modules are made and none is let go: looking for garbage is a tenth of the time
    from pairwright.flows.dataset import Dataset

    gc.enable()
    return Dataset


def open_dataset(url: str, version: int | None = None) -> "Dataset":
    """Open a dataset."""
    return load_dataset().open(url, version)


def say(text: str) -> None:
    """Print to standard error, from the first of several processes."""
    if is_first():
        print(text, file=sys.stderr)


def is_first() -> bool:
    """Say whether this is the first, or the only, of several processes that train together."""
    return os.environ.get("RANK", "0") == "0"
