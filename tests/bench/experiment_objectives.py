"""Compare SFT, DPO with random negatives and ADPO on rendered scenes, a small model trained from scratch.

Run with ``python -m tests.bench.experiment_objectives DATASET --to FOLDER``; takes an hour or more on two cores. The
dataset is a build of rendered scenes, as in

    pairwright build scenes: --out DATASET --set scenes.worlds=1600 --set scenes.width=128 --set scenes.height=96 \\
        --set scenes.samples_per_pixel=8 --set scenes.no_change_share=0.1 --set rejections.enabled=false

Per seed: SFT from random weights; then, each from there and with the same rows, steps and learning rate, more SFT, DPO
with negatives drawn evenly from the training texts (the same code with a temperature at which the retriever's choice is
even), and ADPO. Measured on the test split, greedy answers: CIDEr-D (each answer against its one
reference), the share of answers whose every statement holds of the two scene graphs, the share of statements that hold,
and the share of answers of which nothing can be read. Writes ``results.jsonl`` as it goes and a table at the end.
"""

import argparse
import time
from pathlib import Path
from typing import Any

from tests.bench.compare_models import make_table, run_missing
from tests.bench.scene_answers import MEASURES, measure, read_answers, read_graphs, read_preferences

ARMS: dict[str, list[str]] = {
    "sft": ["sft"],
    "sft+sft": ["sft"],
    "sft+dpo random": ["adpo", "adpo.temperature=1000000", "sft_weight=0"],
    "sft+adpo": ["adpo", "sft_weight=0"],
}
"""Per arm its objective, and settings; without an SFT term."""


def main() -> None:
    """Run what is not yet in ``results.jsonl``, and print the table."""
    options = _options()
    wanted = [{"arm": arm, "seed": seed} for seed in options.seeds for arm in ARMS]
    done = run_missing(options.to / "results.jsonl", wanted, lambda run: _run(options, run["arm"], run["seed"]))
    done.sort(key=lambda one: list(ARMS).index(one["arm"]))
    print(make_table(done, ["arm"], MEASURES, each=True))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="several processes may share a folder")
    parser.add_argument("--model", default="small")
    parser.add_argument("--sft-epochs", type=float, default=8)
    parser.add_argument("--epochs", type=float, default=1)
    parser.add_argument("--sft-rate", type=float, default=1e-3)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--test", type=int, default=0, help="test rows at the most; 0: all")
    return parser.parse_args()


def _run(options: argparse.Namespace, arm: str, seed: int) -> dict[str, Any]:
    from pairwright.flows.make_train_config import make_config
    from pairwright.flows.train_model import train

    (objective, *own), first = ARMS[arm], f"sft-{seed}"
    name = first if arm == "sft" else f"{arm.replace(' ', '-').replace('+', '-')}-{seed}"
    epochs, rate = (options.sft_epochs, options.sft_rate) if arm == "sft" else (options.epochs, options.rate)
    own += [
        f"optimiser.num_train_epochs={epochs}",
        f"optimiser.learning_rate={rate}",
        f"optimiser.per_device_train_batch_size={options.batch}",
        f"seed={seed}",
        "model.tuning=full",
        "model.train_vision=true",
        "data.dataloader_num_workers=0",
        "data.eval_split=test",
        f"data.max_eval_rows={options.test}",
        "output.eval_steps=0",
        "output.save_steps=100000",
        "output.logging_steps=50",
        "output.write_answers=true",
    ]
    start = {} if arm == "sft" else {"start": first}
    began = time.monotonic()
    trained = train(options.dataset, make_config(objective, own, model=options.model, **start), name=name)
    seconds = time.monotonic() - began
    answers = read_answers(Path(trained.folder))
    rows = [row for row in read_preferences(options.dataset) if row.key in answers]
    said = [answers[row.key] for row in rows]
    return {"seconds": round(seconds), **measure(rows, said, read_graphs(options.dataset, rows))}


if __name__ == "__main__":
    main()
