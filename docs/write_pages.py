"""Write the pages that list settings and tables, from the same source as the verb ``settings``: ``make docs``.

A test holds that the committed pages are what the source gives.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from pairwright.flows.list_settings import Setting, as_typed, list_settings
from pairwright.flows.load_profile import profile_names
from pairwright.flows.pipeline import TableSummary, list_tables

MADE = "<!-- Made by `make docs`. Change the source, not this page. -->"
SERVED = "models.chat."
"""Every served model has these settings, under its own name."""


def write_settings_page() -> str:
    """Return a page in Markdown with every setting of a build and of a training run: a table per section."""
    found = list_settings()
    profiles = _values_of_profiles()
    lines = ["# Settings", MADE]
    for command, title in (("build", "Build settings"), ("train", "Training settings")):
        lines += [f"## {title}", f"`pairwright {command} --set NAME=VALUE`"]
        own = [one for one in found if one.command == command]
        for section in dict.fromkeys(_section(one.name) for one in own):
            inner = [one for one in own if _section(one.name) == section]
            lines += [f"### {section}"] if section else []
            lines.append("\n".join(_table(inner, profiles if command == "build" else {})))
    return "\n\n".join(lines) + "\n"


def write_tables_page() -> str:
    """Return a page in Markdown with every table of a dataset and what it is made from."""
    tables = list_tables()
    about = [f"| `{one.name}` | {one.group} | `{one.row}` | {_cell(one.about)} |" for one in tables]
    parts = [
        "# Tables of a dataset",
        MADE,
        "The same for every profile: a stage that is off leaves its table empty or passes rows through.",
        "\n".join(["```mermaid", "flowchart LR", *_picture(tables), "```"]),
        "\n".join(["| table | step | row | what its stage does |", "|---|---|---|---|", *about]),
    ]
    return "\n\n".join(parts) + "\n"


def _values_of_profiles() -> dict[str, list[str]]:
    """Return the values that profiles give settings other than the default, by the settings' names."""
    found: dict[str, list[str]] = defaultdict(list)
    for profile in profile_names():
        for one in list_settings(profile=profile):
            if one.command == "train" or one.value == one.default or one.name in ("name", "about"):
                continue
            _, model, field = one.name.split(".", 2) if one.name.startswith("models.") else ("", "", "")
            name, of = (SERVED + field, f" {model}") if model else (one.name, "")
            found[name].append(f"{profile}{of}: `{as_typed(one.value)}`")
    return found


def _section(name: str) -> str:
    """Return the heading that a setting stands under."""
    section = name.rpartition(".")[0]
    return section.replace(SERVED.rstrip("."), "models.NAME")


def _table(settings: Iterable[Setting], profiles: dict[str, list[str]]) -> Iterator[str]:
    yield "| name | type | default | profiles | meaning |"
    yield "|---|---|---|---|---|"
    for one in settings:
        allowed = "; ".join(filter(None, (one.type, one.range)))
        default = "required" if one.default is None else f"`{as_typed(one.default)}`"
        cells = (
            f"`{one.name.rpartition('.')[2]}`",
            allowed,
            default,
            ", ".join(profiles.get(one.name, ())),
            one.meaning,
        )
        yield f"| {' | '.join(map(_cell, cells))} |"


def _picture(tables: Iterable[TableSummary]) -> Iterator[str]:
    """Yield the lines of a Mermaid flowchart: a box per step, an arrow from what a table is made from."""
    tables = list(tables)
    for group, inner in groupby(tables, key=lambda one: one.group):
        yield f"  subgraph step_{group} [{group}]"
        yield from (f"    {one.name}" for one in inner)
        yield "  end"
    for one in tables:
        yield from (f"  {name} --> {one.name}" for name in one.reads)
        yield from (f"  {name} -.-> {one.name}" for name in one.uses)


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


PAGES = {"settings.md": write_settings_page, "tables.md": write_tables_page}

if __name__ == "__main__":
    for name, write in PAGES.items():
        Path(__file__).with_name(name).write_text(write(), encoding="utf-8")
