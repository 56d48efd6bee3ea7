"""The rows that flow between the stages: frozen, named, complete. Their Arrow schemas are in ``schemas.arrow``.

Beside a stage's rows, its function may yield ``Dropped`` (a rule said no: final) or ``Failed`` (a boundary failed: owed
again).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

from pairwright.schemas.scene import SceneGraph

Half = Annotated[float, "float16"]
"""Half the memory of a float32, and enough for unit vectors."""
LEAST_RECALL = 0.99
CUT_OFF = "the k neighbours end inside the band: raise search.k"
LOW_RECALL = f"recall in the band below {LEAST_RECALL}: raise search.probes"


def make_key(*parts: str | bytes | float) -> str:
    """Return the 32-hex-digit BLAKE2b hash of the parts, each with type and length, so that no two lists collide."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode() if not isinstance(part, str) else part.encode()
        digest.update(f"{type(part).__name__}:{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """Say that a rule refused an input row, or one candidate of it: final, with its reason."""

    source_key: str
    reason: str
    """A short constant phrase ("truncated image"): reasons are counted."""
    detail: str = ""
    """What differs from row to row: the number, the file name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Say that a boundary failed for an input row after its retries: owed again at the next run."""

    source_key: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Hold the three names that every row has, all 32 hexadecimal digits."""

    key: str
    """Hash of everything that the row is made from; equal keys are the same row."""
    source_key: str
    """The key of the input row that it was made from, by which a finished input is recognised."""
    subject: str
    """The image or pair that the row is about, by which other stages look it up."""

    @property
    def reason(self) -> str:
        """Return why the row is not used, where it says so: what ``status`` remarks of it."""
        return getattr(self, "why", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRow(Row):
    """Name one thing that a source lists, before it is read: a file, a rendered world."""

    name: str
    """What people call it: a relative path (undecodable bytes shown as \\xNN), "world 17"."""
    locator: str
    """JSON that the source's reader understands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRow(Row):
    """Hold one image as its source gave it; ``key`` hashes these bytes. Models see the decoded RGB."""

    image: bytes
    format: str
    """"jpeg", "png", "webp", "tiff", "bmp" or "gif"."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRow(Row):
    """Hold one image's vector from one embedder. ``subject`` is the image."""

    embedder: str
    vector: tuple[Half, ...]
    """Unit length."""
    norm: float
    """Length before it was normalised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedRow(Row):
    """Image (``subject``, ``key``) that has its vectors and is near no image that is to be kept out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourRow(Row):
    """Hold the raw search result of one anchor image: ``subject`` is the anchor, which is not its own neighbour."""

    embedders: tuple[str, ...]
    neighbours: tuple[tuple[str, ...], ...]
    """Per embedder, image keys by falling similarity."""
    similarities: tuple[tuple[float, ...], ...]
    """Per embedder, inner products of unit vectors."""
    cells: tuple[int, ...] = ()
    """Per embedder, the cells of the index that was searched; 0: none, the search was exact."""
    recalls: tuple[float, ...] = ()
    """Per embedder, the share of the exact neighbours in the band that the index finds, measured on a sample."""
    cut_off: bool = False
    """Whether a list is full and ends inside the band, so that there may be more."""

    @property
    def reason(self) -> str:
        """Return why its lists may lack neighbours."""
        remarks = [CUT_OFF] if self.cut_off else []
        if any(recall < LEAST_RECALL for recall in self.recalls):
            remarks.append(LOW_RECALL)
        return "; ".join(remarks)


@dataclass(frozen=True, slots=True, kw_only=True)
class NounsRow(Row):
    """Hold the nouns of one image's captions; ``subject`` is the image."""

    nouns: tuple[str, ...]
    """Distinct lemmas, in alphabetical order."""
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow(Row):
    """Name two images that look alike. ``subject`` is the pair itself (= ``key``)."""

    first: str
    second: str
    origin: str
    """"mined", "noun-overlap", "given" (the source paired them) or "edit" (it made one of the other)."""
    anchor: str
    """The image whose search found the pair; empty where the source gave it."""
    cluster: int
    """Cluster of the anchor's candidates that it was chosen from; -1: none."""
    embedders: tuple[str, ...] = ()
    similarities: tuple[float, ...] = ()
    similarity: float = 0.0
    """Cosine of the weighted, concatenated features, by which it was chosen."""
    human_differences: tuple[str, ...] = ()
    """What people wrote about the difference, as the source gave it."""
    instruction: str = ""
    """The edit that made the second image of the first."""
    change_types: tuple[str, ...] = ()
    """What kinds of change the source says there are, in its own words ("color", "viewpoint")."""
    split: str = ""
    """"train", "validation" or "test", where the source names it."""
    shared_nouns: tuple[str, ...] = ()
    """The nouns that the captions of both images have, where it is by them that they were paired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Be one request to a served model that a row was made with, and what the server said of its answer."""

    prompt: str
    """Name of the prompt file."""
    model: str
    """As the server states it."""
    revision: str
    """What the server states of itself (``system_fingerprint``), else the profile's revision of the model."""
    seed: int
    prompt_tokens: int
    completion_tokens: int
    latency: float
    """Seconds from sending to the whole answer, of the try that succeeded."""
    finish_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionRow(Row):
    """Hold a detailed description of one image (``subject``)."""

    text: str
    sentences: tuple[str, ...]
    model: str
    """"scene-graph", "given" (the source brought it), or the served model's name."""
    served: tuple[Served, ...] = ()


GIVEN = "given"
"""Stands for the model of a text that people wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRow(Row):
    """Description of what is different in one pair (``subject``): paper 001's (3.1.2), or a person's words."""

    text: str
    first_half: str
    second_half: str
    verbs: tuple[str, ...]
    attempts: int
    finish_reason: str
    model: str
    """"scene-graph", "given" (people wrote it), or the served model's name."""
    claims: str
    """JSON list of ``schemas.claims.Claim``: what the text says, checkable against scene graphs; ``[]`` if unknown."""
    no_change: bool
    """Whether it says that the two images show the same."""
    known: str = ""
    """What a served model was told beside the images: "captions", "human difference" or "edit"."""
    checks: str = ""
    """JSON of the checks that it passed and by what score, where there were any."""
    served: tuple[Served, ...] = ()

    @property
    def is_given(self) -> bool:
        """Say whether people wrote it: such a text follows no template, and both of its halves are all of it."""
        return self.model == GIVEN

    @property
    def halves(self) -> tuple[str, str]:
        """Return what is said of the first and of the second image."""
        return self.first_half, self.second_half


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow(Row):
    """Hold the outcome of one check of one description of a pair (``subject``)."""

    description: str
    """Key of the ``DifferenceRow`` that was checked."""
    check: str
    """"swapped", "same", "grounded", "regions" or "judged"."""
    passed: bool
    score: float
    """What ``passed`` was decided by; its meaning is the check's own, higher is better."""
    text: str = ""
    why: str = ""
    """A short constant phrase, where it did not pass, or could not be made."""
    served: tuple[Served, ...] = ()

    @property
    def is_off(self) -> bool:
        """Say whether the check could not be made of this description, and holds nothing against it."""
        return self.passed and bool(self.why)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionBox:
    """Be one box of a pair, in pixels of its image: of a changed place, or of a thing that a text names."""

    side: int
    """0 is the first image, 1 the second; a changed place has a box in each, one after the other."""
    name: str
    """What the text calls it; empty: a changed place."""
    score: float
    """The detector's; of a changed place, its share of what both images show."""
    met: bool
    """Whether the thing lies in a changed place, or the changed place is where a thing lies that the text names."""
    x0: float
    y0: float
    x1: float
    """Exclusive."""
    y1: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionsRow(CheckRow):
    """Hold the outcome of the check "regions", and all boxes that it was decided by."""

    places: tuple[RegionBox, ...] = ()
    """Changed places, the largest first, then things."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Be one message of a conversation."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow(Row):
    """Hold the commonalities and differences (CaD) of one pair (``subject``), after paper 003, section 3.1."""

    text: str
    commonalities: tuple[str, ...]
    differences: tuple[str, ...]
    """One statement per axis, in the order of ``axes``."""
    axes: tuple[str, ...]
    conversation: tuple[Turn, ...]
    """User and assistant in turn; the second question asks which image a caption belongs to, where that is clear."""
    model: str
    shown: str = ""
    """What a served model was given: "captions", "images", "images and captions", "images and differences"."""
    served: tuple[Served, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRow(Row):
    """Hold one question about a pair (``subject``) and its answer: CaD-QA, after paper 003, section 4."""

    question: str
    answer: str
    about: str
    """"both", or "first" or "second" where only one image is asked about."""
    round: int
    """Which round of the conversation was drawn, from 0."""
    rounds: int
    model: str
    served: tuple[Served, ...] = ()


MAKERS = ("retrieved", "swapped", "edited", "sampled", "refuted", "counterfactual")
"""The tables of rejected texts; each maker has one."""
UNCHECKED = "unchecked"
"""How the note of a text ends that nothing showed to be wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedTextRow(Row):
    """Hold a text that is wrong for one pair (``subject``), and how it was made."""

    text: str
    maker: str
    """"retrieved", "swapped", "edited", "sampled", "refuted" or "counterfactual"."""
    note: str
    """What was done: "colour red -> blue", the pair that it was retrieved from, the check that it failed."""
    score: float
    """How close it is to the chosen text (TF-IDF cosine, 0 to 1)."""
    skipped_true: int
    """Candidates passed over because they were accidentally true of this pair."""
    description: str = ""
    """Key of the ``DifferenceRow`` that it is a wrong answer beside."""
    claims: str = "[]"
    """As of ``DifferenceRow``: what the text says, false of the pair."""
    served: tuple[Served, ...] = ()

    @property
    def is_unchecked(self) -> bool:
        """Say whether nothing showed that it is wrong."""
        return self.note.endswith(UNCHECKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementsRow(Row):
    """Statements of one preferred text about an image, each of which stands alone (``subject``: as of its row)."""

    text: str
    sentences: tuple[str, ...]
    model: str
    """The served model's name, or "rules"."""
    why: str = ""
    """Why a served model's statements were not taken, a short constant phrase."""
    served: tuple[Served, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MentionRow(Row):
    """Hold the nouns of a preferred text that are about one image (``subject``)."""

    nouns: tuple[str, ...]
    """Distinct lemmas, in the order of the text."""
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow(Row):
    """Element of a rendered image (``subject``) whose removal makes the most of a chosen text untrue."""

    object_ids: tuple[str, ...]
    """The element, and what rests on it."""
    drop: float
    """Share of the text's true statements that its removal makes untrue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """Be one name of something in an image."""

    name: str
    """In words ("ball", "two red balls")."""
    score: float
    """The tagger's probability; 1 where it gives none."""
    tagger: str
    """"scene-graph", "ram", "ram-plus" or "nouns"."""
    objects: tuple[str, ...] = ()
    """Of a rendered scene: the objects that it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedTag:
    """Be a tag that is not looked for, and why."""

    name: str
    reason: str
    """A short constant phrase ("names no thing")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TagsRow(Row):
    """Hold the tags of one image (``subject``), after paper 004, section 3.1; ``key`` hashes image and tags."""

    tags: tuple[Tag, ...]
    """Each name once, those of texts first, then by falling score."""
    refused_tags: tuple[RefusedTag, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Be one box around something of a tag, in pixels of the image."""

    tag: int
    """Place of its tag in the row's ``tags``, from 0."""
    score: float
    x0: float
    y0: float
    x1: float
    """Exclusive."""
    y1: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxesRow(Row):
    """Hold the boxes of an image's tags (``subject``: the image); a tag has none, one or several."""

    width: int
    height: int
    tags: tuple[Tag, ...]
    boxes: tuple[Box, ...]
    """By tag, then by falling score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasksRow(Row):
    """Hold one mask per tag of an image (``subject``): the union of the masks of its boxes."""

    width: int
    height: int
    tags: tuple[Tag, ...]
    """Those that have a box."""
    boxes: tuple[Box, ...]
    """``tag`` counts in ``tags`` of this row."""
    masks: tuple[str, ...]
    """Per tag, JSON of ``schemas.scene.Mask``; it may be empty."""
    whys: tuple[str, ...]
    """Per tag, why its mask is empty, a short constant phrase; empty: it is not."""
    mask_scores: tuple[float, ...]
    """Per tag, the segmenter's own estimate of the mask's quality, the least of its boxes; 1 for the renderer's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementRow(Row):
    """Hold one element of an image (``subject``) that might be removed, or why it is not."""

    tag: str
    tagger: str
    tag_score: float
    object_ids: tuple[str, ...]
    boxes: tuple[Box, ...]
    """``tag`` counts in the tags of the row that it was made from."""
    box: tuple[int, int, int, int]
    """Pixels x0, y0, x1, y1 of the mask, the last two exclusive; zeros where the mask is empty."""
    mask: str
    """JSON of ``schemas.scene.Mask``."""
    area_share: float
    """Mask pixels / image pixels."""
    why: str = ""
    """Why it is not removed, a short constant phrase ("too small"); empty: it is."""

    @property
    def detail(self) -> str:
        """Return what that is about, where something is remarked."""
        return self.tag if self.why else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalRow(Row):
    """Hold what changes when one element (``subject``: the key of its ``ElementRow``) is removed from its image."""

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
    """PNG of the window; ``tasks.store.images.put_patch`` makes the whole image. Pixels outside the feathered mask are
    the original's."""
    area_share: float
    """Mask pixels / image pixels."""
    dilate: int
    """Pixels around the mask that are filled, too."""
    feather: int
    """Pixels around those over which the filling fades: from ``dilate + feather + 1`` away on, nothing changes.

    Of a rendered removal ``dilate`` is 0, and the filling fades around all that changes: shadows and reflections, too.
    """
    inpainter: str
    changed_outside: int
    """Pixels outside the feathered mask that differ from the original; must be 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectionRow(Row):
    """Hold the checks of one removal; ``subject`` is the image."""

    element: str
    """Key of the ``ElementRow`` whose removal was checked."""
    passed: bool
    why: str = ""
    """The first check that failed, a short constant phrase; empty: none."""
    found_before: float = -1.0
    """The detector's highest score for the tag in its place, before; -1: it did not look."""
    found_after: float = -1.0
    grown: str = ""
    grown_score: float = 0.0
    rim: float = 0.0
    """Strength of the edge along the hole's rim, as a multiple of the strongest around it; 0: too little to measure."""
    changed_outside: int = 0
    difference: float = 0.0
    """Levels (of 255) by which a rendered removal differs from the scene without the element; 0: not rendered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalScore:
    """Say how well one removal candidate rejects the chosen text."""

    removal: str
    """Key of the ``ElementRow`` that is removed."""
    tag: str
    side: int
    """0: it replaces the first image, 1: the second."""
    score: float
    """By how much worse the chosen text fits; higher rejects more. Scene graphs: share of its statements that are no
    longer true. CLIP: sum of its sentences' cosines with the original, less ``clip``."""
    chosen: bool
    clip: float = 0.0
    """Sum of the cosines of the text's sentences with the candidate (paper 004, Eq. 9); 0 without CLIP."""
    why: str = ""
    """Why it cannot be chosen: the check that it failed; empty: it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionRow(Row):
    """Hold what rejects the chosen text of one pair, or of one given preference (``subject``), by an image."""

    maker: str
    """"removal", "crop", or empty: there is none."""
    side: int = 0
    element: str = ""
    """Key of the ``ElementRow`` that is removed; empty: none."""
    window: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Pixels x0, y0, x1, y1 that a crop shows; zeros: it is none."""
    removal_scores: tuple[RemovalScore, ...] = ()
    """Every candidate with its score, the one taken marked."""
    why: str = ""
    """Why no removal was chosen, a short constant phrase."""

    @property
    def reason(self) -> str:
        """Return why no removal was chosen."""
        return f"{self.why}: a crop instead" if self.why and self.maker == "crop" else self.why


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRow(Row):
    """Put one pair (``subject``) into a split; pairs that share an image or a group are in one component."""

    component: str
    split: str
    """"train", "validation" or "test"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Negative:
    """Be one more rejected text of a preference row."""

    text: str
    maker: str
    note: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceRow(Row):
    """Hold one preference about a pair (``subject``): chosen text, rejected texts and images, ranked negatives."""

    prompt: tuple[Turn, ...]
    images: tuple[bytes, ...]
    """Encoded images that the prompt shows, in order."""
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
    """The same images, one of them without the key element of the chosen text, or cropped; empty: none."""
    removal_scores: tuple[RemovalScore, ...] = ()
    component: str = ""
    split: str
    sources: tuple[str, ...]
    licences: tuple[str, ...]
    rejected_image_maker: str = ""
    """"removal", "crop", or empty: no image is rejected."""
    kind: str = ""
    """What the prompt asks for and all texts are: "template", "changes", "sentences", "list", "short"; else unknown."""
    description: str = ""
    """The pair's description, which the chosen text says in another kind; empty: they are the same."""
    claims: str = "[]"
    """As of ``DifferenceRow``: what the chosen text says."""
    rejected_claims: str = "[]"
    """What the rejected text says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRow(Row):
    """Hold what a model gives the answers of a preference (its ``subject``), before a training changes it.

    Columns are those of ``tasks.training.losses.rewards``: the chosen text; the chosen text given the rejected images;
    then the rejected texts, hardest first. 0 where there is none.
    """

    logps: tuple[float, ...]
    """Per column, the summed log-probability of the answer's tokens."""
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesRow(Row):
    """Hold what a model says of each of the 14 x 14 places of an image (``subject``), row by row of the grid."""

    model: str
    kind: str
    """"float16": vectors. "uint16": codes."""
    width: int
    """Numbers of a vector; of codes: how many different ones the model has."""
    values: bytes
    """Little-endian numbers, place after place."""


Pairs = Mapping[str, PairRow]
Images = Mapping[str, ImageRow]
Captions = Mapping[str, CaptionRow]
NO_ROWS: Mapping[str, Any] = MappingProxyType({})
"""Of a table that a build lacks."""
