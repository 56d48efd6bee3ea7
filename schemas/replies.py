"""What comes of a question to a model."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RefusedText:
    """Reason why what a model wrote will not do: a short constant phrase, and what it is seen by."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Answer of a model that is evaluated, or the reason why there is none."""

    name: str
    """The question's."""
    text: str = ""
    state: Literal["answered", "refused", "failed", "no image"] = "answered"
    """refused: the model does not take this question, for good; failed: nothing was said, and it may be asked again;
    no image: an image is not there, or does not decode."""
    detail: str = ""
    cut: bool = False
    """Whether the answer ended where no more tokens were allowed."""
