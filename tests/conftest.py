"""How tests draw their examples and share the cores, and the real vLLM servers that tests marked
``live`` share."""

import os
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

# Each of several workers would have as many threads as there are cores, and they would wait for
# each other: twice the
# time. Before anything imports NumPy or PyTorch; what tests start inherits it.
if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // int(workers))))
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# The suite says of a commit the same each time; `make soak` looks further, at other examples each
# time.
settings.register_profile(
    "suite",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # beside other work
)
settings.register_profile("search", max_examples=2_000, deadline=None)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def vllm_servers(tmp_path_factory):
    """Return the session's servers; none runs until it is asked for."""
    from tests.fixtures.vllm_server import VllmServers

    servers = VllmServers(tmp_path_factory.mktemp("served"))
    yield servers
    servers.stop()


@pytest.fixture
def qwen_server(vllm_servers):
    """Return a running server of a tiny Qwen2-VL, two images per prompt, 4,096 tokens."""
    return vllm_servers.qwen()


@pytest.fixture
def mixtral_server(vllm_servers):
    """Return a running server of a tiny Mixtral, 4,096 tokens."""
    return vllm_servers.mixtral()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """Return what gives the tiny checkpoint of a family, which no test may change."""
    from tests.fixtures.build_once import build_once
    from tests.fixtures.families_of_models import FAMILIES

    return cache(lambda family: build_once(tmp_path_factory, family, FAMILIES[family]))


@pytest.fixture(scope="session")
def qwen(checkpoint):
    """Return a tiny Qwen2-VL, which no test may change."""
    return checkpoint("qwen2_vl")


@pytest.fixture
def one_thread():
    """Let PyTorch compute with one thread: sums come out the same each time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
