"""Show versions on a terminal: how two differ, and the lineage of a row as two trees."""

from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.markup import escape
from rich.tree import Tree

from pairwright.flows.list_versions import Difference
from pairwright.flows.trace_lineage import Lineage, Traced


def diff_rows(found: Difference) -> Iterator[list[object]]:
    """Yield rows and what came and went, per table."""
    for one in found.stages:
        old, new = one.fingerprints
        fingerprint = new if old == new else f"{old or '-'} -> {new or '-'}"
        yield [one.stage, *one.rows, one.came, one.went, sum(turn.count for turn in one.turned), fingerprint]


def diff_lines(found: Difference) -> Iterator[str]:
    """Yield what a table has no room for: settings, inputs that ended otherwise, and the listed keys."""
    for line in found.settings:
        yield f"  {line}"
    for one in found.stages:
        for turn in one.turned:
            yield f"  {one.stage}: {turn.count:,} x {turn.before} -> {turn.after}"
    for one in found.stages:
        for sign, keys in (("+", one.came_keys), ("-", one.went_keys)):
            yield from ("\t".join(filter(None, (sign, one.stage, key, found.names.get(key, "")))) for key in keys)


MOST = 20
"""Rows of one table that are shown below one row; the others are counted."""
LONGEST = 60
SERVED = ("model", "revision", "seed", "prompt")


def show_lineage(found: Lineage) -> Group:
    """Return what a terminal shows of a lineage; some tables have too many rows for it, which are counted."""
    trees = [_tree("Made from", found.row, found.made_from), _tree("Made of it", found.row, found.made_of_it)]
    lines = [""]
    for name, about in found.tables.items():
        words = [about["fingerprint"], *about["models"]]
        words += [f"prompt {prompt} {digest[:12]}" for prompt, digest in about["prompts"].items()]
        words += [] if about["made_by_this_release"] else ["made by another release, whose prompts are not known here"]
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
