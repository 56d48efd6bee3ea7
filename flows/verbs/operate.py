"""The verbs that keep a dataset up to date: schedule, publish."""

import sys
from typing import Annotated

import typer

from pairwright.flows.verbs.options import DatasetUrl, app, open_dataset


@app.command(epilog="Example: `pairwright schedule dataset --cron '0 2 * * *' --timezone Europe/Zurich`")
def schedule(
    dataset: DatasetUrl,
    cron: Annotated[str, typer.Option("--cron", help="When: minute, hour, day, month, weekday, as in crontab.")],
    timezone: Annotated[str, typer.Option("--timezone", help="Whose hours they are: Europe/Zurich.")] = "UTC",
    pool: Annotated[str, typer.Option("--pool", help="The work pool whose workers run it.")] = "pairwright",
    serve: Annotated[bool, typer.Option("--serve", help="Run it from this process, until Ctrl-C.")] = False,
    pause: Annotated[bool, typer.Option("--pause", help="Keep the schedule, but start nothing.")] = False,
) -> None:
    """Update a dataset at certain times: a Prefect deployment that looks at its source anew and does what is owed."""
    from pairwright.flows.schedule_dataset import (
        Timetable,
        apply_schedule,
        check_schedule,
        serve_schedule,
        write_schedule,
    )

    times = Timetable(cron=cron, timezone=timezone, paused=pause, pool=pool)
    place = check_schedule(dataset, times)
    write_schedule(place, times)
    if serve:
        print(f"Updates of {place} run here, at {cron} ({timezone}). Ctrl-C ends this and pauses them.", flush=True)
        serve_schedule(place, times)
        print("The schedule is paused. The same command goes on with it.", file=sys.stderr)
        return
    name = apply_schedule(place, times)
    print(f"{name}: {'paused' if pause else 'scheduled'} at {cron} ({timezone}); written to {place}/prefect.yaml")
    print(f"It is run by a worker on a machine that sees {place}: prefect worker start --pool {pool} --type process")


@app.command(epilog="Example: `pairwright publish dataset`")
def publish(dataset: DatasetUrl) -> None:
    """Publish what a dataset holds as its newest version although its profile's gates held the build back."""
    verdict = open_dataset(dataset).publish()
    for gate in verdict.failed:
        print(f"Passed over: {gate.say()}")
    print(f"Version {verdict.version} of {dataset} is current. It is what export, report and training read.")
