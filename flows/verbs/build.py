"""The verbs that build a dataset: build, resume, plan, refilter, fetch."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.flows.verbs import options
from pairwright.flows.verbs.options import app
from pairwright.schemas.addresses import check_address

if TYPE_CHECKING:
    from pairwright.flows.building.find_models import Fetched
    from pairwright.flows.building.plan_build import Plan
    from pairwright.flows.dataset import Dataset
    from pairwright.schemas.writing import ChatConfig

PLAN_HEADS = {
    "inputs": "in",
    "prompt_tokens": "tokens in",
    "completion_tokens": "tokens out",
    "bytes": "disk",
    "seconds": "time",
}  # heads of a plan's columns


@app.command(epilog="Example: `pairwright build PHOTOS --out dataset --until mining`")
def build(
    out: options.Out,
    source: options.Sources = None,
    profile: options.ProfileName = "scenes",
    settings: options.Settings = None,
    limit: options.Limit = None,
    until: options.Until = "",
    exclude: Annotated[
        list[str] | None,
        Option(help="Exclude images that nearly match one of this source (repeatable)."),
    ] = None,
    planted: options.Planted = 0,
    golden: Annotated[
        str, Option(help="Pair each image of the folder with this one (reading.golden).")
    ] = "",
) -> None:
    """Build a dataset, or continue an earlier build of it."""
    if golden:
        settings = [*(settings or []), f"reading.golden={golden}"]
    for text in (out, *(source or ()), *(exclude or ()), *(settings or ())):
        check_address(text)  # before it is a parameter of a flow run
    load_profile(profile, settings or [])  # a wrong setting is refused before the stages are loaded
    kwargs: dict[str, Any] = {
        "out": out,
        "source": source,
        "profile": profile,
        "settings": settings or [],
        "limit": limit,
        "until": until,
        "exclude": exclude or [],
        "planted": planted,
    }
    _run("build_dataset", kwargs, out, lambda: options.load_dataset().build(**kwargs))


@app.command(
    epilog="Example: `pairwright resume dataset --stage captioning --reason 'no answer in time'`"
)
def resume(
    dataset: options.DatasetUrl,
    stage: Annotated[str, Option(help="Retry this stage only.")] = "",
    reason: Annotated[str, Option(help="Retry only rows that failed for this reason.")] = "",
    settings: Annotated[
        list[str] | None,
        Option(
            "--set",
            help="Set a field of `run`, `gates` or `health`: run.budget.max_calls=5000 "
            "(repeatable).",
        ),
    ] = None,
    rescan: Annotated[
        bool,
        Option(
            "--rescan",
            help="Read all bytes of the source again, also of files of equal size and time.",
        ),
    ] = False,
) -> None:
    """Finish the unfinished rows of a dataset.

    These are the rows of a killed build, failed rows, and rows beyond its budget.
    """
    kwargs: dict[str, Any] = {
        "stage": stage,
        "reason": reason,
        "settings": settings or [],
        "rescan": rescan,
    }

    def resume_here() -> "Dataset":
        opened = options.open_dataset(dataset)
        opened.resume(**kwargs)
        return opened

    _run("resume_dataset", {"dataset": dataset, **kwargs}, dataset, resume_here)


def _run(flow: str, kwargs: dict[str, Any], url: str, here: "Callable[[], Dataset]") -> None:
    """Build as a flow run if a Prefect server is configured, else, or if it is lost, here."""
    server = os.environ.get("PREFECT_API_URL")
    if server and _run_in_prefect(flow, kwargs, server):
        return options.conclude(options.open_dataset(url))
    with options.stopping(url):
        built = here()
    return options.conclude(built)


def _run_in_prefect(flow: str, kwargs: dict[str, Any], server: str) -> bool:
    """Build as a flow run; return whether Prefect's server lasted to the end."""
    import httpx

    from pairwright.flows.prefect import build_dataset

    try:
        options.run_flow(getattr(build_dataset, flow), kwargs)
    except httpx.HTTPError as error:
        print(f"{server}: lost Prefect's server ({error}); no row is lost", file=sys.stderr)
        return False
    return True


@app.command(
    epilog="Examples: `pairwright plan PHOTOS -p laptop --trial 50`, `pairwright plan --out "
    "dataset`"
)
def plan(
    source: options.Sources = None,
    profile: options.AnyProfile = "",
    settings: options.Settings = None,
    limit: options.Limit = None,
    until: options.Until = "",
    out: options.Out = "",
    planted: options.Planted = 0,
    trial: Annotated[
        int, Option(min=0, help="Build the first N rows (such as 50) to measure their cost.")
    ] = 0,
    as_json: options.AsJson = False,
) -> None:
    """Show, per stage, what a build would do: rows, calls, tokens, time, disk.

    Builds only the trial. With --out, only the unfinished rows of the dataset there.
    """
    if trial:
        print(f"Building a trial of {trial:,} rows ...", file=sys.stderr)
    with options.stopping(""):
        planned = options.load_dataset().plan(
            source,
            out=out,
            profile=profile,
            settings=settings or [],
            limit=limit,
            until=until,
            planted=planted,
            trial=trial,
        )
    if as_json:
        options.print_json(planned.as_json())
    else:
        print_plan(planned)


