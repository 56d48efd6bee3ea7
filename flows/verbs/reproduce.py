"""The verb of papers' tables: reproduce."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from pairwright.flows.verbs import options
from pairwright.flows.verbs.options import app
from pairwright.schemas.errors import ConfigError

if TYPE_CHECKING:
    from pairwright.flows.training.reproduce_paper import Reproducer


@app.command(
    epilog="Examples: `pairwright reproduce adpo --data DATA`, `pairwright reproduce adpo "
    "--scale paper --plan`"
)
def reproduce(
    paper: Annotated[str, Argument(help="Name of the paper, or list.")] = "list",
    data: Annotated[
        Path | None,
        Option(help="Folder with a folder per source and benchmark, of its name: clevr-change."),
    ] = None,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="Folder to write (default: reproductions/PAPER-SCALE)."),
    ] = None,
    scale: Annotated[
        str, Option(help="small: a tiny model, a few steps and items; or paper.")
    ] = "small",
    model: Annotated[
        str, Option(help="Start model, a folder or a name on the Hub (default: the paper's).")
    ] = "",
    arms: Annotated[
        str, Option(help="Arms, with commas between (default: all but ablations).")
    ] = "",
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="FIELD=VALUE", help="Set a field of all trainings (repeatable)."),
    ] = None,
    build_settings: Annotated[
        list[str] | None,
        Option(
            "--build-set",
            metavar="FIELD=VALUE",
            help="Set a field of all builds: models.language.endpoint=... (repeatable).",
        ),
    ] = None,
    judge: Annotated[
        str, Option(help="Judge of tables that need one: a server's address, or a profile.")
    ] = "",
    launcher: Annotated[
        str,
        Option(help='Start trainings by this command: "torchrun --nproc-per-node 2".'),
    ] = "",
    plan: Annotated[
        bool, Option("--plan", help="Show the steps, with what they take; run nothing.")
    ] = False,
) -> None:
    """Make a paper's tables: build its datasets, train its arms, ask its benchmarks.

    Prints the scores beside the paper's, and writes a page. After any stop, the same command
    continues.
    """
    from pairwright.flows.training.plan_reproduction import list_papers, plan_lines
    from pairwright.flows.training.reproduce_paper import Reproducer, ReproductionConfig

    if paper == "list":
        options.print_table(["paper", "title", "tables", "folders of --data"], *list_papers())
        return
    if data is None and not plan:
        raise ConfigError("--data is missing: name the folder with the published data sets")
    config = ReproductionConfig(
        paper=paper,
        data=data or Path("DATA"),
        to=out or Path("reproductions") / f"{paper}-{scale}",
        scale=scale,
        model=model,
        arms=[name.strip() for name in arms.split(",") if name.strip()],
        settings=settings or [],
        build_settings=build_settings or [],
        judge=judge,
        launcher=launcher,
    )
    if plan:
        reproducer = Reproducer(config, needs_data=False)
        options.print_table(*plan_lines(reproducer))
        for table, reason in reproducer.left_out.items():
            print(f"{table} cannot be made yet: {reason}")
        return
    _run(Reproducer(config))


def _run(reproducer: "Reproducer") -> None:
    """Run the steps, here or in Prefect, and print the tables."""
    import os

    from pairwright.flows.training.reproduce_paper import reproduce as run_steps

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if os.environ.get("PREFECT_API_URL"):
            from pairwright.flows.prefect.run_in_prefect import reproduce_paper

            options.run_flow(reproduce_paper, {"config": reproducer.config})
        else:
            for _ in run_steps(reproducer):
                pass
    except KeyboardInterrupt:
        options.print_note("Stopped. The same command continues.")
        raise typer.Exit(options.STOPPED) from None
    for table in reproducer.tables:
        outcome = reproducer.read_table(table)
        print(f"\n{outcome.name}")
        heads = [outcome.heads[0], *(f">{head}" for head in outcome.heads[1:])]
        options.print_table(heads, *((row.arm, *row.cells()[1:]) for row in outcome.rows))
        for note in outcome.notes:
            print(note)
    _print_left_out(reproducer)
    print(f"\nLook at it: {reproducer.write_page()}")


def _print_left_out(reproducer: "Reproducer") -> None:
    for name, reason in reproducer.left_out.items():
        print(f"{name} was left out: {reason}")
