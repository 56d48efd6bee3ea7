"""The verbs that show something: status, sources, report, calibrate."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pairwright.flows.verbs.options import OWED, AsJson, DatasetUrl, Version, app, open_dataset
from pairwright.flows.verbs.print_build import print_reasons, print_table

if TYPE_CHECKING:
    from pairwright.flows.show_status import Status


@app.command(epilog="Example: `pairwright status dataset --json`")
def status(
    dataset: DatasetUrl,
    as_json: AsJson = False,
    refused: Annotated[str, typer.Option("--refused", help="List what this table refused, and why, with names.")] = "",
    verify: Annotated[bool, typer.Option("--verify", help="Read every part and name the damaged ones.")] = False,
) -> None:
    """Show, per stage, what is done, dropped, failed and owed, and why. Ends with 0 also when rows are owed."""
    opened = open_dataset(dataset)
    if refused:
        for row in opened.refused(refused):
            print("\t".join(row))
        damaged = opened.status(verify=True).damaged if verify else ()
    else:
        found = opened.status(verify=verify)
        damaged = found.damaged
        if as_json:
            print(json.dumps(found.as_json(), indent=1))
        else:
            _print_status(found)
    for message in damaged:
        print(f"error: {message}", file=sys.stderr)
    if damaged:
        raise typer.Exit(OWED)
    if verify:
        print("Every part is sound: each byte is as it was written.", file=sys.stderr)


def _print_status(found: "Status") -> None:
    print_table(found.counts)
    print_reasons(found.counts)
    for line in (*found.owing, *found.held):
        print(line)
    if found.owed:
        print(f"Rows are owed. Finish them with: pairwright resume {found.dataset}")


@app.command(epilog="Examples: `pairwright sources`, `pairwright sources jsonl`")
def sources(kind: Annotated[str, typer.Argument(help="One kind, to see what it reads in detail.")] = "") -> None:
    """List the kinds of sources that a build can read, with an example of each; or explain one."""
    from pairwright.tasks.sources.readers import READERS, explain_reader

    if kind:
        print(explain_reader(kind))
        return
    for reader in sorted(READERS.values(), key=lambda reader: reader.kind):
        print(f"{reader.kind}\n    {reader.about}\n    pairwright build {reader.example} --out dataset")


@app.command(epilog="Example: `pairwright report dataset`")
def report(
    dataset: DatasetUrl,
    pairs: Annotated[int, typer.Option("--pairs", min=0, help="How many pairs to show.")] = 60,
    version: Version = None,
) -> None:
    """Write pages that show a dataset: pairs, texts, removals, charts. They open from disk."""
    pages = open_dataset(dataset, version).report(pairs=pairs)
    shown = f"Pairs shown: {pages.pairs:,}. " if pages.pairs else ""  # there are none where preferences were brought
    print(f"{shown}Open {pages.page}")


@app.command(epilog="Example: `pairwright calibrate dataset`")
def calibrate(
    dataset: DatasetUrl,
    per_bin: Annotated[int, typer.Option("--per-bin", min=1, max=100, help="Pairs shown of each bin.")] = 12,
    width: Annotated[float, typer.Option("--width", min=0.005, max=0.2, help="Width of a bin of similarity.")] = 0.02,
) -> None:
    """Write a page to choose mining's thresholds by looking: pairs at each similarity, to be judged, and yields."""
    made = open_dataset(dataset).calibrate(per_bin=per_bin, width=width)
    print(f"Pairs to judge: {made.pairs:,} in {made.bins:,} bins. Open {made.page}")
