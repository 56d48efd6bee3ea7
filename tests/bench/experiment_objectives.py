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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pairwright.schemas.rows import PreferenceRow
from tests.bench.compare_models import make_table, run_missing
from tests.bench.scene_answers import MEASURES, measure, read_graphs, read_preferences

ARMS: dict[str, list[str]] = {
    "sft": [],
    "sft+sft": ["objective=sft"],
    "sft+dpo random": ["objective=adpo", "adpo.temperature=1000000"],
    "sft+adpo": ["objective=adpo"],
}


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

    settings, first = ARMS[arm], f"sft-{seed}"
    name = first if arm == "sft" else f"{arm.replace(' ', '-').replace('+', '-')}-{seed}"
    objective = next((one.partition("=")[2] for one in settings if one.startswith("objective=")), "sft")
    epochs, rate = (options.sft_epochs, options.sft_rate) if arm == "sft" else (options.epochs, options.rate)
    own = [one for one in settings if not one.startswith("objective=")]
    own += [f"optimiser.{name}={value}" for name, value in (("num_train_epochs", epochs), ("learning_rate", rate))]
    own += [
        f"optimiser.per_device_train_batch_size={options.batch}",
        f"seed={seed}",
        "model.tuning=full",
        "model.train_vision=true",
    ]
    own += [
        "output.save_steps=100000",
        "output.eval_steps=100000",
        "output.logging_steps=50",
        "data.dataloader_num_workers=0",
    ]
    start = {} if arm == "sft" else {"start": first}
    began = time.monotonic()
    trained = train(options.dataset, make_config(objective, own, model=options.model, **start), name=name)
    seconds = time.monotonic() - began
    return {"seconds": round(seconds), **_measure(options, Path(trained.folder) / "checkpoint")}


def _measure(options: argparse.Namespace, checkpoint: Path) -> dict[str, Any]:
    found = list(_answers(options, checkpoint))
    rows = [row for row, _ in found]
    return measure(rows, [answer for _, answer in found], read_graphs(options.dataset, rows))


def _answers(options: argparse.Namespace, checkpoint: Path) -> Iterator[tuple[PreferenceRow, str]]:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from pairwright.tasks.training.answer_questions import say_answers
    from pairwright.tasks.training.collate import load_example
    from pairwright.tasks.training.freeze_rows import Needs, make_example

    model: Any = AutoModelForImageTextToText.from_pretrained(checkpoint).eval()
    processor: Any = AutoProcessor.from_pretrained(checkpoint)
    rows = [row for row in read_preferences(options.dataset) if row.split == "test"][: options.test or None]
    for start in range(0, len(rows), 32):
        some = rows[start : start + 32]
        items = [load_example(make_example(row, Needs()), 448 * 448) for row in some]
        yield from zip(some, (said.text for said in say_answers(model, processor, items)), strict=True)


if __name__ == "__main__":
    main()
