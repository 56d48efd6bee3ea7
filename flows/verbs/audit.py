"""The verb that audits a dataset: what its texts and checks are worth."""

from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from pairwright.flows.verbs import options
from pairwright.flows.verbs.options import app

if TYPE_CHECKING:
    from pairwright.flows.building.audit_dataset import Audited


@app.command(
    epilog="Examples: `pairwright audit dataset --plan`, `pairwright audit dataset --pairs 100`"
)
def audit(
    dataset: options.DatasetUrl,
    pairs: Annotated[int, Option(min=1, help="Number of planted pairs.")] = 200,
    plan: Annotated[
        bool, Option("--plan", help="Show what it would do, per stage; only copies photographs.")
    ] = False,
    trial: Annotated[
        int, Option(min=0, help="With --plan: build the first N photographs to measure their cost.")
    ] = 0,
    as_json: options.AsJson = False,
) -> None:
    """Measure how far to trust the texts about a dataset's photographs.

    Plants known changes into some of them, has the dataset's own writer describe these and its own
    checks judge the texts, and holds all against the truth. The same command resumes it.
    """
    opened = options.open_dataset(dataset)
    if plan:
        from pairwright.flows.verbs.build import print_plan

        with options.stopping(""):
            planned = opened.plan_audit(pairs=pairs, trial=trial)
        if as_json:
            options.print_json(planned.as_json())
        else:
            print_plan(planned)
        return
    with options.stopping(""):
        audited = opened.audit(pairs=pairs)
    if as_json:
        options.print_json(audited.worth.as_json())
    else:
        _print_worth(audited, dataset)
    if not audited.report.is_complete:
        print(f"Rows are unfinished. Go on with: pairwright audit {dataset} --pairs {pairs}")
        raise typer.Exit(options.UNFINISHED)


def _print_worth(audited: "Audited", dataset: str) -> None:
    """Print what texts and checks are worth, as tables."""
    from pairwright.tasks.audit.write_audit import say_measures, show_share

    worth = audited.worth
    print(f"{dataset}: {worth.pairs:,} planted pairs")
    measures = [(name, value) for name, value, _ in say_measures(worth)]
    options.print_table(["measure", "share (95 % interval)"], *measures)
    if worth.unclear:
        print(f"Texts of unknown truth, which count in no share: {worth.unclear:,}")
    if worth.undescribed:
        print(f"Pairs without an accepted text: {worth.undescribed:,}")
    checks: list[tuple[str, str, str]] = []
    for check in worth.checks:
        checks.append((check.name, show_share(check.true_kept), show_share(check.false_kept)))
    if checks:
        options.print_table(["check", "true texts kept", "false texts kept"], *checks)
    for check in worth.checks:
        if check.advice:
            print(check.advice)
    print(f"Open {audited.page}")
