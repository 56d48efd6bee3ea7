"""Compare NAMC with and without its modules against noise, on descriptions whose words are replaced (001, Table 10).

Run with ``python -m tests.bench.experiment_namc DATASET --to FOLDER``; the dataset is a build of rendered scenes as for
``experiment_objectives``, or "drawn:6000" for so many pairs of flat shapes, which a small model can learn to see
(``drawn_scenes.py``). Per seed and level of noise, three small NAMCs from random weights: with NIM and MIR, with
NIM alone, with neither. ``--tune drawn:2000:1`` then fine-tunes each of them on other pairs (here of seed 1) at each of
``--tune-levels``, as the paper's table does: without masks, so that the arms differ in what they begin with alone.

Noise: of the two halves of each training text so many of a hundred words become others of the dataset's words
(``tasks/models/perturb.py``); the template and its verbs stay, so that a row is still an implicit-change
description. Test rows are clean.

Measured on the test split, greedy answers, as ``scene_answers.py`` says. Writes ``results.jsonl`` as it goes, and a
table at the end; a folder is for one choice of rows and steps. One core trains on some 32 drawn rows a second with NIM
and MIR, on 85 with neither or on fine-tuning: a run of 1,000 steps takes 18 minutes, or 7, one of fine-tuning 2. After
1,000 it sees where texts are clean, not yet where words are replaced (``--levels 0`` leaves those out).
"""

import argparse
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pairwright.prompts import difference_verbs
from pairwright.prompts.differences import fill_template
from pairwright.schemas.claims import Graphs
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.models.perturb import replace_words
from pairwright.tasks.texts.differences import Difference, read_difference
from pairwright.tasks.texts.words import WORD
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

ARMS: dict[str, list[str]] = {
    "NIM and MIR": [],
    "NIM": ["namc.reconstruction_enabled=false"],
    "neither": ["namc.noise_enabled=false"],
}
LEVELS = [0, 20, 40, 60, 80]


UNTUNED = -1
"""Stands for a run that is trained from random weights, among the levels at which others are fine-tuned."""


def main() -> None:
    """Run what is not yet in ``results.jsonl``, and print the table."""
    options = _options()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    done = _run_all(options, options.dataset, [UNTUNED])
    if options.tune:
        done = _run_all(options, options.tune, options.tune_levels)
    done.sort(key=lambda one: (one["noise"], one["tuned"], list(ARMS).index(one["arm"]), one["seed"]))
    print(make_table(done, ["noise", "tuned", "arm"], MEASURES, each=options.each))


def _options() -> argparse.Namespace:
    parser = make_parser(__doc__, steps=1_000, rate=1e-3, batch=32)
    parser.add_argument("--levels", type=int, nargs="+", default=LEVELS, help="words replaced, of a hundred")
    parser.add_argument("--tune", default="", help="what they are fine-tuned on; empty: they are not")
    parser.add_argument("--tune-levels", type=int, nargs="+", default=LEVELS, help="words replaced there")
    parser.add_argument("--tune-steps", type=int, default=300)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    return parser.parse_args()


def _run_all(options: argparse.Namespace, dataset: str, tuned: Sequence[int]) -> list[dict[str, Any]]:
    rows, graphs = find_rows(dataset)
    counts = {split: sum(row.split == split for row in rows) for split in ("train", "test")}
    print(f"{dataset}: {counts['train']:,} training rows, {counts['test']:,} test rows", flush=True)
    wanted = [
        {"noise": noise, "tuned": level, "arm": arm, "seed": seed}
        for seed in options.seeds
        for noise in options.levels
        for arm in options.arms
        for level in tuned
    ]
    return run_missing(options.to / "results.jsonl", wanted, lambda run: _run(options, rows, graphs, run))


def make_noisy(row: PreferenceRow, share: float, vocabulary: Sequence[str]) -> PreferenceRow:
    """Return a training row with so many words of its chosen text's halves replaced."""
    read = read_difference(row.chosen, difference_verbs())
    if not share or not isinstance(read, Difference):
        return row
    halves = (
        replace_words(half, share, key=f"{row.key} {n}", vocabulary=vocabulary)
        for n, half in enumerate((read.first_half, read.second_half))
    )
    return replace(row, chosen=fill_template(read.verbs, *halves))


def _run(
    options: argparse.Namespace, rows: Sequence[PreferenceRow], graphs: Mapping[str, Graphs], run: Run
) -> dict[str, Any]:
    from pairwright.flows.make_train_config import make_config
    from pairwright.tasks.training.namc.train_namc import train_namc
    from tests.fixtures.runs_to_train import write_run

    name = begun = f"{run['arm']}-{run['noise']}-{run['seed']}".replace(" ", "-")
    noise, own, start = run["noise"], ARMS[run["arm"]], ""
    if run["tuned"] != UNTUNED:
        name, noise, start = f"{begun}-tuned-{run['tuned']}", run["tuned"], begun
        options, own = argparse.Namespace(**vars(options) | {"steps": options.tune_steps}), []
    shutil.rmtree(options.to / name, ignore_errors=True)
    training, test = split_rows(options, rows)
    vocabulary = sorted({word.casefold() for row in training for word in WORD.findall(row.chosen)})
    noisy = [make_noisy(row, noise / 100, vocabulary) for row in training]
    config = make_config("namc", make_settings(options, own, seed=run["seed"]), start=start)
    job = write_run(options.to / name, config, rows=[*noisy, *test])
    if start:
        job = replace(job, start=options.to / begun / "runs" / "run" / "checkpoint")
    return train_and_measure(job, train_namc, test, graphs)


if __name__ == "__main__":
    main()
