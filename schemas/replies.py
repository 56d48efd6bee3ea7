"""Outcomes of a question to a model."""

from dataclasses import dataclass, replace
from typing import Literal, Self

CUT_OFF = "cut off"
"""Reason for an answer that used all its tokens; said of no other."""


@dataclass(frozen=True, slots=True)
class RefusedText:
    """Reason why a model's text is refused: a short constant phrase, and the evidence."""

    reason: str
    detail: str = ""

    def by_tokens(self, bound: str) -> Self:
        """Return it with the bound ("captions.max_tokens=512") if the answer used all tokens."""
        if self.reason != CUT_OFF:
            return self
        return replace(self, reason=f"{self.reason} ({bound})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Answer of a model that is evaluated, or the reason why there is none."""

    name: str
    """Name of the question."""
    text: str = ""
    state: Literal["answered", "refused", "failed", "no image"] = "answered"
    """refused: the model does not take this question, for good; failed: no answer, the question may
    be asked again; no image: an image is missing or cannot be decoded."""
    detail: str = ""
    cut: bool = False
    """Whether the answer was cut at the maximum number of tokens."""
