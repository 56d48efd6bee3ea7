"""The verbs of versions (versions, diff, lineage, publish, remove, gc), and those of the machine
(doctor, schedule).
"""

import shlex
import sys
from typing import Annotated

import typer
from typer import Argument, Option

from pairwright.flows.verbs import options
from pairwright.flows.verbs.options import app

POOL = "PREFECT_DEPLOYMENTS_DEFAULT_WORK_POOL_NAME"


@app.command(epilog="Example: `pairwright versions dataset`")
def versions(dataset: options.DatasetUrl, as_json: options.AsJson = False) -> None:
    """List the versions of a dataset: time, rows, changed settings."""
    found = options.open_dataset(dataset).versions()
    if as_json:
        options.print_json(found)
    elif found:
        heads = ["version", "published", "from", "rows", "changed settings", ""]
        options.print_table(heads, *(one.cells() for one in found))
    else:
        print(
            f"No version of {dataset} is published yet. See: pairwright status {shlex.quote(dataset)}"
        )


@app.command(
    epilog="Examples: `pairwright diff dataset 3 4`, `pairwright diff dataset 3 4 --stage pairs`"
)
def diff(
    dataset: options.DatasetUrl,
    before: Annotated[int, Argument(min=1, help="Number of the first version.")],
    after: Annotated[int, Argument(min=1, help="Number of the second version.")],
    as_json: options.AsJson = False,
    stage: Annotated[str, Option(help="Only this table, or this group of tables.")] = "",
) -> None:
    """Compare two versions: rows that came and went, inputs with another outcome and why, changed settings."""
    found = options.open_dataset(dataset).diff(before, after, stage=stage)
    if as_json:
        options.print_json(found)
        return
    options.print_table(*found.cells())
    for line in found.lines():
        print(line)


@app.command(epilog="Example: `pairwright lineage dataset 3f2a9c`")
def lineage(
    dataset: options.DatasetUrl,
    key: Annotated[str, Argument(help="Key of an image or any other row, or a prefix of it.")],
    as_json: options.AsJson = False,
    version: options.Version = None,
) -> None:
    """Show everything made from a row, and everything it was made from, with model, prompt and seed of each."""
    from rich.console import Console

    found = options.open_dataset(dataset, version).lineage(key)
    if as_json:
        options.print_json(found)
    else:
        Console(width=None if sys.stdout.isatty() else 200, soft_wrap=True).print(*found.trees())


@app.command(
    epilog="Examples: `pairwright remove dataset 3f2a9c --reason 'asked by mail'`, "
    "`pairwright remove dataset --name holiday/beach.jpg`"
)
def remove(
    dataset: options.DatasetUrl,
    keys: Annotated[list[str] | None, Argument(help="Keys of images, or prefixes of them.")] = None,
    name: Annotated[
        list[str] | None, Option(help="Name of an image in the source (repeatable).")
    ] = None,
    reason: Annotated[str, Option(help="Reason, kept in the list of removals.")] = "",
) -> None:
    """Remove images on request: they and everything made from them leave the next version, and with `gc` the files.

    The same bytes stay out if the source has them again. Files with nearly the same content are
    other images: exclude those with `pairwright build --exclude`. Without an image, lists the
    removals.
    """
    opened, place = options.open_dataset(dataset), shlex.quote(dataset)
    if not (keys or name):
        for when, key, why in opened.removed():
            print(f"{when}\t{key}\t{why}")
        return
    found = opened.remove(keys or (), names=name or (), reason=reason)
    for key in found.before:
        print(f"{key} was already removed")
    for key in found.unknown:
        print(f"{key} is not in the newest version; it stays out if the source has it later")
    if found.rows:
        print(
            f"Rows to leave: {', '.join(f'{table} {count:,}' for table, count in found.rows.items())}"
        )
    if found.keys:
        print(f"{len(found.keys):,} images are removed (entry {found.number} of the list).")
        print(f"To publish a version without them: pairwright resume {place}")
        print(f"Then, to delete their files: pairwright gc {place}")


