"""Measure sides against each other: they take turns, and the least time of each counts."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.store.pool import HELPERS

CORES = len(os.sched_getaffinity(0))


def count_workers() -> int:
    """Return how many processes run a stage with models in a build: one per core; on a GPU one,
    which others help."""
    return 1 if count_gpus() else CORES


def begin_worker() -> None:
    """Do as the build's workers do; before PyTorch is loaded."""
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENCV_FOR_THREADS_NUM": "1"}
    os.environ[HELPERS] = str(CORES if count_gpus() else 0)


def name_machine() -> str:
    """Return the GPU's name, and how many cores there are."""
    cores = f"{CORES} cores"
    if not count_gpus():
        return cores
    import torch

    return f"{torch.cuda.get_device_name()}, {cores}"


class Took(NamedTuple):
    """Least seconds of a side: of the clock, and of this process on all cores, which other work
    changes less."""

    clock: float
    busy: float


def take_turns(
    sides: Mapping[str, Callable[[], object]], turns: int, *, warm: int = 1
) -> dict[str, Took]:
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


def print_rates(
    title: str, found: Mapping[str, Took], units: int, unit: str, *, busy: bool = True
) -> None:
    """Print how many units a second each side does, and how much longer it takes than the first.

    ``busy``: by CPU seconds, too; not where sides work in other processes.
    """
    print(title, flush=True)
    first = next(iter(found.values()))
    for name, took in found.items():
        line = (
            f"  {name:<36}{units / took.clock:12,.2f} {unit}/s{took.clock / first.clock:8.2f} "
            f"times as long"
        )
        if busy:
            line += (
                f"{units / took.busy:12,.2f} per CPU second{took.busy / first.busy:8.2f} "
                f"times as long"
            )
        print(line, flush=True)
