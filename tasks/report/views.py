"""What the templates show: one frozen view per thing on a page, every path and word ready."""

from dataclasses import dataclass

from pairwright.schemas.decisions import Decision
from pairwright.schemas.rows import Turn
from pairwright.tasks.report.mark_words import Segment
from pairwright.tasks.report.write_images import Picture

SIDES = ("first", "second")
TONES = 8
"""Colours that tell elements of one image apart; the style sheet names them, too."""


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
class HeatView:
    """Be the map of where the two images of a pair differ."""

    src: str
    """Overlay of both pictures; empty: they differ all over, or nowhere."""
    share: float
    """Of the picture, how much differs visibly."""
    stretched: bool
    """Whether the second image was brought to the first's shape."""


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
class StatementView:
    """Be one difference of a comparison."""

    axes: str
    """In words ("counts, locations"); empty: the text named none."""
    statement: str
    sides: tuple[str, str] | None
    """What it says of either image; ``None``: it is not divided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonView:
    """Be the commonalities and differences of a pair, and the conversation about them."""

    commonalities: tuple[str, ...]
    differences: tuple[StatementView, ...]
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
class BoxView:
    """Be one box of the detector, in pixels of the shown picture."""

    number: int
    """Of its element, from 1."""
    label: str
    x: float
    y: float
    width: float
    height: float
    kept: bool
    """Whether its element can be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementView:
    """Be one element of an image: a tag with a mask."""

    number: int
    """From 1, the same on boxes and candidates."""
    tag: str
    tagger: str
    tag_score: float
    box_score: float
    """Highest of its boxes; -1: it has none."""
    mask_score: float
    """The segmenter's own estimate; -1: not known."""
    area_share: float
    why: str
    """Why it is not removed; empty: it is."""

    @property
    def tone(self) -> int:
        """Return the number of its colour."""
        return (self.number - 1) % TONES


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundView:
    """Be what was found in one image: boxes, masks, and what was refused on the way."""

    picture: Picture
    name: str
    side: int
    boxes: tuple[BoxView, ...]
    masks: str
    """Overlay of the masks of all elements that can be removed, each in its colour; empty: none."""
    elements: tuple[ElementView, ...]
    """Those that can be removed first."""
    unboxed: tuple[str, ...]
    """Tags for which no box was found, or no mask made."""
    refused_tags: tuple[tuple[str, str], ...]
    """Names that were not looked for, and why."""

    @property
    def removable(self) -> tuple[ElementView, ...]:
        """Return the elements that can be removed."""
        return tuple(element for element in self.elements if not element.why)

    @property
    def refused(self) -> tuple[ElementView, ...]:
        """Return the elements that cannot."""
        return tuple(element for element in self.elements if element.why)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateView:
    """Be an image without one of its elements."""

    element: ElementView
    side: int
    picture: Picture
    """The original."""
    patch: str
    """Overlay of what the removal changes in it; empty: nothing."""
    mask: str
    """Overlay; empty: none."""
    inpainter: str
    score: float | None
    """None: it was not scored."""
    clip: float
    """Eq. 9's sum of cosines; 0 without CLIP."""
    share: float
    """Score / highest score of the pair's candidates, not below 0."""
    chosen: bool
    why: str
    """The check that it failed; empty: none."""
    facts: tuple[str, ...]
    """What the checks measured, in words."""

    @property
    def where(self) -> str:
        """Return "first" or "second"."""
        return SIDES[self.side]


@dataclass(frozen=True, slots=True, kw_only=True)
class CropView:
    """Be a crop that stands in for a removal."""

    picture: Picture
    original: Picture
    side: int
    area_share: float
    """Pixels of the crop / pixels of the image."""

    @property
    def where(self) -> str:
        """Return "first" or "second"."""
        return SIDES[self.side]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalsView:
    """Be how the images of one preference became a rejected image, or why they did not."""

    maker: str
    """"removal", "crop", or empty: there is none."""
    why: str
    """Why no removal was chosen; empty: one was, or none was looked for yet."""
    found: tuple[FoundView, ...]
    """Per image."""
    candidates: tuple[CandidateView, ...]
    """The chosen one first, then by falling score, those that failed a check last."""
    more: int
    """Candidates that are not shown."""
    crop: CropView | None

    @property
    def taken(self) -> CandidateView | None:
        """Return the candidate that was chosen."""
        return next((one for one in self.candidates if one.chosen), None)

    @property
    def numbers(self) -> tuple[int, int]:
        """Return how many of the shown candidates passed their checks, and how many did not."""
        failed = sum(bool(one.why) for one in self.candidates)
        return len(self.candidates) - failed, failed


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceView:
    """Be the chosen text and everything that is rejected."""

    key: str
    prompt: str
    chosen: tuple[Segment, ...]
    chosen_model: str
    rejected: RejectedView | None
    negatives: tuple[RejectedView, ...]


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
    removals: RemovalsView | None
    unused: tuple[RejectedView, ...]
    """Rejected texts that are in no preference."""
    comparison: ComparisonView | None
    questions: tuple[QuestionView, ...]
    heat: HeatView
    decision: Decision | None = None
    """What somebody decided about it."""

    @property
    def decided(self) -> str:
        """Return the key that a decision is about: the preference's; without one, the pair's."""
        return self.preference.key if self.preference else self.key
