"""The verbs of versions (versions, diff, lineage, publish, remove, gc), and those of the machine (doctor, schedule)."""

import json
import shlex
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer
from typer import Argument, Option

from pairwright.flows.verbs.options import (
    OWED,
    AsJson,
    DatasetUrl,
    Settings,
    Until,
    Version,
    app,
    open_dataset,
    print_table,
    refuse_empty,
)
from pairwright.schemas.errors import ConfigError

POOL = "PREFECT_DEPLOYMENTS_DEFAULT_WORK_POOL_NAME"


@app.command(epilog="Example: `pairwright versions dataset`")
def versions(dataset: DatasetUrl, as_json: AsJson = False) -> None:
    """List the versions of a dataset: when each was published, its rows, what was asked for otherwise than before."""
    found = open_dataset(dataset).versions()
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    elif found:
        heads = ["version", "published", "from", "rows", "asked for otherwise than before", ""]
        print_table(heads, *(one.cells() for one in found))
    else:
        print(f"No version of {dataset} is published yet. Look with: pairwright status {shlex.quote(dataset)}")


@app.command(epilog="Examples: `pairwright diff dataset 3 4`, `pairwright diff dataset 3 4 --stage pairs --list`")
def diff(
    dataset: DatasetUrl,
    before: Annotated[int, Argument(min=1, help="Number of the one version.")],
    after: Annotated[int, Argument(min=1, help="Number of the other.")],
    as_json: AsJson = False,
    stage: Annotated[str, Option(help="Only this table, or this group of tables.")] = "",
    listed: Annotated[bool, Option("--list", help="List the keys of the rows, and the names of images.")] = False,
) -> None:
    """Compare two versions: rows in and out by key, inputs that ended otherwise and why, settings that differ."""
    found = open_dataset(dataset).diff(before, after, stage=stage, listed=listed)
    if as_json:
        print(json.dumps(asdict(found), indent=1))
        return
    print_table(*found.cells())
    for line in found.lines():
        print(line)


@app.command(epilog="Example: `pairwright lineage dataset 3f2a9c`")
def lineage(
    dataset: DatasetUrl,
    key: Annotated[str, Argument(help="Key of an image or of any other row; its beginning is enough.")],
    as_json: AsJson = False,
    version: Version = None,
) -> None:
    """Show all that was made of a row and all it was made from, with the model, prompt and seed that made each."""
    from rich.console import Console

    from pairwright.flows.trace_lineage import show_lineage

    found = open_dataset(dataset, version).lineage(key)
    if as_json:
        print(json.dumps(asdict(found), indent=1))
    else:
        Console(width=None if sys.stdout.isatty() else 200, soft_wrap=True).print(show_lineage(found))


@app.command(
    epilog="Examples: `pairwright remove dataset 3f2a9c --reason 'asked by mail'`, "
    "`pairwright remove dataset --name holiday/beach.jpg`, `pairwright remove dataset 3f2a9c --undo`"
)
def remove(
    dataset: DatasetUrl,
    keys: Annotated[list[str] | None, Argument(help="Keys of images, or their beginnings.")] = None,
    name: Annotated[list[str] | None, Option(help="An image as the source calls it (repeatable).")] = None,
    reason: Annotated[str, Option(help="Why; kept in the list of removals.")] = "",
    undo: Annotated[bool, Option("--undo", help="Take removed images back.")] = False,
) -> None:
    """Remove images on request: they and all that came of them leave the next version, and with `gc` the files.

    The same bytes stay out when they come again. Other files that show nearly the same are other images: keep those out
    with `pairwright build --exclude`. Without an image, lists what is removed.
    """
    opened, place, asked = open_dataset(dataset), shlex.quote(dataset), keys or ()
    if not (asked or name):
        for when, key, why in opened.removed():
            print(f"{when}\t{key}\t{why}")
    elif undo:
        if name:
            raise ConfigError(
                "--undo takes keys: the name of a removed image is not kept. `pairwright remove DIR` lists them"
            )
        for key in opened.take_back(asked, reason=reason):
            print(f"Taken back: {key}")
        print(f"They come back with the next build: pairwright resume {place}")
    else:
        _print_removal(opened.remove(asked, names=name or (), reason=reason), place)


def _print_removal(found: Any, place: str) -> None:
    for key in found.before:
        print(f"{key} was removed before")
    for key in found.unknown:
        print(f"{key} is not in the newest version: it stays out should it come")
    if found.rows:
        print(f"Of the newest version go: {', '.join(f'{table} {count:,}' for table, count in found.rows.items())}")
    if found.keys:
        print(f"{len(found.keys):,} images are removed (entry {found.number} of the list).")
        print(f"They leave the next version: pairwright resume {place}")
        print(f"and then the files: pairwright gc {place}")


