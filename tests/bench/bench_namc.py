"""Measure NAMC of the paper's size: writing against a vision-language model, training with tables against without.

Run with ``make bench BENCH=namc``, or ``python -m tests.bench.bench_namc``; takes some ten minutes and 12 GB. Needs the
extra ``train``. Where there is a GPU it runs there, with more pairs at once. All weights are random, of the published
sizes: a step costs the same as with learnt ones.

1. Tokens per second of greedy writing with a cache of keys and values, of the same pairs of images, the same number of
   tokens: NAMC, with ResNet-101 that sees the images' grids within the time; and a model of Qwen2-VL-2B's architecture,
   run by transformers. Images are scaled, and the prompt is tokenised, before the clock starts, for both sides. They
   take turns, in each type of numbers (float32; on a GPU also bfloat16: processors without instructions for it are
   several times slower with it), and the best turn of the best type counts. The paper has 2,248 against 106 (BLIP2IDC,
   3.8 B) on an RTX 3090, and does not say what was timed.

2. Samples per second of training at the paper's size: off the tables of what CNN, VQGAN and CLIP see, as ``pairwright
   train --objective namc --size paper`` does; and the same loop that has them look at the images in each step, in
   float32 as the tables are made, on a GPU also in bfloat16, which gives other codes here and there. The next batch is
   made while the model learns from this one; decoding is timed on neither side. The tables are made before the clock
   starts: once, for all epochs and runs (the paper has 20 epochs, then 40). Target: 3 times. Of pre-training, all
   losses: by PyTorch's count a row costs 352 GFLOP off the tables, most of it CLIP's, which is trained, and 670 without
   them. And of fine-tuning, where only the CNN looks at images.

Beside the seconds of the clock stand the process' own, which other work on the machine changes less.
"""

import argparse
import gc
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.training.namc.freeze_places import Frozen
from tests.bench.namc_trainers import freeze, make_config, make_trainer
from tests.bench.namc_writers import Task, Writer, make_namc, make_rival

NAMC, RIVAL = "NAMC, with ResNet-101", "Qwen2-VL-2B's architecture"
TABLES = "off the tables"
TRAININGS = {"pre-training": True, "fine-tuning": False}
"""Whether there is masking."""
WRITERS: Mapping[str, Callable[[Task], Writer]] = {RIVAL: make_rival, NAMC: make_namc}


@dataclass(frozen=True, slots=True)
class Turn:
    """Be what one turn took, in seconds: of the clock, and of the process."""

    clock: float
    busy: float


def timed(work: Callable[[], object], *, device: str) -> Turn:
    """Return what a call took, the device's work included."""
    _wait(device)
    start, busy = time.perf_counter(), time.process_time()
    work()
    _wait(device)
    return Turn(time.perf_counter() - start, time.process_time() - busy)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def compare_writing(task: Task, *, kinds: tuple[torch.dtype, ...], turns: int) -> None:
    """Print tokens per second of both sides, each in its best type of numbers."""
    print(f"Writing {task.tokens} tokens of each of {task.pairs} pairs at once, on {_name(task.device)}", flush=True)
    best: dict[str, float] = {}
    for kind in kinds:
        sides = {name: make(replace(task, kind=kind)) for name, make in WRITERS.items()}
        for side in sides.values():
            side.write()  # not timed
        found: dict[str, list[Turn]] = {name: [] for name in sides}
        for turn in range(turns):
            for name in sides if turn % 2 == 0 else reversed(sides):
                found[name].append(timed(sides[name].write, device=task.device))
        for name, own in found.items():
            tokens = task.pairs * task.tokens
            speed = tokens / min(one.clock for one in own)
            busy = tokens / min(one.busy for one in own)
            best[name] = max(best.get(name, 0.0), speed)
            weights = f"{sides[name].weights / 1e6:,.1f} M weights"
            print(
                f"  {name:<28}{_short(kind):<9}{weights:>18}{speed:12,.2f} tokens/s{busy:12,.2f} per CPU second",
                flush=True,
            )
        del sides
        gc.collect()
    print(f"  ratio {best[NAMC] / best[RIVAL]:,.1f} (the paper's: 21)", flush=True)


def compare_training(
    noises: Mapping[str, bool], *, batch: int, steps: int, turns: int, kinds: tuple[torch.dtype, ...], device: str
) -> None:
    """Print samples per second with tables and without, of pre-training and of fine-tuning."""
    with tempfile.TemporaryDirectory() as place:
        config = make_config(Path(place), batch=batch, steps=1 + turns * steps)
        frozen = freeze(Path(place), batch * config.optimiser.max_steps, config.namc)
        for name, noise in noises.items():
            print(f"{name.capitalize()}, {batch} rows at once, on {_name(device)}", flush=True)
            namc = config.namc.model_copy(update={"noise_enabled": noise})
            _compare_steps(config.model_copy(update={"namc": namc}), frozen, steps=steps, turns=turns, kinds=kinds)


def _compare_steps(
    config: TrainConfig, frozen: Frozen, *, steps: int, turns: int, kinds: tuple[torch.dtype, ...]
) -> None:
    """Print samples per second of a training with tables and without; the first step is not timed."""
    batch, device = config.optimiser.per_device_train_batch_size, str(choose_device())
    sides = {TABLES: make_trainer(config, frozen, anew=None)}
    sides |= {f"images seen in each step, {_short(kind)}": make_trainer(config, frozen, anew=kind) for kind in kinds}
    losses = " ".join(f"{learn(range(1))[0]:.4f}" for learn in sides.values())
    print(f"  loss of the first step: {losses}", flush=True)
    found: dict[str, list[Turn]] = {name: [] for name in sides}
    for turn in range(turns):
        for name in sides if turn % 2 == 0 else reversed(sides):
            numbers = range(1 + turn * steps, 1 + (turn + 1) * steps)
            found[name].append(timed(partial(sides[name], numbers), device=device))
    own = {name: Turn(min(one.clock for one in turn), min(one.busy for one in turn)) for name, turn in found.items()}
    for name, one in own.items():
        speed, busy = (steps * batch / seconds for seconds in (one.clock, one.busy))
        ratios = f"{one.clock / own[TABLES].clock:8.2f} times as long, {one.busy / own[TABLES].busy:.2f} in CPU seconds"
        print(f"  {name:<36}{speed:12,.3f} samples/s{busy:12,.3f} per CPU second{ratios}", flush=True)


def _short(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


def _name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} CPU threads"


def main() -> None:
    """Read the command line."""
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=32 if gpu else 4, help="pairs of images at once")
    parser.add_argument("--tokens", type=int, default=48, help="written of each pair; 80 at the most")
    parser.add_argument("--turns", type=int, default=4 if gpu else 2, help="how often each side runs")
    parser.add_argument("--batch", type=int, default=64 if gpu else 4, help="rows that are trained on at once")
    parser.add_argument("--steps", type=int, default=10 if gpu else 2, help="of a turn of training")
    parser.add_argument("--only", choices=("writing", *TRAININGS), help="measure that alone")
    given = parser.parse_args()
    device = "cuda" if gpu else "cpu"
    kinds = (torch.float32, torch.bfloat16) if gpu else (torch.float32,)
    if given.only not in TRAININGS:
        task = Task(pairs=given.pairs, tokens=given.tokens, device=device, kind=torch.float32)
        compare_writing(task, kinds=kinds, turns=given.turns)
    if noises := {name: noise for name, noise in TRAININGS.items() if given.only in (None, name)}:
        compare_training(noises, batch=given.batch, steps=given.steps, turns=given.turns, kinds=kinds, device=device)


if __name__ == "__main__":
    main()
