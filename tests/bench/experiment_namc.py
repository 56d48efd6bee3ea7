"""Compare NAMC with and without its modules against noise, on descriptions whose words are replaced (001, Table 10).

Run with ``python -m tests.bench.experiment_namc DATASET --to FOLDER``; the dataset is a build of rendered scenes as for
``experiment_objectives``, or "drawn:6000" for so many pairs of flat shapes, which a small model can learn to see
(``drawn_scenes.py``). Per seed and level of noise, three small NAMCs from random weights: with NIM and MIR, with
NIM alone, with neither. Of the two halves of each training text so many of a hundred words are replaced by others
(``tasks/store/replace_words.py``); the template and its verbs stay, so that a row is still an implicit-change
description. Test rows are clean. The paper fine-tunes a pre-trained NAMC on such texts; here there is one training.

Measured on the test split, greedy answers, as ``scene_answers.py`` says. ``--changes colour`` leaves only pairs that
differ by such changes alone, or not at all. Writes ``results.jsonl`` as it goes, and a table at the end; a folder is
for one choice of rows and steps. One core trains on some 27 rows per second with NIM and MIR, on 80 with neither: a run
of 1,000 steps takes ten minutes, or four.
"""

import argparse
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prompts import difference_verbs
from prompts.differences import fill_template
from schemas.claims import Graphs, content_changes, is_no_change
from schemas.differences import Difference, read_difference
from schemas.rows import PreferenceRow
from tasks.store.replace_words import replace_words
from tests.bench.run_missing import Run, make_table, run_missing
from tests.bench.scene_answers import MEASURES, find_rows, measure, read_answers

ARMS: dict[str, list[str]] = {
    "NIM and MIR": [],
    "NIM": ["namc.reconstruct=false"],
    "neither": ["namc.noise=false"],
}
LEVELS = [0, 20, 40, 60, 80]


def main() -> None:
    """Run what is not yet in ``results.jsonl``, and print the table."""
    options = _options()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    rows, graphs = find_rows(options.dataset)
    rows = [row for row in rows if not options.changes or shows(graphs[row.subject], options.changes)]
    counts = {split: sum(row.split == split for row in rows) for split in ("train", "test")}
    print(f"{counts['train']:,} training rows, {counts['test']:,} test rows", flush=True)
    wanted = [
        {"noise": level, "arm": arm, "seed": seed}
        for seed in options.seeds
        for level in options.levels
        for arm in options.arms
    ]
    done = run_missing(options.to / "results.jsonl", wanted, lambda run: _run(options, rows, graphs, run))
    done.sort(key=lambda one: (one["noise"], list(ARMS).index(one["arm"]), one["seed"]))
    print(make_table(done, ["noise", "arm"], MEASURES, each=options.each))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="a build of rendered scenes, or drawn:6000")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2], help="none: only print the table")
    parser.add_argument("--levels", type=int, nargs="+", default=LEVELS, help="words replaced, of a hundred")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument(
        "--changes", nargs="+", default=[], help="only pairs that differ by such changes, or not at all"
    )
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--set", dest="settings", nargs="*", default=[], help="further settings of the training")
    parser.add_argument("--test", type=int, default=0, help="test rows at the most; 0: all")
    parser.add_argument("--each", action="store_true", help="show the values of the single runs, too")
    return parser.parse_args()


def shows(graphs: Graphs, changes: Sequence[str]) -> bool:
    """Say whether two images of one world differ by nothing but changes of these types, viewpoint and light aside."""
    first, second = graphs
    found = {change.type for change in content_changes(first) ^ content_changes(second)}
    return first.world == second.world and (is_no_change(graphs) or found <= set(changes))


def make_noisy(row: PreferenceRow, share: float) -> PreferenceRow:
    """Return a training row with so many words of its chosen text's halves replaced."""
    read = read_difference(row.chosen, difference_verbs())
    if not share or not isinstance(read, Difference):
        return row
    halves = (
        replace_words(half, share, key=f"{row.key} {n}") for n, half in enumerate((read.first_half, read.second_half))
    )
    return replace(row, chosen=fill_template(read.verbs, *halves))


def _run(
    options: argparse.Namespace, rows: Sequence[PreferenceRow], graphs: dict[str, Graphs], run: Run
) -> dict[str, Any]:
    from flows.train_model import make_config
    from tasks.training.metrics import TRAIN, read_metrics
    from tasks.training.namc.train_namc import train_namc
    from tests.fixtures.runs_to_train import write_run

    share, name = run["noise"] / 100, f"{run['arm']}-{run['noise']}-{run['seed']}".replace(" ", "-")
    test = [row for row in rows if row.split == "test"][: options.test or None]
    training = [make_noisy(row, share) for row in rows if row.split == "train"]
    own = [*ARMS[run["arm"]], f"optimiser.steps={options.steps}", f"optimiser.batch={options.batch}"]
    own += [f"optimiser.learning_rate={options.rate}", f"optimiser.seed={run['seed']}", *options.settings]
    own += ["saving.every=100000", "saving.measure_every=0", "saving.log_every=100"]
    own += ["loading.held_out=test", "loading.held_out_rows=0"]
    shutil.rmtree(options.to / name, ignore_errors=True)
    began, worked = time.monotonic(), time.process_time()
    job = write_run(options.to / name, make_config("namc", own), rows=[*training, *test])
    ended = train_namc(job)
    seconds, busy = time.monotonic() - began, time.process_time() - worked
    said = read_answers(job.run.folder)
    shutil.rmtree(options.to / name / "tables")
    metrics = read_metrics(job.run.metrics)
    return {
        "seconds": round(seconds),
        "cpu": round(busy),
        "held_out": ended.measured,
        "train": metrics.last(TRAIN),
        **measure(test, [said[row.key] for row in test], graphs),
    }


if __name__ == "__main__":
    main()
