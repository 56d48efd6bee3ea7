"""The real vLLM servers that tests marked ``live`` share."""

import pytest


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
