"""Render pages that open from disk, with one frame and style sheet.

All values are escaped; pages use no external resources. Packages keep their templates next to
their code; ``page.html.j2`` and ``report.css`` are here.
"""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).parent
LOOKS = HERE / "report.css"
CONTROLS = {code: "\ufffd" for code in (*range(32), 127) if chr(code) not in "\t\n\r"}
"""Replacements of characters that HTML forbids, such as NUL."""


def make_environment(folder: Path, **names: Any) -> Environment:
    """Return the environment of a folder's templates and the common ones.

    Values are escaped, and undefined names are errors. ``names`` are global names of the templates.
    """
    environment = Environment(
        loader=FileSystemLoader([folder, HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_replace_controls,
    )
    template_globals: dict[str, Any] = environment.globals  # declared too narrowly
    template_globals.update(names)
    filters: dict[str, Any] = environment.filters
    filters["number"] = lambda value: f"{value:,}"
    filters["things"] = count_things
    filters["quoted"] = shlex.quote
    filters["percent"] = lambda value: f"{value:.1%}"
    filters["exact_percent"] = lambda value: f"{value:.2%}"
    return environment


def _replace_controls(value: Any) -> Any:
    return value.translate(CONTROLS) if isinstance(value, str) else value


def count_things(
    number: int,
    singular: str,
    plural: str = "",
) -> str:
    """Return "1 pair", "2 pairs", "1,000 pairs"."""
    noun = singular if number == 1 else plural or f"{singular}s"
    return f"{number:,} {noun}"


def write_page(path: Path, text: str) -> None:
    """Write a page; a lone surrogate becomes a question mark."""
    path.write_text(text, encoding="utf-8", errors="replace")


def copy_looks(folder: Path, files: Iterable[Path] = ()) -> None:
    """Copy the style sheet and the package's files into the folder of the pages."""
    for path in (LOOKS, *files):
        (folder / path.name).write_bytes(path.read_bytes())
