"""The tree of errors: every one is caught as ``PairwrightError``, and the docstring draws them all."""

import inspect
import re

import pytest

from pairwright.schemas import errors
from pairwright.schemas.errors import PairwrightError

CLASSES = {
    name: kind for name, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__
}


def test_the_docstring_draws_the_tree() -> None:
    drawn = re.findall(r"^[├└]── (\w+)  +\S", errors.__doc__ or "", re.MULTILINE)
    assert {*drawn, "PairwrightError"} == set(CLASSES)
    assert {
        "ConfigError",
        "SourceError",
        "StoreError",
        "ModelError",
        "ServerError",
        "ValidationError",
        "TrainingError",
    } == set(drawn)


@pytest.mark.parametrize("name", sorted(set(CLASSES) - {"PairwrightError"}))
def test_each_error_is_a_boundary_of_its_own(name: str) -> None:
    assert CLASSES[name].__bases__ == (PairwrightError,)
    assert str(CLASSES[name]("file x: no space")) == "file x: no space"
    assert (CLASSES[name].__doc__ or "").startswith("Say that ")


def test_errors_of_python_are_not_ours() -> None:
    assert PairwrightError.__bases__ == (Exception,)
