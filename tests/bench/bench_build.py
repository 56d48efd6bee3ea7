"""Measure whole builds: start-up, memory against the number of images, what Prefect costs.

Run with ``make bench BENCH=build``, or ``python -m tests.bench.bench_build``. Writes pictures of 64 x 48 pixels to a
temporary folder and builds them through mining; each figure is of whole processes, their start included.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

PAIRWRIGHT = [str(Path(sys.executable).parent / "pairwright")]
SIZES = (4_000, 10_000)
PORT = 42917


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


def run(*words: str, environment: dict[str, str] | None = None) -> tuple[float, int]:
    """Run the command line; return seconds and the peak memory in bytes of its largest process."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [*PAIRWRIGHT, *words], env=environment or os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
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


def measure_prefect(folder: Path) -> None:
    """Print what Prefect adds to a build and to each shard, and its share of a build of 10,000 photographs."""
    home = folder / "prefect"
    environment = {**os.environ, "PREFECT_HOME": str(home), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    environment |= {"DO_NOT_TRACK": "1", "PREFECT_API_URL": f"http://127.0.0.1:{PORT}/api"}
    command = [
        str(Path(sys.executable).parent / "prefect"),
        "server",
        "start",
        "--host",
        "127.0.0.1",
        "--port",
        str(PORT),
    ]
    quiet = subprocess.DEVNULL
    server = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        while not answers(environment["PREFECT_API_URL"]):
            time.sleep(0.5)
        costs = {size: prefect_cost(folder, size, environment) for size in (100, 10)}
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)
    (many, more), (few, less) = costs[10], costs[100]
    each = (more - less) / (many - few)
    once = less - few * each
    print(f"  Prefect adds {once:.1f} s to a build and {1000 * each:.0f} ms to each shard")
    tasks = 10_000 / 12 + 12 * 10_000 / 200  # shards of 4 worlds (12 photographs), then 200 rows in each other stage
    work = 10_000 * 1.1 / 2  # 1.1 s of a core per photograph, two cores
    print(f"  of 10,000 rendered photographs on 2 cores: {100 * (once + tasks * each) / work:.1f} % (target below 2)")


def prefect_cost(folder: Path, size: int, environment: dict[str, str]) -> tuple[int, float]:
    """Return the number of shards of this size, and the seconds by which a server makes the build longer."""
    sizes = f"run.rows_per_shard_of={{images: {size}, embeddings: {size}}}"
    words = ["build", str(folder / f"pictures-{SIZES[0]}"), "--until", "embeddings", "--set", sizes]
    plain, _ = run(*words, "--out", str(folder / f"plain-{size}"))
    served, _ = run(*words, "--out", str(folder / f"served-{size}"), environment=environment)
    shards = 2 * SIZES[0] // size
    print(f"  {shards} shards: {plain:.1f} s without a server, {served:.1f} s with one")
    return shards, served - plain


def answers(url: str) -> bool:
    """Say whether the server is up."""
    try:
        return httpx.get(f"{url}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def main() -> None:
    """Print the three tables."""
    print("Whole builds")
    with tempfile.TemporaryDirectory() as folder:
        measure_memory(Path(folder))
        measure_start(Path(folder))
        measure_prefect(Path(folder))


if __name__ == "__main__":
    main()
