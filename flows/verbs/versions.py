"""The verbs of versions and those of the machine.

versions, diff, lineage, publish, remove, gc; doctor, schedule.
"""

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from pairwright.flows.verbs import options
from pairwright.flows.verbs.options import app

if TYPE_CHECKING:
    from pairwright.flows.versions.collect_garbage import Collected
    from pairwright.tasks.models.check_packages import MachineCheck

POOL = "PREFECT_DEPLOYMENTS_DEFAULT_WORK_POOL_NAME"


@app.command(epilog="Example: `pairwright versions dataset`")
def versions(dataset: options.DatasetUrl, as_json: options.AsJson = False) -> None:
    """List the versions of a dataset: time, rows, changed settings."""
    summaries = options.open_dataset(dataset).versions()
    if as_json:
        options.print_json(summaries)
    elif summaries:
        heads = ["version", "published", "from", "rows", "changed settings", ""]
        options.print_table(heads, *(summary.cells() for summary in summaries))
    else:
        print(
            f"No version of {dataset} is published yet. See: pairwright status "
            f"{shlex.quote(dataset)}"
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
    """Compare two versions: rows that came and went, changed settings.

    Also inputs with another outcome, and why.
    """
    difference = options.open_dataset(dataset).diff(before, after, stage=stage)
    if as_json:
        options.print_json(difference)
        return
    options.print_table(*difference.table_lines())
    for line in difference.lines():
        print(line)


@app.command(epilog="Example: `pairwright lineage dataset 3f2a9c`")
def lineage(
    dataset: options.DatasetUrl,
    key: Annotated[str, Argument(help="Key of an image or any other row, or a prefix of it.")],
    as_json: options.AsJson = False,
    version: options.Version = None,
) -> None:
    """Show everything made from a row, and everything it was made from.

    With model, prompt and seed of each.
    """
    from rich.console import Console

    traced = options.open_dataset(dataset, version).lineage(key)
    if as_json:
        options.print_json(traced)
        return
    width = None if sys.stdout.isatty() else 200
    Console(width=width, soft_wrap=True).print(*traced.trees())


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
    """Remove images on request.

    They and everything made from them leave all versions at once, and with `gc` the files; all
    other rows stay. The same bytes stay out if the source has them again. Files with nearly the
    same content are other images: exclude those with `pairwright build --exclude`. Without an
    image, lists the removals.
    """
    opened = options.open_dataset(dataset)
    if not (keys or name):
        for when, key, why in opened.removed():
            print(f"{when}\t{key}\t{why}")
        return
    removal = opened.remove(keys or (), names=name or (), reason=reason)
    for key in removal.before:
        print(f"{key} was already removed")
    for key in removal.unknown:
        print(f"{key} is not in the newest version; it stays out if the source has it later")
    if removal.rows:
        counts = ", ".join(f"{table} {count:,}" for table, count in removal.rows.items())
        print(f"Rows that leave: {counts}")
    if removal.keys:
        quoted = shlex.quote(dataset)
        print(f"{len(removal.keys):,} images are removed (entry {removal.number} of the list).")
        print("No export, training, report or page of any version holds them from now on.")
        print(f"To erase them from the files: pairwright gc {quoted}")


@app.command(epilog="Examples: `pairwright gc dataset --dry-run`, `pairwright gc dataset --keep 3`")
def gc(
    dataset: options.DatasetUrl,
    keep: Annotated[
        int | None, Option(min=1, help="Number of newest versions to keep (default: all).")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be deleted.")] = False,
) -> None:
    """Delete files that neither a kept version nor the current state needs.

    Removed images are erased: parts that hold one are written again without it, a version that
    names these is published, and older versions that hold one are deleted. Nothing is deleted while
    a build or a reader is running; on an object store, which has no locks, make sure of that
    yourself. Exports elsewhere are out of reach.
    """
    from pairwright.flows.building.progress import show_steps

    with show_steps("clearing up") as watch:
        collected = options.open_dataset(dataset).gc(keep=keep, dry_run=dry_run, watch=watch)
    _print_deleted(collected, dry_run=dry_run)
    for name in collected.broken:
        print(
            f"The unfinished training runs/{name} cannot continue: some of its rows are deleted. "
            "Train again under another --name"
        )
    if collected.swept and not dry_run:
        print(
            "Nothing of the removed images is left in the tables, but keys of their rows. "
            "Exports elsewhere are out of reach."
        )
    if collected.untouched:
        folders = ", ".join(collected.untouched)
        print(
            f"Not touched, may hold parts of them: {folders}. Delete trainings or train again. "
            "A model may have learnt from them."
        )


def _print_deleted(collected: "Collected", *, dry_run: bool) -> None:
    """Print what the garbage collection deleted, or would delete."""
    plan = collected.plan
    verb = "Would delete" if dry_run else "Deleted"
    for number, why in collected.gone.items():
        print(f"{verb} version {number}: {why}")
    if dry_run:
        for path in (*plan.files, *map(str, plan.folders)):
            print(f"{verb} {path}")
    freed = "" if dry_run else f": {collected.freed:,} bytes freed"
    kept = ", ".join(map(str, collected.kept)) or "none"
    print(
        f"{verb} {len(plan.files):,} files, {len(plan.folders):,} folders of journals and "
        f"caches{freed}. Versions kept: {kept}"
    )


DOCTOR = "pairwright doctor --profile"
COLOURS = {"ok": "green", "warning": "yellow", "missing": "red"}


@app.command(
    epilog="Examples: `pairwright doctor`, `pairwright doctor --profile laptop --until mining "
    "--out album`"
)
def doctor(
    profile: options.AnyProfile = "",
    settings: options.Settings = None,
    until: options.Until = "",
    out: options.Out = "",
    as_json: options.AsJson = False,
) -> None:
    """Check versions, devices, disk, weights and servers.

    Shows what a profile lacks, and how to fix each problem. Exits with 1 if the profile cannot
    build here.
    """
    from pairwright.flows.building.check_machine import check_machine, check_profile
    from pairwright.flows.building.find_models import profile_to_fetch
    from pairwright.flows.pipeline.load_profile import profile_names

    names = [profile] if profile else profile_names()
    changes = settings or [] if profile else []
    machine = list(check_machine(out, needs_gpu=profile.startswith("gpu")))
    checks = {name: list(check_profile(profile_to_fetch(name, changes), until)) for name in names}
    lacks: dict[str, list[MachineCheck]] = {}
    for name in names:
        lacks[name] = [check for check in (*machine, *checks[name]) if check.state == "missing"]
    if as_json:
        profiles = {name: {"can_build": not lacks[name], "checks": checks[name]} for name in names}
        options.print_json({"checks": machine, "profiles": profiles})
    else:
        _print_checks([*machine, *(checks[profile] if profile else ())])
        for name, missing in lacks.items():
            print(_say_lacks(name, missing, hint="" if profile else f" See: {DOCTOR} {name}"))
    if all(lacks.values()):
        raise typer.Exit(options.UNFINISHED)


def _print_checks(checks: "Sequence[MachineCheck]") -> None:
    """Print checks as a table, with what to do below each problem."""
    from rich.text import Text

    rows: list[tuple[Text | str, ...]] = []
    for check in checks:
        state = Text(check.state, COLOURS[check.state])
        texts = [text for text in (check.found, check.mend) if text]
        rows.append((state, check.area, check.name, "\n-> ".join(texts)))
    options.print_table([""] * 4, *rows)


def _say_lacks(profile: str, missing: "Sequence[MachineCheck]", *, hint: str) -> str:
    """Return whether a profile can build on this machine, and what it lacks."""
    if not missing:
        return f"{profile}: can build here."
    names = dict.fromkeys(f"{check.area} ({check.name})" for check in missing)
    return f"{profile}: cannot build here. It lacks {', '.join(names)}.{hint}"


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
    """Update a dataset on a schedule.

    A Prefect deployment that lists its source again and does what is unfinished.
    """
    from pairwright.flows.prefect import schedule_dataset as flow

    url = flow.check_schedule(dataset, cron, timezone, paused=pause)
    if not cron:
        again = f"pairwright schedule {shlex.quote(dataset)} --cron ..."
        print(f"{flow.pause_schedule(url)}: paused. Go on with: {again}")
        return
    deployment = flow.make_deployment(url, cron, timezone, paused=pause)
    if serve:
        print(
            f"Updates of {url} run here, at {cron} ({timezone}). Ctrl-C stops and pauses them.",
            flush=True,
        )
        flow.serve_schedule(deployment)
        print("The schedule is paused. The same command goes on with it.", file=sys.stderr)
        return
    name = flow.apply_schedule(deployment, pool)
    print(f"{name}: {'paused' if pause else 'scheduled'} at {cron} ({timezone})")
    print(
        f"Run a worker on a machine with access to {url}: "
        f"prefect worker start --pool {pool} --type process"
    )


@app.command(epilog="Example: `pairwright publish dataset`")
def publish(dataset: options.DatasetUrl) -> None:
    """Publish the state of a dataset as its newest version, whatever its profile's gates."""
    verdict = options.open_dataset(dataset).publish()
    for gate in verdict.failed:
        print(f"Failed gate, ignored: {gate.in_words()}")
    print(
        f"Version {verdict.version} of {dataset} is current: export, report and training read it."
    )
