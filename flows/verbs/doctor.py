"""The verb that looks at the machine: doctor."""

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from pairwright.flows.verbs.options import OWED, AsJson, Settings, Until, app, refuse_empty


@app.command(epilog="Examples: `pairwright doctor`, `pairwright doctor --profile laptop --until mining --out album`")
def doctor(
    profile: Annotated[
        str, typer.Option("--profile", "-p", help="A profile's name, or a .yaml file. Default: all, in short.")
    ] = "",
    settings: Settings = None,
    until: Until = "",
    out: Annotated[
        str,
        typer.Option("--out", "-o", metavar="FOLDER", callback=refuse_empty, help="Where the dataset is, or is to be."),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Look at devices, packages, weights, servers, disk and clock: what a profile lacks, and what mends it.

    Ends with 1 where the profile cannot build here.
    """
    from pairwright.flows.check_machine import can_build, check_machine, check_profile, profile_to_check
    from pairwright.flows.load_profile import profile_names

    names = [profile] if profile else profile_names()
    profiles = {name: profile_to_check(name, (settings or []) if profile else []) for name in names}
    workers = profiles[profile].run.workers if profile else 0
    checks = list(check_machine(out, workers=workers, needs_gpu=profile == "gpu"))
    of_each = {name: list(check_profile(one, until)) for name, one in profiles.items()}
    able = {name: can_build([*checks, *own]) for name, own in of_each.items()}
    if as_json:
        print(json.dumps(_as_json(checks, of_each, able), indent=1))
    else:
        _print_checks([*checks, *(of_each[profile] if profile else [])])
        _print_profiles(of_each, able, short=not profile)
    if not any(able.values()):
        raise typer.Exit(OWED)


def _as_json(checks: Sequence[Any], of_each: dict[str, list[Any]], able: dict[str, bool]) -> dict[str, Any]:
    profiles = {
        name: {"can_build": able[name], "checks": [check.as_json() for check in own]} for name, own in of_each.items()
    }
    return {"checks": [check.as_json() for check in checks], "profiles": profiles}


def _print_checks(checks: Sequence[Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    colours = {"ok": "green", "warning": "yellow", "missing": "red"}
    table = Table(box=None, show_header=False, pad_edge=False)
    for fold in (False, False, False, True):
        table.add_column(no_wrap=not fold, overflow="fold")
    for check in checks:
        found = f"{check.found}\n-> {check.mend}" if check.mend else check.found
        table.add_row(f"[{colours[check.state]}]{check.state}", check.area, check.name, _plain(found))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _plain(text: str) -> Any:
    """Return a text whose brackets are no markup."""
    from rich.text import Text

    return Text(text)


def _print_profiles(of_each: dict[str, list[Any]], able: dict[str, bool], *, short: bool) -> None:
    for name, own in of_each.items():
        lacks = [check for check in own if check.state == "missing"]
        if able[name]:
            print(f"{name}: can build here.")
            continue
        what = ", ".join(dict.fromkeys(f"{check.area} ({check.name})" for check in lacks)) or "what is missing above"
        print(f"{name}: cannot build here. It lacks {what}.")
        if short and lacks:
            print(f"  See: pairwright doctor --profile {name}")
