"""Follow a row through a version's tables: everything made from it, everything it was made from.

A terminal shows it as two trees.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.tree import Tree

from pairwright.flows.versions.version import Version
from pairwright.schemas.arrow import schema_of
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.store.lineage import Link, find_keys, follow, read_cells
from pairwright.tasks.store.open_tables import Build

TOLD = (
    "name",
    "source",
    "licence",
    "origin",
    "model",
    "embedder",
    "maker",
    "note",
    "attempts",
    "finish_reason",
    "check",
    "passed",
    "score",
    "why",
    "tag",
    "tagger",
    "inpainter",
    "chosen_model",
    "rejected_maker",
    "split",
    "rejected_image_maker",
    "served",
)  # columns about how a row was made
MOST = 20  # maximum rows of one table shown below one row; the rest are counted
LONGEST = 60  # maximum characters of a value
NAMED = 5  # maximum rows that are named if several begin with a prefix
SERVED = ("model", "revision", "seed", "prompt")
Facts = dict[tuple[str, str], dict[str, Any]]
"""Columns about how rows were made, by table and key."""


@dataclass(frozen=True)
class Traced:
    """Row of a lineage."""

    table: str
    key: str
    # table and key of the row through which it was reached; ``None``: of the row to trace
    of: tuple[str, str] | None
    made: dict[str, Any]  # its non-empty columns about how it was made

    def __str__(self) -> str:
        texts: list[str] = []
        for name, value in self.made.items():
            if name == "served":
                texts += [_say_request(request) for request in value]
            else:
                text = f"{value:.4g}" if isinstance(value, float) else str(value)
                shown = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
                texts.append(f"{name} {shown}")
        facts = f" {escape(', '.join(texts))}" if texts else ""
        return f"{self.table} [cyan]{self.key}[/]{facts}"


def _say_request(request: Mapping[str, Any]) -> str:
    """Return the facts about a request to a served model that a row was made with."""
    facts = [f"{name} {request[name]}" for name in SERVED if request[name] not in ("", None)]
    return f"asked {', '.join(facts)}"


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """Lineage of one row."""

    version: int  # 0: the current tables, since there is no version yet
    row: Traced
    made_of_it: list[Traced]
    made_from: list[Traced]
    fingerprints: dict[str, str]  # of the tables in it

    def trees(self) -> list[Tree]:
        """Return it for a terminal; of large tables, most rows are only counted."""
        return [
            _draw("Made from", self.row, self.made_from),
            _draw("Made of it", self.row, self.made_of_it),
        ]


def trace_lineage(version: Version, prefix: str) -> Lineage:
    """Return everything made from a row, and everything it was made from, in a version."""
    with version.resolved() as (build, _):
        seed = _find_row(version, build, prefix)
        down = follow(build, [seed], "made of it")
        up = follow(build, [seed], "made from")
        made = _read_facts(build, [seed, *((link.table, link.key) for link in (*down, *up))])
    tables = {table for table, _ in made}
    fingerprints = {
        planned.stage.name: planned.fingerprint
        for planned in version.planned
        if planned.stage.name in tables
    }
    return Lineage(
        version=version.number,
        row=Traced(*seed, None, made[seed]),
        made_of_it=_trace_links(down, made),
        made_from=_trace_links(up, made),
        fingerprints=fingerprints,
    )


def _find_row(version: Version, build: Build, prefix: str) -> tuple[str, str]:
    """Return table and key of the row whose key begins with a prefix.

    Of one key, the first table's.
    """
    rows = find_keys(build, prefix.strip().lower()) if prefix.strip() else []
    keys = {key for _, key in rows}
    if len(keys) == 1:
        return rows[0]
    if not rows:
        raise ConfigError(f"{version.folder.url}: no row has a key that begins with {prefix!r}")
    some = ", ".join(f"{key} ({table})" for table, key in rows[:NAMED])
    raise ConfigError(
        f"{version.folder.url}: several keys begin with {prefix!r}: {some}. Give more digits"
    )


def _read_facts(build: Build, rows: Sequence[tuple[str, str]]) -> Facts:
    """Return the non-empty columns about how each row was made, by table and key."""
    facts: Facts = {row: {} for row in rows}
    for planned in build.planned:
        table = planned.stage.name
        keys = [key for row_table, key in facts if row_table == table]
        names = schema_of(planned.stage.writes).names
        columns = [column for column in TOLD if column in names]
        if not keys or not columns:
            continue
        for key, values in read_cells(build, planned, keys, columns).items():
            facts[table, key] = {
                column: value for column, value in values.items() if value not in ("", None, [])
            }
    return facts


def _trace_links(links: Sequence[Link], facts: Facts) -> list[Traced]:
    return [
        Traced(link.table, link.key, (link.of_table, link.of_key), facts[link.table, link.key])
        for link in links
    ]


def _draw(title: str, root: Traced, rows: Sequence[Traced]) -> Tree:
    """Return rows as a tree below the traced row; of many rows of a table, the rest are counted."""
    tree = Tree(f"[bold]{title}[/] {root}")
    if not rows:
        tree.add("nothing")
    root_row = (root.table, root.key)
    branches = {root_row: tree}
    shown = Counter[tuple[tuple[str, str], str]]()
    for row in rows:
        parent = row.of or root_row
        shown[parent, row.table] += 1
        if parent in branches and shown[parent, row.table] <= MOST:
            branches[row.table, row.key] = branches[parent].add(str(row))
    for (parent, table), count in shown.items():
        if parent in branches and count > MOST:
            branches[parent].add(f"{table}: {count - MOST:,} more (--json lists all)")
    return tree
