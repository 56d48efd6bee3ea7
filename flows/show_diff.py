"""Show how two versions differ on a terminal."""

from collections.abc import Iterator

from rich.table import Table

from pairwright.flows.diff_versions import Difference


def diff_table(found: Difference) -> Table:
    """Return rows and what came and went, per table."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("table")
    for name in (f"rows of {found.before}", f"rows of {found.after}", "in", "out", "ended otherwise"):
        table.add_column(name, justify="right")
    table.add_column("fingerprint")
    for one in found.stages:
        old, new = one.fingerprints
        turned = sum(turn.count for turn in one.turned)
        numbers = [*one.rows, one.came, one.went, turned]
        table.add_row(one.stage, *(f"{n:,}" for n in numbers), new if old == new else f"{old or '-'} -> {new or '-'}")
    return table


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
