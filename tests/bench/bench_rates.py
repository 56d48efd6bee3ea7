"""Measure what each stage of the `scenes` profile needs, and print it as a file for ``flows/rates``.

Run with ``python -m tests.bench.bench_rates > flows/rates/scenes-cpu.yaml`` (or ``make bench BENCH=rates``), on a
machine that does nothing else. It is the trial of `pairwright plan --trial`, of 12 worlds.
"""

import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from pairwright.flows.plan_build import planned_of, request_to_plan, site_of
from pairwright.flows.progress import LineWatcher
from pairwright.flows.run_build import Work
from pairwright.flows.run_trial import Measured, run_trial, trial_request
from pairwright.schemas.rates import StoredRate, StoredRates
from pairwright.tasks.store.check_disk import memory_bytes
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.measure_stage import StageRates
from pairwright.tasks.store.pool import Workers, count_cores

PROFILE, WORLDS, PHOTOGRAPHS = "scenes", 12, 3
SHARED = "--shared"
"""Given where the machine has other work: times of the clock are left out, those of the processor stay."""
CLOCK = {"seconds", "start_seconds"}
RATES = ("reach", "rows", "seconds", "cpu_seconds", "bytes", "calls", "prompt_tokens", "completion_tokens")


def measure(folder: Path) -> Measured:
    """Build some worlds of the profile, in small shards."""
    words: dict[str, Any] = {"profile": PROFILE, "settings": [f"scenes.worlds={WORLDS}"], "limit": None, "until": ""}
    request = trial_request(request_to_plan("", None, **words), Folder(str(folder)), WORLDS * PHOTOGRAPHS)
    processes = site_of(request, planned_of(request), shard_seconds=0.0).processes
    with Workers(0) as workers:
        return run_trial(request, Work(run_shards=workers.run, watcher=LineWatcher()), processes=processes)


def stored(rates: StageRates) -> StoredRate:
    """Return rates without their ranges, to four digits."""
    known = {name: getattr(rates, name) for name in RATES}
    values: dict[str, Any] = {name: float(f"{one.value:.4g}") for name, one in known.items() if one}
    once = {"start_seconds": round(rates.start_seconds, 1), "part_bytes": rates.part_bytes}
    found = {**values, **once}
    return StoredRate(**{name: value for name, value in found.items() if SHARED not in sys.argv or name not in CLOCK})


def machine() -> str:
    """Return what was measured on, in words."""
    name = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []:  # noqa: PTH110
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
    return f"{count_cores()} cores of {name}, {memory_bytes() / 1e9:.0f} GB, no GPU"


def main() -> None:
    """Print the file."""
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder) / "trial")
    shared = SHARED in sys.argv
    whole = StoredRates(
        profile=PROFILE,
        machine=machine(),
        device="cpu",
        measured=f"{time.strftime('%Y-%m-%d')}, tests.bench.bench_rates, {WORLDS} worlds"
        + (", processor times only: the machine had other work" if shared else ""),
        shard_seconds=0.0 if shared else float(f"{found.shard_seconds or 0:.3g}"),
        stages={name: stored(rates) for name, rates in found.rates.items() if rates.rows is not None},
    )
    yaml.safe_dump(whole.model_dump(exclude_none=True, mode="json"), sys.stdout, sort_keys=False)


if __name__ == "__main__":
    main()