def print_plan(plan: "Plan") -> None:
    """Print what a build would do, as a table of its stages."""
    url = plan.version.folder.url
    new = "" if plan.is_new else f", {plan.new_items:,} of them new to {url}"
    sources = " and ".join(plan.version.profile.all_sources)
    print(f"{sources}: {plan.items:,} items{new}.")
    columns = list(next(iter(plan.stages.values())))
    rows: list[list[str]] = []
    for stage in plan.version.pipeline.running:
        amounts = plan.stages[stage.name]
        rows.append([stage.name, *(_format_amount(name, amounts) for name in columns)])
    totals = ["total", *(_format_amount(name, plan.totals) for name in columns)]
    heads = ["stage", *(f">{PLAN_HEADS.get(name, name)}" for name in columns)]
    options.print_table(heads, *rows, totals)
    for note in plan.notes:
        print(f"Note: {note}")


def _format_amount(name: str, amounts: Mapping[str, float | None]) -> str:
    """Return an amount as a cell; "?": unknown; empty: it has none."""
    if name not in amounts:
        return ""
    amount = amounts[name]
    if amount is None:
        return "?"
    if name == "bytes":
        return options.shown_size(amount)
    if name == "seconds":
        return _format_time(amount)
    return f"{amount:,.0f}"


def _format_time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:,.0f} min"
    return f"{seconds / 3600:,.1f} h"


CLUSTERED = (
    "Stricter thresholds can also add pairs: with fewer candidates, an image has other clusters, "
    "and the nearest of each cluster becomes a pair."
)


@app.command(epilog="Example: `pairwright refilter dataset --set mining.min_similarity=0.8`")
def refilter(
    dataset: options.DatasetUrl,
    settings: options.Settings = None,
    keep: Annotated[bool, Option("--keep", help="Keep these thresholds for the dataset.")] = False,
) -> None:
    """Try other mining thresholds on the stored similarities: which pairs come and go.

    Nothing is embedded again.
    """
    with options.stopping(dataset):
        refiltered = options.open_dataset(dataset).refilter(settings or [], keep=keep)
    options.print_failures(refiltered.failures)
    for title, counts in (("Before", refiltered.before), ("After", refiltered.after)):
        print(f"\n{title}")
        options.print_stages(counts)
        options.print_reasons(counts)
    print(f"\nPairs: {refiltered.kept:,} stay, {refiltered.gained:,} come, {refiltered.lost:,} go.")
    if refiltered.gained:
        print(f"{CLUSTERED} Among those that come: {'; '.join(refiltered.gained_names)}.")
    if refiltered.failures:
        raise typer.Exit(options.UNFINISHED)
    if keep:
        print(f"Kept. Make the missing rows of these pairs with: pairwright resume {dataset}")
        return
    arguments = " ".join(f"--set {setting}" for setting in settings or [])
    print(
        f"The dataset is unchanged. To keep these pairs: pairwright refilter {dataset} {arguments} "
        "--keep"
    )


@app.command(
    epilog="Examples: `pairwright fetch --profile gpu-80`, `pairwright fetch -p laptop --until "
    "mining --check`"
)
def fetch(
    source: options.Source = None,
    profile: options.ProfileName = "scenes",
    settings: options.Settings = None,
    until: options.Until = "",
    check: Annotated[
        bool, Option("--check", help="Fetch nothing: only verify the files on this machine.")
    ] = False,
    served: Annotated[
        bool,
        Option(
            "--served",
            help="Also fetch the models that vLLM loads (`launch.enabled`): tens of gigabytes.",
        ),
    ] = False,
) -> None:
    """Fetch and verify all weights that a build with the same options loads.

    Exits with 1 if some are missing.
    """
    from pairwright.flows.building import find_models

    chosen = find_models.profile_to_fetch(profile, settings or [], source)
    try:
        fetched = find_models.fetch_weights(chosen, until, fetch=not check)
        if served:
            find_models.fetch_served(chosen, until, fetched, fetch=not check)
        else:
            _print_left_out(find_models.served_on_hub(chosen, until))
    except KeyboardInterrupt:
        print(
            "Stopped. Complete files are kept; the same command fetches the others.",
            file=sys.stderr,
        )
        raise typer.Exit(options.STOPPED) from None
    for fault in fetched.faults:
        print(f"error: {fault}", file=sys.stderr)
    if fetched.files:
        _print_files(fetched)
    if fetched.faults:
        if check:
            print("Fetch the missing files with the same command without --check.", file=sys.stderr)
        raise typer.Exit(options.UNFINISHED)
    if fetched.files:
        print(f"All weights of the {profile} profile are present.")
    else:
        print(f"{profile}: no weights to fetch.")


def _print_left_out(served: "Mapping[str, ChatConfig]") -> None:
    """Print the models that vLLM loads itself."""
    for name, chat in served.items():
        print(
            f"Left out: {chat.model}, which vLLM loads ({name}). Add --served, or let vLLM fetch "
            f"it: --set {name}.launch.download=true"
        )


def _print_files(fetched: "Fetched") -> None:
    """Print the files, and their sizes by folder."""
    rows: list[tuple[str, ...]] = []
    for file in fetched.files:
        size = options.shown_size(file.size) if file.folder else ""
        state = file.how
        if file.fault:
            state = "DAMAGED" if file.folder else "NOT HERE"
        rows.append((file.field, file.model, file.file, size, state))
    options.print_table(["section", "model", "file", ">size", "verified by"], *rows)
    for folder, sizes in fetched.folder_sizes.items():
        files = f"{len(sizes)} file{'s' if len(sizes) > 1 else ''}"
        print(f"{folder}: {files}, {options.shown_size(sum(sizes))}")
