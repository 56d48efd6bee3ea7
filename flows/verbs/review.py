"""The verbs with which people look at rows and say which are good: decide."""

import json
import shlex
import sys
from typing import Annotated

import typer

from flows.verbs.options import OWED, AsJson, Dataset, Version, app

WORDS = {"accept": "accepted", "edit": "edited", "reject": "rejected"}


@app.command(epilog="Examples: `pairwright decide dataset decisions.jsonl`, `pairwright decide dataset --json`")
def decide(
    dataset: Dataset,
    file: Annotated[str, typer.Argument(help="What a page of `report` offered: decisions.jsonl.")] = "",
    version: Version = None,
    as_json: AsJson = False,
) -> None:
    """Store which rows people accepted, rejected or edited; exports and trainings follow. Without a file, count them.

    Decisions about rows that the version has not are refused, and end with 1. The latest decision about a row counts.
    """
    from flows.decide_rows import decide_rows, list_decisions, say_refused
    from tasks.store.files import Folder

    folder = Folder(dataset)
    done = decide_rows(folder, file, version=version) if file else None
    now = done.now if done else list_decisions(folder)
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
