"""What the templates show: one frozen view per thing on a page, every path and word ready."""

from dataclasses import dataclass

from schemas.rows import Turn
from tasks.report.mark_words import Segment
from tasks.report.write_images import Picture

SIDES = ("first", "second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Byline:
    """Say who wrote a text, and from what."""

    model: str
    prompts: tuple[str, ...] = ()
    """Names of the prompt files, in the order in which they were asked."""
    told: str = ""
    """What the model was given beside the images, or in their place; empty: not known."""
    attempts: int = 1
    several: bool = False
    """Whether so many answers were asked for on purpose, to choose from."""
    tokens: int = 0
    """Tokens of the answers that it was made with."""
    seconds: float = 0.0
    """Their latency together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionView:
    """Be the description of one image."""

    text: str
    sentences: tuple[str, ...]
    """None where they would only repeat the text."""
    by: Byline


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageView:
    """Be one image of a pair."""

    picture: Picture
    name: str
    side: str
    caption: CaptionView | None
    changed: str
    """Overlay of what is known to be changed; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckView:
    """Be the outcome of one check of a description."""

    check: str
    passed: bool
    score: float | None
    """None where nothing was found out."""
    why: str
    answer: str
    """What a served model answered to the control; empty: none was asked."""
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceView:
    """Be a description of the difference, or one that was written beside it."""

    text: str
    segments: tuple[Segment, ...]
    """The text, marked where it differs from the chosen one."""
    by: Byline
    checks: tuple[CheckView, ...]

    @property
    def failed(self) -> tuple[CheckView, ...]:
        """Return the checks that it did not pass."""
        return tuple(check for check in self.checks if not check.passed)


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedView:
    """Be a rejected text beside the chosen one."""

    maker: str
    note: str
    score: float | None
    segments: tuple[Segment, ...]
    by: Byline | None = None
    """The served model that wrote it; none where a rule did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonView:
    """Be the commonalities and differences of a pair, and the conversation about them."""

    commonalities: tuple[str, ...]
    differences: tuple[tuple[str, str], ...]
    """Axes, in words ("counts, locations"; empty: the text named none), and statement."""
    conversation: tuple[Turn, ...]
    by: Byline


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionView:
    """Be one question about a pair, and its answer."""

    question: str
    answer: str
    about: str
    round: int
    """From 1."""
    rounds: int
    by: Byline


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
    given: tuple[tuple[str, str], ...]
    """What the source brought about the pair: what it is, and its words."""
    difference: DifferenceView | None
    candidates: tuple[DifferenceView, ...]
    """Descriptions that were not taken; those that failed no check first."""
    no_change: bool
    preference: PreferenceView | None
    unused: tuple[RejectedView, ...]
    """Rejected texts that are in no preference."""
    comparison: ComparisonView | None
    questions: tuple[QuestionView, ...]
