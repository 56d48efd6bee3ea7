"""What the experiments have in common: runs one after the other, on the same rows, measured, in a table of means."""

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.schemas.claims import Graphs
from pairwright.schemas.rows import PreferenceRow
from tests.bench.scene_answers import measure, read_answers

if TYPE_CHECKING:
    from pairwright.tasks.training.train_model import Ended, Job


def make_parser(text: str | None, *, steps: int, rate: float, batch: int) -> argparse.ArgumentParser:
    """Return the options that all have; the numbers are their defaults."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="a build of rendered scenes, or drawn:6000")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2], help="none: only print the table")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--rate", type=float, default=rate)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--set", dest="settings", nargs="*", default=[], help="further settings of the training")
    parser.add_argument("--test", type=int, default=0, help="test rows at the most; 0: all")
    parser.add_argument("--each", action="store_true", help="show the values of the single runs, too")
    return parser


def make_settings(options: argparse.Namespace, own: Sequence[str], *, seed: int) -> list[str]:
    """Return the settings of one run: its own, those asked for, and what it takes to measure it at its end."""
    asked = [f"optimiser.max_steps={options.steps}", f"optimiser.per_device_train_batch_size={options.batch}"]
    asked += [f"optimiser.learning_rate={options.rate}", f"seed={seed}", *options.settings]
    measured = ["data.eval_split=test", "data.max_eval_rows=0", "output.eval_steps=0"]
    return [*own, *asked, *measured, "output.save_steps=100000", "output.logging_steps=50"]


def split_rows(
    options: argparse.Namespace, rows: Sequence[PreferenceRow]
) -> tuple[list[PreferenceRow], list[PreferenceRow]]:
    """Return the rows to train and to test on."""
    training, test = ([row for row in rows if row.split == split] for split in ("train", "test"))
    return training, test[: options.test or None]


def train_and_measure(
    job: "Job", train: "Callable[[Job], Ended]", test: Sequence[PreferenceRow], graphs: Mapping[str, Graphs]
) -> dict[str, Any]:
    """Train, and return the seconds it took, its last losses and what its answers to the test rows are worth."""
    from pairwright.tasks.training.runs import TRAIN, read_metrics

    began, worked = time.monotonic(), time.process_time()
    ended = train(job)
    seconds, busy = time.monotonic() - began, time.process_time() - worked
    said = read_answers(job.run.folder)
    shutil.rmtree(job.run.folder.parents[1] / "tables")
    return {
        "seconds": round(seconds),
        "cpu": round(busy),
        "held_out": ended.measured,
        "train": read_metrics(job.run.metrics).last(TRAIN),
        **measure(test, [said[row.key] for row in test], graphs),
    }


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
