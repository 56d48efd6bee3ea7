"""All benchmarks."""

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.benchmark import Benchmark
from pairwright.tasks.evaluation.benchmarks import (
    amber,
    differences,
    object_halbench,
    preferences,
    rated,
    scenes,
    two_images,
)

BENCHMARKS: dict[str, Benchmark] = {
    one.name: one
    for one in (
        *scenes.BENCHMARKS,
        *differences.BENCHMARKS,
        *two_images.BENCHMARKS,
        *rated.BENCHMARKS,
        amber.BENCHMARK,
        object_halbench.BENCHMARK,
        preferences.BENCHMARK,
    )
}


def find_benchmark(name: str) -> Benchmark:
    """Return a benchmark by name."""
    if name not in BENCHMARKS:
        raise ConfigError(f"--benchmark {name}: unknown benchmark; choose from {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]
