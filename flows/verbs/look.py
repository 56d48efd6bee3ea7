"""The verbs that show something: status, sources, report, calibrate."""

import json
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from pairwright.flows.verbs.options import OWED, AsJson, Dataset, Version, app
from pairwright.flows.verbs.run_request import print_reasons, print_table


@app.command(epilog="Example: `pairwright status dataset --json`")
def status(
    dataset: Dataset,
    as_json: AsJson = False,
    refused: Annotated[str, typer.Option("--refused", help="List what this table refused, and why, with names.")] = "",
    verify: Annotated[bool, typer.Option("--verify", help="Read every part and name the damaged ones.")] = False,
) -> None:
    """Show, per stage, what is done, dropped, failed and owed, and why. Ends with 0 also when rows are owed."""
    from pairwright.flows.list_refused import list_refused
    from pairwright.flows.pipeline import find_table
    from pairwright.flows.run_build import settled
    from pairwright.flows.say_outcome import say_held
    from pairwright.tasks.store.files import Folder
    from pairwright.tasks.store.gates import read_verdict
    from pairwright.tasks.store.snapshot import latest_snapshot

    folder = Folder(dataset)
    table = find_table(refused) if refused else None
    with settled(folder) as (opened, stages):
        snapshot, verdict = latest_snapshot(folder), read_verdict(folder)
        held = list(say_held(verdict, snapshot.number if snapshot else 0, dataset))
        damaged = list(opened.damage()) if verify else []
        if table:
            for row in list_refused(opened, [planned for planned, _ in stages], table):
                print("\t".join(row))
        elif as_json:
            counts = [count.as_json() for _, count in stages]
            number = snapshot.number if snapshot else 0
            words = {"dataset": dataset, "snapshot": number, "stages": counts, "held": held}
            print(json.dumps(words, indent=1))
        else:
            _print_status(dataset, [count for _, count in stages], held)
    for message in damaged:
        print(f"error: {message}", file=sys.stderr)
    if damaged:
        raise typer.Exit(OWED)
    if verify:
        print("Every part is sound: each byte is as it was written.", file=sys.stderr)


def _print_status(dataset: str, counts: Any, held: Iterable[str]) -> None:
    from pairwright.flows.say_outcome import say_owed

    print_table(counts)
    print_reasons(counts)
    for line in (*say_owed(counts, dataset), *held):
        print(line)
    if any(count.failed or count.pending for count in counts):
        print(f"Rows are owed. Finish them with: pairwright resume {dataset}")


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
    dataset: Dataset,
    pairs: Annotated[int, typer.Option("--pairs", min=0, help="How many pairs to show.")] = 60,
    version: Version = None,
) -> None:
    """Write pages that show a dataset: pairs, texts, removals, charts. They open from disk."""
    from pairwright.flows.report_dataset import report_dataset
    from pairwright.tasks.store.files import Folder

    folder = Folder(dataset)
    pages = report_dataset(folder, pairs=pairs, version=version)
    shown = f"Pairs shown: {pages.shown:,}. " if pages.shown else ""  # there are none where preferences were brought
    print(f"{shown}Open {folder.path('report/index.html')}")


@app.command(epilog="Example: `pairwright calibrate dataset`")
def calibrate(
    dataset: Dataset,
    per_bin: Annotated[int, typer.Option("--per-bin", min=1, max=100, help="Pairs shown of each bin.")] = 12,
    width: Annotated[float, typer.Option("--width", min=0.005, max=0.2, help="Width of a bin of similarity.")] = 0.02,
) -> None:
    """Write a page to choose mining's thresholds by looking: pairs at each similarity, to be judged, and yields."""
    from pairwright.flows.calibrate_dataset import calibrate_dataset
    from pairwright.tasks.store.files import Folder

    folder = Folder(dataset)
    made = calibrate_dataset(folder, per_bin=per_bin, width=width)
    print(f"Pairs to judge: {made.pairs:,} in {made.bins:,} bins. Open {folder.path('calibrate/index.html')}")
