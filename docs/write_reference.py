"""Write the reference pages: ``make docs``.

They list commands, the Python API, sources, formats, benchmarks and errors. A test holds that the
committed pages are what the source gives.
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
| 1 | finished with pending rows, or not published because of a gate: \
the message says how to resume |
| 2 | wrong usage or configuration (the message names the file and the field), \
or a source that cannot be read |
| 130 | stopped by Ctrl-C or SIGTERM: the message says how to resume |"""


def write_command_page() -> str:
    """Return a page with every verb of the command line, its arguments and options."""
    group: Any = typer.main.get_command(app)
    shared = [option for option in group.params if option.name in SHARED]
    lines = [
        "# Command line",
        MADE,
        "`pairwright VERB --help` says the same.",
        "## Options of every verb",
        _options(shared),
    ]
    for panel, verbs in groupby(VERBS, key=lambda verb: verb.panel):
        lines.append(f"## {panel}")
        for verb in verbs:
            command = group.get_command(None, verb.name)
            subcommands = getattr(command, "commands", {"": command})
            for name, subcommand in subcommands.items():
                lines += _command(f"{verb.name} {name}".strip(), subcommand)
    return "\n\n".join(lines) + "\n"


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [param.metavar for param in command.params if _is_argument(param)]
    yield f"### pairwright {name}"
    yield f"`pairwright {' '.join([name, *arguments])} [OPTIONS]`"
    yield _text(command.help)
    params = [param for param in command.params if param.name not in (*SHARED, "help")]
    if params:
        yield _options(params)


def _is_argument(param: Any) -> bool:
    return param.param_type_name == "argument"


def _options(params: Iterable[Any]) -> str:
    rows = ["| option | meaning |", "|---|---|"]
    for param in params:
        rows.append(f"| {_option(param)} | {_cell(param.help or '')} |")
    return "\n".join(rows)


def _option(param: Any) -> str:
    """Return an argument, or the names of an option with its value."""
    if _is_argument(param):
        return f"`{param.metavar}`"
    names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
    if param.is_flag:
        return names
    return f"{names} `{param.metavar or param.name.upper()}`"


def write_python_page() -> str:
    """Return a page with the public names of the package: signatures and docstrings."""
    example = inspect.cleandoc(pw.__doc__ or "").partition("Importing")[0].strip()
    lines = ["# Python API", MADE, f"```python\n{example}\n```"]
    for name in ("build", "open", "load_plugin"):
        lines += _function(f"pw.{name}", getattr(pw, name))
    for kind in (pw.Dataset, pw.Table, pw.Pipeline):
        lines += [f"## {kind.__name__}", _text(inspect.getdoc(kind))]
        for name, member in vars(kind).items():
            function = _function_of(member)
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            if (kind, name) == (pw.Dataset, "open"):
                continue
            is_called = not isinstance(member, property)
            lines += _function(f"{kind.__name__}.{name}", function, called=is_called)
    return "\n\n".join(lines) + "\n"


def _function_of(member: Any) -> Any:
    """Return the function of a class method or a property; any other member itself."""
    getter = getattr(member, "fget", None)
    return getattr(member, "__func__", getter or member)


def _function(name: str, function: Any, *, called: bool = True) -> Iterator[str]:
    source = textwrap.dedent(inspect.getsource(function))
    (node,) = ast.parse(source).body
    arguments = node.args if isinstance(node, ast.FunctionDef) else ast.arguments()
    arguments.args = [
        argument for argument in arguments.args if argument.arg not in ("self", "cls")
    ]
    yield f"### {name}"
    if called:
        yield f"```python\n{name}({ast.unparse(arguments)})\n```"
    docstring = _text(inspect.getdoc(function)).replace("Args:\n", "Args:\n\n")
    yield re.sub(r"^ {4}(?=\w)", "* ", docstring, flags=re.MULTILINE)


def write_sources_page() -> str:
    """Return a page with every kind of source."""
    lines = ["# Source kinds", MADE, "`KIND:PATH`; `pairwright sources KIND` says the same."]
    for kind, reader in READERS.items():
        lines.append(f"## {kind}")
        lines.append(f"{_text(reader.about)}.")
        lines.append(f"```console\n$ pairwright build {reader.example} --out dataset\n```")
        if reader.details:
            lines.append(f"```text\n{reader.details.strip()}\n```")
    return "\n\n".join(lines) + "\n"


def write_formats_page() -> str:
    """Return a page with every format of ``export``."""
    rows = ["| format | holds | limits |", "|---|---|---|"]
    for name, form in FORMATS.items():
        rows.append(f"| `{name}` | {_cell(form.about)} | {_cell(form.cannot)} |")
    lines = [
        "# Export formats",
        MADE,
        "`pairwright export DATASET --format NAME --to FOLDER`",
        "\n".join(rows),
    ]
    return "\n\n".join(lines) + "\n"


def write_benchmarks_page() -> str:
    """Return a page with every benchmark of ``evaluate model``."""
    rows = [
        "| benchmark | measures | `--data` holds | how an answer is read |",
        "|---|---|---|---|",
    ]
    for benchmark in BENCHMARKS.values():
        texts = (benchmark.measures, benchmark.layout, benchmark.rule)
        rows.append(f"| `{benchmark.name}` | {' | '.join(map(_cell, texts))} |")
    command = "`pairwright evaluate model MODEL --benchmark NAME --data FOLDER`"
    return "\n\n".join(["# Benchmarks", MADE, command, "\n".join(rows)]) + "\n"


def write_errors_page() -> str:
    """Return a page with exit codes and the tree of errors."""
    tree = (errors.__doc__ or "").partition("\n\n")[2].strip()
    about = (
        "From Python, every error on purpose is a `pw.PairwrightError`; "
        "its message says what, where and what to do."
    )
    lines = ["# Errors and exit codes", MADE, EXIT_CODES, about, f"```text\n{tree}\n```"]
    return "\n\n".join(lines) + "\n"


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
