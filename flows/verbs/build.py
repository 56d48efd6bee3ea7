"""The verbs that build a dataset: build, resume, plan, refilter, fetch."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.flows.verbs import options
from pairwright.flows.verbs.options import app

if TYPE_CHECKING:
    from pairwright.flows.dataset import Dataset


@app.command(epilog="Example: `pairwright build PHOTOS --out dataset --until mining`")
def build(
    out: options.Out,
    source: options.Source = None,
    profile: options.ProfileName = "scenes",
    settings: options.Settings = None,
    limit: options.Limit = None,
    until: options.Until = "",
    exclude: Annotated[
        list[str] | None,
        Option(help="Exclude images that nearly match one of this source (repeatable)."),
    ] = None,
) -> None:
    """Build a dataset, or continue an earlier build of it."""
    load_profile(profile, settings or [])  # a wrong setting is refused before the stages are loaded
    words: dict[str, Any] = {
        "out": out,
        "source": source,
        "profile": profile,
        "settings": settings or [],
    }
    words |= {"limit": limit, "until": until, "exclude": exclude or []}
    _run("build_dataset", words, out, lambda: options.load_dataset().build(**words))


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
            help="Set a field of `run`, `gates` or `health`: run.budget.max_calls=5000 (repeatable).",
        ),
    ] = None,
) -> None:
    """Finish the owed rows of a dataset: of a killed build, failed rows, rows beyond its budget."""
    words: dict[str, Any] = {"stage": stage, "reason": reason, "settings": settings or []}

    def resume_here() -> "Dataset":
        opened = options.open_dataset(dataset)
        opened.resume(**words)
        return opened

    _run("resume_dataset", {"dataset": dataset, **words}, dataset, resume_here)


def _run(flow: str, words: dict[str, Any], url: str, here: "Callable[[], Dataset]") -> None:
    """Build as a flow run if a Prefect server is configured; otherwise, or if the server is lost, in this process."""
    if server := os.environ.get("PREFECT_API_URL"):
        import httpx

        from pairwright.flows.prefect import build_dataset

        try:
            options.run_flow(getattr(build_dataset, flow), words)
        except httpx.HTTPError as error:
            print(f"{server}: lost Prefect's server ({error}); no row is lost", file=sys.stderr)
        else:
            return options.conclude(options.open_dataset(url))
    with options.stopping(url):
        built = here()
    return options.conclude(built)


@app.command(
    epilog="Examples: `pairwright plan PHOTOS -p laptop --trial 50`, `pairwright plan --out dataset`"
)
def plan(
    source: options.Source = None,
    profile: options.AnyProfile = "",
    settings: options.Settings = None,
    limit: options.Limit = None,
    until: options.Until = "",
    out: options.Out = "",
    trial: Annotated[
        int, Option(min=0, help="Build the first N rows (such as 50) to measure their cost.")
    ] = 0,
    as_json: options.AsJson = False,
) -> None:
    """Show, per stage, what a build would do: rows, calls, tokens, time, disk. Builds only the trial.

    With --out, only what the dataset there owes.
    """
    if trial:
        print(f"Building a trial of {trial:,} rows ...", file=sys.stderr)
    words: dict[str, Any] = {
        "profile": profile,
        "settings": settings or [],
        "limit": limit,
        "until": until,
    }
    with options.stopping(""):
        found = options.load_dataset().plan(source, out=out, **words, trial=trial)
    if as_json:
        options.print_json(found.as_json())
    else:
        _print_plan(found)


def _print_plan(plan: Any) -> None:
    new = "" if plan.is_new else f", {plan.new_items:,} of them new to {plan.version.folder.url}"
    print(f"{plan.version.profile.source} lists {plan.items:,} items{new}.")
    heads = {"inputs": "in", "prompt_tokens": "tokens in", "completion_tokens": "tokens out"}
    heads |= {"bytes": "disk", "seconds": "time"}
    shown = {"bytes": options.shown_size, "seconds": _time}

    def cells(name: str, amounts: Mapping[str, float | None]) -> Iterator[str]:
        yield name
        for field in columns:
            amount = amounts.get(field)
            known = "" if amount is None else shown.get(field, "{:,.0f}".format)(amount)
            yield known or ("?" if field in amounts else "")

    columns = list(next(iter(plan.stages.values())))
    rows = [
        list(cells(stage.name, plan.stages[stage.name])) for stage in plan.version.pipeline.running
    ]
    options.print_table(
        ["stage", *(f">{heads.get(name, name)}" for name in columns)],
        *rows,
        list(cells("total", plan.totals)),
    )
    for note in plan.notes:
        print(f"Note: {note}")


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
    dataset: options.DatasetUrl,
    settings: options.Settings = None,
    keep: Annotated[bool, Option("--keep", help="Keep these thresholds for the dataset.")] = False,
) -> None:
    """Try other mining thresholds on the stored similarities: which pairs come and go. Nothing is embedded again."""
    with options.stopping(dataset):
        found = options.open_dataset(dataset).refilter(settings or [], keep=keep)
    options.print_failures(found.failures)
    for title, counts in (("Before", found.before), ("After", found.after)):
        print(f"\n{title}")
        options.print_stages(counts)
        options.print_reasons(counts)
    print(f"\nPairs: {found.kept:,} stay, {found.gained:,} come, {found.lost:,} go.")
    if found.gained:
        print(f"{CLUSTERED} Among those that come: {'; '.join(found.gained_names)}.")
    if found.failures:
        raise typer.Exit(options.OWED)
    words = " ".join(f"--set {setting}" for setting in settings or [])
    if keep:
        print(f"Kept. Make the missing rows of these pairs with: pairwright resume {dataset}")
    else:
        print(
            f"The dataset is unchanged. To keep these pairs: pairwright refilter {dataset} {words} --keep"
        )


@app.command(
    epilog="Examples: `pairwright fetch --profile gpu-80`, `pairwright fetch -p laptop --until mining --check`"
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
    """Fetch and verify all weights that a build with the same options loads. Exits with 1 if some are missing."""
    from pairwright.flows.building import find_models as flow

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
        print(
            "Stopped. Complete files are kept; the same command fetches the others.",
            file=sys.stderr,
        )
        raise typer.Exit(options.STOPPED) from None
    for fault in done.faults:
        print(f"error: {fault}", file=sys.stderr)
    if done.files:
        rows = [
            (
                *(
                    one.field,
                    one.model,
                    one.file,
                    options.shown_size(one.size) if one.folder else "",
                ),
                one.how if not one.fault else "DAMAGED" if one.folder else "NOT HERE",
            )
            for one in done.files
        ]
        options.print_table(["section", "model", "file", ">size", "verified by"], *rows)
        for folder, sizes in done.folder_sizes.items():
            print(
                f"{folder}: {len(sizes)} file{'s' * (len(sizes) > 1)}, {options.shown_size(sum(sizes))}"
            )
    if done.faults:
        if check:
            print("Fetch the missing files with the same command without --check.", file=sys.stderr)
        raise typer.Exit(options.OWED)
    print(
        f"All weights of the {profile} profile are present."
        if done.files
        else f"{profile}: no weights to fetch."
    )
