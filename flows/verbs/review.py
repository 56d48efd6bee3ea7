"""The verbs with which people look at rows and say which are good: view, decide."""

import json
import os
import shlex
import sys
from typing import Annotated

import typer

from pairwright.flows.verbs.options import OWED, STOPPED, AsJson, DatasetUrl, Version, app, open_dataset

WORDS = {"accept": "accepted", "edit": "edited", "reject": "rejected"}


@app.command(epilog="Examples: `pairwright decide dataset decisions.jsonl`, `pairwright decide dataset --json`")
def decide(
    dataset: DatasetUrl,
    file: Annotated[str, typer.Argument(help="What a page of `report` offered: decisions.jsonl.")] = "",
    version: Version = None,
    as_json: AsJson = False,
) -> None:
    """Store which rows people accepted, rejected or edited; exports and trainings follow. Without a file, count them.

    Decisions about rows that the version has not are refused, and end with 1. The latest decision about a row counts.
    """
    from pairwright.flows.decide_rows import say_refused

    opened = open_dataset(dataset, version)
    done = opened.decide(file) if file else None
    now = done.now if done else opened.decisions()
    refused = say_refused(done.refused) if done else []
    if as_json:
        counts = {"decided": len(now), **{verdict: now.count().get(verdict, 0) for verdict in WORDS}}
        print(json.dumps({"dataset": dataset, "stored": done.stored if done else 0, "refused": refused, **counts}))
    else:
        if done:
            print(f"Decisions stored: {done.stored:,}")
        said = ", ".join(f"{number:,} {WORDS[verdict]}" for verdict, number in now.count().items())
        print(f"Rows that people have decided about: {len(now):,}{f' ({said})' if said else ''}")
        if now:
            place = shlex.quote(dataset)
            print("Rejected rows are left out of exports, edited ones have their new texts. Only what people took:")
            print(f"  pairwright export {place} --to DIR --accepted")
    for line in refused:
        print(f"not stored: {line}", file=sys.stderr)
    if refused:
        raise typer.Exit(OWED)


@app.command(epilog="Example: `pairwright view dataset`")
def view(
    dataset: DatasetUrl,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Where to listen, on this machine only; 0: anywhere free.")
    ] = 8765,
    version: Version = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Look at a dataset in the browser: search, filter, accept, reject and edit. Ctrl-C ends it.

    Only this machine is served, and there only who has the address that is printed: it holds a token.
    """
    from pairwright.flows.progress import count_steps
    from pairwright.flows.view_dataset import open_browser

    def ready(url: str, once: str) -> None:
        print(f"Look at {dataset} at\n\n    {url}\n\nCtrl-C ends this.", flush=True)
        if not no_browser:
            open_browser(once)

    with count_steps("Rows read") as watch:
        busy = open_dataset(dataset, version).view(port=port, ready=ready, watch=watch)
    print("\nStopped. Decisions are in the dataset.", file=sys.stderr, flush=True)
    if busy:  # charts are being made, and all else is closed: what that thread holds would be told as leaks
        os._exit(STOPPED)
    raise typer.Exit(STOPPED)