@app.command(epilog="Examples: `pairwright gc dataset --dry-run`, `pairwright gc dataset --keep 3`")
def gc(
    dataset: options.DatasetUrl,
    keep: Annotated[
        int | None, Option(min=1, help="Number of newest versions to keep (default: all).")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be deleted.")] = False,
) -> None:
    """Delete files that neither a kept version nor the current state needs, and the parts that hold removed images.

    Versions that hold a removed image are deleted as well. Nothing is deleted while a build or a
    reader is running; on an object store, which has no locks, make sure of that yourself. Exports
    elsewhere are out of reach.
    """
    from pairwright.flows.building.progress import show_steps

    with show_steps("clearing up") as watch:
        found = options.open_dataset(dataset).gc(keep=keep, dry_run=dry_run, watch=watch)
    would = "Would delete" if dry_run else "Deleted"
    plan = found.plan
    for number, why in found.gone.items():
        print(f"{would} version {number}: {why}")
    if dry_run:
        for path in (*plan.files, *map(str, plan.folders)):
            print(f"{would} {path}")
    freed = "" if dry_run else f": {found.freed:,} bytes freed"
    print(
        f"{would} {len(plan.files):,} files, {len(plan.folders):,} folders of journals and caches{freed}. ",
        end="",
    )
    print(f"Versions kept: {', '.join(map(str, found.kept)) or 'none'}")
    for name in found.broken:
        print(
            f"The unfinished training runs/{name} cannot continue: some of its rows are deleted. Train again under "
            "another --name"
        )
    if found.swept and not dry_run:
        print(
            "Nothing of the removed images is left in the tables. Exports elsewhere are out of reach."
        )
    if found.untouched:
        print(
            f"Not touched, may hold parts of them: {', '.join(found.untouched)}. Write pages again (`pairwright"
        )
        print("report`), delete trainings or train again. A model may have learnt from them.")
    if found.blocked:
        print(f"error: removed images are still in the files: {found.blocked}", file=sys.stderr)
        raise typer.Exit(options.OWED)


COLOURS = {"ok": "green", "warning": "yellow", "missing": "red"}


@app.command(
    epilog="Examples: `pairwright doctor`, `pairwright doctor --profile laptop --until mining --out album`"
)
def doctor(
    profile: options.AnyProfile = "",
    settings: options.Settings = None,
    until: options.Until = "",
    out: options.Out = "",
    as_json: options.AsJson = False,
) -> None:
    """Check versions, devices, disk, weights and servers: what a profile lacks, and how to fix each problem.

    Exits with 1 if the profile cannot build here.
    """
    from rich.text import Text

    from pairwright.flows.building.check_machine import check_machine, check_profile
    from pairwright.flows.building.find_models import profile_to_fetch
    from pairwright.flows.pipeline.load_profile import profile_names

    names, own = [profile] if profile else profile_names(), settings or [] if profile else []
    checks = {"": list(check_machine(out, needs_gpu=profile.startswith("gpu")))}
    checks |= {name: list(check_profile(profile_to_fetch(name, own), until)) for name in names}
    lacks = {
        name: [one for one in (*checks[""], *checks[name]) if one.state == "missing"]
        for name in names
    }
    if as_json:
        profiles = {name: {"can_build": not lacks[name], "checks": checks[name]} for name in names}
        options.print_json({"checks": checks[""], "profiles": profiles})
    else:
        rows = [
            (
                Text(one.state, COLOURS[one.state]),
                one.area,
                one.name,
                "\n-> ".join(filter(None, (one.found, one.mend))),
            )
            for one in (*checks[""], *(checks[profile] if profile else ()))
        ]
        options.print_table([""] * 4, *rows)
        for name, some in lacks.items():
            what = ", ".join(dict.fromkeys(f"{check.area} ({check.name})" for check in some))
            hint = "" if profile else f" See: pairwright doctor --profile {name}"
            print(
                f"{name}: cannot build here. It lacks {what}.{hint}"
                if some
                else f"{name}: can build here."
            )
    if all(lacks.values()):
        raise typer.Exit(options.OWED)


@app.command(
    epilog="Example: `pairwright schedule dataset --cron '0 2 * * *' --timezone Europe/Zurich`"
)
def schedule(
    dataset: options.DatasetUrl,
    cron: Annotated[
        str, Option(help="Times: minute, hour, day, month, weekday, as in crontab.")
    ] = "",
    timezone: Annotated[str, Option(help="Time zone of the schedule: Europe/Zurich.")] = "UTC",
    pool: Annotated[str, Option(help="Work pool that runs it.", envvar=POOL)] = "pairwright",
    serve: Annotated[bool, Option("--serve", help="Run it in this process, until Ctrl-C.")] = False,
    pause: Annotated[
        bool, Option("--pause", help="Pause the schedule; without --cron, the existing one.")
    ] = False,
) -> None:
    """Update a dataset on a schedule: a Prefect deployment that lists its source again and does what is owed."""
    from pairwright.flows.prefect import schedule_dataset as flow

    place = flow.check_schedule(dataset, cron, timezone, paused=pause)
    if not cron:
        again = f"pairwright schedule {shlex.quote(dataset)} --cron ..."
        print(f"{flow.pause_schedule(place)}: paused. Go on with: {again}")
        return
    deployment = flow.make_deployment(place, cron, timezone, paused=pause)
    if serve:
        print(
            f"Updates of {place} run here, at {cron} ({timezone}). Ctrl-C stops and pauses them.",
            flush=True,
        )
        flow.serve_schedule(deployment)
        print("The schedule is paused. The same command goes on with it.", file=sys.stderr)
        return
    print(
        f"{flow.apply_schedule(deployment, pool)}: {'paused' if pause else 'scheduled'} at {cron} ({timezone})"
    )
    print(
        f"Run a worker on a machine with access to {place}: prefect worker start --pool {pool} --type process"
    )


@app.command(epilog="Example: `pairwright publish dataset`")
def publish(dataset: options.DatasetUrl) -> None:
    """Publish the state of a dataset as its newest version, although its profile's gates held the build back."""
    verdict = options.open_dataset(dataset).publish()
    for gate in verdict.failed:
        print(f"Failed gate, ignored: {gate.say()}")
    print(
        f"Version {verdict.version} of {dataset} is current: export, report and training read it."
    )
