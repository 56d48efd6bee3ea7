"""The dataset that trainings share."""

import pytest

from tests.fixtures.dogs_to_train import write_dataset


@pytest.fixture(scope="session")
def dogs(tmp_path_factory):
    """Return a dataset of given preferences, in which tests only write runs of their own."""
    return write_dataset(tmp_path_factory.mktemp("data") / "dogs")
