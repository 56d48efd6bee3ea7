"""Verify an export: read it back as its consumer does, row by row, and stop at the first row that would not train.

With a processor, also render each row by its chat template and count its tokens, images included. Needs the packages of
the form's consumer, and the memory of one row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ConfigError, ValidationError
from pairwright.tasks.export.form import Form
from pairwright.tasks.export.sample import BrokenRowError, Sample, naming_row, need
from pairwright.tasks.models.weights import loading

FIELD = "--processor"
UNLIMITED = 10_000_000
"""Number from which a tokenizer's maximum length counts as none."""


def load_processor(name: str) -> Any:
    """Return a processor of texts and images, without fetching anything or running code of a checkpoint."""
    try:
        from transformers import AutoProcessor
    except ImportError as error:
        raise ConfigError(f"{FIELD}: needs transformers: python -m pip install -e '.[train]'") from error
    with loading(FIELD, Path(name)):
        processor: Any = AutoProcessor.from_pretrained(name, local_files_only=True, trust_remote_code=False)
    if not hasattr(processor, "image_processor") or not hasattr(processor, "tokenizer"):
        raise ConfigError(f"{FIELD} {name}: does not process images and texts; give a vision-language model's")
    return processor


@dataclass(frozen=True)
class Ruler:
    """Length of rows in a model's tokens."""

    processor: Any
    """Processor from ``AutoProcessor``."""
    max_length: int
    """Maximum tokens of a row."""

    def check(self, sample: Sample) -> None:
        """Check a row's length: its prompt with images, and the longest of its answers."""
        with naming_row(sample.where, "the processor refuses it"):
            length = self._measure(sample)
        why = f"{length:,} tokens, more than {self.max_length:,}"
        need(true=length <= self.max_length, where=sample.where, why=why)

    def _measure(self, sample: Sample) -> int:
        messages = list(sample.messages)
        if sample.answers:
            said = max(sample.answers, key=lambda text: len(self.processor.tokenizer(text)["input_ids"]))
            messages.append({"role": "assistant", "content": [{"type": "text", "text": said}]})
        text = self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=not sample.answers)
        images = [image.convert("RGB") for image in sample.images]
        return len(self.processor(text=[text], images=images or None)["input_ids"][0])


def make_ruler(processor: Any, max_length: int) -> Ruler:
    """Return the ruler of rows; ``max_length`` 0: the processor's own limit, ``ConfigError`` if it has none."""
    limit = max_length or getattr(processor.tokenizer, "model_max_length", None) or UNLIMITED
    if limit >= UNLIMITED:
        raise ConfigError(f"{FIELD}: its tokenizer states no maximum length; give one with --max-length")
    return Ruler(processor, limit)


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """Verifier of folders of one form."""

    form: Form
    processor: Any = None
    """Processor for the consumer's own code, if the form needs one."""
    ruler: Ruler | None = None
    """``None``: lengths are not measured."""

    def verify(self, folder: Path, rows: int, watch: Callable[[int, int], None]) -> int:
        """Read all rows and return their number; ``ValidationError`` names the first that would not train."""
        read, failed = 0, f"--format {self.form.name}:"
        try:
            for sample in self.form.check(folder, self.processor):
                if self.ruler:
                    self.ruler.check(sample)
                read += 1
                watch(read, rows)
        except BrokenRowError as error:
            raise ValidationError(f"{failed} a row would not train: {error}. The export is not kept") from error
        if read != rows:
            raise ValidationError(f"{failed} {rows:,} rows were written and {read:,} are read back")
        return read
