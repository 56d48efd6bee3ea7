"""The errors of Pairwright; each names the boundary that failed.

PairwrightError
├── ConfigError      a profile, option or argument is wrong (exit code 2)
├── SourceError      the images to read cannot be reached or hold nothing (exit code 2)
├── StoreError       a table, part, journal or snapshot cannot be read or written
├── ModelError       weights are missing (exit code 2), or cannot be loaded or run
├── ServerError      a served model does not answer
├── ValidationError  rows do not add up, or a text breaks its template
└── TrainingError    a training run cannot go on
"""


class PairwrightError(Exception):
    """Root of all errors that Pairwright raises on purpose; the message says what, where and what to do."""


class ConfigError(PairwrightError):
    """Wrong profile, option or argument; the message names the file and the field."""


class SourceError(PairwrightError):
    """Source that cannot be reached, or holds no image."""


class StoreError(PairwrightError):
    """Table, part, journal or snapshot that cannot be read or written; the message names the file."""


class ModelError(PairwrightError):
    """Weights that are missing or cannot be loaded or run; the message names them and the command that fetches them."""


class ServerError(PairwrightError):
    """Served model that does not answer."""


class ValidationError(PairwrightError):
    """Rows that do not add up, or a text that breaks its template."""


class TrainingError(PairwrightError):
    """Training run that cannot continue."""
