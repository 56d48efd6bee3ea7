"""What tests of exports share."""

import pytest

from tests.fixtures.exports import offline  # noqa: F401


@pytest.fixture(scope="session")
def processor(qwen):
    """Return the processor of a tiny Qwen2-VL."""
    from pairwright.tasks.training.load_model import load_processor

    return load_processor(qwen)
