"""Do the runs of an experiment one after the other, keep what each gave, and show means over seeds."""

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Run = Mapping[str, Any]
"""What tells a run from the others: its arm, its seed."""


def run_missing(results: Path, wanted: Iterable[Run], run: Callable[[Run], Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Do the runs that ``results`` has not, in their order, and return what it has then.

    Args:
        results: a file of lines of JSON; each run's is added when it ends, so that what is stopped goes on there.
        wanted: the runs.
        run: returns what one gave.
    """
    results.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    for one in wanted:
        if not any(one.items() <= other.items() for other in done):
            done.append({**one, **run(one)})
            with results.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
    return done


def make_table(
    done: Sequence[Run], by: Sequence[str], columns: Mapping[str, tuple[str, float]], *, each: bool = False
) -> str:
    """Return a Markdown table: a line per value of ``by``, mean ± standard deviation of the runs that have it.

    Args:
        done: the runs with what they gave.
        by: what is the same in all runs of a line.
        columns: each column's heading, with what is shown and what it is multiplied by.
        each: whether the values of the single runs are shown, too.
    """
    lines: dict[tuple[Any, ...], list[Run]] = {}
    for one in done:
        lines.setdefault(tuple(one[name] for name in by), []).append(one)
    rows = [
        [
            *map(str, line),
            *(_spread([factor * one[name] for one in own], each=each) for name, factor in columns.values()),
        ]
        for line, own in lines.items()
    ]
    ruled = [[*by, *columns], ["---"] * (len(by) + len(columns)), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in ruled)


def _spread(values: Sequence[float], *, each: bool) -> str:
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    shown = f" ({', '.join(f'{value:.1f}' for value in values)})" if each else ""
    return f"{statistics.mean(values):.1f}{spread}{shown}"
