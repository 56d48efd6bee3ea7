"""Settings of rejected images: finding, removing, checking and choosing key elements (paper 004).

Each section belongs to one step, and each step writes a table of its own.
"""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from pairwright.schemas.encoder_config import ClipConfig
from pairwright.schemas.model_names import (
    DetectorName,
    RemoverName,
    ScorerName,
    SegmenterName,
    TaggerName,
)
from pairwright.schemas.section import (
    FOUND,
    UNSET,
    Count,
    Filled,
    FilledSeed,
    Names,
    Positive,
    Seconds,
    Section,
    Share,
)
from pairwright.schemas.writing import KeyName, ModelName, ServedSection

SAM_SIZES = ("vit_b", "vit_l", "vit_h")
Batch = Annotated[int, Field(ge=0, le=4096)]


class ModelSection(Section):
    """Section of a stage that runs a model on this machine."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"batch_size", "download"})
    batch_size: Batch = 0
    """Inputs per batch; 0: as many as fit."""
    download: bool = False
    """Whether weights that are not on this machine may be fetched when a build starts."""


class RamConfig(Section):
    """Weights of RAM; empty paths: the published files, where `fetch` puts them."""

    checkpoint: str = ""
    """Local weights: the published `.pth`, or safetensors with the same keys."""
    tags: str = ""
    """Local text file of the tags' names, one per line, in the checkpoint's order."""
    thresholds: str = ""
    """Local text file of the minimum probability of each tag, one per line."""
    revision: str = ""
    """The hash of the files; empty: what is on this machine."""


class TaggingConfig(ModelSection, ServedSection):
    """Taggers, which name what is in an image."""

    uncounted: ClassVar[frozenset[str]] = (
        ModelSection.uncounted | ServedSection.uncounted | {"ram", "no_things"}
    )
    shown_images: ClassVar[int] = 1
    taggers: Annotated[tuple[TaggerName, ...], Field(min_length=1, max_length=4)] = ("scene-graph",)
    """Taggers: the rendered scene's own graph, RAM, the nouns of the preferred texts, a served
    model, or a plugin's."""
    ram: RamConfig = RamConfig()
    max_tags: Positive = 30
    """Maximum tags of an image: those of the texts first, then by falling score (ours)."""
    excluded: Names = ()
    """Tags never looked for, beside those that name no thing (colours, places, actions); `@FILE`: a
    file of names, one per line."""
    included: Annotated[Names, UNSET] = ()
    """Names of things that the list of what is none has: [water, road, rust]; `@FILE` as before."""
    no_things: Annotated[str, UNSET] = ""
    """File of what is no thing, in place of our list (`tasks/texts/no_things.txt`) and in its form;
    empty: ours."""
    word_list: Annotated[str, UNSET, FOUND] = ""
    """Text of that file, as the build read it."""

    @property
    def is_served(self) -> bool:
        """Return whether a served model is one of the taggers."""
        return "served" in self.taggers


class DetectionConfig(ModelSection, ServedSection):
    """Detector of boxes for tags; thresholds of the public Grounded-SAM demonstration."""

    uncounted: ClassVar[frozenset[str]] = ModelSection.uncounted | {"model", "revision", "server"}
    shown_images: ClassVar[int] = 1
    detector: DetectorName = "scene-graph"
    """The rendered scene's own graph, a detector of photographs, a served model that writes boxes,
    or a plugin's (`pairwright models`)."""
    model: str = ""
    """Weights on the Hub (read from the local cache), or a local folder as save_pretrained writes
    it; empty: the detector's usual ones (`pairwright models`)."""
    revision: str = ""
    """The Hub's commit, or the hash of the local files; empty: what is on this machine."""
    server: ModelName = "chat"
    """With `served`: the served model, by its name in `models`."""
    coordinates: Annotated[
        Literal["thousandths", "pixels"], Field(exclude_if=lambda value: value == "thousandths")
    ] = "thousandths"
    """With `served`: units of the boxes that it writes: thousandths of the sides (Qwen3-VL,
    Qwen2-VL, InternVL), or pixels of the image that it was sent (Qwen2.5-VL)."""
    box_threshold: Share = 0.25
    """Boxes with a lower score are left out."""
    text_threshold: Share = 0.2
    """A box belongs to the tags whose words score at least this."""
    max_iou: Share = 0.5
    """Maximum intersection over union of two boxes of one tag; beyond it, the lower score is left
    out."""

    @property
    def is_served(self) -> bool:
        """Return whether a served model writes the boxes."""
        return self.detector == "served"

    @property
    def asks(self) -> str:
        """Return the name of the served model."""
        return self.server


