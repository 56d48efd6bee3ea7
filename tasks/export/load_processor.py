"""Load the processor by which an export's rows are measured: a folder, or a name on the Hub that is in its cache."""

from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.models.weights import loading

FIELD = "--processor"


def load_processor(name: str) -> Any:
    """Return a processor of texts and images; nothing is fetched, no code of a checkpoint is run.

    Raises:
        ConfigError: transformers is not installed, or it takes no images.
        ModelError: it is not on this machine, or cannot be loaded.
    """
    try:
        from transformers import AutoProcessor
    except ImportError as error:
        raise ConfigError(f"{FIELD}: needs transformers: python -m pip install -e '.[train]'") from error
    with loading(FIELD, Path(name)):
        processor: Any = AutoProcessor.from_pretrained(name, local_files_only=True, trust_remote_code=False)
    if not hasattr(processor, "image_processor") or not hasattr(processor, "tokenizer"):
        raise ConfigError(f"{FIELD} {name}: takes no images and texts")
    return processor
