"""The verbs that build a dataset: build, resume, plan, refilter, fetch."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from pairwright.flows.load_profile import load_profile
from pairwright.flows.verbs.options import (
    OWED,
    STOPPED,
    AsJson,
    DatasetUrl,
    Limit,
    Out,
    ProfileName,
    Settings,
    Source,
    Until,
    app,
    conclude,
    load_dataset,
    open_dataset,
    print_failures,
    print_reasons,
    print_stages,
    print_table,
    refuse_empty,
    run_flow,
    shown_size,
    stopping,
)
from pairwright.schemas.errors import PairwrightError

if TYPE_CHECKING:
    from pairwright.flows.dataset import Dataset


@app.command(epilog="Example: `pairwright build PHOTOS --out dataset --until mining`")
def build(
    out: Out,
    source: Source = None,
    profile: ProfileName = "scenes",
    settings: Settings = None,
    limit: Limit = None,
    until: Until = "",
    exclude: Annotated[
        list[str] | None, Option(help="Exclude images that nearly match one of this source (repeatable).")
    ] = None,
) -> None:
    """Build a dataset, or continue an earlier build of it."""
    load_profile(profile, settings or [])  # a wrong setting is refused before the stages are loaded
    words: dict[str, Any] = {"profile": profile, "settings": settings or [], "limit": limit, "until": until}
    words |= {"out": out, "source": source, "exclude": exclude or []}
    conclude(_run("build_dataset", words, out, lambda: load_dataset().build(**words)))


@app.command(epilog="Example: `pairwright resume dataset --stage captioning --reason 'no answer in time'`")
def resume(
    dataset: DatasetUrl,
    stage: Annotated[str, Option(help="Retry this stage only.")] = "",
    reason: Annotated[str, Option(help="Retry only rows that failed for this reason.")] = "",
    settings: Annotated[
        list[str] | None,
        Option("--set", help="Set a field of `run`, `gates` or `health`: run.budget.max_calls=5000 (repeatable)."),
    ] = None,
) -> None:
    """Finish the owed rows of a dataset: of a killed build, failed rows, rows beyond its budget."""
    words: dict[str, Any] = {"stage": stage, "reason": reason, "settings": settings or []}

    def resume_here() -> "Dataset":
        opened = open_dataset(dataset)
        opened.resume(**words)
        return opened

    conclude(_run("resume_dataset", {"dataset": dataset, **words}, dataset, resume_here))


def _run(flow: str, words: dict[str, Any], url: str, here: "Callable[[], Dataset]") -> "Dataset":
    """Build as a flow run if a Prefect server is configured; otherwise, or if the server is lost, in this process."""
    if os.environ.get("PREFECT_API_URL") and _run_with_prefect(flow, words):
        return open_dataset(url)
    with stopping(url):
        return here()


def _run_with_prefect(flow: str, words: dict[str, Any]) -> bool:
    """Run a build as a flow run; return whether its server lasted to the end. The build's errors are raised."""
    import httpx

    from pairwright.flows import build_dataset

    try:
        state = run_flow(getattr(build_dataset, flow), words)
    except httpx.HTTPError as error:
        print(f"{os.environ['PREFECT_API_URL']}: lost Prefect's server ({error}); no row is lost", file=sys.stderr)
        return False
    failure = state.result(raise_on_failure=False) if state.is_failed() else None
    if isinstance(failure, PairwrightError):
        raise failure
    return True