class SegmentationConfig(Section):
    """Segmenter, which makes masks from boxes."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"checkpoint", "model", "revision", "download"})
    segmenter: SegmenterName = "scene-graph"
    """The renderer's masks, SAM (segment-anything), or a plugin's."""
    model: str = ""
    """With `sam`: the size of the published checkpoint, `vit_b`, `vit_l` or `vit_h` (empty: that; a
    local one states its own). With `sam1`, `sam2`, `sam3`: weights on the Hub, or a local folder as
    save_pretrained writes it; empty: the usual ones (`pairwright models`)."""
    checkpoint: str = ""
    """Local weights of `sam`: a `.pth` as published, or safetensors with the same keys."""
    max_box_area: Share = 0.95
    """Boxes of at least this share of the image are left out (ours)."""
    revision: str = ""
    """The hash of the file; empty: what is on this machine."""
    download: bool = False
    """Whether weights that are not on this machine may be fetched when a build starts."""

    @model_validator(mode="after")
    def _model_fits(self) -> Self:
        if self.segmenter == "sam" and self.model not in ("", *SAM_SIZES):
            raise ValueError(f"model {self.model!r}: sam has {', '.join(SAM_SIZES)}")
        return self


class ElementsConfig(Section):
    """Elements: masks that can be removed."""

    min_area: Share = 0.005
    """Minimum size of a mask, as a share of the image."""
    max_area: Share = 0.5
    """Maximum size of a mask, as a share of the image: without a limit, the largest mask always
    wins (ours)."""
    max_iou: Share = 0.9
    """Maximum intersection over union of two masks; beyond it, the first is kept (ours)."""


class LamaConfig(Section):
    """Weights of LaMa; empty: the published big-lama, where `fetch` puts it."""

    checkpoint: str = ""
    """Local TorchScript file: a program, which runs only if its SHA-256 is the published one or
    `sha256`."""
    sha256: str = ""
    """The SHA-256 of a TorchScript file of your own that you trust."""
    revision: str = ""
    """The hash of the file; empty: what is on this machine."""


class EditorConfig(Section):
    """Server that edits images (`/v1/images/edits`): Qwen-Image-Edit by vLLM-Omni, FLUX Kontext."""

    endpoint: Names = ()
    """Addresses of the server (`http://127.0.0.1:8091/v1`); several share the load."""
    model: str = ""
    """The model's name on the server; empty: the only one that it serves."""
    key: KeyName = "PAIRWRIGHT_API_KEY"
    """Environment variable that holds the server's key; never the key itself."""
    max_concurrency: Annotated[int, Field(ge=1, le=256)] = 4
    """Maximum concurrent requests of one worker."""
    timeout_seconds: Seconds = 600.0
    """Maximum wait for one image."""
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 4
    """Maximum attempts at an image before its element stays unfinished, for temporary faults."""


class RemovalsConfig(ModelSection):
    """Removal of elements from images."""

    uncounted: ClassVar[frozenset[str]] = ModelSection.uncounted | {"lama", "editor"}
    inpainter: RemoverName = "rendered"
    """Method that fills the hole: rendering the scene again without the element, LaMa, a server
    that edits images, or a plugin's."""
    lama: LamaConfig = LamaConfig()
    editor: EditorConfig = EditorConfig()
    dilate_pixels: Count = 5
    """Pixels by which a mask grows before the hole is filled."""
    feather_pixels: Count = 3
    """Pixels over which the filling fades into the image."""
    context: Annotated[float, Field(ge=0, le=8)] = 0.5
    """Context that LaMa sees on each side of a hole, in sides of its box (ours); 0.5: about as in
    its training."""
    max_side: Annotated[int, Field(ge=64, le=8192)] = 1024
    """Maximum side in pixels of LaMa's input; holes with more context are filled at a smaller scale
    (ours)."""

    @property
    def rendered(self) -> bool:
        """Return whether scenes are rendered again."""
        return self.inpainter == "rendered"


