"""Clients do not outlive a test: what they know of their servers is forgotten."""

from collections.abc import Iterator

import pytest

from pairwright.tasks.serving.client import close_clients


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    close_clients()