@app.command(epilog="Examples: `pairwright plan PHOTOS -p laptop --trial 50`, `pairwright plan --out dataset`")
def plan(
    source: Source = None,
    profile: Annotated[
        str, Option("--profile", "-p", help="Name of a profile, or a .yaml file (default: the dataset's own).")
    ] = "",
    settings: Settings = None,
    limit: Limit = None,
    until: Until = "",
    out: Annotated[
        str,
        Option("--out", "-o", metavar="FOLDER", callback=refuse_empty, help="A dataset: plan only its owed rows."),
    ] = "",
    trial: Annotated[int, Option(min=0, help="Build the first N rows (such as 50) to measure their cost.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show, per stage, what a build would do: rows, calls, tokens, time, disk. Builds only the trial."""
    if trial:
        print(f"Building a trial of {trial:,} rows ...", file=sys.stderr)
    words: dict[str, Any] = {"profile": profile, "settings": settings or [], "limit": limit, "until": until}
    with stopping(""):
        found = load_dataset().plan(source, out=out, **words, trial=trial)
    if as_json:
        print(json.dumps(found.as_json(), indent=1))
    else:
        _print_plan(found)


def _print_plan(plan: Any) -> None:
    new = "" if plan.is_new else f", {plan.new_items:,} of them new to {plan.request.folder.url}"
    print(f"{plan.request.profile.source} lists {plan.items:,} items{new}.")
    columns: dict[str, tuple[str, Callable[[float], str]]] = {
        "inputs": ("in", _number), "rows": ("rows", _number), "calls": ("calls", _number),
        "prompt_tokens": ("tokens in", _number), "completion_tokens": ("tokens out", _number),
        "bytes": ("disk", shown_size), "seconds": ("time", _time),
    }  # fmt: skip

    def cells(name: str, amounts: Mapping[str, float | None]) -> list[str]:
        shown = {field: "?" if amount is None else columns[field][1](amount) for field, amount in amounts.items()}
        return [name, *(shown.get(field, "") for field in columns)]

    on = {stage.name for stage in plan.request.pipeline.running}
    rows = [
        cells(one.stage, {field: getattr(one, field) for field in columns}) for one in plan.stages if one.stage in on
    ]
    print_table(["stage", *(f">{head}" for head, _ in columns.values())], *rows, cells("total", plan.totals))
    for note in plan.notes:
        print(f"Note: {note}")


def _number(amount: float) -> str:
    return f"{amount:,.0f}"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


CLUSTERED = (
    "Stricter thresholds can also add pairs: with fewer candidates, an image has other clusters, and the nearest of "
    "each cluster becomes a pair."
)


@app.command(epilog="Example: `pairwright refilter dataset --set mining.min_similarity=0.8`")
def refilter(
    dataset: DatasetUrl,
    settings: Settings = None,
    keep: Annotated[bool, Option("--keep", help="Keep these thresholds for the dataset.")] = False,
) -> None:
    """Try other mining thresholds on the stored similarities: which pairs come and go. Nothing is embedded again."""
    with stopping(dataset):
        found = open_dataset(dataset).refilter(settings or [], keep=keep)
    print_failures(found.failures)
    for title, counts in (("Before", found.before), ("After", found.after)):
        print(f"\n{title}")
        print_stages(counts)
        print_reasons(counts)
    print(f"\nPairs: {found.kept:,} stay, {found.gained:,} come, {found.lost:,} go.")
    if found.gained:
        print(f"{CLUSTERED} Among those that come: {'; '.join(found.gained_names)}.")
    if found.failures:
        raise typer.Exit(OWED)
    words = " ".join(f"--set {setting}" for setting in settings or [])
    if keep:
        print(f"Kept. Make the missing rows of these pairs with: pairwright resume {dataset}")
    else:
        print(f"The dataset is unchanged. To keep these pairs: pairwright refilter {dataset} {words} --keep")


@app.command(
    epilog="Examples: `pairwright fetch --profile gpu-80`, `pairwright fetch -p laptop --until mining --check`"
)
def fetch(
    source: Source = None,
    profile: ProfileName = "scenes",
    settings: Settings = None,
    until: Until = "",
    check: Annotated[bool, Option("--check", help="Fetch nothing: only verify the files on this machine.")] = False,
    served: Annotated[
        bool, Option("--served", help="Also fetch the models that vLLM loads (`launch.enabled`): tens of gigabytes.")
    ] = False,
) -> None:
    """Fetch and verify all weights that a build with the same options loads. Exits with 1 if some are missing."""
    from pairwright.flows import find_models as flow

    chosen = flow.profile_to_fetch(profile, settings or [], source)
    try:
        done = flow.fetch_weights(chosen, until, fetch=not check)
        if served:
            flow.fetch_served(chosen, until, done, fetch=not check)
        else:
            for name, chat in flow.served_on_hub(chosen, until).items():
                print(
                    f"Left out: {chat.model}, which vLLM loads ({name}). Add --served, or let vLLM fetch it: "
                    f"--set {name}.launch.download=true"
                )
    except KeyboardInterrupt:
        print("Stopped. Complete files are kept; the same command fetches the others.", file=sys.stderr)
        raise typer.Exit(STOPPED) from None
    _conclude_fetch(done, profile, check=check)


def _conclude_fetch(done: Any, profile: str, *, check: bool) -> None:
    for fault in done.faults:
        print(f"error: {fault}", file=sys.stderr)
    if done.files:
        rows = [
            (one.field, one.model, one.file, *((shown_size(one.size), how) if one.folder else ("", how)))
            for one in done.files
            for how in [one.how if not one.fault else "DAMAGED" if one.folder else "NOT HERE"]
        ]
        print_table(["section", "model", "file", ">size", "verified by"], *rows)
        for folder, sizes in done.places.items():
            count = "1 file" if len(sizes) == 1 else f"{len(sizes)} files"
            print(f"{folder}: {count}, {shown_size(sum(sizes))}")
    if done.faults:
        if check:
            print("Fetch the missing files with the same command without --check.", file=sys.stderr)
        raise typer.Exit(OWED)
    print(f"All weights of the {profile} profile are present." if done.files else f"{profile}: no weights to fetch.")
