"""What tests of exports share."""

import pytest

from tests.fixtures.exports import offline  # noqa: F401
from tests.fixtures.families_of_models import write_qwen2_vl


@pytest.fixture(scope="session")
def processor(tmp_path_factory):
    """Return the processor of a tiny Qwen2-VL."""
    from pairwright.tasks.training.load_model import load_processor

    return load_processor(write_qwen2_vl(tmp_path_factory.mktemp("qwen")))
