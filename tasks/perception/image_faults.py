"""Fault of a model with one image, in place of its result: the row is dropped or fails."""

from dataclasses import dataclass

from pairwright.schemas.rows import Dropped, Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFault:
    """Reason why a model gave no result for an image."""

    reason: str
    """Short and constant."""
    detail: str = ""
    is_final: bool = True
    """Whether another try would not help; false: the row stays unfinished."""

    def as_row(self, source_key: str, *, detail: str = "") -> Dropped | Failed:
        """Return the outcome of an input row; ``detail`` comes before the fault's own."""
        joined = ": ".join(filter(None, (detail, self.detail)))
        kind = Dropped if self.is_final else Failed
        return kind(source_key=source_key, reason=self.reason, detail=joined)
