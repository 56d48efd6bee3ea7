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

Beside the seconds of the clock stand the process' own, which other work on the machine changes less.
"""

import argparse
import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from tests.bench.namc_writers import Task, Writer, make_namc, make_rival

NAMC, RIVAL = "NAMC, with ResNet-101", "Qwen2-VL-2B's architecture"
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
            kept = f"{str(kind).removeprefix('torch.'):<9}"
            print(f"  {name:<28}{kept}{weights:>18}{speed:12,.2f} tokens/s{busy:12,.2f} per CPU second", flush=True)
        del sides
        gc.collect()
    print(f"  ratio {best[NAMC] / best[RIVAL]:,.1f} (the paper's: 21)", flush=True)


def _name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} CPU threads"


def main() -> None:
    """Read the command line."""
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=32 if gpu else 4, help="pairs of images at once")
    parser.add_argument("--tokens", type=int, default=48, help="written of each pair; 80 at the most")
    parser.add_argument("--turns", type=int, default=4 if gpu else 2, help="how often each side runs")
    given = parser.parse_args()
    task = Task(pairs=given.pairs, tokens=given.tokens, device="cuda" if gpu else "cpu", kind=torch.float32)
    compare_writing(task, kinds=(torch.float32, torch.bfloat16) if gpu else (torch.float32,), turns=given.turns)


if __name__ == "__main__":
    main()
