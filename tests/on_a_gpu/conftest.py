"""The GPU of these checks; they run in a process of their own (``tests/test_on_a_gpu.py``), which
keeps it for good."""

import pytest

from tests.on_a_gpu.fake_gpu import FakeGpu, plug_in


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    return plug_in(monkeypatch)
