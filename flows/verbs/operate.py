"""The verbs that look after machine and dataset: doctor, schedule, publish."""

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer
from typer import Option

from pairwright.flows.verbs.options import (
    OWED,
    AsJson,
    DatasetUrl,
    Settings,
    Until,
    app,
    open_dataset,
    print_table,
    refuse_empty,
)

COLOURS = {"ok": "green", "warning": "yellow", "missing": "red"}


@app.command(epilog="Examples: `pairwright doctor`, `pairwright doctor --profile laptop --until mining --out album`")
def doctor(
    profile: Annotated[
        str, Option("--profile", "-p", help="A profile's name, or a .yaml file. Default: all, in short.")
    ] = "",
    settings: Settings = None,
    until: Until = "",
    out: Annotated[
        str, Option("--out", "-o", metavar="FOLDER", callback=refuse_empty, help="Where the dataset is, or is to be.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Look at versions, devices, disk, weights and servers: what a profile lacks, and how to fix each problem.

    Ends with 1 where the profile cannot build here.
    """
    from rich.text import Text

    from pairwright.flows.check_machine import check_machine, check_profile
    from pairwright.flows.fetch_weights import profile_to_fetch
    from pairwright.flows.load_profile import profile_names

    names = [profile] if profile else profile_names()
    of_each = {
        name: list(check_profile(profile_to_fetch(name, (settings or []) if profile else []), until)) for name in names
    }
    checks = list(check_machine(out, needs_gpu=profile == "gpu"))
    lacks = {name: [one for one in (*checks, *own) if one.state == "missing"] for name, own in of_each.items()}
    if as_json:
        profiles = {
            name: {"can_build": not lacks[name], "checks": [asdict(check) for check in own]}
            for name, own in of_each.items()
        }
        print(json.dumps({"checks": [asdict(check) for check in checks], "profiles": profiles}, indent=1))
    else:
        shown = [*checks, *(of_each[profile] if profile else [])]
        rows = [
            (Text(one.state, COLOURS[one.state]), one.area, one.name, "\n-> ".join(filter(None, (one.found, one.mend))))
            for one in shown
        ]
        print_table([""] * 4, *rows)
        for name, some in lacks.items():
            what = ", ".join(dict.fromkeys(f"{check.area} ({check.name})" for check in some))
            hint = "" if profile else f" See: pairwright doctor --profile {name}"
            print(f"{name}: cannot build here. It lacks {what}.{hint}" if some else f"{name}: can build here.")
    if all(lacks.values()):
        raise typer.Exit(OWED)


@app.command(epilog="Example: `pairwright schedule dataset --cron '0 2 * * *' --timezone Europe/Zurich`")
def schedule(
    dataset: DatasetUrl,
    cron: Annotated[str, Option(help="When: minute, hour, day, month, weekday, as in crontab.")],
    timezone: Annotated[str, Option(help="Whose hours they are: Europe/Zurich.")] = "UTC",
    pool: Annotated[str, Option(help="The work pool whose workers run it.")] = "pairwright",
    serve: Annotated[bool, Option("--serve", help="Run it from this process, until Ctrl-C.")] = False,
    pause: Annotated[bool, Option("--pause", help="Keep the schedule, but start nothing.")] = False,
) -> None:
    """Update a dataset at certain times: a Prefect deployment that looks at its source anew and does what is owed."""
    from pairwright.flows.schedule_dataset import Timetable, apply_schedule, check_schedule, serve_schedule

    times = Timetable(cron=cron, timezone=timezone, paused=pause, pool=pool)
    place = check_schedule(dataset, times)
    if serve:
        print(f"Updates of {place} run here, at {cron} ({timezone}). Ctrl-C ends this and pauses them.", flush=True)
        serve_schedule(place, times)
        print("The schedule is paused. The same command goes on with it.", file=sys.stderr)
        return
    name = apply_schedule(place, times)
    print(f"{name}: {'paused' if pause else 'scheduled'} at {cron} ({timezone})")
    print(f"It is run by a worker on a machine that sees {place}: prefect worker start --pool {pool} --type process")


@app.command(epilog="Example: `pairwright publish dataset`")
def publish(dataset: DatasetUrl) -> None:
    """Publish what a dataset holds as its newest version although its profile's gates held the build back."""
    verdict = open_dataset(dataset).publish()
    for gate in verdict.failed:
        print(f"Passed over: {gate.say()}")
    print(f"Version {verdict.version} of {dataset} is current. It is what export, report and training read.")
