"""Follow a row through a version's tables: everything made from it and everything it was made from, with the makers.

A terminal shows it as two trees.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.tree import Tree

from pairwright.flows.versions.version import Version
from pairwright.schemas.arrow import schema_of
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.store.lineage import Link, find_keys, follow, read_cells

TOLD = (
    *(
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
    ),
    *(
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
    ),
    *("rejected_image_maker", "served"),
)  # columns with the maker of a row
MOST = 20  # maximum rows of one table shown below one row; the rest are counted
LONGEST = 60
SERVED = ("model", "revision", "seed", "prompt")


@dataclass(frozen=True)
class Traced:
    """Row of a lineage."""

    table: str
    key: str
    of: (
        tuple[str, str] | None
    )  # table and key of the row through which it was reached; ``None``: it was asked for
    made: dict[str, Any]  # its non-empty columns about how it was made

    def __str__(self) -> str:
        told: list[str] = []
        for name, value in self.made.items():
            if name == "served":
                parts = (
                    [f"{part} {one[part]}" for part in SERVED if one[part] not in ("", None)]
                    for one in value
                )
                told += [f"asked {', '.join(said)}" for said in parts]
            else:
                text = f"{value:.4g}" if isinstance(value, float) else str(value)
                told.append(f"{name} {text if len(text) <= LONGEST else text[:LONGEST] + '...'}")
        return f"{self.table} [cyan]{self.key}[/]" + (f" {escape(', '.join(told))}" if told else "")


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


def trace_lineage(found: Version, prefix: str) -> Lineage:
    """Return everything made from a row, and everything it was made from, in a version."""
    with found.settled() as (build, _):
        rows = find_keys(build, prefix.strip().lower()) if prefix.strip() else []
        if len({key for _, key in rows}) != 1:
            some = ", ".join(f"{key} ({table})" for table, key in rows[:5])
            several = f"several keys begin with {prefix!r}: {some}. Give more digits"
            none = f"no row has a key that begins with {prefix!r}"
            raise ConfigError(f"{found.folder.url}: {several if rows else none}")
        seed = rows[0]
        down, up = (follow(build, [seed], way) for way in ("made of it", "made from"))
        made: dict[tuple[str, str], dict[str, Any]] = {seed: {}}
        made |= {(link.table, link.key): {} for link in (*down, *up)}
        for planned in build.planned:
            name = planned.stage.name
            keys = [key for table, key in made if table == name]
            columns = [column for column in TOLD if column in schema_of(planned.stage.writes).names]
            cells = read_cells(build, planned, keys, columns) if keys and columns else {}
            for key, values in cells.items():
                made[name, key] = {
                    column: value for column, value in values.items() if value not in ("", None, [])
                }

        def traced(links: Sequence[Link]) -> list[Traced]:
            return [
                Traced(one.table, one.key, (one.of_table, one.of_key), made[one.table, one.key])
                for one in links
            ]

        tables = {table for table, _ in made}
        return Lineage(
            version=found.number,
            row=Traced(*seed, None, made[seed]),
            made_of_it=traced(down),
            made_from=traced(up),
            fingerprints={
                one.stage.name: one.fingerprint for one in found.planned if one.stage.name in tables
            },
        )


def _draw(title: str, root: Traced, rows: Sequence[Traced]) -> Tree:
    tree = Tree(f"[bold]{title}[/] {root}")
    if not rows:
        tree.add("nothing")
    places, shown = {(root.table, root.key): tree}, Counter[tuple[tuple[str, str], str]]()
    for row in rows:
        above = row.of or (root.table, root.key)
        shown[above, row.table] += 1
        if above in places and shown[above, row.table] <= MOST:
            places[row.table, row.key] = places[above].add(str(row))
    for (above, table), count in shown.items():
        if above in places and count > MOST:
            places[above].add(f"{table}: {count - MOST:,} more (--json lists all)")
    return tree
