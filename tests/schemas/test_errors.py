"""Errors of libraries become those of Pairwright, with their cause."""

import pytest

from pairwright.schemas.errors import ModelError, SourceError, wrap_errors


def refuse(error: Exception) -> ModelError:
    return ModelError(f"weights: {error}")


def test_an_error_of_a_library_is_wrapped_with_its_cause() -> None:
    with pytest.raises(ModelError, match=r"^weights: damaged$") as caught, wrap_errors(refuse):
        raise ValueError("damaged")
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_error_of_the_kept_type_stays_as_it_is() -> None:
    with pytest.raises(SourceError, match=r"^gone$"), wrap_errors(refuse, keep=SourceError):
        raise SourceError("gone")


def test_a_stop_is_not_an_error() -> None:
    with pytest.raises(KeyboardInterrupt), wrap_errors(refuse):
        raise KeyboardInterrupt
