"""Measure sides against each other: they take turns, and the least time of each counts."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Took(NamedTuple):
    """Least seconds of a side: of the clock, and of this process on all cores, which other work changes less."""

    clock: float
    busy: float


def take_turns(sides: Mapping[str, Callable[[], object]], turns: int, *, warm: int = 1) -> dict[str, Took]:
    """Return what each side takes, after turns that warm up and do not count."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(warm + turns):
        for name, work in sides.items():
            _wait_for_gpu()
            start, busy = time.perf_counter(), time.process_time()
            work()
            _wait_for_gpu()
            found[name].append((time.perf_counter() - start, time.process_time() - busy))
    return {name: Took(*map(min, zip(*own[warm:], strict=True))) for name, own in found.items()}


def _wait_for_gpu() -> None:
    if "torch" in sys.modules:
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()


def print_rates(title: str, found: Mapping[str, Took], units: int, unit: str, *, busy: bool = True) -> None:
    """Print how many units a second each side does, and how much longer it takes than the first.

    ``busy``: by CPU seconds, too; not where sides work in other processes.
    """
    print(title, flush=True)
    first = next(iter(found.values()))
    for name, took in found.items():
        line = f"  {name:<36}{units / took.clock:12,.2f} {unit}/s{took.clock / first.clock:8.2f} times as long"
        if busy:
            line += f"{units / took.busy:12,.2f} per CPU second{took.busy / first.busy:8.2f} times as long"
        print(line, flush=True)
