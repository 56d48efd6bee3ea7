"""The rows that flow between the stages; their Arrow schemas are in ``schemas.arrow``.

Beside a stage's rows, its function may yield ``Dropped`` (a rule said no: final) or ``Failed`` (a
boundary failed: retried by the next build).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, TypeVar

from pairwright.schemas.scene import SceneGraph

AnyRow = TypeVar("AnyRow", bound="Row")
Half = Annotated[float, "float16"]
"""Half the memory of a float32, and enough for unit vectors."""
NEAREST = 16
LEAST_RECALL = 0.99
CUT_OFF = "the k neighbours end inside the band: raise search.k"
LOW_RECALL = f"recall in the band below {LEAST_RECALL}: raise search.probes"


def make_key(*parts: str | bytes | float) -> str:
    """Return the 32-hex-digit BLAKE2b hash of the parts, each with type and length."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = (
            part
            if isinstance(part, bytes)
            else repr(part).encode()
            if not isinstance(part, str)
            else part.encode()
        )
        digest.update(f"{type(part).__name__}:{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """Input row, or one candidate of it, that a rule refused: final, with its reason."""

    source_key: str
    reason: str
    """A short constant phrase ("truncated image"): reasons are counted."""
    detail: str = ""
    """The part that differs from row to row: the number, the file name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Input row for which a boundary failed after its retries: the next build tries again."""

    source_key: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The three names of every row, each of 32 hexadecimal digits."""

    ABOUT: ClassVar[tuple[str, ...]] = ("subject",)
    """Columns that hold the keys that rows of this type are about (``ABOUT_COLUMNS``)."""

    FACTS: ClassVar[tuple[str, ...]] = ()
    """Columns that a source may change without changing the key; ``facts`` hashes them."""

    key: str
    """Hash of everything that the row is made from; equal keys are the same row."""
    source_key: str
    """The key of the input row that it was made from, by which a finished input is recognised."""
    subject: str
    """The image or pair that the row is about, by which other stages look it up."""

    @property
    def about_keys(self) -> tuple[str, ...]:
        """Return the keys that the row is about: the subjects of the rows used with it."""
        keys = (getattr(self, column) for column in self.ABOUT)
        return tuple(key for key in keys if key)

    @property
    def reason(self) -> str:
        """Return why the row is not used, which ``status`` counts; empty: it is."""
        return getattr(self, "why", "")


def with_facts(row: AnyRow) -> AnyRow:
    """Return a row of a source with the hash of its facts, if its type has any."""
    if not row.FACTS:
        return row
    values = [repr(getattr(row, column)) for column in row.FACTS]
    changes: dict[str, Any] = {"facts": make_key("facts", *values)}
    return replace(row, **changes)


ABOUT_COLUMNS = ("subject", "first", "second", "image_key", "element")
"""Columns that a row type may name in ``ABOUT``: the ledger reads them of every part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRow(Row):
    """Item of a source before it is read: a file, a rendered world."""

    name: str
    """Readable name: a relative path (undecodable bytes shown as \\xNN), "world 17"."""
    locator: str
    """JSON that the source's reader understands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRow(Row):
    """Image as its source gave it, or a PNG of one of more than 8 bits.

    ``key`` hashes these bytes. Models see the decoded RGB.
    """

    FACTS: ClassVar[tuple[str, ...]] = ("licence", "group", "captions", "source")
    image: bytes
    format: str
    """"jpeg", "png", "webp", "avif", "heif", "jxl", "tiff", "bmp" or "gif"."""
    width: int
    """Pixels, after the EXIF orientation is applied."""
    height: int
    name: str
    source: str
    licence: str
    group: str
    """Images of one group (a world, a video) go to the same split; empty: none."""
    captions: tuple[str, ...] = ()
    graph: SceneGraph | None = None
    rendering: str = ""
    """How 8 bits were made of more: type of the numbers, range, its origin, bands; empty: it had
    8."""
    remarks: tuple[str, ...] = ()
    """What is odd about it, though it is used, each "phrase: particulars"."""
    facts: str = ""
    """Hash of licence, group, captions and source, so that what depends on them is made again."""

    @property
    def reason(self) -> str:
        """Return its remarks without their particulars, which ``status`` counts."""
        phrases = [remark.partition(": ")[0] for remark in self.remarks]
        return "; ".join(dict.fromkeys(phrases))

    @property
    def detail(self) -> str:
        """Return its name and the particulars of its remarks; empty without remarks."""
        if not self.remarks:
            return ""
        particulars = [remark.partition(": ")[2] for remark in self.remarks]
        return ": ".join(filter(None, [self.name, *particulars]))


ONE_IMAGE = "image:"
"""Beginning of the group of the parts of one image that its source puts into none."""


def are_one_group(first: str, second: str) -> bool | None:
    """Return whether two images have one group; ``None``: the source puts one of them into none."""
    if any(not group or group.startswith(ONE_IMAGE) for group in (first, second)):
        return None
    return first == second


def group_of(name: str, group: str) -> str:
    """Return the group that an image counts towards: its source's, else its folder."""
    return group or name.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRow(Row):
    """Vector of one image (``subject``) from one embedder."""

    embedder: str
    vector: tuple[Half, ...]
    """Unit length."""
    norm: float
    """Length before it was normalised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRow(Row):
    """Measures of one image (``subject``), which filters use."""

    name: str
    group: str
    """The source's, else the folder of its name."""
    sharpness: float
    """Variance of the Laplacian."""
    dark: float
    """Share of the pixels."""
    bright: float
    aspect: float
    """Longer side divided by the shorter."""
    aesthetic: float = 0.0
    """Score of the profile's head; 0: it has none."""
    unsafe: float = 0.0
    """Probability by the profile's head; 0: it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeypointsRow(Row):
    """SIFT keypoints of one image (``subject``)."""

    places: bytes
    """float32, ``(n, 2)``: pixels of the scaled image."""
    descriptors: bytes
    """uint8, ``(n, 128)``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedRow(Row):
    """Image (``subject``, ``key``) with vectors that passes the filters and is not excluded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourRow(Row):
    """Raw search result of one anchor (``subject``), which is not its own neighbour."""

    embedders: tuple[str, ...]
    neighbours: tuple[tuple[str, ...], ...]
    """Per embedder, image keys by falling similarity."""
    similarities: tuple[tuple[float, ...], ...]
    """Per embedder, inner products of unit vectors."""
    cells: tuple[int, ...] = ()
    """Per embedder, the cells of the index that was searched; 0: none, the search was exact."""
    recalls: tuple[float, ...] = ()
    """Per embedder, the share of the exact neighbours in the band that the index finds, measured on
    a sample."""
    cut_off: bool = False
    """Whether a list is full and ends inside the band, so that there may be more."""

    @property
    def about_keys(self) -> tuple[str, ...]:
        """Return the anchor and its ``NEAREST`` first neighbours in each space.

        The ledger knows the anchor alone: a row made from a neighbour names that image itself.
        """
        return (self.subject, *(key for keys in self.neighbours for key in keys[:NEAREST]))

    @property
    def reason(self) -> str:
        """Return why neighbours may be missing from its lists; empty: none are."""
        remarks = [CUT_OFF] if self.cut_off else []
        if any(recall < LEAST_RECALL for recall in self.recalls):
            remarks.append(LOW_RECALL)
        return "; ".join(remarks)


@dataclass(frozen=True, slots=True, kw_only=True)
class NounsRow(Row):
    """Nouns of one image's captions; ``subject`` is the image."""

    nouns: tuple[str, ...]
    """Distinct lemmas, in alphabetical order."""
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow(Row):
    """Two images to compare. ``subject`` is the pair itself (= ``key``)."""

    ABOUT: ClassVar[tuple[str, ...]] = ("first", "second")
    FACTS: ClassVar[tuple[str, ...]] = ("split",)
    first: str
    second: str
    origin: str
    """"mined", "matched" (by keypoints), "noun-overlap", "given" (the source paired them) or "edit"
    (the source edited one into the other)."""
    anchor: str
    """The image whose search found the pair; empty: the source gave it."""
    cluster: int
    """Cluster of the anchor's candidates that it was chosen from; -1: none."""
    embedders: tuple[str, ...] = ()
    similarities: tuple[float, ...] = ()
    similarity: float = 0.0
    """Cosine of the weighted, concatenated features; of a matched pair, the share of its keypoints
    that match."""
    human_differences: tuple[str, ...] = ()
    """People's texts about the difference, as the source gave them."""
    instruction: str = ""
    """The edit that made the second image of the first."""
    change_types: tuple[str, ...] = ()
    """Kinds of change in the source's own words ("color", "viewpoint")."""
    split: str = ""
    """"train", "validation" or "test", where the source names it."""
    shared_nouns: tuple[str, ...] = ()
    """The nouns that both images' captions share, if they were paired by nouns."""
    change_mask: str = ""
    """Where the second image differs, as the source gave it: run lengths as JSON (``Mask``)."""
    window: tuple[int, ...] = ()
    """Pixels x0, y0, x1, y1 of the source's first image that both images show, the last two
    exclusive; empty: all."""
    transform: tuple[float, ...] = ()
    """Homography, 3 x 3 row by row, from pixels of the source's first image to those of its second,
    by which the second was warped onto the first; empty: it was not."""
    facts: str = ""
    """Hash of the split that the source names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentRow(Row):
    """Alignment of the images of one mined pair (``subject``), or one of its tiles."""

    ABOUT: ClassVar[tuple[str, ...]] = ("first", "second")
    first: str
    second: str
    shown: tuple[str, ...]
    """Keys of the two images that are compared in place of these; empty: the pair is refused."""
    window: tuple[int, ...] = ()
    transform: tuple[float, ...] = ()
    """Both as in ``PairRow``."""
    why: str = ""
    """Why the images were not aligned, or why the pair is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Request to a served model behind a row, and the server's data about its answer."""

    prompt: str
    """Name of the prompt file."""
    model: str
    """Name, as the server states it."""
    revision: str
    """The server's ``system_fingerprint``, else the profile's revision of the model."""
    seed: int
    prompt_tokens: int
    completion_tokens: int
    latency: float
    """Seconds from sending to the complete answer, of the attempt that succeeded."""
    finish_reason: str
    """"stop", "length" for an answer that was cut off; empty: the server gives none."""
    thought_tokens: int = 0
    """Those of ``completion_tokens`` that the server returned apart from the text, as thoughts."""
    removed: tuple[str, ...] = ()
    """What was taken off the answer: "thoughts", "fence", "role", ..."""
    prompt_sha256: str = ""
    """Hash of the prompt file; empty: there is none, or an earlier release asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionRow(Row):
    """Detailed description of one image (``subject``)."""

    text: str
    sentences: tuple[str, ...]
    model: str
    """"scene-graph", "given" (the source brought it), or the served model's name."""
    served: tuple[Served, ...] = ()


GIVEN = "given"
"""Model of a text that people wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRow(Row):
    """Difference of one pair (``subject``) in words: paper 001's (3.1.2), or a person's."""

    text: str
    first_half: str
    second_half: str
    verbs: tuple[str, ...]
    attempts: int
    finish_reason: str
    model: str
    """"scene-graph", "given" (people wrote it), or the served model's name."""
    claims: str
    """JSON list of ``schemas.claims.Claim``: what the text says, checkable against scene graphs;
    ``[]`` if unknown."""
    no_change: bool
    """Whether it states that the two images show the same."""
    known: str = ""
    """Input of a served model beside the images: "captions", "human difference" or "edit"."""
    checks: str = ""
    """JSON of the checks that it passed, with their scores."""
    served: tuple[Served, ...] = ()

    @property
    def is_given(self) -> bool:
        """Return whether people wrote it: without a template, each half is the whole text."""
        return self.model == GIVEN

    @property
    def halves(self) -> tuple[str, str]:
        """Return the parts about the first and the second image."""
        return self.first_half, self.second_half


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow(Row):
    """Outcome of one check of one description of a pair (``subject``)."""

    description: str
    """Key of the ``DifferenceRow`` that was checked."""
    check: str
    """"swapped", "same", "grounded", "regions", "confirmed" or "judged"."""
    passed: bool
    score: float
    """Score that decided ``passed``; its meaning depends on the check, higher is better."""
    text: str = ""
    why: str = ""
    """Reason why it failed, or was off for this description, a short constant phrase."""
    served: tuple[Served, ...] = ()

    @property
    def is_off(self) -> bool:
        """Return whether the check could not be made, and passes: its score means nothing."""
        return self.passed and bool(self.why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Message of a conversation."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow(Row):
    """Commonalities and differences (CaD) of one pair (``subject``); paper 003, 3.1."""

    text: str
    commonalities: tuple[str, ...]
    differences: tuple[str, ...]
    """One statement per axis, in the order of ``axes``."""
    axes: tuple[str, ...]
    conversation: tuple[Turn, ...]
    """User and assistant in turn; the second question, left out if unclear, asks which image a
    caption belongs to."""
    model: str
    shown: str = ""
    """Input of a served model: "captions", "images", "images and captions", "images and
    differences"."""
    served: tuple[Served, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRow(Row):
    """Question about a pair (``subject``) with its answer: CaD-QA, after paper 003, section 4."""

    question: str
    answer: str
    about: str
    """"both", or "first" or "second" if the question is about one image."""
    round: int
    """Round of the conversation that was drawn, from 0."""
    rounds: int
    model: str
    served: tuple[Served, ...] = ()


MAKERS = ("retrieved", "swapped", "edited", "random", "sampled", "blind", "counterfactual")
"""Makers of rejected texts, each with a table of its name."""
UNCHECKED = "unchecked"
"""End of the note of a text that no check showed to be wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedTextRow(Row):
    """Text that is wrong for one pair (``subject``), and how it was made."""

    text: str
    maker: str
    """"retrieved", "swapped", "edited", "random", "sampled", "blind" or "counterfactual"."""
    note: str
    """How it was made: "colour red -> blue", the pair that it was retrieved from."""
    score: float
    """Similarity to the chosen text (TF-IDF cosine, 0 to 1)."""
    skipped_true: int
    """Number of candidates skipped because they are true of this pair."""
    description: str = ""
    """Key of the ``DifferenceRow`` that it is rejected beside."""
    claims: str = "[]"
    """Claims of the text, as in ``DifferenceRow``; false of the pair."""
    served: tuple[Served, ...] = ()

    @property
    def is_unchecked(self) -> bool:
        """Return whether no check showed it to be wrong."""
        return self.note.endswith(UNCHECKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementsRow(Row):
    """Self-contained statements of one preferred text (``subject``: that of its row)."""

    text: str
    sentences: tuple[str, ...]
    model: str
    """The served model's name, or "rules"."""
    why: str = ""
    """Why a served model's statements were refused, a short constant phrase."""
    served: tuple[Served, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MentionRow(Row):
    """Nouns of a preferred text about one image (``subject``)."""

    nouns: tuple[str, ...]
    """Distinct lemmas, in the order of the text."""
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow(Row):
    """Element of a rendered image (``subject``) whose removal makes most of a text untrue."""

    object_ids: tuple[str, ...]
    """The element, and what rests on it."""
    drop: float
    """Share of the text's true statements that its removal makes untrue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """Name of something in an image."""

    name: str
    """In words ("ball", "two red balls")."""
    score: float
    """The tagger's probability; 1 where it gives none."""
    tagger: str
    """"scene-graph", "ram" or "nouns"."""
    objects: tuple[str, ...] = ()
    """Objects that it names, in a rendered scene."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedTag:
    """Tag that is not looked for, and why."""

    name: str
    reason: str
    """A short constant phrase ("names no thing")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TagsRow(Row):
    """Tags of one image (``subject``); ``key`` hashes image and tags. Paper 004, 3.1."""

    tags: tuple[Tag, ...]
    """Each name once: those of the texts first, then by falling score."""
    refused_tags: tuple[RefusedTag, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Box around one thing that a tag names, in pixels of the image."""

    tag: int
    """Index of its tag in the row's ``tags``."""
    score: float
    x0: float
    y0: float
    x1: float
    """Exclusive."""
    y1: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxesRow(Row):
    """Boxes of an image's tags (``subject``: the image); a tag has none, one or several."""

    width: int
    height: int
    tags: tuple[Tag, ...]
    boxes: tuple[Box, ...]
    """By tag, then by falling score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasksRow(Row):
    """Masks of an image (``subject``), one per tag: the union of the masks of its boxes."""

    width: int
    height: int
    tags: tuple[Tag, ...]
    """Tags that have a box."""
    boxes: tuple[Box, ...]
    """``tag`` is an index into ``tags`` of this row."""
    masks: tuple[str, ...]
    """Per tag, JSON of ``schemas.scene.Mask``; it may be empty."""
    whys: tuple[str, ...]
    """Per tag, why its mask is empty, a short constant phrase; an empty string if it is not."""
    mask_scores: tuple[float, ...]
    """Per tag, the segmenter's estimate of the mask's quality, the lowest of its boxes; 1 for the
    renderer's masks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementRow(Row):
    """Element of an image (``subject``) that can be removed, or why it cannot."""

    tag: str
    tagger: str
    tag_score: float
    object_ids: tuple[str, ...]
    boxes: tuple[Box, ...]
    """``tag`` is an index into the tags of the row that it was made from."""
    box: tuple[int, int, int, int]
    """Pixels x0, y0, x1, y1 of the mask, the last two exclusive; zeros where the mask is empty."""
    mask: str
    """JSON of ``schemas.scene.Mask``."""
    area_share: float
    """Mask pixels / image pixels."""
    why: str = ""
    """Why it is not removed, a short constant phrase ("too small"); empty: it is removed."""

    @property
    def detail(self) -> str:
        """Return what the reason is about, if there is one."""
        return self.tag if self.why else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalRow(Row):
    """Change of an image by removing one element (``subject``: the key of its ``ElementRow``)."""

    ABOUT: ClassVar[tuple[str, ...]] = ("image_key",)
    image_key: str
    tag: str
    object_ids: tuple[str, ...]
    box: tuple[int, int, int, int]
    """Pixels x0, y0, x1, y1 of the mask, the last two exclusive."""
    mask: str
    """JSON of ``schemas.scene.Mask``: the element's pixels before dilation."""
    window: tuple[int, int, int, int]
    """Pixels x0, y0, x1, y1 of the image that the patch replaces, the last two exclusive."""
    patch: bytes
    """PNG of the window; ``tasks.images.decode.put_patch`` makes the whole image. Pixels outside
    the feathered mask are the original's."""
    area_share: float
    """Mask pixels / image pixels."""
    dilate: int
    """Pixels around the mask that are filled as well."""
    feather: int
    """Pixels over which the filling fades; ``dilate + feather + 1`` pixels away nothing changes.

    In a rendered removal ``dilate`` is 0, and the filling fades around all changes, shadows and
    reflections included.
    """
    inpainter: str
    changed_outside: int
    """Pixels outside the feathered mask that differ from the original; must be 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectionRow(Row):
    """Checks of one removal; ``subject`` is the image."""

    element: str
    """Key of the ``ElementRow`` that was removed."""
    passed: bool
    why: str = ""
    """First check that failed, a short constant phrase; empty: none."""
    found_before: float = -1.0
    """The detector's highest score for the tag in its place, before; -1: the detector did not
    run."""
    found_after: float = -1.0
    grown: str = ""
    grown_score: float = 0.0
    rim: float = 0.0
    """Strength of the edge along the hole's rim, as a multiple of the strongest around; 0: too
    small to measure."""
    texture: float = 1.0
    """How rough the filling is, as a share of its surroundings; 1: too small to measure."""
    shift: float = 0.0
    """Levels (of 255) by which the filling is lighter or darker than its surroundings."""
    left: float = 0.0
    """Share of the element's colour along the rim; 0: that of the surroundings, 1: the
    element's."""
    changed_outside: int = 0
    difference: float = 0.0
    """Levels (of 255) by which a rendered removal differs from the scene without the element; 0:
    not rendered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalScore:
    """Score of one removal as rejected image of a chosen text."""

    removal: str
    """Key of the ``ElementRow`` that is removed."""
    tag: str
    side: int
    """Image that it replaces: 0 the first, 1 the second."""
    score: float
    """How much worse the chosen text fits; higher rejects more. Scene graphs: share of its
    statements made untrue. CLIP: sum of its sentences' cosines with the original, minus
    ``clip``."""
    chosen: bool
    clip: float = 0.0
    """Sum of the cosines of the text's sentences with the candidate (paper 004, Eq. 9); 0 without
    CLIP."""
    why: str = ""
    """Why it cannot be chosen: the check that it failed; empty: it can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionRow(Row):
    """Choice of the rejected image for one pair, or for one given preference (``subject``)."""

    ABOUT: ClassVar[tuple[str, ...]] = ("element",)
    maker: str
    """"removal", "crop", or empty: no image is rejected."""
    side: int = 0
    element: str = ""
    """Key of the ``ElementRow`` that is removed; empty: none."""
    window: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Pixels x0, y0, x1, y1 that a crop shows; zeros: no crop."""
    removal_scores: tuple[RemovalScore, ...] = ()
    """Every candidate with its score; the one taken is marked."""
    why: str = ""
    """Why no removal was chosen, a short constant phrase."""

    @property
    def reason(self) -> str:
        """Return why no removal was chosen."""
        return f"{self.why}: a crop instead" if self.why and self.maker == "crop" else self.why


@dataclass(frozen=True, slots=True, kw_only=True)
class LooksRow(Row):
    """Looks of the things of one image (``subject``), one entry per thing."""

    shapes: tuple[str, ...]
    colours: tuple[str, ...]
    """Empty where the scene graph has none."""
    materials: tuple[str, ...]
    sizes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRow(Row):
    """Rejected image of one pair (``subject``): a thing looks as the dataset's prior has it."""

    image_key: str
    side: int
    """Image that it replaces: 0 the first, 1 the second."""
    object_id: str
    attribute: str
    """"colour", "material" or "size"."""
    before: str
    after: str
    """Commonest value among things of its kind in the dataset."""
    share: float
    """Share of that value among them."""
    drop: float
    """Share of the text's true statements that are false of it."""
    window: tuple[int, int, int, int]
    """Pixels x0, y0, x1, y1 of the image that the patch replaces, the last two exclusive."""
    patch: bytes
    """PNG of the window."""
    renderer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRow(Row):
    """Split of one pair (``subject``); pairs with a common image or group share a component."""

    component: str
    split: str
    """"train", "validation" or "test"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WithheldRow(Row):
    """Rejected texts that one pair (``subject``) does without."""

    texts: tuple[str, ...]
    """Keys of ``RejectedTextRow``."""
    reasons: tuple[str, ...]
    """Why, by text: short constant phrases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Negative:
    """Further rejected text of a preference row."""

    text: str
    maker: str
    note: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceRow(Row):
    """Preference about a pair (``subject``): chosen, rejected text and images, negatives."""

    FACTS: ClassVar[tuple[str, ...]] = ("licences", "sources", "split", "component")
    prompt: tuple[Turn, ...]
    images: tuple[bytes, ...]
    """Encoded images of the prompt, in order."""
    image_keys: tuple[str, ...]
    chosen: str
    chosen_model: str
    rejected: str = ""
    """Empty: none."""
    rejected_maker: str = ""
    rejected_note: str = ""
    negatives: tuple[Negative, ...] = ()
    """Further rejected texts, hardest first."""
    rejected_images: tuple[bytes, ...] = ()
    """The same images, one of them without the key element of the chosen text, or cropped; empty:
    none."""
    removal_scores: tuple[RemovalScore, ...] = ()
    component: str = ""
    split: str
    sources: tuple[str, ...]
    licences: tuple[str, ...]
    rejected_image_maker: str = ""
    """"removal", "crop", "expected", or empty: no image is rejected."""
    kind: str = ""
    """Kind of the texts, which the prompt asks for: "template", "changes", "sentences", "list",
    "short"; or unknown."""
    description: str = ""
    """The pair's description, if the chosen text states it in another kind; empty: they are the
    same."""
    claims: str = "[]"
    """Claims of the chosen text, as in ``DifferenceRow``."""
    rejected_claims: str = "[]"
    """Claims of the rejected text."""
    facts: str = ""
    """Of a preference that a source brings: hash of licences, sources and split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardnessRow(Row):
    """Hardness of one preference: how far it goes against what a blind model expects."""

    preference: str
    """Key of the ``PreferenceRow``."""
    hardness: float
    """Probability of the rejected text against the chosen one, by a model that sees no image; below
    0.5 it expects the chosen one."""
    condition: str
    """How the images were hidden: "blank", "blurred" or "exchanged"."""
    served: tuple[Served, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesRow(Row):
    """Output of a model for the 14 x 14 grid of an image (``subject``), row by row."""

    model: str
    kind: str
    """"float16": vectors. "uint16": codes."""
    width: int
    """Length of a vector, or number of different codes of the model."""
    values: bytes
    """Little-endian numbers, place after place."""


Pairs = Mapping[str, PairRow]
Images = Mapping[str, ImageRow]
Captions = Mapping[str, CaptionRow]
NO_ROWS: Mapping[str, Any] = MappingProxyType({})
"""Rows of a table that a build lacks."""
