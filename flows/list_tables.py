"""List the tables of a dataset, as the list of stages has them: what each is made from, and by which step."""

import sys
from dataclasses import dataclass
from functools import partial

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