@app.command(epilog="Examples: `pairwright gc dataset --dry-run`, `pairwright gc dataset --keep 3`")
def gc(
    dataset: DatasetUrl,
    keep: Annotated[int | None, Option(min=1, help="How many versions stay, the newest ones. Default: all.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Delete what no kept version and not the present state needs, and the parts that hold what was removed on request.

    Versions that hold a removed image go, too. Nothing goes while a build or a reader is at work; on an object store,
    which has no locks, see to that yourself. Exports elsewhere are out of reach.
    """
    from pairwright.flows.progress import show_steps

    with show_steps("clearing up") as watch:
        found = open_dataset(dataset).gc(keep=keep, dry_run=dry_run, watch=watch)
    _print_collected(found, dry_run=dry_run)
    if found.blocked:
        print(f"error: what was removed on request is still in the files: {found.blocked}", file=sys.stderr)
        raise typer.Exit(OWED)


def _print_collected(found: Any, *, dry_run: bool) -> None:
    would = "Would delete" if dry_run else "Deleted"
    plan = found.plan
    for number, why in found.gone.items():
        print(f"{would} version {number}: {why}")
    if dry_run:
        for path in (*plan.files, *map(str, plan.folders)):
            print(f"{would} {path}")
    said = f"{len(plan.files):,} files, {len(plan.folders):,} folders of journals and caches"
    freed = "" if dry_run else f": {found.freed:,} bytes freed"
    kept = ", ".join(map(str, found.kept)) or "none"
    print(f"{would} {said}{freed}. Versions kept: {kept}")
    for name in found.broken:
        print(
            f"The unfinished training runs/{name} cannot go on: rows of it had to go. Begin anew under another --name"
        )
    if found.swept and not dry_run:
        print("Of what was removed on request nothing is left in the tables. Exports elsewhere are out of reach.")
    if found.beside:
        print(f"Not touched, and may hold something of it: {', '.join(found.beside)}. Write pages anew (`pairwright")
        print("report`), delete trainings or train again. A model may have learnt from it.")


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
    from pairwright.flows.find_models import profile_to_fetch
    from pairwright.flows.load_profile import profile_names

    names = [profile] if profile else profile_names()
    of_each = {
        name: list(check_profile(profile_to_fetch(name, (settings or []) if profile else []), until)) for name in names
    }
    checks = list(check_machine(out, needs_gpu=profile.startswith("gpu")))
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
    cron: Annotated[str, Option(help="When: minute, hour, day, month, weekday, as in crontab.")] = "",
    timezone: Annotated[str, Option(help="Whose hours they are: Europe/Zurich.")] = "UTC",
    pool: Annotated[str, Option(help="The work pool whose workers run it.", envvar=POOL)] = "pairwright",
    serve: Annotated[bool, Option("--serve", help="Run it from this process, until Ctrl-C.")] = False,
    pause: Annotated[
        bool, Option("--pause", help="Keep the schedule, but start nothing; without --cron, the one there is.")
    ] = False,
) -> None:
    """Update a dataset at certain times: a Prefect deployment that looks at its source anew and does what is owed."""
    from pairwright.flows import schedule_dataset as flow

    times = flow.Timetable(cron=cron, timezone=timezone, paused=pause, pool=pool)
    place = flow.check_schedule(dataset, times)
    if serve and cron:
        print(f"Updates of {place} run here, at {cron} ({timezone}). Ctrl-C ends this and pauses them.", flush=True)
        flow.serve_schedule(place, times)
        print("The schedule is paused. The same command goes on with it.", file=sys.stderr)
        return
    if not cron:
        print(
            f"{flow.pause_schedule(place)}: paused. Go on with: pairwright schedule {shlex.quote(dataset)} --cron ..."
        )
        return
    name = flow.apply_schedule(place, times)
    print(f"{name}: {'paused' if pause else 'scheduled'} at {cron} ({timezone})")
    print(f"It is run by a worker on a machine that sees {place}: prefect worker start --pool {pool} --type process")


@app.command(epilog="Example: `pairwright publish dataset`")
def publish(dataset: DatasetUrl) -> None:
    """Publish what a dataset holds as its newest version although its profile's gates held the build back."""
    verdict = open_dataset(dataset).publish()
    for gate in verdict.failed:
        print(f"Passed over: {gate.say()}")
    print(f"Version {verdict.version} of {dataset} is current. It is what export, report and training read.")
