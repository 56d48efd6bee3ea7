"""Compare a small vision-language model with and without differential perception (paper 002, MDP; its Tables 6 and 12).

Run with ``python -m tests.bench.experiment_differential DATASET --to FOLDER``; the dataset is a build of rendered
scenes as for ``experiment_objectives``, or "drawn:6000" for so many pairs of flat shapes. Per seed, SFT of the
stand-in ``small`` from random weights, with the same rows in the same order, steps and rates: without the module, and
with it. All weights are learnt, those of the vision tower too. The paper begins with pre-trained ones.

Measured on the test split, greedy answers, as ``scene_answers.py`` says. Writes ``results.jsonl`` as it goes, and a
table at the end; a folder is for one choice of rows and steps. One core trains on some 1.5 rows per
second without the module, and on 0.4 with it.
"""

import argparse
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from schemas.claims import Graphs
from schemas.rows import PreferenceRow
from schemas.training import STAND_INS
from tests.bench.run_missing import Run, make_table, run_missing
from tests.bench.scene_answers import MEASURES, find_rows, measure, read_answers

ARMS = {"without MDP": "false", "with MDP": "true"}


def main() -> None:
    """Run what is not yet in ``results.jsonl``, and print the table."""
    options = _options()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    rows, graphs = find_rows(options.dataset)
    wanted = [{"arm": arm, "seed": seed} for seed in options.seeds for arm in ARMS]
    done = run_missing(options.to / "results.jsonl", wanted, lambda run: _run(options, rows, graphs, run))
    done.sort(key=lambda one: (list(ARMS).index(one["arm"]), one["seed"]))
    print(make_table(done, ["arm"], MEASURES, each=options.each))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="a build of rendered scenes, or drawn:6000")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2], help="none: only print the table")
    parser.add_argument("--model", choices=STAND_INS, default="small")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--set", dest="settings", nargs="*", default=[], help="further settings of both arms")
    parser.add_argument("--test", type=int, default=0, help="test rows at the most; 0: all")
    parser.add_argument("--each", action="store_true", help="show the values of the single runs, too")
    return parser.parse_args()


def _run(
    options: argparse.Namespace, rows: Sequence[PreferenceRow], graphs: Mapping[str, Graphs], run: Run
) -> dict[str, Any]:
    from flows.train_model import make_config
    from tasks.training.tiny_model import write_tiny_model
    from tasks.training.train_model import train_model
    from tests.fixtures.runs_to_train import write_run

    own = [f"model.differential.attached={ARMS[run['arm']]}", f"optimiser.seed={run['seed']}", "saving.answers=true"]
    own += [f"optimiser.{name}={getattr(options, name)}" for name in ("steps", "batch")]
    own += [f"optimiser.learning_rate={options.rate}", "loading.workers=0", *options.settings]
    own += ["loading.held_out=test", "loading.held_out_rows=0"]
    own += ["saving.every=100000", "saving.measure_every=0", "saving.log_every=50"]
    config = make_config("sft", own, model=options.model)
    training, test = ([row for row in rows if row.split == split] for split in ("train", "test"))
    texts = [text for row in training for text in (row.chosen, *(turn.text for turn in row.prompt))]
    start = write_tiny_model(options.to / "models", texts, seed=run["seed"], size=options.model)
    name = f"{run['arm']}-{run['seed']}".replace(" ", "-")
    shutil.rmtree(options.to / name, ignore_errors=True)
    test = test[: options.test or None]
    began, worked = time.monotonic(), time.process_time()
    job = replace(write_run(options.to / name, config, rows=[*training, *test]), start=start)
    ended = train_model(job)
    seconds, busy = time.monotonic() - began, time.process_time() - worked
    said = read_answers(job.run.folder)
    shutil.rmtree(options.to / name / "tables")
    return {
        "seconds": round(seconds),
        "cpu": round(busy),
        "held_out": ended.measured,
        **measure(test, [said[row.key] for row in test], graphs),
    }


if __name__ == "__main__":
    main()
