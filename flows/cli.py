"""The command line.

Exit codes: 0 all done, 1 rows still unfinished, 2 wrong usage or configuration, 130 stopped.
"""

import logging
import os
import sys
from importlib import import_module
from itertools import groupby
from typing import Annotated, Any, Literal

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

from pairwright.flows.verbs import VERBS
from pairwright.flows.verbs.options import STOPPED, UNFINISHED, WRONG, load_plugins
from pairwright.flows.verbs.options import app as registered
from pairwright.schemas.errors import ConfigError, ModelError, PairwrightError, SourceError

WORDS = {int: "NUMBER", float: "NUMBER"}
SHARED = ("quiet", "verbose", "log_format", "plugin")  # options allowed before or after a verb


class LazyGroup(TyperGroup):
    """Group of the verbs in ``VERBS``; a verb's module is loaded on use."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs["commands"] = {verb.name: TyperCommand(verb.name, help=verb.help) for verb in VERBS}
        super().__init__(**kwargs)
        self._modules = {verb.name: verb.module for verb in VERBS}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load the module of a verb, and return the verb."""
        module = self._modules.pop(cmd_name, "")
        if module:
            import_module(f"pairwright.flows.verbs.{module}")
            verb = typer.main.get_group(registered).commands[cmd_name]
            commands = verb.commands.values() if isinstance(verb, TyperGroup) else [verb]
            for command in commands:
                self._finish(command)
            self.commands[cmd_name] = verb
        return super().get_command(ctx, cmd_name)

    def _finish(self, command: Any) -> None:
        """Add the shared options to a verb, and name values in words.

        ``--limit NUMBER``, not INTEGER.
        """
        command.params += [param for param in self.params if param.name in SHARED]
        for param in command.params:
            if param.metavar is None:
                param.metavar = WORDS.get(param.type_descriptor.annotation, param.name.upper())
            if param.param_type_name == "argument":
                param.display_type_rich = lambda ctx: ""  # noqa: ARG005  (DATASET, not DATASET <str>)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a panel for each kind of verbs, without loading any."""
        del ctx
        for panel, verbs in groupby(VERBS, key=lambda verb: verb.panel):
            with formatter.section(panel):
                formatter.write_dl([(verb.name, verb.help) for verb in verbs])


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,  # loading rich takes twice as long as everything else
    pretty_exceptions_enable=False,
    help="Build synthetic image-difference and preference datasets. Start with: `pairwright build "
    "--out demo`",
)


def _print_version(enabled: bool) -> None:  # noqa: FBT001  (Typer calls it so)
    if enabled:
        from importlib.metadata import version

        print(f"pairwright {version('pairwright')}")
        raise typer.Exit


def _be_quiet(enabled: bool) -> None:  # noqa: FBT001
    if enabled:
        for name in ("", "pairwright"):
            logging.getLogger(name).setLevel(logging.WARNING)


def _be_verbose(enabled: bool) -> None:  # noqa: FBT001
    if enabled:
        logging.getLogger("pairwright").setLevel(logging.DEBUG)


def _format_log(log_format: str) -> None:
    if log_format == "json":
        from pairwright.flows.building.progress import JsonLines

        for handler in logging.root.handlers:
            handler.setFormatter(JsonLines())


@app.callback()
def _main(
    version: Annotated[
        bool,
        Option(
            "--version", help="Show the version and end.", callback=_print_version, is_eager=True
        ),
    ] = False,
    quiet: Annotated[
        bool,
        Option(
            "--quiet",
            "-q",
            help="Show warnings and the end only.",
            callback=_be_quiet,
            expose_value=False,
        ),
    ] = False,
    verbose: Annotated[
        bool,
        Option(
            "--verbose", "-v", help="Log more details.", callback=_be_verbose, expose_value=False
        ),
    ] = False,
    log_format: Annotated[
        Literal["text", "json"],
        Option(
            "--log-format",
            help="Log lines as text or as JSON objects.",
            callback=_format_log,
            expose_value=False,
        ),
    ] = "text",
    plugin: Annotated[
        list[str] | None,
        Option(
            metavar="FILE.py",
            help="Load your own sources, stages, ... from this file (repeatable).",
            callback=load_plugins,
            expose_value=False,
        ),
    ] = None,
) -> None:
    pass


def main() -> None:
    """Run the command line; turn errors into one message and an exit code."""
    keep_quiet()
    # docker/notify.yaml marks runs that send no more as crashed
    os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("huggingface_hub").propagate = False  # it prints its own lines
    # They log the builds that they try to load, where credentials were found, each request with its
    # signed address.
    for library in ("faiss", "botocore", "aiobotocore", "httpx", "httpx2"):
        logging.getLogger(library).setLevel(logging.WARNING)
    try:
        app()
    except PairwrightError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(WRONG if isinstance(error, ConfigError | SourceError | ModelError) else UNFINISHED)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(STOPPED)
    except SystemExit as end:
        cause = end.__context__.__cause__ if end.__context__ else None
        if isinstance(cause, KeyboardInterrupt):  # no verb has reported it
            print("Stopped.", file=sys.stderr)
        raise


def keep_quiet() -> None:
    """Switch Prefect's telemetry off for this process, unless the user has set it."""
    if not {"DO_NOT_TRACK", "PREFECT_SERVER_ANALYTICS_ENABLED"} & os.environ.keys():
        os.environ.update(DO_NOT_TRACK="1", PREFECT_SERVER_ANALYTICS_ENABLED="false")


if __name__ == "__main__":
    main()
