"""Write the reference pages of commands, the Python API, sources, formats, benchmarks and errors: ``make docs``.

A test holds that the committed pages are what the source gives.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

import pairwright as pw
from pairwright.flows.cli import SHARED, app
from pairwright.flows.verbs import VERBS
from pairwright.schemas import errors
from pairwright.tasks.evaluation.benchmark_list import BENCHMARKS
from pairwright.tasks.export.formats import FORMATS
from pairwright.tasks.sources.readers import READERS

MADE = "<!-- Made by `make docs`. Change the source, not this page. -->"
EXIT_CODES = """\
| code | meaning |
|---|---|
| 0 | all done |
| 1 | finished with rows still owed, or held back by a gate: the message says how to go on |
| 2 | wrong usage or configuration (the message names the file and the field), or a source that cannot be read |
| 130 | stopped by Ctrl-C or SIGTERM: the message says how to go on |"""


def write_command_page() -> str:
    """Return a page with every verb of the command line, its arguments and options."""
    group: Any = typer.main.get_command(app)
    lines = [
        "# Command line",
        MADE,
        "`pairwright VERB --help` says the same.",
        "## Options of every verb",
    ]
    lines.append(_options(one for one in group.params if one.name in SHARED))
    for panel, verbs in groupby(VERBS, key=lambda verb: verb.panel):
        lines.append(f"## {panel}")
        for verb in verbs:
            command = group.get_command(None, verb.name)
            for name, one in getattr(command, "commands", {"": command}).items():
                lines += _command(f"{verb.name} {name}".strip(), one)
    return "\n\n".join(lines) + "\n"


def _command(name: str, command: Any) -> Iterator[str]:
    given = [one.metavar for one in command.params if one.param_type_name == "argument"]
    yield f"### pairwright {name}"
    yield f"`pairwright {' '.join([name, *given])} [OPTIONS]`"
    yield _text(command.help)
    own = [one for one in command.params if one.name not in SHARED and one.name != "help"]
    if own:
        yield _options(own)


def _options(params: Iterable[Any]) -> str:
    rows = ["| option | meaning |", "|---|---|"]
    for one in params:
        names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
        value = (
            ""
            if one.param_type_name == "argument" or one.is_flag
            else f" `{one.metavar or one.name.upper()}`"
        )
        shown = f"`{one.metavar}`" if one.param_type_name == "argument" else names + value
        rows.append(f"| {shown} | {_cell(one.help or '')} |")
    return "\n".join(rows)


def write_python_page() -> str:
    """Return a page with the public names of the package: signatures and docstrings."""
    lines = [
        "# Python API",
        MADE,
        f"```python\n{inspect.cleandoc(pw.__doc__ or '').partition('Importing')[0].strip()}\n```",
    ]
    for name in ("build", "open", "load_plugin"):
        lines += _function(f"pw.{name}", getattr(pw, name))
    for kind in (pw.Dataset, pw.Table, pw.Pipeline):
        lines += [f"## {kind.__name__}", _text(inspect.getdoc(kind))]
        for name, member in vars(kind).items():
            inner = getattr(member, "__func__", getattr(member, "fget", None) or member)
            if (
                not name.startswith("_")
                and inspect.isfunction(inner)
                and (kind, name) != (pw.Dataset, "open")
            ):
                lines += _function(
                    f"{kind.__name__}.{name}", inner, called=not isinstance(member, property)
                )
    return "\n\n".join(lines) + "\n"


def _function(name: str, function: Any, *, called: bool = True) -> Iterator[str]:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    given = node.args if isinstance(node, ast.FunctionDef) else ast.arguments()
    given.args = [one for one in given.args if one.arg not in ("self", "cls")]
    yield f"### {name}"
    if called:
        yield f"```python\n{name}({ast.unparse(given)})\n```"
    about = _text(inspect.getdoc(function)).replace("Args:\n", "Args:\n\n")
    yield re.sub(r"^ {4}(?=\w)", "* ", about, flags=re.MULTILINE)


def write_sources_page() -> str:
    """Return a page with every kind of source."""
    lines = ["# Source kinds", MADE, "`KIND:PATH`; `pairwright sources KIND` says the same."]
    for kind in READERS:
        one = READERS[kind]
        lines += [
            f"## {kind}",
            f"{_text(one.about)}.",
            f"```console\n$ pairwright build {one.example} --out dataset\n```",
        ]
        lines += [f"```text\n{one.details.strip()}\n```"] * bool(one.details)
    return "\n\n".join(lines) + "\n"


def write_formats_page() -> str:
    """Return a page with every format of ``export``."""
    rows = [
        f"| `{name}` | {_cell(FORMATS[name].about)} | {_cell(FORMATS[name].cannot)} |"
        for name in FORMATS
    ]
    table = "\n".join(["| format | holds | limits |", "|---|---|---|", *rows])
    return (
        "\n\n".join(
            [
                "# Export formats",
                MADE,
                "`pairwright export DATASET --format NAME --to FOLDER`",
                table,
            ]
        )
        + "\n"
    )


def write_benchmarks_page() -> str:
    """Return a page with every benchmark of ``evaluate model``."""
    rows = [
        f"| `{one.name}` | {_cell(one.measures)} | {_cell(one.layout)} | {_cell(one.rule)} |"
        for one in BENCHMARKS.values()
    ]
    table = "\n".join(
        [
            "| benchmark | measures | `--data` holds | how an answer is read |",
            "|---|---|---|---|",
            *rows,
        ]
    )
    said = "`pairwright evaluate model MODEL --benchmark NAME --data FOLDER`"
    return "\n\n".join(["# Benchmarks", MADE, said, table]) + "\n"


def write_errors_page() -> str:
    """Return a page with exit codes and the tree of errors."""
    tree = (errors.__doc__ or "").partition("\n\n")[2].strip()
    about = "From Python, every error on purpose is a `pw.PairwrightError`; its message says what, where and what to do."
    return (
        "\n\n".join(["# Errors and exit codes", MADE, EXIT_CODES, about, f"```text\n{tree}\n```"])
        + "\n"
    )


def _text(text: str | None) -> str:
    return (text or "").replace("``", "`").strip()


def _cell(text: str) -> str:
    return " ".join(_text(text).split()).replace("|", "\\|").replace("<", "&lt;")


PAGES = {
    "command-line.md": write_command_page,
    "python.md": write_python_page,
    "sources.md": write_sources_page,
    "formats.md": write_formats_page,
    "benchmarks.md": write_benchmarks_page,
    "errors.md": write_errors_page,
}

if __name__ == "__main__":
    for name, write in PAGES.items():
        (Path(__file__).parent / "reference" / name).write_text(write(), encoding="utf-8")
