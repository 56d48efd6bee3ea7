"""What the templates show: one frozen view per thing on a page, every path and word ready."""

from dataclasses import dataclass

from schemas.rows import ComparisonRow, Turn
from tasks.report.mark_words import Segment
from tasks.report.write_images import Picture

SIDES = ("first", "second")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageView:
    """Be one image of a pair."""

    picture: Picture
    name: str
    side: str
    caption: str
    changed: str
    """Overlay of what is known to be changed; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedView:
    """Be a rejected text beside the chosen one."""

    maker: str
    note: str
    score: float | None
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalView:
    """Be one removal candidate."""

    tag: str
    side: int
    score: float
    chosen: bool
    mask: str
    """Overlay; empty: none."""

    @property
    def where(self) -> str:
        """Return "first" or "second"."""
        return SIDES[self.side]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedView:
    """Be the rejected image: the original and what is left of it."""

    tag: str
    side: int
    picture: Picture

    @property
    def where(self) -> str:
        """Return "first" or "second"."""
        return SIDES[self.side]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceView:
    """Be the chosen text and everything that is rejected."""

    prompt: str
    chosen: tuple[Segment, ...]
    chosen_model: str
    rejected: RejectedView | None
    negatives: tuple[RejectedView, ...]
    removals: tuple[RemovalView, ...]
    """Best first, without those that score nothing."""
    useless: int
    """Candidates that scored nothing."""
    removed: RemovedView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairView:
    """Be one pair with all that was made about it."""

    number: int
    key: str
    page: str
    images: tuple[ImageView, ImageView]
    split: str
    origin: str
    similarity: float
    similarities: tuple[tuple[str, float], ...]
    same_group: bool | None
    """Whether both images are of one group; ``None``: not known."""
    changes: tuple[tuple[str, str], ...]
    """Side and words of each change that is known."""
    difference: str
    no_change: bool
    preference: PreferenceView | None
    comparison: ComparisonRow | None
    conversation: tuple[Turn, ...]
