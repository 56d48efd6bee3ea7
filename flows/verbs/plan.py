"""The verb that foresees a build: plan."""

import json
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from pairwright.flows.verbs.options import AsJson, Limit, Settings, Source, Until, app, load_dataset, refuse_empty
from pairwright.flows.verbs.print_build import stopping

SAY_SECONDS = 5.0
UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"))


@app.command(epilog="Examples: `pairwright plan PHOTOS -p laptop --trial 50`, `pairwright plan --out dataset`")
def plan(
    source: Source = None,
    profile: Annotated[
        str, typer.Option("--profile", "-p", help="A profile's name, or a .yaml file. Default: the dataset's own.")
    ] = "",
    settings: Settings = None,
    limit: Limit = None,
    until: Until = "",
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            callback=refuse_empty,
            help="A dataset: plan only what it still owes.",
        ),
    ] = "",
    trial: Annotated[
        int, typer.Option("--trial", min=0, help="Build the first N rows (50, say) to measure what they need.")
    ] = 0,
    keep: Annotated[bool, typer.Option("--keep", help="Keep what the trial built, and say where.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show, per stage, what a build would do: rows, calls, tokens, hours, disk. Builds nothing but the trial."""
    if trial:
        print(f"Trying the first {trial:,} rows ...", file=sys.stderr)
    words: dict[str, Any] = {"profile": profile, "settings": settings or [], "limit": limit, "until": until}
    with stopping(""):
        found = load_dataset().plan(source, out=out, **words, trial=trial, keep=keep, watch=_counting())
    if found.trial:
        print(f"The trial is kept in {found.trial}", file=sys.stderr)
    if as_json:
        print(json.dumps(found.as_json(), indent=1))
    else:
        _print_plan(found)


def _counting() -> Callable[[int], None]:
    """Return what says now and then how many items of a large source are listed."""
    said = [time.monotonic()]

    def say(count: int) -> None:
        if count % 1000 == 0 and time.monotonic() - said[0] > SAY_SECONDS:
            said[0] = time.monotonic()
            print(f"{count:,} items listed so far", file=sys.stderr)

    return say


def _print_plan(plan: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    wanted = plan.wanted
    new = "" if wanted.is_new else f", {wanted.new_items:,} of them new to {wanted.request.folder.url}"
    print(f"{wanted.request.profile.source} lists {wanted.items:,} items{new}.")
    columns = ("stage", "in", "rows", "calls", "tokens in", "tokens out", "CPU", "GPU", "disk", "time")
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column == "stage" else "right")
    shown: dict[str, Callable[[Any], str]] = {
        "calls": _count, "prompt_tokens": _count, "completion_tokens": _count, "cpu_hours": _time,
        "gpu_hours": _time, "bytes": _size, "hours": _time,
    }  # fmt: skip
    for one in plan.running:
        cells = [_ranged(one.inputs), _ranged(one.rows)]
        cells += [show(amount) if (amount := one.amounts[name]) else "?" for name, show in shown.items()]
        table.add_row(one.stage, *cells)
    totals = plan.totals
    sums = [_sum(totals[name], show) for name, show in shown.items()]
    table.add_row("[bold]total[/bold]", "", "", *sums)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    _print_ranges(totals)
    for note in plan.notes:
        print(f"Note: {note}")


def _sum(total: Any, show: Callable[[Any], str]) -> str:
    """Return a total in words; where it is not known of some stages, it is what the others come to."""
    amount, missing = total
    if missing:
        return f"at least {show(amount)}" if amount.value else "?"
    return show(amount)


def _print_ranges(totals: Any) -> None:
    """Print between what the totals are that matter most, where that is known."""
    for name, words, show in (("hours", "Time", _time), ("calls", "Calls", _count), ("bytes", "Disk", _size)):
        total, missing = totals[name]
        if total.value and not missing and total.high != total.low:
            high = show(_of(total, total.high)) if total.high < float("inf") else "any number"
            print(f"{words}: {show(_of(total, total.low))} to {high}")


def _of(like: Any, value: float) -> Any:
    return type(like)(value, value, value)


def _ranged(amount: Any) -> str:
    if amount is None:
        return "?"
    if amount.low == amount.high:
        return f"{amount.value:,.0f}"
    high = f"{amount.high:,.0f}" if amount.high < float("inf") else "?"
    return f"{amount.value:,.0f} ({amount.low:,.0f}-{high})"


def _count(amount: Any) -> str:
    return f"{amount.value:,.0f}"


def _size(amount: Any) -> str:
    unit, name = next(((unit, name) for unit, name in UNITS if amount.value >= unit), (1e3, "kB"))
    return f"{amount.value / unit:,.1f} {name}"


def _time(amount: Any) -> str:
    seconds = amount.value * 3600
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
