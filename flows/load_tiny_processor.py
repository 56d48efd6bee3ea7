"""Make a tiny model in passing, and load its processor: code that needs one runs without a download."""

import tempfile
from pathlib import Path
from typing import Any

from pairwright.tasks.export.verify import load_processor
from pairwright.tasks.training.find_model import require_packages
from pairwright.tasks.training.tiny_model import write_tiny_model

TEXTS = ("What differs between the two images?", "A red ball is new; nothing else has changed.")
"""What its tokenizer is trained on. It takes any text: what it has not seen becomes bytes."""


def load_tiny_processor() -> Any:
    """Return the processor of a Qwen2-VL with random weights.

    Raises:
        ModelError: a package is missing.
    """
    require_packages()
    with tempfile.TemporaryDirectory() as folder:
        return load_processor(str(write_tiny_model(Path(folder), TEXTS)))
