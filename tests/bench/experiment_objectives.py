"""Compare SFT, DPO with random negatives and ADPO on rendered scenes, a small model trained from scratch.

Run with ``python -m tests.bench.experiment_objectives DATASET --to FOLDER``; takes an hour or more on two cores. The
dataset is a build of rendered scenes, as in

    pairwright build scenes: --out DATASET --set scenes.worlds=1600 --set scenes.width=128 --set scenes.height=96 \\
        --set scenes.samples=8 --set scenes.no_change_share=0.1 --set rejections.scorer=off

Per seed: SFT from random weights; then, each from there and with the same rows, steps and learning rate, more SFT, DPO
with negatives drawn evenly from the training texts (the same code with a temperature at which the retriever's choice is
even), and ADPO. Measured on the test split, greedy answers: CIDEr-D (each answer against its one
reference), the share of answers whose every statement holds of the two scene graphs, the share of statements that hold,
and the share of answers of which nothing can be read. Writes ``results.jsonl`` as it goes and a table at the end.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from prompts import difference_verbs
from schemas.claims import Graphs, holds
from schemas.differences import Difference, read_difference
from schemas.rows import ImageRow, PairRow, PreferenceRow
from tasks.rejected.read_phrases import read_phrases

ARMS: dict[str, list[str]] = {
    "sft": [],
    "sft+sft": ["objective=sft"],
    "sft+dpo random": ["objective=adpo", "adpo.tau=1000000"],
    "sft+adpo": ["objective=adpo"],
}


def main() -> None:
    """Run what is not yet in ``results.jsonl``, and print the table."""
    options = _options()
    results = options.to / "results.jsonl"
    options.to.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    for seed in options.seeds:
        for arm, settings in ARMS.items():
            if not any(one["arm"] == arm and one["seed"] == seed for one in done):
                done.append(_run(options, arm, settings, seed))
                with results.open("a") as file:
                    file.write(json.dumps(done[-1]) + "\n")
    print(_table(done))


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


def _run(options: argparse.Namespace, arm: str, settings: Sequence[str], seed: int) -> dict[str, Any]:
    from flows.train_model import make_config, train

    first = f"sft-{seed}"
    name = first if arm == "sft" else f"{arm.replace(' ', '-').replace('+', '-')}-{seed}"
    objective = next((one.partition("=")[2] for one in settings if one.startswith("objective=")), "sft")
    epochs, rate = (options.sft_epochs, options.sft_rate) if arm == "sft" else (options.epochs, options.rate)
    own = [one for one in settings if not one.startswith("objective=")]
    own += [f"optimiser.{name}={value}" for name, value in (("epochs", epochs), ("learning_rate", rate))]
    own += [
        f"optimiser.batch={options.batch}",
        f"optimiser.seed={seed}",
        "model.tuning=full",
        "model.train_vision=true",
    ]
    own += ["saving.every=100000", "saving.measure_every=100000", "saving.log_every=50", "loading.workers=0"]
    start = {} if arm == "sft" else {"start": first}
    began = time.monotonic()
    trained = train(options.dataset, make_config(objective, own, model=options.model, **start), name=name)
    seconds = time.monotonic() - began
    return {
        "arm": arm,
        "seed": seed,
        "seconds": round(seconds),
        **_measure(options, Path(trained.folder) / "checkpoint"),
    }


def _measure(options: argparse.Namespace, checkpoint: Path) -> dict[str, Any]:
    rows, answers = list(_answers(options, checkpoint)), []
    rows, answers = [row for row, _ in rows], [answer for _, answer in rows]
    graphs = _graphs(options.dataset, rows)
    judged = [judge(answer, graphs[row.subject]) for row, answer in zip(rows, answers, strict=True)]
    said = [one for own in judged for one in own]
    return {
        "rows": len(rows),
        "cider": cider([row.chosen for row in rows], answers),
        "true": sum(bool(own) and all(own) for own in judged) / len(rows),
        "statements": sum(said) / max(len(said), 1),
        "unreadable": sum(not own for own in judged) / len(rows),
        "distinct": len(set(answers)) / len(rows),
        "example": [rows[0].chosen, answers[0]],
    }


def _answers(options: argparse.Namespace, checkpoint: Path) -> Iterator[tuple[PreferenceRow, str]]:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from flows.read_rows import read_rows
    from tasks.training.answer_rows import answer_rows
    from tasks.training.collate import load_example
    from tasks.training.examples import Needs, make_example

    model: Any = AutoModelForImageTextToText.from_pretrained(checkpoint).eval()
    processor: Any = AutoProcessor.from_pretrained(checkpoint)
    found = [row for row in read_rows(options.dataset, "preferences") if isinstance(row, PreferenceRow)]
    rows = [row for row in found if row.split == "test"][: options.test or None]
    for start in range(0, len(rows), 32):
        some = rows[start : start + 32]
        items = [load_example(make_example(row, Needs()), 448 * 448) for row in some]
        yield from zip(some, answer_rows(model, processor, items), strict=True)


def _graphs(dataset: str, rows: Sequence[PreferenceRow]) -> dict[str, Graphs]:
    from flows.read_rows import read_rows

    images = {row.key: row for row in read_rows(dataset, "images", without=("image",)) if isinstance(row, ImageRow)}
    pairs = {row.key: row for row in read_rows(dataset, "pairs") if isinstance(row, PairRow)}
    found: dict[str, Graphs] = {}
    for row in rows:
        first, second = (images[key].graph for key in (pairs[row.subject].first, pairs[row.subject].second))
        assert first is not None
        assert second is not None
        found[row.subject] = (first, second)
    return found


def judge(answer: str, graphs: Graphs) -> list[bool]:
    """Return whether each statement that can be read of an answer holds of the two scene graphs."""
    read = read_difference(answer, difference_verbs())
    if not isinstance(read, Difference):
        return []
    reading = read_phrases(read.first_half, read.second_half)
    return [holds(claim, graphs) for claim in reading.claims]


def cider(references: Sequence[str], answers: Sequence[str]) -> float:
    """Return CIDEr-D, in the usual points (times 100), of lower-cased words without punctuation."""
    from tasks.evaluation.corpus import Corpus, number_words
    from tasks.evaluation.count_ngrams import count_ngrams
    from tasks.evaluation.score_cider import measure_cider

    def tokens(text: str) -> str:
        return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())

    words = number_words(Corpus([tokens(text) for text in answers], [[tokens(text)] for text in references]))
    measured = measure_cider(words, count_ngrams(words))
    return 100 * float(measured.conclude(measured.statistics.sum(axis=0))[0])


def _table(done: Sequence[dict[str, Any]]) -> str:
    lines = ["| | CIDEr-D | all statements true | statements true | unreadable |", "|---|---|---|---|---|"]
    for arm in ARMS:
        own = [one for one in done if one["arm"] == arm]
        cells = [
            _spread([factor * one[name] for one in own])
            for name, factor in (("cider", 1), ("true", 100), ("statements", 100), ("unreadable", 100))
        ]
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.1f} ± {spread:.1f} ({', '.join(f'{value:.1f}' for value in values)})"


if __name__ == "__main__":
    main()
