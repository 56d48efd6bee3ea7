"""Pairwright: synthetic image-difference and preference datasets, and the training that uses them.

    import pairwright as pw

    album = pw.build("photos/", out="album", profile="laptop", until="mining")
    album = pw.open("album")                       # the newest version; version=3 for another
    album.status()                                 # rows done, dropped, failed, pending
    album["pairs"].to_pandas()                     # or .to_arrow(), .rows(), .to_datasets()
    album.export("trl", "album-trl", split="train")
    run = album.train("adpo", start="sft")

Importing it loads nothing: each name is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pairwright.flows.dataset import Dataset
    from pairwright.flows.pipeline.pipeline import Pipeline
    from pairwright.flows.versions.table import Table
    from pairwright.schemas.errors import (
        ConfigError,
        ModelError,
        PairwrightError,
        ServerError,
        SourceError,
        StoreError,
        TrainingError,
        ValidationError,
    )
    from pairwright.schemas.plugins import load_plugin
    from pairwright.tasks.scenes.reward_answers import reward

    build = Dataset.build
    open = Dataset.open  # noqa: A001  (pw.open, as in zipfile.open and gzip.open)
    __version__: str

__all__ = [
    "ConfigError",
    "Dataset",
    "ModelError",
    "PairwrightError",
    "Pipeline",
    "ServerError",
    "SourceError",
    "StoreError",
    "Table",
    "TrainingError",
    "ValidationError",
    "__version__",
    "build",
    "load_plugin",
    "open",
    "reward",
]
_PLACES = {
    "Dataset": "pairwright.flows.dataset",
    "Pipeline": "pairwright.flows.pipeline.pipeline",
    "Table": "pairwright.flows.versions.table",
    "load_plugin": "pairwright.schemas.plugins",
    "reward": "pairwright.tasks.scenes.reward_answers",
    **{name: "pairwright.schemas.errors" for name in __all__ if name.endswith("Error")},
}


def __getattr__(name: str) -> Any:
    if name in ("build", "open"):
        return getattr(import_module(_PLACES["Dataset"]).Dataset, name)
    if name == "__version__":
        return import_module("importlib.metadata").version("pairwright")
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