class InspectionConfig(Section):
    """Checks of removals (ours); one that fails is kept with its reason and not chosen."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"batch_size"})
    detector_enabled: bool = True
    """Whether the detector runs again on the result: the element must be gone, and nothing new in
    its place."""
    min_remaining_score: Share = 0.25
    """Score, in the element's place, from which its tag counts as remaining; or the score of
    before, if lower."""
    min_grown_score: Share = 0.35
    """Score from which a thing in the hole, not detected there before, counts as grown."""
    max_left: Annotated[float, Field(ge=0)] = 0.55
    """Maximum share of the element's colour along the hole's rim, inside of the mask or outside of
    the hole."""
    max_rim: Annotated[float, Field(ge=0)] = 0.9
    """Maximum edge along the hole's rim, as a multiple of the strongest edges around; more counts
    as a halo."""
    max_shift: Annotated[float, Field(ge=0)] = 12.0
    """Maximum levels of 255 by which the filling is lighter or darker than its surroundings."""
    min_texture: Annotated[float, Field(ge=0)] = 0.55
    """Minimum roughness of the filling, as a share of its surroundings; less counts as a smear."""
    max_difference: Annotated[float, Field(ge=0)] = 2.0
    """Maximum difference, in levels of 255 beyond noise, of a rendered removal from the scene
    without the element."""
    batch_size: Batch = 0
    """Images per batch of the detector; 0: as many as fit."""
    rendered: Annotated[bool, UNSET, Filled("removals.rendered")] = False
    detection: Annotated[DetectionConfig | None, UNSET, Filled("detection")] = None


class FittedConfig(Section):
    """Embedder of the images without an element; made of other sections."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"clip", "batch_size", "embedder"})
    enabled: Annotated[bool, Filled("rejections.by_vectors")]
    embedder: Annotated[str, Filled("rejections.scorer")] = "clip"
    clip: Annotated[ClipConfig, Filled("embedding.clip")]
    batch_size: Annotated[Batch, Filled("embedding.batch_size")] = 0


class TargetsConfig(Section):
    """Elements that a text about rendered scenes needs removed; made of other sections."""

    enabled: Annotated[bool, Filled("rejections.by_graphs")]
    elements: Annotated[ElementsConfig, Filled("elements")]


class RejectionsConfig(Section):
    """Choice of the removal that rejects a chosen text (paper 004, Eq. 9)."""

    uncounted: ClassVar[frozenset[str]] = frozenset({"clip"})
    enabled: bool = True
    """Whether images are rejected; if not, nothing is removed."""
    scorer: ScorerName = "scene-graph"
    """Score of a removal: the statements that it makes untrue (rendered scenes), the embedder
    `clip`, or a plugin's, which embeds texts and images."""
    min_drop: Annotated[float, Field(ge=0, le=1)] = 0.0
    """A removal is chosen only where the text fits the image worse by more than this (ours)."""
    fallback: Literal["none", "drop", "crop"] = "none"
    """A preference without a removal: has no rejected image, is dropped, or gets a random crop as
    in mDPO."""
    min_crop_area: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Smallest share of the image that such a crop shows; mDPO's."""
    max_crop_area: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Largest share of the image that such a crop shows; mDPO's."""
    seed: FilledSeed = 0
    clip: Annotated[ClipConfig | None, UNSET, Filled("embedding.clip")] = None

    @property
    def by_graphs(self) -> bool:
        """Return whether scene graphs score."""
        return self.enabled and self.scorer == "scene-graph"

    @property
    def by_vectors(self) -> bool:
        """Return whether vectors of texts and images score."""
        return self.enabled and self.scorer != "scene-graph"

    @property
    def embedder(self) -> str:
        """Return the embedder whose vectors score; without such a scorer, the usual one."""
        return "clip" if self.scorer == "scene-graph" else self.scorer


class ExpectedImagesConfig(Section):
    """Rejected images in which a rendered thing looks as the dataset's prior has it (ours)."""

    enabled: bool = False
    """Whether such images are rendered; they take the place of removals and crops."""
    min_share: Share = 0.0
    """Minimum share of the commonest value among things of its kind."""
    feather_pixels: Count = 2
    """Pixels over which the change fades into the image."""


NO_IMAGE = "no rejected image"
"""Reason of a preference that is dropped, with `fallback: drop`."""
SEVERAL = "a given preference about several images"
"""Reason of a given preference that is dropped: which part of its text is about which image is
unknown."""
