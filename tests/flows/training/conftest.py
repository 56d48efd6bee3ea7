"""The dataset that trainings share."""

import pytest

from tests.fixtures.build_once import build_once
from tests.fixtures.dogs_to_train import write_dataset


@pytest.fixture(scope="session")
def dogs(tmp_path_factory):
    """Return a dataset of given preferences, in which tests only write runs of their own."""

    def write(folder):
        folder.mkdir()
        write_dataset(folder / "dogs")

    return build_once(tmp_path_factory, "dogs", write) / "dogs"
