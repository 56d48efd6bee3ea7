"""List the tables of a dataset, and write the pages of ``docs/`` that list settings and tables.

``make docs`` writes them from the same source as the verb ``settings``; a test holds that the committed ones are so.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from typing import Any

from pairwright.flows.list_settings import Setting, as_typed, list_profiles, list_settings
from pairwright.flows.pipeline import list_stages
from pairwright.flows.stages import BY_NAME
from pairwright.tasks.store.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSummary:
    """One table, the same for every profile."""

    name: str
    group: str
    reads: tuple[str, ...]
    """The tables whose rows it is made from, one by one."""
    uses: tuple[str, ...]
    """The tables that are looked up for that, where their stages are on."""
    row: str
    """Type of its rows, in ``schemas.rows``."""
    about: str
    """What the step that writes it does, in one sentence."""

    def as_json(self) -> dict[str, Any]:
        """Return the form that scripts read."""
        return asdict(self)


def list_tables() -> list[TableSummary]:
    """Return all tables in the order in which they are written, with those of all plugins that there are."""
    return [
        TableSummary(
            name=stage.name,
            group=stage.group,
            reads=tuple(stage.reads),
            uses=tuple(sorted(stage.tables - stage.reads.keys())),
            row=stage.writes.__name__,
            about=_about(stage),
        )
        for stage in list_stages(BY_NAME.plugins)
    ]


def _about(stage: Stage) -> str:
    """Return the first sentence of its file; of a plugin's, of its function."""
    function = stage.function.func if isinstance(stage.function, partial) else stage.function
    place = function if stage.name in BY_NAME.plugins else sys.modules[function.__module__]
    words = (place.__doc__ or "").partition("\n\n")[0]
    return " ".join(words.split())


def draw_tables() -> str:
    """Return a picture of the tables in text: groups, and an arrow from what each is made from."""
    lines: list[str] = []
    group = ""
    for table in list_tables():
        if table.group != group:
            group = table.group
            lines += ["", group]
        looked_up = f"  (with {', '.join(table.uses)})" if table.uses else ""
        lines += [f"  {table.name:18}<- {', '.join(table.reads)}{looked_up}", f"{'':23}{table.about}"]
    return "\n".join(lines[1:])


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
    for profile in list_profiles():
        for one in list_settings(profile=profile.name):
            if one.command == "train" or one.value == one.default or one.name in ("name", "about"):
                continue
            _, model, field = one.name.split(".", 2) if one.name.startswith("models.") else ("", "", "")
            name, of = (SERVED + field, f" {model}") if model else (one.name, "")
            found[name].append(f"{profile.name}{of}: `{as_typed(one.value)}`")
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
