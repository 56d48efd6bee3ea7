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
    """Be the root of all errors that Pairwright raises on purpose; the message says what, where and what to do."""


class ConfigError(PairwrightError):
    """Say that a profile, an option or an argument is wrong; the message names the file and the field."""


class SourceError(PairwrightError):
    """Say that a source cannot be reached, or holds no image."""


class StoreError(PairwrightError):
    """Say that a table, part, journal or snapshot cannot be read or written; the message names the file."""


class ModelError(PairwrightError):
    """Say that weights are missing, or cannot be loaded or run; the message names them and what fetches them."""


class ServerError(PairwrightError):
    """Say that a served model does not answer."""


class ValidationError(PairwrightError):
    """Say that rows do not add up, or that a text breaks its template."""


class TrainingError(PairwrightError):
    """Say that a training run cannot go on."""
