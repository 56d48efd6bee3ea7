"""Refusal of bytes that are not an accepted image."""

from typing import Literal

from pairwright.schemas.errors import SourceError

Reason = Literal[
    "empty file",
    "not an image",
    "truncated image",
    "damaged image",
    "unsupported pixel format",
    "format needs a package",
    "four bands or more",
    "no such bands",
    "too many pixels",
    "too few pixels",
]


class RefusedImageError(SourceError):
    """Bytes that are not an accepted image: a constant ``reason``, and a ``detail`` that varies."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason: Reason = reason
        self.detail = detail
