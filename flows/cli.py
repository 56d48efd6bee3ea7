"""The command line. Exit codes: 0 all done, 1 rows still owed, 2 wrong usage or configuration, 130 stopped."""

import logging
import os
import sys
from typing import Annotated

import typer

from pairwright.flows.verbs.lazy_group import LazyGroup
from pairwright.flows.verbs.options import OWED, STOPPED, WRONG, load_plugins
from pairwright.schemas.errors import ConfigError, ModelError, PairwrightError, SourceError

app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,  # loading what draws boxes takes twice as long as all else
    pretty_exceptions_enable=False,
    help="Build synthetic image-difference and preference datasets. Start with: `pairwright build --out demo`",
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  (Typer calls it so)
    if wanted:
        from importlib.metadata import version

        print(f"pairwright {version('pairwright')}")
        raise typer.Exit


def _be_quiet(wanted: bool) -> None:  # noqa: FBT001
    if wanted:
        logging.getLogger().setLevel(logging.WARNING)
        logging.getLogger("pairwright").setLevel(logging.WARNING)


def _be_verbose(wanted: bool) -> None:  # noqa: FBT001
    if wanted:
        logging.getLogger("pairwright").setLevel(logging.DEBUG)


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", callback=_print_version, is_eager=True)
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Show warnings and the end only.", callback=_be_quiet, expose_value=False),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Log details, too.", callback=_be_verbose, expose_value=False),
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin",
            metavar="FILE.py",
            help="Load sources, stages, ... of your own from this file (repeatable).",
            callback=load_plugins,
            expose_value=False,
        ),
    ] = None,
) -> None:
    pass


def main() -> None:
    """Run the command line; turn errors into one message and an exit code."""
    keep_quiet()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("faiss").setLevel(logging.WARNING)  # it tells which of its builds it tries
    logging.getLogger("huggingface_hub").propagate = False  # it prints what it says itself
    for client in ("httpx", "httpx2"):  # they tell each request, signed addresses in full
        logging.getLogger(client).setLevel(logging.WARNING)
    try:
        app()
    except (ConfigError, SourceError, ModelError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(WRONG)
    except PairwrightError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(OWED)
    except KeyboardInterrupt:
        sys.exit(STOPPED)


def keep_quiet() -> None:
    """Switch Prefect's telemetry off for this process and those that it starts, unless its user has decided."""
    if not {"DO_NOT_TRACK", "PREFECT_SERVER_ANALYTICS_ENABLED"} & os.environ.keys():
        os.environ.update(DO_NOT_TRACK="1", PREFECT_SERVER_ANALYTICS_ENABLED="false")


if __name__ == "__main__":
    main()
