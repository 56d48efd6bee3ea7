"""All benchmarks."""

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.benchmark import Benchmark
from pairwright.tasks.evaluation.benchmarks import amber, object_halbench, preferences, rated, scenes, two_images

_CAD_QA, _OMNIDIFF, _MMHAL = rated.BENCHMARKS
_ALL = (
    *scenes.BENCHMARKS,
    *two_images.BENCHMARKS,
    _CAD_QA,
    _OMNIDIFF,
    amber.BENCHMARK,
    object_halbench.BENCHMARK,
    _MMHAL,
    preferences.BENCHMARK,
)
BENCHMARKS: dict[str, Benchmark] = {benchmark.name: benchmark for benchmark in _ALL}


def find_benchmark(name: str) -> Benchmark:
    """Return a benchmark.

    Raises:
        ConfigError: there is none of this name.
    """
    if name not in BENCHMARKS:
        raise ConfigError(f"--benchmark {name}: unknown benchmark; choose from {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]
