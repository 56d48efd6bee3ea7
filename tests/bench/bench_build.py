"""Measure whole builds: start-up, and memory against the number of images.

Run with ``make bench BENCH=build``, or ``python -m tests.bench.bench_build``. Writes pictures of 64 x 48 pixels to a
temporary folder and builds them through mining; each figure is of whole processes, their start included.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

PAIRWRIGHT = [str(Path(sys.executable).parent / "pairwright")]
SIZES = (4_000, 10_000)


def write_pictures(folder: Path, count: int) -> Path:
    """Write near-duplicates in groups of four, so that mining has something to do."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    for number in range(count):
        if number % 4 == 0:
            base = np.kron(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8), np.ones((8, 8, 1), np.uint8))
        changed = base.copy()
        changed[8 * (number % 4) : 8 * (number % 4) + 8, :16] = rng.integers(0, 256, 3)
        Image.fromarray(changed).save(folder / f"{number:06d}.png", compress_level=1)
    return folder


def run(*words: str) -> tuple[float, int]:
    """Run the command line; return seconds and the peak memory in bytes of its largest process."""
    start = time.perf_counter()
    process = subprocess.Popen([*PAIRWRIGHT, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(resident(pid) for pid in family(process.pid)))
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}")
    return time.perf_counter() - start, peak


def family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return found
    for child in children:
        found += family(int(child))
    return found


def resident(pid: int) -> int:
    """Return the private memory of a process: what is mapped from files is shared and can be given back."""
    try:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    except OSError:
        return 0
    return int(fields.get("RssAnon", "0 kB").split()[0]) * 1024


def measure_memory(folder: Path) -> None:
    """Print peak memory of builds of two sizes, and what one more image costs."""
    peaks: dict[int, int] = {}
    for count in SIZES:
        pictures = write_pictures(folder / f"pictures-{count}", count)
        seconds, peaks[count] = run("build", str(pictures), "--out", str(folder / f"out-{count}"), "--until", "mining")
        print(
            f"  {count:>6} images through mining: {seconds:6.1f} s, peak {peaks[count] / 1e6:7.1f} MB in all processes"
        )
    small, large = SIZES
    print(f"  one more image: {(peaks[large] - peaks[small]) / (large - small):,.0f} bytes")


def measure_start(folder: Path) -> None:
    """Print what a build costs that has nothing to do."""
    seconds, _ = run("--help")
    print(f"  pairwright --help: {seconds:.2f} s (target at most 0.5)")
    seconds, _ = run("resume", str(folder / f"out-{SIZES[0]}"))
    print(f"  a build of {SIZES[0]} images with nothing owed: {seconds:.2f} s (target at most 2)")


def main() -> None:
    """Print both tables."""
    print("Whole builds")
    with tempfile.TemporaryDirectory() as folder:
        measure_memory(Path(folder))
        measure_start(Path(folder))


if __name__ == "__main__":
    main()
