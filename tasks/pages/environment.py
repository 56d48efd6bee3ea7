"""Render pages that open from disk: all escaped, without external resources, with one frame and style sheet.

Packages keep their templates beside their code; ``page.html.j2`` and ``report.css`` are here.
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


def make_environment(folder: Path, **given: Any) -> Environment:
    """Return the environment of a folder's templates and the common ones: escaped, and strict about undefined names.

    ``given`` are global names of the templates.
    """
    environment = Environment(
        loader=FileSystemLoader([folder, HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value.translate(CONTROLS) if isinstance(value, str) else value,
    )
    known: dict[str, Any] = environment.globals  # declared too narrowly
    known.update(given)
    filters: dict[str, Any] = environment.filters
    filters["number"] = lambda value: f"{value:,}"
    filters["things"] = count_things
    filters["quoted"] = shlex.quote
    filters["percent"] = lambda value: f"{value:.1%}"
    filters["exact_percent"] = lambda value: f"{value:.2%}"
    return environment


def count_things(number: int, thing: str, things: str = "") -> str:
    """Return "1 pair", "2 pairs", "1,000 pairs"."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def write_page(path: Path, text: str) -> None:
    """Write a page; a lone surrogate becomes a question mark."""
    path.write_text(text, encoding="utf-8", errors="replace")


def copy_looks(folder: Path, own: Iterable[Path] = ()) -> None:
    """Copy the style sheet beside the pages, and the package's own files."""
    for path in (LOOKS, *own):
        (folder / path.name).write_bytes(path.read_bytes())
