"""Measure the training: our DPO against TRL's ``DPOTrainer``, and our ADPO against our DPO.

Run with ``make bench BENCH=train``, or ``python -m tests.bench.bench_train``; takes some six minutes and 2 GB. Needs
the extra ``train`` and trl. On a machine with a GPU, ``--gpu`` takes a model of Qwen2.5-VL-3B's architecture (random
weights, 8 GB on disk), adapters and full tuning, bfloat16.

Both sides train the same random Qwen2.5-VL on the same preferences about two images (392 x 392 pixels; 448 x 448 on a
GPU), answers of some 40 tokens, with the same batch, precision, adapters, optimiser and order of rows, on
transformers' Trainer; the losses of all steps are compared. TRL is set up for speed: no gradient checkpointing (its
default), loading processes as ours, the reference by switching adapters off, Liger's kernels where they are installed
and there is a GPU; its ``padding_free`` has no effect. Without a GPU, TRL computes logits for all tokens (2 % of its
work here); with one, for the answers' alone.

Sides take turns, each turn in a process of its own; the first steps are not timed. Samples per second are those of the
fastest turn. On a CPU, samples per CPU second are shown, too, which other work on the machine changes less; rows are
then read in the training's own process, so that all work is counted. Memory: on a CPU, the peak of the resident memory
over what is resident when model, optimiser and rows are ready and the first step begins; on a GPU, PyTorch's peak.
"""

import argparse
import importlib.util
import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

from pairwright.schemas.training import TrainConfig
from tests.bench.train_models import FULL, SMALL, Size, write_model
from tests.bench.train_rows import make_rows, write_rows
from tests.bench.train_sides import ADPO, LIGER, OURS, TRL, Measured, Task, run_side

CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Say what is measured."""

    name: str
    size: Size
    side: int
    """Pixels of an image's sides."""
    batch: int
    rank: int
    tuning: Literal["lora", "full"] = "lora"
    precision: Literal["fp32", "bf16"]
    workers: int
    warm: int
    timed: int
    turns: int
    gpu: bool

    def config(self) -> TrainConfig:
        """Return the settings of both sides."""
        steps = {"max_steps": self.warm + self.timed + 1, "per_device_train_batch_size": self.batch}
        plain = {"learning_rate": 1e-4, "lr_scheduler_type": "constant", "warmup_ratio": 0, "precision": self.precision}
        values = {
            "objective": "dpo",
            "model": {"tuning": self.tuning, "lora": {"rank": self.rank, "alpha": 2 * self.rank}},
            "reference": {"method": "adapters" if self.tuning == "lora" else "copy"},
            "optimiser": steps | plain,
            "data": {"dataloader_num_workers": self.workers, "eval_split": ""},
            "output": {"logging_steps": 1},
        }
        return TrainConfig.model_validate(values)

    def task(self, folder: Path, side: str) -> Task:
        """Return what one process does."""
        return Task(
            side=side,
            folder=folder,
            config=self.config(),
            warm=self.warm,
            timed=self.timed,
            threads=CORES,
        )


ON_CPU = Plan(
    name=f"small model on {CORES} cores",
    size=SMALL,
    side=392,
    batch=4,
    rank=8,
    precision="fp32",
    workers=0,
    warm=2,
    timed=6,
    turns=5,
    gpu=False,
)
ON_GPU = Plan(
    name="Qwen2.5-VL-3B's size on a GPU, adapters",
    size=FULL,
    side=448,
    batch=8,
    rank=64,
    precision="bf16",
    workers=8,
    warm=3,
    timed=12,
    turns=2,
    gpu=True,
)
FULL_ON_GPU = replace(ON_GPU, name="Qwen2.5-VL-3B's size on a GPU, full tuning", tuning="full", batch=4)


def prepare(folder: Path, plan: Plan) -> None:
    """Write rows and model."""
    rows = make_rows(plan.batch * (plan.warm + plan.timed + 1), side=plan.side)
    write_rows(folder, rows)
    texts = [text for row in rows for text in (row.prompt[0].text, row.chosen, row.rejected)]
    alone(write_model, folder / "model", plan.size, texts, device="cuda" if plan.gpu else "cpu")


def alone(work: Any, *words: Any, **named: Any) -> Any:
    """Return what a function gives in a new process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(work, *words, **named).result()


def run_turns(folder: Path, plan: Plan, sides: Sequence[str]) -> dict[str, list[Measured]]:
    """Return what each side gave in each turn; every second turn goes backwards."""
    found: dict[str, list[Measured]] = {side: [] for side in sides}
    for turn in range(plan.turns):
        for side in sides if turn % 2 == 0 else reversed(sides):
            found[side].append(alone(run_side, plan.task(folder, side)))
    return found


def show(plan: Plan, found: Mapping[str, list[Measured]]) -> None:
    """Print speeds, memory, and how they are to those of the first side."""
    samples = plan.batch * plan.timed
    first: dict[str, float] = {}
    for side, turns in found.items():
        values = {"samples/s": samples / min(one.seconds for one in turns)}
        if not plan.gpu:
            values["per CPU s"] = samples / min(one.busy for one in turns)
        values["peak MB" if plan.gpu else "MB over start"] = min(
            one.peak - one.before * (not plan.gpu) for one in turns
        )
        if not first:
            print(f"  {'':<28}" + "".join(f"{name:>22}" for name in values))
        first = first or values
        cells = (
            f"{value:15,.{0 if 'MB' in name else 2}f}{value / first[name]:6.2f}x" for name, value in values.items()
        )
        print(f"  {side:<28}" + "".join(cells))


def show_likeness(ours: Measured, theirs: Measured) -> None:
    """Print whether both sides did the same work."""
    losses, margins = (
        max(abs(one - other) for one, other in zip(mine, others, strict=True))
        for mine, others in ((ours.losses, theirs.losses), (ours.margins, theirs.margins))
    )
    shown = " ".join(f"{loss:.4f}" for loss in ours.losses)
    print(f"  losses of ours: {shown}; TRL's differ by {losses:.1g} at the most, its margins by {margins:.1g}")


def measure(folder: Path, plan: Plan) -> None:
    """Print everything of one plan."""
    print(f"{plan.name}: two images of {plan.side} x {plan.side}, batch {plan.batch}, {plan.precision}", flush=True)
    rivals = [TRL, LIGER] if plan.gpu and importlib.util.find_spec("liger_kernel") else [TRL]
    found = run_turns(folder, plan, [OURS, ADPO, *rivals])
    rivals.sort(key=lambda side: min(one.seconds for one in found[side]))
    print(" ours against TRL (target: 1.5 times the samples per second, 0.7 times the memory)")
    show(plan, {side: found[side] for side in (*rivals, OURS)})
    show_likeness(found[OURS][0], found[TRL][0])
    print(" ADPO against DPO (target: 0.97 times the samples per second, 1.02 times the memory)")
    show(plan, {side: found[side] for side in (OURS, ADPO)})


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="the published size, on a GPU")
    parser.add_argument("--turns", type=int, help="how often each side runs")
    given = parser.parse_args()
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # for both sides: threads that spin are far slower beside other work
    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as place:
        for number, plan in enumerate((ON_GPU, FULL_ON_GPU) if given.gpu else (ON_CPU,)):
            if not number:
                prepare(Path(place), plan)
            measure(Path(place), replace(plan, turns=given.turns or plan.turns))


if __name__ == "__main__":
    main()
