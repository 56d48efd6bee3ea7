"""Compare a small vision-language model with and without differential perception (paper 002, MDP; its Tables 6 and 12).

Run with ``python -m tests.bench.experiment_differential DATASET --to FOLDER``; the dataset is a build of rendered
scenes as for ``experiment_objectives``, or "drawn:6000" for so many pairs of flat shapes. Per seed, SFT of the
stand-in ``small`` from random weights, with the same rows in the same order, steps and rates: without the module, and
with it. All weights are learnt, those of the vision tower too. The paper begins with pre-trained ones.

Measured on the test split, greedy answers, as ``scene_answers.py`` says. Writes ``results.jsonl`` as it goes, and a
table at the end; a folder is for one choice of rows and steps. One core trains on some 20 drawn rows per second without
the module, on 12 with it; of rendered ones of 128 x 96 pixels on 1.5 and 0.4.
"""

import argparse
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pairwright.schemas.claims import Graphs
from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.training import STAND_INS
from tests.bench.compare_models import (
    Run,
    make_parser,
    make_settings,
    make_table,
    run_missing,
    split_rows,
    train_and_measure,
)
from tests.bench.scene_answers import MEASURES, find_rows

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
    parser = make_parser(__doc__, steps=1_200, rate=1e-3, batch=16)
    parser.add_argument("--model", choices=STAND_INS, default="small")
    return parser.parse_args()


def _run(
    options: argparse.Namespace, rows: Sequence[PreferenceRow], graphs: Mapping[str, Graphs], run: Run
) -> dict[str, Any]:
    from pairwright.flows.make_train_config import make_config
    from pairwright.tasks.training.tiny_model import write_tiny_model
    from pairwright.tasks.training.train_model import train_model
    from tests.fixtures.runs_to_train import write_run

    name = f"{run['arm']}-{run['seed']}".replace(" ", "-")
    shutil.rmtree(options.to / name, ignore_errors=True)
    training, test = split_rows(options, rows)
    texts = [text for row in training for text in (row.chosen, *(turn.text for turn in row.prompt))]
    start = write_tiny_model(options.to / "models", texts, seed=run["seed"], size=options.model)
    own = [
        f"model.differential.enabled={ARMS[run['arm']]}",
        "output.write_answers=true",
        "data.dataloader_num_workers=0",
    ]
    config = make_config("sft", make_settings(options, own, seed=run["seed"]), model=options.model)
    job = replace(write_run(options.to / name, config, rows=[*training, *test]), start=start)
    return train_and_measure(job, train_model, test, graphs)


if __name__ == "__main__":
    main()
