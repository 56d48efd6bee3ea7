"""Follow a row through a version's tables: everything made from it and everything it was made from, with the makers.

A terminal shows it as two trees.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.tree import Tree

from pairwright.flows.version import Version
from pairwright.prompts import load
from pairwright.schemas.arrow import schema_of
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.lineage import Link, find_keys, follow, read_cells

TOLD = (
    *("name", "source", "licence", "origin", "model", "embedder", "maker", "note", "attempts", "finish_reason"),
    *("check", "passed", "score", "why", "tag", "tagger", "inpainter", "chosen_model", "rejected_maker", "split"),
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
    of: tuple[str, str] | None
    """Table and key of the row through which it was reached; ``None``: it is the row in question."""
    made: dict[str, Any]  # its non-empty columns about how it was made


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """Lineage of one row."""

    version: int  # 0: the current tables, since there is no version yet
    row: Traced
    made_of_it: list[Traced]
    made_from: list[Traced]
    tables: dict[str, dict[str, Any]]  # per table in it: fingerprint, settings, models, prompts with their SHA-256


def trace_lineage(found: Version, prefix: str) -> Lineage:
    """Return everything made from a row, and everything it was made from, in a version."""
    with found.settled() as (build, _):
        rows = find_keys(build, prefix.strip().lower()) if prefix.strip() else []
        if len({key for _, key in rows}) != 1:
            some = ", ".join(f"{key} ({table})" for table, key in rows[:5])
            several = f"several keys begin with {prefix!r}: {some}. Give more digits"
            raise ConfigError(
                f"{found.folder.url}: {several if rows else f'no row has a key that begins with {prefix!r}'}"
            )
        seed = rows[0]
        down, up = (follow(build, [seed], way) for way in ("made of it", "made from"))
        made = _made(build, [seed, *((link.table, link.key) for link in (*down, *up))])

        def traced(links: Sequence[Link]) -> list[Traced]:
            return [Traced(one.table, one.key, (one.of_table, one.of_key), made[one.table, one.key]) for one in links]

        return Lineage(
            version=found.number,
            row=Traced(*seed, None, made[seed]),
            made_of_it=traced(down),
            made_from=traced(up),
            tables=_tables(found, {table for table, _ in made}),
        )


def _made(build: Build, rows: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {row: {} for row in rows}
    for planned in build.planned:
        name = planned.stage.name
        keys = [key for table, key in found if table == name]
        columns = [column for column in TOLD if column in schema_of(planned.stage.writes).names]
        cells = read_cells(build, planned, keys, columns) if keys and columns else {}
        for key, values in cells.items():
            found[name, key] = {column: value for column, value in values.items() if value not in ("", None, [])}
    return found


def _tables(version: Version, names: set[str]) -> dict[str, dict[str, Any]]:
    """Return the origin of each table's rows; prompts only if they are still those of the version."""
    now = {one.stage.name: one.fingerprint for one in Version.of(version.folder, version.record).planned}
    found: dict[str, dict[str, Any]] = {}
    for planned in (one for one in version.planned if one.stage.name in names):
        stage, config = planned.stage, planned.config
        same = now[stage.name] == planned.fingerprint
        found[stage.name] = {
            "fingerprint": planned.fingerprint,
            "settings": config.model_dump(mode="json", exclude=set(config.uncounted)),
            "models": list(stage.models(config)) if stage.models and same else [],
            "prompts": {name: load(name).sha256 for name in stage.prompts} if same else {},
            "made_by_this_release": same,
        }
    return found


def show_lineage(found: Lineage) -> Group:
    """Return the trees of a lineage for a terminal; of large tables, most rows are only counted."""
    trees = [_tree("Made from", found.row, found.made_from), _tree("Made of it", found.row, found.made_of_it)]
    lines = [""]
    for name, about in found.tables.items():
        words = [about["fingerprint"], *about["models"]]
        words += [f"prompt {prompt} {digest[:12]}" for prompt, digest in about["prompts"].items()]
        words += [] if about["made_by_this_release"] else ["made by another release, with prompts unknown here"]
        lines.append(f"{name}: {', '.join(words)}")
    return Group(*trees, *map(escape, lines))


def _tree(title: str, root: Traced, rows: Sequence[Traced]) -> Tree:
    tree = Tree(f"[bold]{title}[/] {_row(root)}")
    if not rows:
        tree.add("nothing")
    places = {(root.table, root.key): tree}
    shown: dict[tuple[tuple[str, str], str], int] = {}
    for row in rows:
        above = row.of or (root.table, root.key)
        group = (above, row.table)
        shown[group] = shown.get(group, 0) + 1
        if above in places and shown[group] <= MOST:
            places[row.table, row.key] = places[above].add(_row(row))
    for (above, table), count in shown.items():
        if above in places and count > MOST:
            places[above].add(f"{table}: {count - MOST:,} more (--json lists all)")
    return tree


def _row(row: Traced) -> str:
    told: list[str] = []
    for name, value in row.made.items():
        if name == "served":
            for one in value:
                said = (f"{part} {one[part]}" for part in SERVED if one[part] not in ("", None))
                told.append(f"asked {', '.join(said)}")
        else:
            text = f"{value:.4g}" if isinstance(value, float) else str(value)
            told.append(f"{name} {text if len(text) <= LONGEST else text[:LONGEST] + '...'}")
    return f"{row.table} [cyan]{row.key}[/]" + (f" {escape(', '.join(told))}" if told else "")
