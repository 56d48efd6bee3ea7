"""Measure the training: our DPO against TRL's ``DPOTrainer``.

Run with ``make bench BENCH=train``, or ``python -m tests.bench.bench_train``; takes some twelve
minutes and 2 GB, on CPUs. Needs the extra ``train`` and trl.

Both sides train the same random Qwen2.5-VL on the same preferences, once about two images of 392 x
392 pixels with answers of some 40 tokens, once about images of 112 x 112 with answers of some 200,
with the same batch, precision, adapters, optimiser and order of rows, on transformers' Trainer; the
losses of all steps are compared, without an SFT term. TRL is set up for speed: no gradient
checkpointing (its default), the reference by switching adapters off (it refuses to compute it ahead
where there are images); its ``padding_free`` has no effect. It computes logits for all tokens (2 %
of its work with large images).

Sides take turns, each turn in a process of its own; the first steps are not timed. Samples per
second are those of the fastest turn. Samples per CPU second are shown, too, which other work on the
machine changes less; rows are read in the training's own process, so that all work is counted.
Memory: the peak of the resident memory, on a GPU of its memory, over what is held when model,
optimiser and rows are ready and the first step begins.
"""

import argparse
import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.training import TrainConfig
from tests.bench.train_models import write_model
from tests.bench.train_rows import ANSWER, LONG_ANSWER, make_rows
from tests.bench.train_sides import OURS, TRL, Measured, Task, run_side
from tests.bench.turns import CORES, name_machine

SHAPES = {
    "large images, short answers": (392, ANSWER),
    "small images, long answers": (112, LONG_ANSWER),
}
"""Pixels of an image's sides, and words of an answer."""
SIDES = (OURS, TRL)
BATCH, RANK, WARM, TIMED, TURNS = 4, 8, 2, 6, 5
"""Rows of a step, rank of the adapters; steps that are not timed, and that are."""
CONFIG = TrainConfig.model_validate(
    {
        "objective": "dpo",
        "sft_weight": 0,
        "model": {"tuning": "lora", "lora": {"rank": RANK, "alpha": 2 * RANK}},
        "optimiser": {
            "max_steps": WARM + TIMED + 1,
            "per_device_train_batch_size": BATCH,
            "learning_rate": 1e-4,
            "lr_scheduler_type": "constant",
            "warmup_ratio": 0,
            "precision": "fp32",
        },
        "data": {"dataloader_num_workers": 0, "eval_split": ""},
        "output": {"logging_steps": 1},
    }
)
"""Settings of both sides."""


def prepare(folder: Path, side: int, answer: tuple[int, int]) -> list[PreferenceRow]:
    """Write the model; return the rows."""
    rows = make_rows(BATCH * (WARM + TIMED + 1), side=side, answer=answer)
    texts = [text for row in rows for text in (row.prompt[0].text, row.chosen, row.rejected)]
    alone(write_model, folder / "model", texts)
    return rows


def alone(work: Any, *words: Any, **named: Any) -> Any:
    """Return what a function gives in a new process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(work, *words, **named).result()


def run_turns(folder: Path, rows: list[PreferenceRow], turns: int) -> dict[str, list[Measured]]:
    """Return what each side gave in each turn; every second turn goes backwards."""
    found: dict[str, list[Measured]] = {side: [] for side in SIDES}
    for turn in range(turns):
        for side in SIDES if turn % 2 == 0 else reversed(SIDES):
            task = Task(
                side=side,
                folder=folder,
                rows=rows,
                config=CONFIG,
                warm=WARM,
                timed=TIMED,
                threads=CORES,
            )
            found[side].append(alone(run_side, task))
    return found


def show(found: Mapping[str, list[Measured]]) -> None:
    """Print speeds, memory, and how they are to those of the first side."""
    first: dict[str, float] = {}
    for side, turns in found.items():
        values = {
            "samples/s": BATCH * TIMED / min(one.seconds for one in turns),
            "per CPU s": BATCH * TIMED / min(one.busy for one in turns),
            "MB over start": min(one.peak - one.before for one in turns),
        }
        if not first:
            print(f"  {'':<28}" + "".join(f"{name:>22}" for name in values))
        first = first or values
        cells = (f"{value:15,.2f}{value / first[name]:6.2f}x" for name, value in values.items())
        print(f"  {side:<28}" + "".join(cells))


def show_likeness(ours: Measured, theirs: Measured) -> None:
    """Print whether both sides did the same work."""
    losses, margins = (
        max(abs(one - other) for one, other in zip(mine, others, strict=True))
        for mine, others in ((ours.losses, theirs.losses), (ours.margins, theirs.margins))
    )
    shown = " ".join(f"{loss:.4f}" for loss in ours.losses)
    print(
        f"  losses of ours: {shown}; TRL's differ by {losses:.1g} at the most, its margins by "
        f"{margins:.1g}"
    )


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=TURNS, help="how often each side runs")
    given = parser.parse_args()
    os.environ["OMP_WAIT_POLICY"] = (
        "PASSIVE"  # for both sides: threads that spin are far slower beside other work
    )
    os.environ["HF_HUB_OFFLINE"] = "1"
    for name, (side, answer) in SHAPES.items():
        with tempfile.TemporaryDirectory() as place:
            rows = prepare(Path(place), side, answer)
            found = run_turns(Path(place), rows, given.turns)
        print(
            f"small model on {name_machine()}: {name}, two of {side} x {side}, batch {BATCH}, "
            f"float32"
        )
        print(" ours against TRL (target: 1.5 times the samples per second, 0.7 times the memory)")
        show({side: found[side] for side in (TRL, OURS)})
        show_likeness(found[OURS][0], found[TRL][0])


if __name__ == "__main__":
    main()
