"""All benchmarks."""

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.benchmark import Benchmark
from pairwright.tasks.evaluation.benchmarks import (
    amber,
    bison,
    cad_qa,
    cola,
    eqben,
    mmhal,
    nlvr2,
    object_halbench,
    omnidiff,
    preferences,
    scene_differences,
    scene_pairs,
    scenes,
    svo,
)

_MODULES = (
    scenes,
    scene_differences,
    scene_pairs,
    bison,
    svo,
    nlvr2,
    eqben,
    cola,
    cad_qa,
    omnidiff,
    amber,
    object_halbench,
    mmhal,
    preferences,
)
BENCHMARKS: dict[str, Benchmark] = {module.BENCHMARK.name: module.BENCHMARK for module in _MODULES}


def find_benchmark(name: str) -> Benchmark:
    """Return a benchmark.

    Raises:
        ConfigError: there is none of this name.
    """
    if name not in BENCHMARKS:
        raise ConfigError(f"--benchmark {name}: there is no such one. There are: {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]
