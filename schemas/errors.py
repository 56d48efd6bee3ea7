"""The errors of Pairwright; each names the boundary that failed."""

from collections.abc import Callable, Generator
from contextlib import contextmanager


class PairwrightError(Exception):
    """Root of the errors that Pairwright raises: what happened, where, and what to do."""


class ConfigError(PairwrightError):
    """Wrong profile, option or argument (exit code 2); the message names the file and the field."""


class SourceError(PairwrightError):
    """Source that cannot be reached, or holds no image (exit code 2)."""


class StoreError(PairwrightError):
    """Unreadable or unwritable table, part, journal or snapshot; the message names the file."""


class ModelError(PairwrightError):
    """Weights that are missing (exit code 2) or do not load or run; names the fetch command."""


class ServerError(PairwrightError):
    """Served model that does not answer."""


class ValidationError(PairwrightError):
    """Rows that do not add up, or a text that breaks its template."""


class TrainingError(PairwrightError):
    """Training run that cannot continue."""


@contextmanager
def wrap_errors(
    wrap: Callable[[Exception], Exception], *, keep: type[Exception] | None = None
) -> Generator[None]:
    """Raise what ``wrap`` makes of any exception of a library; those of type ``keep`` stay.

    For libraries whose errors have no common type, and for hostile input to them.
    """
    try:
        yield
    except Exception as error:
        if keep and isinstance(error, keep):
            raise
        raise wrap(error) from error
